"""Chainlit: the database of its SQLAlchemy data layer, in SQLite or PostgreSQL.

Steps of the types `user_message` and `assistant_message` are the conversation; a tool's step is a call and its result.
Steps that only group others (`run`) say nothing. Elements are files in a storage of their own, and are reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import structs

from hansard.formats import parts
from hansard.importers.database import ForeignDatabase, json_of
from hansard.importers.importer import ForeignConversation, ForeignMessage
from hansard.importers.report import ImportReport
from hansard.importers.source import ImportSource
from hansard.importers.values import content_of, count, mapping, text, time
from hansard.model import NOT_YET, Message, Usage

_SAID = {"user_message": "user", "assistant_message": "assistant", "system_message": "system"}
_STEP = ("id", "name", "type", "input", "output", "createdAt", "isError", "generation", "metadata")


class Chainlit:
    name = "chainlit"
    title = "Chainlit: the database of its SQLAlchemy data layer"

    def recognises(self, source: ImportSource) -> bool:
        return source.has_table("steps", "threadId", "parentId", "output") and source.has_table("threads", "id", "name")

    def read(self, source: ImportSource, report: ImportReport) -> Iterator[ForeignConversation]:
        with source.tables() as database:
            assert database is not None
            columns = ("id", "name", "createdAt", "userIdentifier", "metadata", "tags")
            for row in list(_rows(database, "threads", columns, '"createdAt", "id"')):
                yield _thread(database, row, report)


def _rows(
    database: ForeignDatabase, table: str, columns: tuple[str, ...], order: str, where: str = "", *values: Any
) -> Iterator[dict[str, Any]]:
    """Rows as objects. A column that this database does not have is missing in them."""
    found = [name for name in columns if name in database.columns(table)]
    names = ", ".join(f'"{name}"' for name in found)
    for row in database.rows(f'SELECT {names} FROM "{table}" {where} ORDER BY {order}', *values):
        yield dict(zip(found, row, strict=True))


def _thread(database: ForeignDatabase, given: dict[str, Any], report: ImportReport) -> ForeignConversation:
    id = given["id"]
    steps = _rows(database, "steps", _STEP, '"createdAt", "id"', 'WHERE "threadId" = ?', id)
    ratings = _ratings(database, id)
    found = [
        structs.replace(message, metadata=ratings[message.id]) if message.id in ratings else message
        for step in steps
        for message in _messages(step, report)
    ]
    parents = [None, *(message.id for message in found)]
    for element in _rows(database, "elements", ("name", "mime", "url"), '"id"', 'WHERE "threadId" = ?', id):
        report.lose("element, whose file is in another storage", text(element.get("name")) or str(element)[:120])
    tags = json_of(given.get("tags"))
    kept = {"tags": tags if isinstance(tags, list) else None, "chainlit": mapping(json_of(given.get("metadata")))}
    return ForeignConversation(
        id=str(id),
        messages=[ForeignMessage(message, parent) for message, parent in zip(found, parents, strict=False)],
        title=text(given.get("name")) or None,
        created_at=time(given.get("createdAt")),
        user_id=text(given.get("userIdentifier")) or None,
        metadata={"imported_from": "chainlit"} | {name: value for name, value in kept.items() if value},
    )


def _ratings(database: ForeignDatabase, thread_id: Any) -> dict[str, dict[str, Any]]:
    """What was thought of steps, by their ids."""
    rows = _rows(database, "feedbacks", ("forId", "value", "comment"), '"id"', 'WHERE "threadId" = ?', thread_id)
    found = {}
    for row in rows:
        rating = {"rating": 1 if count(row.get("value")) else -1, "rating_comment": text(row.get("comment"))}
        found[str(row["forId"])] = {name: value for name, value in rating.items() if value}
    return found


def _messages(step: dict[str, Any], report: ImportReport) -> Iterator[Message]:
    kind, id = text(step.get("type")), str(step["id"])
    at = time(step.get("createdAt")) or NOT_YET
    if kind in _SAID:
        yield Message(_SAID[kind], text(step.get("output")), id, created_at=at, usage=_usage(step))
    elif kind == "tool":
        given = json_of(step.get("input"))
        name = text(step.get("name"))
        arguments = given if isinstance(given, dict) else {"input": text(step.get("input"))}
        content, format = content_of([parts.ToolCall(id=id, name=name, arguments=arguments)])
        yield Message("assistant", content, f"{id}-call", format=format, created_at=at)
        result = parts.ToolResult(
            id=id, output=text(step.get("output")), is_error=bool(step.get("isError")), name=name or None
        )
        content, format = content_of([result])
        yield Message("tool", content, id, format=format, created_at=at)
    elif kind != "run" and (text(step.get("output")) or text(step.get("input"))):
        report.lose(f"step of the type {kind!r}", text(step.get("output"))[:120] or str(step)[:120])


def _usage(step: dict[str, Any]) -> Usage | None:
    generation = mapping(json_of(step.get("generation")))
    settings = mapping(generation.get("settings"))
    model = text(generation.get("model")) or text(settings.get("model"))
    return (
        Usage(
            model=model or None,
            input_tokens=count(generation.get("inputTokenCount")),
            output_tokens=count(generation.get("outputTokenCount")),
        )
        if generation
        else None
    )
