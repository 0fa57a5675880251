"""Langfuse: exported observations, traces or sessions, as JSON, JSON Lines or CSV, in files or in a folder.

A generation repeats the history in its input. So a message is known by its place, that is, by the hash of everything up
to it: what two generations share is stored once, and where they differ is a branch. Traces of a session are one
conversation; a trace without a session is a conversation of its own. Scores become metadata of the answer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import datetime
from pathlib import PurePosixPath
from typing import IO, Any

from msgspec import json

from hansard.importers import json_stream
from hansard.importers.database import json_of
from hansard.importers.importer import ForeignConversation, ForeignMessage
from hansard.importers.report import ImportReport
from hansard.importers.row_sorter import RowSorter
from hansard.importers.source import ImportSource
from hansard.importers.tables import csv_rows
from hansard.importers.values import count, items, mapping, number, role_of, text, time
from hansard.model import NOT_YET, Message, Usage

_GENERATIONS = ("GENERATION", "AGENT")
_LINES = (".jsonl", ".ndjson")
_INSIDE = ("data", "traces", "observations", "scores")
_OF_TRACE = ("tags", "metadata", "environment", "release", "version")
_OF_ANSWER = {
    "name": ("name",),
    "model_parameters": ("modelParameters", "model_parameters"),
    "metadata": ("metadata",),
    "status": ("statusMessage", "status_message"),
    "prompt": ("promptName", "prompt_name"),
}
"""What an answer keeps of its observation, by the names that exports have for it."""

Places = list[tuple[float, dict[str, Any]]]
"""Records with their times."""


class Langfuse:
    name = "langfuse"
    title = "Langfuse: exported observations, traces or sessions (.json, .jsonl, .csv)"

    def recognises(self, source: ImportSource) -> bool:
        names = _files(source)
        return bool(names) and any(_is_export(source.head(name)) for name in names[:20])

    def read(self, source: ImportSource, report: ImportReport) -> Iterator[ForeignConversation]:
        with RowSorter() as sorter:
            sessions: dict[str, str] = {}
            for name in _files(source):
                for where, given in _objects(source, name, report):
                    _sort_in(sorter, sessions, given, where, report)
            grouped: dict[str, list[str]] = {}
            for trace, _ in sorter.conversations():
                grouped.setdefault(sessions.get(trace, trace), []).append(trace)
            for session, traces in grouped.items():
                yield from _conversation(session, [[*sorter.places(trace)] for trace in traces], report)


def _files(source: ImportSource) -> list[str]:
    return source.named(".json", *_LINES, ".csv")


def _is_export(head: bytes) -> bool:
    is_observation = (b"traceId" in head or b"trace_id" in head) and (
        b"GENERATION" in head or b"SPAN" in head or b"EVENT" in head
    )
    return is_observation or (
        b'"sessionId"' in head and b'"input"' in head and b'"output"' in head and b'"htmlPath"' in head
    )


def _objects(source: ImportSource, name: str, report: ImportReport) -> Iterator[tuple[str, dict[str, Any]]]:
    with source.open(name) as file:
        suffix = PurePosixPath(name).suffix.lower()
        if suffix == ".csv":
            yield from _rows(name, file, report)
            return
        elements = json_stream.lines(file) if suffix in _LINES else json_stream.array_elements(file)
        yield from json_stream.objects(elements, f"{name}, record", report)


def _rows(name: str, file: IO[bytes], report: ImportReport) -> Iterator[tuple[str, dict[str, Any]]]:
    for place, row in enumerate(csv_rows(file), 1):
        where = f"{name}, row {place}"
        if isinstance(row, str):
            report.complain(where, row)
        else:
            yield where, {field: value for field, value in row.items() if value not in (None, "")}


def _field(given: dict[str, Any], *names: str) -> Any:
    """The first of several spellings: the API's (`traceId`) or the export's (`trace_id`)."""
    return next((given[name] for name in names if given.get(name) is not None), None)


def _sort_in(
    sorter: RowSorter, sessions: dict[str, str], given: dict[str, Any], where: str, report: ImportReport
) -> None:
    """Puts a record with its trace. A session holds traces, a trace observations and scores, and a page any of them."""
    waiting = [given]
    while waiting:
        each = waiting.pop()
        id, kind = text(each.get("id")), _kind(each)
        inside = [found for name in _INSIDE for found in items(each.get(name)) if isinstance(found, dict)]
        if kind in ("SESSION", "PAGE"):
            waiting += [({"sessionId": id} if kind == "SESSION" else {}) | found for found in inside]
            continue
        trace = id if kind == "TRACE" else text(_field(each, "traceId", "trace_id"))
        if not trace:
            report.complain(where, "it has neither a trace nor an id")
            continue
        if session := text(_field(each, "sessionId", "session_id")):
            sessions[trace] = session
        waiting += [{"traceId": trace} | found for found in inside]
        if kind in (*_GENERATIONS, "TRACE", "SCORE"):
            at = _began(each)
            kept = {name: value for name, value in each.items() if name not in _INSIDE}
            sorter.add(trace, kept | {"type": kind}, at.timestamp() if at else 0.0)
        else:
            report.lose(f"observation of the type {kind!r}", f"{where}: {text(each.get('name'))}")


def _kind(given: dict[str, Any]) -> str:
    if kind := text(given.get("type")):
        return kind
    if isinstance(given.get("data"), list):
        return "PAGE"
    if isinstance(given.get("traces"), list):
        return "SESSION"
    is_score = "dataType" in given or "data_type" in given
    return "SCORE" if is_score and _field(given, "traceId", "trace_id") else "TRACE"


def _began(row: dict[str, Any]) -> datetime | None:
    return time(_field(row, "startTime", "start_time", "timestamp"))


def _conversation(session: str, traces: list[Places], report: ImportReport) -> Iterator[ForeignConversation]:
    spoken: Places = []
    about: list[dict[str, Any]] = []
    scores: dict[str, list[dict[str, Any]]] = {}
    for rows in traces:
        for _, row in rows:
            if row["type"] == "SCORE":
                of = _field(row, "observationId", "observation_id", "traceId", "trace_id")
                scores.setdefault(text(of), []).append(row)
        said = [place for place in rows if place[1]["type"] != "SCORE"]
        about += [row for _, row in said]
        # A trace repeats what its generations say: where there are some, only they are read.
        spoken += [place for place in said if place[1]["type"] in _GENERATIONS] or said
    tree = _Tree(scores)
    for _, row in sorted(spoken, key=lambda place: place[0]):
        tree.add(row)
    for of, found in tree.scores.items():
        for each in found:
            report.lose("score of something that is no answer", f"{of}: {text(each.get('name'))}")
    if about:
        yield _described(session, about, tree)


def _described(session: str, about: list[dict[str, Any]], tree: _Tree) -> ForeignConversation:
    trace = next((row for row in about if row["type"] == "TRACE"), {})
    user = next((text(found) for row in about if (found := _field(row, "userId", "user_id"))), None)
    name = next((text(found) for row in about if (found := _field(row, "traceName", "trace_name"))), None)
    kept = {field: json_of(trace[field]) or trace[field] for field in _OF_TRACE if trace.get(field)}
    return ForeignConversation(
        id=session,
        messages=[*tree.messages.values()],
        leaf=tree.leaf,
        title=name or text(trace.get("name")) or None,
        created_at=min((at for row in about if (at := _began(row))), default=None),
        user_id=user,
        metadata=kept | {"imported_from": "langfuse"},
    )


class _Tree:
    """`scores` are those of answers, by the ids of their observations and traces. What is left belongs to no answer."""

    def __init__(self, scores: dict[str, list[dict[str, Any]]]) -> None:
        self.scores = scores
        self.messages: dict[str, ForeignMessage] = {}
        self.leaf: str | None = None

    def add(self, row: dict[str, Any]) -> None:
        """The messages of an input, and the answer to them."""
        at = _began(row)
        ended = time(_field(row, "endTime", "end_time")) or at
        parent: str | None = None
        for said in _said(row.get("input"), "user"):
            parent = self._put(said, parent, at)
        answers = [*_said(row.get("output"), "assistant")]
        for said in answers:
            is_last = said is answers[-1]
            parent = self._put(said, parent, ended, _usage(row), self._about(row) if is_last else None)
        self.leaf = parent or self.leaf

    def _about(self, row: dict[str, Any]) -> dict[str, Any]:
        found = {name: _field(row, *names) for name, names in _OF_ANSWER.items()}
        level = text(row.get("level"))
        of = dict.fromkeys((text(row.get("id")), text(_field(row, "traceId", "trace_id"))))
        scores = [_score(each) for id in of for each in self.scores.pop(id, [])]
        found |= {"level": level if level not in ("", "DEFAULT") else None, "scores": scores}
        return {name: json_of(value) or value for name, value in found.items() if value}

    def _put(
        self,
        said: dict[str, Any],
        parent: str | None,
        at: datetime | None,
        usage: Usage | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> str:
        # The same message with and without empty fields is the same: an input repeats an output in fewer words.
        key = {"role": said["role"], "content": said.get("content") or "", "calls": said.get("tool_calls") or None}
        id = hashlib.sha256((parent or "").encode() + json.encode(key, order="sorted")).hexdigest()[:24]
        if id not in self.messages:
            message = Message(
                said["role"],
                said,
                id,
                format="openai.chat",
                created_at=at or NOT_YET,
                usage=usage,
                metadata=metadata or None,
            )
            self.messages[id] = ForeignMessage(message, parent)
        return id


def _said(value: object, role: str) -> Iterator[dict[str, Any]]:
    """The messages of an input or output: a list of them, one, an object that holds them, or a text."""
    value = json_of(value) or value if isinstance(value, str) and value[:1] in "[{" else value
    if isinstance(value, dict) and isinstance(value.get("messages"), list):
        value = value["messages"]
    if isinstance(value, dict) and not text(value.get("role")):
        value = {"role": role, "content": json.encode(value).decode()}
    for each in value if isinstance(value, list) else [value] if value not in (None, "") else []:
        said = each if isinstance(each, dict) else {"content": each if isinstance(each, str) else str(each)}
        yield said | {"role": role_of(said.get("role"), role)}


def _score(row: dict[str, Any]) -> dict[str, Any]:
    names = ("name", "value", "stringValue", "string_value", "comment", "source")
    return {name: row[name] for name in names if row.get(name) is not None}


def _usage(row: dict[str, Any]) -> Usage:
    used = mapping(json_of(_field(row, "usageDetails", "usage_details"))) or mapping(json_of(row.get("usage")))
    costs = mapping(json_of(_field(row, "costDetails", "cost_details")))
    cost = _field(row, "calculatedTotalCost", "totalCost", "total_cost")
    return Usage(
        model=text(_field(row, "model", "providedModelName", "provided_model_name")) or None,
        input_tokens=count(used.get("input")),
        output_tokens=count(used.get("output")),
        cached_tokens=count(_field(used, "input_cached_tokens", "cache_read_input_tokens")),
        reasoning_tokens=count(used.get("output_reasoning_tokens")),
        cost=_amount(cost) or _amount(costs.get("total")) or 0.0,
    )


def _amount(value: object) -> float | None:
    """A number, which is a text in a table."""
    return number(json_of(value))
