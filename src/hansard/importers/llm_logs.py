"""The database of `llm` (simonw/llm): `logs.db` of both generations.

The older one has a row a response; prompt and answer become two messages. The newer one has a tree of messages by
hash, of which each thread names its tip: those become branches.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

from msgspec import DecodeError, json

from hansard.formats import parts
from hansard.importers.importer import ForeignConversation, ForeignMessage
from hansard.importers.report import ImportReport
from hansard.importers.source import ImportSource
from hansard.importers.values import content_of, text, time
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
            if _has(database, "turns", "tip_message_hash"):
                yield from _threads(database, report)
            if _has(database, "responses", "conversation_id"):
                yield from _conversations(database, report)


def _has(database: sqlite3.Connection, table: str, column: str) -> bool:
    return any(row[1] == column for row in database.execute(f"PRAGMA table_info({table})"))


def _decoded(value: object) -> Any:
    try:
        return json.decode(value) if isinstance(value, str | bytes) and value else None
    except DecodeError:
        return value


# The older generation


def _conversations(database: sqlite3.Connection, report: ImportReport) -> Iterator[ForeignConversation]:
    for table in ("attachments", "tool_calls", "tool_results", "fragments"):
        if _has(database, table, "id"):
            (count,) = database.execute(f"SELECT count(*) FROM {table}").fetchone()
            if count:
                report.lose(f"row of the table {table!r} of an old logs.db", f"{count} in all")
    query = "SELECT id, name, model FROM conversations ORDER BY id"
    for conversation in database.execute(query).fetchall():
        rows = database.execute(
            "SELECT * FROM responses WHERE conversation_id = ? ORDER BY datetime_utc, id", (conversation["id"],)
        ).fetchall()
        messages = [message for row in rows for message in _of_response(row)]
        parents = [None, *(message.id for message in messages)]
        yield ForeignConversation(
            id=conversation["id"],
            messages=[ForeignMessage(each, parent) for each, parent in zip(messages, parents, strict=False)],
            title=text(conversation["name"]) or None,
            created_at=time(rows[0]["datetime_utc"]) if rows else None,
            metadata={"imported_from": "llm"} | ({"model": conversation["model"]} if conversation["model"] else {}),
        )


def _of_response(row: sqlite3.Row) -> Iterator[Message]:
    names = row.keys()
    at = time(row["datetime_utc"]) or NOT_YET
    if text(row["system"]):
        yield Message("system", row["system"], f"{row['id']}-system", created_at=at)
    yield Message("user", text(row["prompt"]), f"{row['id']}-prompt", created_at=at)
    response_text = text(row["response"])
    thought = text(row["reasoning"]) if "reasoning" in names else ""
    content: Any = [parts.to_json(parts.Reasoning(text=thought)), parts.to_json(parts.Text(text=response_text))]
    yield Message(
        "assistant",
        content if thought else response_text,
        row["id"],
        format=parts.FORMAT if thought else "text",
        created_at=at,
        usage=Usage(
            model=text(row["model"]) or None,
            input_tokens=row["input_tokens"] or 0 if "input_tokens" in names else 0,
            output_tokens=row["output_tokens"] or 0 if "output_tokens" in names else 0,
        ),
        metadata={"options": options} if (options := _decoded(row["options_json"])) else None,
    )


# The newer generation


def _threads(database: sqlite3.Connection, report: ImportReport) -> Iterator[ForeignConversation]:
    """Threads that share messages were forked from each other: each becomes a conversation of its own."""
    for thread in database.execute("SELECT * FROM threads ORDER BY datetime_utc, id").fetchall():
        turns = database.execute("SELECT * FROM turns WHERE thread_id = ? ORDER BY datetime_utc", (thread["id"],))
        answers = {turn["tip_message_hash"]: turn for turn in turns}
        messages: list[ForeignMessage] = []
        for tip in dict.fromkeys([*answers, thread["tip_message_hash"]]):
            known = {each.message.id for each in messages}
            messages += _path(database, tip, answers, known, report)
        yield ForeignConversation(
            id=str(thread["id"]),
            messages=messages,
            leaf=thread["tip_message_hash"],
            title=text(thread["name"]) or None,
            created_at=time(thread["datetime_utc"]),
            metadata={"imported_from": "llm"}
            | ({"forked_from": thread["forked_from"]} if thread["forked_from"] else {}),
        )


def _path(
    database: sqlite3.Connection,
    tip: str | None,
    answers: dict[str, sqlite3.Row],
    known: set[str],
    report: ImportReport,
) -> list[ForeignMessage]:
    """The messages from the first one to the tip that are not known yet."""
    found: list[ForeignMessage] = []
    while tip is not None and tip not in known:
        row = database.execute("SELECT * FROM messages WHERE hash = ?", (tip,)).fetchone()
        if row is None:
            report.complain(f"message {tip!r}", "a thread names it, but it is missing")
            break
        known.add(tip)
        found.append(ForeignMessage(_of_message(database, row, answers.get(tip), report), row["parent_hash"]))
        tip = row["parent_hash"]
    return found[::-1]


def _of_message(
    database: sqlite3.Connection, row: sqlite3.Row, turn: sqlite3.Row | None, report: ImportReport
) -> Message:
    query = "SELECT * FROM parts WHERE message_hash = ? ORDER BY position"
    pieces = [part for each in database.execute(query, (row["hash"],)) if (part := _part(each, report)) is not None]
    content, format = content_of(pieces)
    usage = None
    if turn is not None:
        model = text(turn["resolved_model"]) or text(turn["model"]) or None
        usage = Usage(model=model, input_tokens=turn["input_tokens"] or 0, output_tokens=turn["output_tokens"] or 0)
    return Message(
        row["role"],
        content,
        row["hash"],
        format=format,
        created_at=(time(turn["datetime_utc"]) if turn is not None else None) or NOT_YET,
        usage=usage,
    )


def _part(row: sqlite3.Row, report: ImportReport) -> parts.AnyPart | None:
    kind, payload = row["type"], _decoded(row["payload"])
    given = payload if isinstance(payload, dict) else {}
    if kind == "text":
        return parts.Text(text=text(row["text"]))
    if kind == "reasoning":
        return parts.Reasoning(text=text(row["text"]))
    id = str(given.get("tool_call_id") or given.get("id") or row["id"])
    if kind == "tool_call":
        return parts.ToolCall(id=id, name=text(row["tool_name"]), arguments=given.get("arguments", {}))
    if kind == "tool_result":
        return parts.ToolResult(id=id, output=text(row["text"]) or given.get("output", ""), name=row["tool_name"])
    report.lose(f"part of the kind {kind!r}", str(dict(row))[:120])
    return None
