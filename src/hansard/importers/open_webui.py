"""Open WebUI: its chat export (a JSON array), or its database `webui.db`.

`chat.history` is a tree of messages with the id of the shown one. Where a message has `output`, those are items of
OpenAI's Responses, and they are taken instead of `content`, which is their rendering.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from typing import Any

from msgspec import DecodeError, json

from hansard.importers import json_stream
from hansard.importers.importer import ForeignConversation, ForeignMessage
from hansard.importers.report import ImportReport
from hansard.importers.source import ImportSource
from hansard.importers.values import count, items, mapping, text, time
from hansard.model import NOT_YET, Message, Usage

_SIGN = re.compile(rb'"history"\s*:\s*\{')
_COLUMNS = ("id", "user_id", "title", "chat", "created_at", "updated_at", "archived", "pinned", "meta", "folder_id")


class OpenWebUi:
    name = "open-webui"
    title = "Open WebUI: a chat export, or webui.db"

    def recognises(self, source: ImportSource) -> bool:
        names = source.names()
        if len(names) != 1:
            return False
        if source.is_database(names[0]):
            with source.database(names[0]) as database:
                return {"id", "chat", "user_id"} <= _columns(database)
        head = source.head(names[0])
        return b'"chat"' in head and _SIGN.search(head) is not None

    def read(self, source: ImportSource, report: ImportReport) -> Iterator[ForeignConversation]:
        name = source.names()[0]
        if source.is_database(name):
            with source.database(name) as database:
                for row in _rows(database):
                    yield from _conversation(row, f"chat {row['id']!r}", report)
            return
        for where, given in json_stream.array_objects(source, name, report, "chat"):
            yield from _conversation(given, where, report)


def _columns(database: sqlite3.Connection) -> set[str]:
    return {name for _, name, *_ in database.execute("PRAGMA table_info(chat)")}


def _rows(database: sqlite3.Connection) -> Iterator[dict[str, Any]]:
    names = [name for name in _COLUMNS if name in _columns(database)]
    for row in database.execute(f"SELECT {', '.join(names)} FROM chat ORDER BY created_at, id"):
        found = dict(zip(names, row, strict=True))
        for name in ("chat", "meta"):
            if isinstance(found.get(name), str | bytes):
                try:
                    found[name] = json.decode(found[name])
                except DecodeError:
                    found[name] = None
        yield found


def _conversation(given: dict[str, Any], where: str, report: ImportReport) -> Iterator[ForeignConversation]:
    chat = mapping(given.get("chat"))
    history = mapping(chat.get("history"))
    theirs = mapping(history.get("messages"))
    if not theirs and chat.get("messages"):
        theirs = _chained(items(chat["messages"]))
    if not theirs and not chat:
        report.complain(where, "it has no 'chat'")
        return
    found = []
    for id, each in theirs.items():
        message = mapping(each)
        found.append(ForeignMessage(_message(id, message, report), text(message.get("parentId")) or None))
    kept = {
        "pinned": bool(given.get("pinned")),
        "folder": text(given.get("folder_id")),
        "tags": items(mapping(given.get("meta")).get("tags")),
        "models": items(chat.get("models")),
    }
    yield ForeignConversation(
        id=text(given.get("id")) or where,
        messages=found,
        leaf=text(history.get("currentId")) or None,
        title=text(given.get("title")) or text(chat.get("title")) or None,
        created_at=time(given.get("created_at")),
        archived_at=time(given.get("updated_at")) if given.get("archived") else None,
        user_id=text(given.get("user_id")) or None,
        metadata={"imported_from": "open-webui"} | {name: value for name, value in kept.items() if value},
    )


def _chained(messages: list[Any]) -> dict[str, dict[str, Any]]:
    """Messages of old exports, which are a list: each follows the one before it."""
    found: dict[str, dict[str, Any]] = {}
    before = ""
    for number, each in enumerate(map(mapping, messages), 1):
        id = text(each.get("id")) or str(number)
        found[id] = {"parentId": before} | each
        before = id
    return found


def _message(id: str, given: dict[str, Any], report: ImportReport) -> Message:
    output = items(given.get("output"))
    for file in map(mapping, items(given.get("files"))):
        report.lose("file of Open WebUI, which its export only names", text(file.get("name")) or str(file)[:120])
    usage = mapping(given.get("usage"))
    model = text(given.get("model")) or None
    content = given.get("content")
    return Message(
        text(given.get("role")) or "assistant",
        output or (content if content is not None else ""),
        id,
        format="openai.responses" if output else "",
        created_at=time(given.get("timestamp")) or NOT_YET,
        status="interrupted" if given.get("done") is False else "complete",
        usage=Usage(
            model=model,
            input_tokens=count(usage.get("prompt_tokens")),
            output_tokens=count(usage.get("completion_tokens")),
        )
        if model or usage
        else None,
        metadata={"rating": mapping(given["annotation"]).get("rating")} if mapping(given.get("annotation")) else None,
    )
