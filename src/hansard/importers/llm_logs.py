"""The database of `llm` (simonw/llm): `logs.db` of both generations.

The older one has a row a response: what was given to the model and what it answered become messages. The newer one has
a tree of messages by hash, of which each thread names its tip: those become branches. A conversation that was continued
after the change of generations has a thread that holds its older messages too.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from msgspec import DecodeError, json

from hansard.formats import parts
from hansard.importers.importer import ForeignConversation, ForeignMessage
from hansard.importers.report import ImportReport
from hansard.importers.source import ImportSource
from hansard.importers.values import content_of, count, items, mapping, media_part, text, time
from hansard.model import NOT_YET, Message, Usage


class LlmLogs:
    name = "llm"
    title = "llm (simonw): logs.db"

    def recognises(self, source: ImportSource) -> bool:
        names = source.names()
        if len(names) != 1 or not source.is_database(names[0]):
            return False
        with source.database(names[0]) as database:
            return _has(database, "responses", "conversation_id") or _has(database, "turns", "tip_message_hash")

    def read(self, source: ImportSource, report: ImportReport) -> Iterator[ForeignConversation]:
        with source.database(source.names()[0]) as database:
            database.row_factory = sqlite3.Row
            threads = _has(database, "turns", "tip_message_hash")
            if threads:
                yield from _Threads(database, report).conversations()
            if _has(database, "responses", "conversation_id"):
                yield from _Responses(database, report, has_threads=threads).conversations()


def _has(database: sqlite3.Connection, table: str, column: str) -> bool:
    return any(row[1] == column for row in database.execute(f"PRAGMA table_info({table})"))


def _decoded(value: object) -> Any:
    try:
        return json.decode(value) if isinstance(value, str | bytes) and value else None
    except DecodeError:
        return value


class _Tables:
    """The database, and the tables that both generations use."""

    def __init__(self, database: sqlite3.Connection, report: ImportReport) -> None:
        self._database = database
        self._report = report

    def _rows(self, query: str, *values: Any) -> list[sqlite3.Row]:
        return self._database.execute(query, values).fetchall()

    def _media(self, row: sqlite3.Row) -> Iterator[parts.AnyPart]:
        kind = text(row["type"]) or "application/octet-stream"
        content, url = row["content"], text(row["url"])
        if isinstance(content, bytes) and content:
            self._report.attachments += 1
            yield media_part(content, kind)
        elif url:
            yield _linked(url, kind)
        else:
            # Never read from this machine: an uploaded database could name any of its files.
            self._report.lose("attachment that is only a path", text(row["path"]))


def _linked(url: str, kind: str) -> parts.AnyPart:
    if kind.startswith("image/"):
        return parts.ImagePart(media_type=kind, url=url)
    if kind.startswith("audio/"):
        return parts.Audio(media_type=kind, url=url)
    return parts.Document(media_type=kind, url=url)


def _result(
    id: str, name: str | None, output: object, pictures: list[parts.AnyPart], *, failed: bool
) -> parts.ToolResult:
    said: Any = output if output is not None else ""
    if pictures:
        said = [parts.to_json(each) for each in (parts.Text(text=parts.as_text(said)), *pictures)]
    return parts.ToolResult(id=id, output=said, name=name, is_error=failed)


def _call_id(given: object, name: object, at: int) -> str:
    """Some models give their calls no ids. Then results are in the order of the calls."""
    return text(given) or f"{name}-{at}"


def _answer_metadata(row: sqlite3.Row) -> dict[str, Any] | None:
    kept = {"options": _decoded(row["options_json"]), "duration_ms": row["duration_ms"]}
    return {name: value for name, value in kept.items() if value} or None


def _usage(row: sqlite3.Row) -> Usage:
    names = row.keys()
    resolved = text(row["resolved_model"]) if "resolved_model" in names else ""
    return Usage(
        model=resolved or text(row["model"]) or None,
        input_tokens=count(row["input_tokens"]) if "input_tokens" in names else 0,
        output_tokens=count(row["output_tokens"]) if "output_tokens" in names else 0,
    )


# The older generation


class _Responses(_Tables):
    def __init__(self, database: sqlite3.Connection, report: ImportReport, *, has_threads: bool) -> None:
        super().__init__(database, report)
        self._has_threads = has_threads
        self._has_attachments = _has(database, "prompt_attachments", "response_id")
        self._has_fragments = _has(database, "prompt_fragments", "response_id")
        self._has_tools = _has(database, "tool_calls", "response_id")
        self._has_result_attachments = _has(database, "tool_results_attachments", "tool_result_id")

    def conversations(self) -> Iterator[ForeignConversation]:
        continued = " WHERE id NOT IN (SELECT id FROM threads)" if self._has_threads else ""
        for conversation in self._rows(f"SELECT id, name, model FROM conversations{continued} ORDER BY id"):
            rows = self._rows(
                "SELECT * FROM responses WHERE conversation_id = ? ORDER BY datetime_utc, id", conversation["id"]
            )
            messages = [message for row in rows for message in self._messages(row)]
            parents = [None, *(message.id for message in messages)]
            yield ForeignConversation(
                id=conversation["id"],
                messages=[ForeignMessage(each, parent) for each, parent in zip(messages, parents, strict=False)],
                title=text(conversation["name"]) or None,
                created_at=time(rows[0]["datetime_utc"]) if rows else None,
                metadata={"imported_from": "llm"} | ({"model": conversation["model"]} if conversation["model"] else {}),
            )

    def _messages(self, row: sqlite3.Row) -> Iterator[Message]:
        id, at = row["id"], time(row["datetime_utc"]) or NOT_YET
        if system := self._with_fragments("system_fragments", id, text(row["system"])):
            yield Message("system", system, f"{id}-system", created_at=at)
        results = self._results(id)
        if results:
            content, format = content_of(results)
            yield Message("tool", content, f"{id}-results", format=format, created_at=at)
        asked = self._with_fragments("prompt_fragments", id, text(row["prompt"]))
        given = [*([parts.Text(text=asked)] if asked else []), *self._attached(id)]
        if given or not results:
            content, format = content_of(given or [parts.Text(text="")])
            yield Message("user", content, f"{id}-prompt", format=format, created_at=at)
        content, format = content_of(self._answer(row))
        yield Message(
            "assistant",
            content,
            id,
            format=format,
            created_at=at,
            usage=_usage(row),
            metadata=_answer_metadata(row),
        )

    def _answer(self, row: sqlite3.Row) -> list[parts.AnyPart]:
        thought = text(row["reasoning"]) if "reasoning" in row.keys() else ""  # noqa: SIM118  (a Row iterates values)
        said = text(row["response"])
        calls = self._calls(row["id"])
        return [
            *([parts.Reasoning(text=thought)] if thought else []),
            *([parts.Text(text=said)] if said or not calls else []),
            *calls,
        ]

    def _with_fragments(self, table: str, response: str, said: str) -> str:
        """What the model was given: the fragments, then the text."""
        if not self._has_fragments:
            return said
        query = f'SELECT content FROM {table} JOIN fragments ON id = fragment_id WHERE response_id = ? ORDER BY "order"'
        return "\n".join([*(text(row["content"]) for row in self._rows(query, response)), *([said] if said else [])])

    def _attached(self, response: str) -> Iterator[parts.AnyPart]:
        if not self._has_attachments:
            return
        query = "SELECT a.* FROM prompt_attachments JOIN attachments a ON a.id = attachment_id WHERE response_id = ?"
        for row in self._rows(f'{query} ORDER BY "order"', response):
            yield from self._media(row)

    def _calls(self, response: str) -> list[parts.ToolCall]:
        if not self._has_tools:
            return []
        rows = self._rows("SELECT * FROM tool_calls WHERE response_id = ? ORDER BY id", response)
        return [
            parts.ToolCall(
                id=_call_id(row["tool_call_id"], row["name"], at),
                name=text(row["name"]),
                arguments=_decoded(row["arguments"]) or {},
            )
            for at, row in enumerate(rows)
        ]

    def _results(self, response: str) -> list[parts.ToolResult]:
        """The results of tools that were given to the model, of the calls in its answer before."""
        if not self._has_tools:
            return []
        rows = self._rows("SELECT * FROM tool_results WHERE response_id = ? ORDER BY id", response)
        return [
            _result(
                _call_id(row["tool_call_id"], row["name"], at),
                row["name"],
                row["output"],
                self._result_attachments(row["id"]),
                failed="exception" in row.keys() and row["exception"] is not None,  # noqa: SIM118
            )
            for at, row in enumerate(rows)
        ]

    def _result_attachments(self, result: int) -> list[parts.AnyPart]:
        if not self._has_result_attachments:
            return []
        query = "SELECT a.* FROM tool_results_attachments JOIN attachments a ON a.id = attachment_id"
        rows = self._rows(f'{query} WHERE tool_result_id = ? ORDER BY "order"', result)
        return [part for row in rows for part in self._media(row)]


# The newer generation


class _Threads(_Tables):
    def conversations(self) -> Iterator[ForeignConversation]:
        """Threads that share messages were forked from each other: each becomes a conversation of its own."""
        for thread in self._rows("SELECT * FROM threads ORDER BY datetime_utc, id"):
            turns = self._rows("SELECT * FROM turns WHERE thread_id = ? ORDER BY datetime_utc", thread["id"])
            answers = {turn["tip_message_hash"]: turn for turn in turns}
            messages: list[ForeignMessage] = []
            known: set[str] = set()
            for tip in dict.fromkeys([*answers, thread["tip_message_hash"]]):
                messages += self._path(tip, answers, known)
            yield ForeignConversation(
                id=str(thread["id"]),
                messages=messages,
                leaf=thread["tip_message_hash"],
                title=text(thread["name"]) or None,
                created_at=time(thread["datetime_utc"]),
                metadata={"imported_from": "llm"}
                | ({"forked_from": thread["forked_from"]} if thread["forked_from"] else {}),
            )

    def _path(self, tip: str | None, answers: dict[str, sqlite3.Row], known: set[str]) -> list[ForeignMessage]:
        """The messages from the first one to the tip that are not known yet: all are of the turn that ends there."""
        found: list[ForeignMessage] = []
        turn = answers.get(tip) if tip is not None else None
        at = time(turn["datetime_utc"]) if turn is not None else None
        while tip is not None and tip not in known:
            row = next(iter(self._rows("SELECT * FROM messages WHERE hash = ?", tip)), None)
            if row is None:
                self._report.complain(f"message {tip!r}", "a thread names it, but it is missing")
                break
            known.add(tip)
            found.append(ForeignMessage(self._message(row, answers.get(tip), at), row["parent_hash"]))
            tip = row["parent_hash"]
        return found[::-1]

    def _message(self, row: sqlite3.Row, turn: sqlite3.Row | None, at: datetime | None) -> Message:
        rows = self._rows("SELECT * FROM parts WHERE message_hash = ? ORDER BY position", row["hash"])
        earlier = Counter[str]()
        content, format = content_of([part for each in rows for part in self._parts(each, earlier)])
        return Message(
            row["role"],
            content,
            row["hash"],
            format=format,
            created_at=at or NOT_YET,
            usage=_usage(turn) if turn is not None else None,
            metadata=_answer_metadata(turn) if turn is not None else None,
        )

    def _parts(self, row: sqlite3.Row, earlier: Counter[str]) -> Iterator[parts.AnyPart]:
        kind, given = row["type"], mapping(_decoded(row["payload"]))
        id = _call_id(given.get("tool_call_id"), row["tool_name"], earlier[kind])
        earlier[kind] += 1
        if kind == "text":
            yield parts.Text(text=self._text(row, given))
        elif kind == "reasoning":
            yield parts.Reasoning(text=self._text(row, given))
        elif kind == "tool_call":
            yield parts.ToolCall(id=id, name=text(row["tool_name"]), arguments=given.get("arguments", {}))
        elif kind == "tool_result":
            pictures = [part for each in items(given.get("attachments")) for part in self._attachment(each)]
            failed = given.get("exception") is not None
            yield _result(id, row["tool_name"], given.get("output"), pictures, failed=failed)
        elif kind == "attachment":
            yield from self._attachment(given.get("attachment"))
        else:
            self._report.lose(f"part of the kind {kind!r}", str(dict(row))[:120])

    def _text(self, row: sqlite3.Row, given: dict[str, Any]) -> str:
        """A text that borrows from fragments is a list of their ids and of the pieces between them."""
        if row["text"] is not None:
            return text(row["text"])
        pieces = [mapping(piece) for piece in items(given.get("text_ref"))]
        return "".join(text(piece.get("literal")) or self._fragment(piece.get("fragment"), row) for piece in pieces)

    def _fragment(self, id: object, row: sqlite3.Row) -> str:
        found = self._rows("SELECT content FROM fragments WHERE id = ?", id) if isinstance(id, int) else []
        if not found:
            self._report.complain(f"message {row['message_hash']!r}", f"its fragment {id!r} is missing")
        return text(found[0]["content"]) if found else ""

    def _attachment(self, given: object) -> Iterator[parts.AnyPart]:
        id = mapping(given).get("id")
        found = self._rows("SELECT * FROM attachments WHERE id = ?", id) if isinstance(id, str) else []
        if not found:
            self._report.complain(f"attachment {id!r}", "a message names it, but it is missing")
        for row in found:
            yield from self._media(row)
