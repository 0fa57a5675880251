"""Chainlit: the database of its SQLAlchemy data layer, in SQLite or PostgreSQL.

Steps of the types `user_message` and `assistant_message` are the conversation; a tool's step is a call and its result.
Steps that only group others (`run`) say nothing unless they have an output. Elements are files in a storage of their
own: the message that they belong to keeps where they are.
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
_NOTES = ("name", "language", "tags", "command", "modes", "start", "end")
"""What else is known about a step."""
_STEP = ("id", "type", "input", "output", "createdAt", "isError", "generation", "metadata", *_NOTES)
_ELEMENT = (
    "id",
    "forId",
    "type",
    "name",
    "mime",
    "url",
    "objectKey",
    "chainlitKey",
    "display",
    "language",
    "page",
    "props",
)


class Chainlit:
    name = "chainlit"
    title = "Chainlit: the database of its SQLAlchemy data layer"

    def recognises(self, source: ImportSource) -> bool:
        return source.has_table("steps", "threadId", "parentId", "output") and source.has_table("threads", "id", "name")

    def read(self, source: ImportSource, report: ImportReport) -> Iterator[ForeignConversation]:
        with source.tables() as database:
            assert database is not None
            columns = ("id", "name", "createdAt", "userId", "userIdentifier", "metadata", "tags")
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
    more = _ratings(database, id)
    of_thread: list[dict[str, Any]] = []
    for element in _rows(database, "elements", _ELEMENT, '"id"', 'WHERE "threadId" = ?', id):
        report.lose("element, whose file is in another storage", text(element.get("name")) or str(element)[:120])
        known = {name: value for name, value in element.items() if value is not None and name != "forId"}
        place = more.setdefault(str(element["forId"]), {}) if element.get("forId") else {"elements": of_thread}
        place.setdefault("elements", []).append(known)
    found = [
        structs.replace(message, metadata=(message.metadata or {}) | more.pop(message.id))
        if message.id in more
        else message
        for step in steps
        for message in _messages(step, report)
    ]
    for step in more:
        report.lose("rating or element of a step that is no message", step)
    parents = [None, *(message.id for message in found)]
    tags = json_of(given.get("tags"))
    kept = {
        "tags": tags if isinstance(tags, list) else None,
        "chainlit": mapping(json_of(given.get("metadata"))),
        "elements": of_thread,
    }
    return ForeignConversation(
        id=str(id),
        messages=[ForeignMessage(message, parent) for message, parent in zip(found, parents, strict=False)],
        title=text(given.get("name")) or None,
        created_at=time(given.get("createdAt")),
        user_id=text(given.get("userIdentifier")) or _user(database, given.get("userId")),
        metadata={"imported_from": "chainlit"} | {name: value for name, value in kept.items() if value},
    )


def _ratings(database: ForeignDatabase, thread_id: Any) -> dict[str, dict[str, Any]]:
    """What was thought of steps, by their ids."""
    where = 'WHERE "forId" IN (SELECT "id" FROM steps WHERE "threadId" = ?)'
    rows = _rows(database, "feedbacks", ("forId", "value", "comment"), '"id"', where, thread_id)
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        rating = {"rating": 1 if row.get("value") else -1, "rating_comment": text(row.get("comment"))}
        found[str(row["forId"])] = {name: value for name, value in rating.items() if value}
    return found


def _user(database: ForeignDatabase, id: object) -> str | None:
    if id is None or "identifier" not in database.columns("users"):
        return None
    found = next(iter(_rows(database, "users", ("identifier",), '"id"', 'WHERE "id" = ?', id)), {})
    return text(found.get("identifier")) or None


def _metadata(step: dict[str, Any]) -> dict[str, Any] | None:
    noted = {name: json_of(step[name]) or step[name] for name in _NOTES if step.get(name)}
    failed = {"is_error": True} if step.get("isError") else {}
    return mapping(json_of(step.get("metadata"))) | noted | failed or None


def _messages(step: dict[str, Any], report: ImportReport) -> Iterator[Message]:
    kind, id = text(step.get("type")), str(step["id"])
    at = time(step.get("createdAt")) or NOT_YET
    metadata = _metadata(step)
    if kind in _SAID:
        said = text(step.get("output")) or text(step.get("input"))
        yield Message(_SAID[kind], said, id, created_at=at, usage=_usage(step), metadata=metadata)
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
        yield Message("tool", content, id, format=format, created_at=at, usage=_usage(step), metadata=metadata)
    elif text(step.get("output")) or (kind != "run" and text(step.get("input"))):
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
