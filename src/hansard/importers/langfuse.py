"""Langfuse: exported observations or traces, as JSON or JSON Lines, in files or in a folder.

A generation repeats the history in its input. So a message is known by its place, that is, by the hash of everything up
to it: what two generations share is stored once, and where they differ is a branch. Traces of a session are one
conversation; a trace without a session is a conversation of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any

from msgspec import json

from hansard.importers import json_stream
from hansard.importers.database import json_of
from hansard.importers.importer import ForeignConversation, ForeignMessage
from hansard.importers.report import ImportReport
from hansard.importers.row_sorter import RowSorter
from hansard.importers.source import ImportSource
from hansard.importers.values import count, items, mapping, text, time
from hansard.model import NOT_YET, ROLES, Message, Usage

_GENERATIONS = ("GENERATION", "AGENT", "TRACE")


class Langfuse:
    name = "langfuse"
    title = "Langfuse: exported observations or traces (.json, .jsonl)"

    def recognises(self, source: ImportSource) -> bool:
        names = source.named(".json", ".jsonl")
        return bool(names) and any(_is_export(source.head(name)) for name in names[:20])

    def read(self, source: ImportSource, report: ImportReport) -> Iterator[ForeignConversation]:
        with RowSorter() as sorter:
            sessions: dict[str, str] = {}
            for name in source.named(".json", ".jsonl"):
                for where, given in _objects(source, name, report):
                    _sort_in(sorter, sessions, given, where, report)
            grouped: dict[str, list[str]] = {}
            for trace, _ in sorter.conversations():
                grouped.setdefault(sessions.get(trace, trace), []).append(trace)
            for session, traces in grouped.items():
                rows = sorted(
                    ((at, row) for trace in traces for at, row in sorter.places(trace)), key=lambda found: found[0]
                )
                yield _conversation(session, [row for _, row in rows])


def _is_export(head: bytes) -> bool:
    is_observation = (b'"traceId"' in head or b'"trace_id"' in head) and (
        b'"GENERATION"' in head or b'"SPAN"' in head or b'"EVENT"' in head
    )
    return is_observation or (
        b'"sessionId"' in head and b'"input"' in head and b'"output"' in head and b'"htmlPath"' in head
    )


def _objects(source: ImportSource, name: str, report: ImportReport) -> Iterator[tuple[str, dict[str, Any]]]:
    with source.open(name) as file:
        is_lines = PurePosixPath(name).suffix == ".jsonl"
        elements = json_stream.lines(file) if is_lines else json_stream.array_elements(file)
        yield from json_stream.objects(elements, f"{name}, record", report)


def _field(given: dict[str, Any], *names: str) -> Any:
    """The first of several spellings: the API's (`traceId`) or the export's (`trace_id`)."""
    return next((given[name] for name in names if given.get(name) is not None), None)


def _sort_in(
    sorter: RowSorter, sessions: dict[str, str], given: dict[str, Any], where: str, report: ImportReport
) -> None:
    trace = text(_field(given, "traceId", "trace_id"))
    kind = text(given.get("type")) or "TRACE"
    if kind == "TRACE":
        trace = text(given.get("id"))
    if not trace:
        report.complain(where, "it has neither a trace nor an id")
        return
    if session := text(_field(given, "sessionId", "session_id")):
        sessions[trace] = session
    for observation in map(mapping, items(given.get("observations"))):
        _sort_in(sorter, sessions, {"traceId": trace} | observation, where, report)
    if kind not in _GENERATIONS or (kind == "TRACE" and given.get("observations")):
        if kind not in ("TRACE", *_GENERATIONS):
            report.lose(f"observation of the type {kind!r}", f"{where}: {text(given.get('name'))}")
        return
    at = time(_field(given, "startTime", "start_time", "timestamp"))
    sorter.add(trace, given, at.timestamp() if at else 0.0)


def _conversation(session: str, rows: list[dict[str, Any]]) -> ForeignConversation:
    # A trace repeats what its generations say: where there are some, only they are read.
    generations = [row for row in rows if text(row.get("type")) in _GENERATIONS[:2]]
    tree = _Tree()
    for row in generations or rows:
        tree.add(row)
    first = time(_field(rows[0], "startTime", "start_time", "timestamp"))
    user = next((text(found) for row in rows if (found := _field(row, "userId", "user_id"))), None)
    name = next((text(found) for row in rows if (found := _field(row, "traceName", "trace_name"))), None)
    return ForeignConversation(
        id=session,
        messages=[*tree.messages.values()],
        leaf=tree.leaf,
        title=name,
        created_at=first,
        user_id=user,
        metadata={"imported_from": "langfuse"},
    )


class _Tree:
    def __init__(self) -> None:
        self.messages: dict[str, ForeignMessage] = {}
        self.leaf: str | None = None

    def add(self, row: dict[str, Any]) -> None:
        """The messages of an input, and the answer to them."""
        at = time(_field(row, "startTime", "start_time", "timestamp"))
        ended = time(_field(row, "endTime", "end_time")) or at
        parent: str | None = None
        for said in _said(row.get("input"), "user"):
            parent = self._put(said, parent, at, None)
        for said in _said(row.get("output"), "assistant"):
            parent = self._put(said, parent, ended, _usage(row))
        self.leaf = parent or self.leaf

    def _put(self, said: dict[str, Any], parent: str | None, at: datetime | None, usage: Usage | None) -> str:
        # The same message with and without empty fields is the same: an input repeats an output in fewer words.
        key = {"role": said["role"], "content": said.get("content") or "", "calls": said.get("tool_calls") or None}
        id = hashlib.sha256((parent or "").encode() + json.encode(key, order="sorted")).hexdigest()[:24]
        if id not in self.messages:
            message = Message(said["role"], said, id, format="openai.chat", created_at=at or NOT_YET, usage=usage)
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
        spoken = text(said.get("role")) or role
        yield said | {"role": spoken if spoken in ROLES else role}


def _usage(row: dict[str, Any]) -> Usage:
    used = mapping(json_of(_field(row, "usageDetails", "usage_details"))) or mapping(row.get("usage"))
    cost = _field(row, "calculatedTotalCost", "totalCost", "total_cost")
    return Usage(
        model=text(_field(row, "model", "providedModelName", "provided_model_name")) or None,
        input_tokens=count(used.get("input")),
        output_tokens=count(used.get("output")),
        cost=float(cost) if isinstance(cost, int | float) else 0.0,
    )
