"""Open WebUI: its chat export (a JSON array), its database `webui.db`, or its data folder with `uploads`.

`chat.history` is a tree of messages with the id of the shown one. Where a message has `output`, those are items of
OpenAI's Responses, and they are taken instead of `content`, which is their rendering. Older messages have only the
rendering: its `<details>` become reasoning, tool calls and their results again. Fields without a place of their own are
kept as metadata.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Any

from hansard.formats import parts
from hansard.importers import json_stream
from hansard.importers.attachments import AttachedFiles
from hansard.importers.database import ForeignDatabase, SqliteDatabase, json_of
from hansard.importers.details import detail_parts, has_details
from hansard.importers.importer import ForeignConversation, ForeignMessage
from hansard.importers.report import ImportReport
from hansard.importers.source import ImportSource
from hansard.importers.values import (
    content_of,
    count,
    data_url_part,
    items,
    mapping,
    number,
    role_of,
    sides,
    text,
    time,
)
from hansard.model import NOT_YET, Message, Source, Usage

_SIGN = re.compile(rb'"history"\s*:\s*\{')
_COLUMNS = (
    *("id", "user_id", "title", "chat", "created_at", "updated_at", "archived", "pinned", "meta", "folder_id"),
    *("share_id", "variables", "tasks", "summary", "current_message_id"),
)
_MESSAGE_COLUMNS = {
    "id": "id",
    "role": "role",
    "parent_id": "parentId",
    "content": "content",
    "output": "output",
    "model_id": "model",
    "files": "files",
    "sources": "sources",
    "embeds": "embeds",
    "meta": "meta",
    "done": "done",
    "status_history": "statusHistory",
    "error": "error",
    "usage": "usage",
    "context_summary": "contextSummary",
    "created_at": "timestamp",
}
"""Columns of the table `chat_message`, and what they are called in a chat."""
_USED = {
    *("id", "parentId", "childrenIds", "role", "content", "output", "model", "timestamp", "done", "usage", "files"),
    *("annotation", "sources", "citations", "modelIdx", "lastSentence", "selectedModelId", "feedbackId", "context"),
}
"""Fields of a message that are kept elsewhere than in the metadata, or that only the page needs."""
_OF_CHAT = ("params", "system", "tags", "models")
_OF_ROW = ("share_id", "variables", "tasks", "summary")


class OpenWebUi:
    name = "open-webui"
    title = "Open WebUI: a chat export, webui.db, or its data folder"

    def recognises(self, source: ImportSource) -> bool:
        with _database(source) as database:
            if database is not None:
                return {"id", "chat", "user_id"} <= database.columns("chat")
        names = source.names()
        head = source.head(names[0]) if len(names) == 1 else b""
        return b'"chat"' in head and _SIGN.search(head) is not None

    def read(self, source: ImportSource, report: ImportReport) -> Iterator[ForeignConversation]:
        with _database(source) as database:
            if database is not None:
                yield from _Export(source, report, database).stored()
                return
        export = _Export(source, report)
        for name in source.names():
            for where, given in json_stream.array_objects(source, name, report, "chat"):
                yield from export.conversation(given, where)


@contextmanager
def _database(source: ImportSource) -> Iterator[ForeignDatabase | None]:
    """The database: the source itself, or the one in the data folder."""
    named = [name for name in source.names() if PurePosixPath(name).name == "webui.db"]
    if len(named) == 1 and source.is_database(named[0]):
        with source.database(named[0]) as connection:
            yield SqliteDatabase(connection)
    else:
        with source.tables() as database:
            yield database


class _Export:
    def __init__(self, source: ImportSource, report: ImportReport, database: ForeignDatabase | None = None) -> None:
        self._report = report
        self._database = database
        self._files = AttachedFiles(source, report)
        self._folders: dict[str, str] = {}
        self._ratings: dict[tuple[str, str], dict[str, Any]] = {}

    def stored(self) -> Iterator[ForeignConversation]:
        """The chats of a database."""
        self._folders = {text(row["id"]): text(row["name"]) for row in self._rows("folder", ("id", "name"))}
        for row in self._rows("feedback", ("data", "meta")):
            about = mapping(json_of(row["meta"]))
            place = text(about.get("chat_id")), text(about.get("message_id"))
            self._ratings[place] = mapping(json_of(row["data"]))
        # Rows are chats as a whole: to sort them, SQLite would copy them all.
        for id in dict.fromkeys(row["id"] for row in self._rows("chat", ("id",), "ORDER BY created_at, id")):
            for row in self._rows("chat", _COLUMNS, "WHERE id = ?", id):
                yield from self.conversation(row, f"chat {id!r}")
        for chat, message in self._ratings:
            self._report.lose("rating of a message that is missing", f"chat {chat!r}, message {message!r}")
        for row in self._rows("message", ("id", "channel_id")):
            self._report.lose("message of a channel", f"channel {row.get('channel_id')!r}, message {row['id']!r}")

    def _rows(self, table: str, columns: tuple[str, ...], rest: str = "", *values: Any) -> Iterator[dict[str, Any]]:
        assert self._database is not None
        known = self._database.columns(table)
        names = [name for name in columns if name in known]
        if names:
            query = f"SELECT {', '.join(names)} FROM {table} {rest}"
            yield from (dict(zip(names, row, strict=True)) for row in self._database.rows(query, *values))

    def conversation(self, given: dict[str, Any], where: str) -> Iterator[ForeignConversation]:
        chat, meta = mapping(json_of(given.get("chat"))), mapping(json_of(given.get("meta")))
        id = text(given.get("id")) or where
        history = mapping(chat.get("history"))
        theirs = mapping(history.get("messages")) or _chained(items(chat.get("messages")))
        theirs = self._rows_of_chat(id) | theirs
        if not theirs and not chat:
            self._report.complain(where, "it has no 'chat'")
            return
        for file in map(mapping, items(chat.get("files"))):
            self._report.lose("file of a whole chat", text(file.get("name")) or str(file)[:120])
        folder = text(given.get("folder_id"))
        kept = {
            "pinned": bool(given.get("pinned")),
            "folder": self._folders.get(folder, folder),
            "tags": items(meta.get("tags")) or items(chat.get("tags")),
        }
        kept |= {name: json_of(given[name]) or given[name] for name in _OF_ROW if given.get(name)}
        kept |= {name: chat[name] for name in _OF_CHAT if chat.get(name) and not kept.get(name)}
        yield ForeignConversation(
            id=id,
            messages=[each for name, message in theirs.items() for each in self._messages(id, name, mapping(message))],
            leaf=text(history.get("currentId")) or text(given.get("current_message_id")) or None,
            title=text(given.get("title")) or text(chat.get("title")) or None,
            created_at=time(given.get("created_at")),
            archived_at=(time(given.get("updated_at")) or NOT_YET) if given.get("archived") else None,
            user_id=text(given.get("user_id")) or None,
            metadata={name: value for name, value in kept.items() if value} | {"imported_from": "open-webui"},
            # Columns of a database may hold anything.
            is_parsed=self._database is None,
        )

    def _rows_of_chat(self, chat: str) -> dict[str, Any]:
        """The messages that have rows of their own, as newer versions store them beside the chat."""
        if self._database is None:
            return {}
        rows = self._rows("chat_message", tuple(_MESSAGE_COLUMNS), "WHERE chat_id = ? ORDER BY created_at, id", chat)
        found = {}
        for row in rows:
            decoded = {
                _MESSAGE_COLUMNS[name]: value if name in ("id", "role", "parent_id", "model_id") else _decoded(value)
                for name, value in row.items()
            }
            found[text(row["id"]).removeprefix(f"{chat}-")] = decoded
        return found

    def _messages(self, chat: str, id: str, given: dict[str, Any]) -> Iterator[ForeignMessage]:
        """One message, or several where results of tools are among what was rendered. The last one has the id."""
        role = role_of(given.get("role"), "assistant")
        output = items(given.get("output"))
        attached = [*self._attached(given)] if given.get("files") else []
        content: Any = given.get("content")
        made: list[tuple[str, Any, str]]
        if output and not given.get("originalContent"):
            made = [(role, output, "openai.responses")]
        elif isinstance(content, list):
            made = [(role, {"role": role, "content": content}, "openai.chat")]
        elif content and type(content) is str and not attached and not has_details(content, role):
            made = [(role, content, "text")]
        else:
            said = [(role, part) for part in attached] + [*detail_parts(parts.as_text(content or ""), role)]
            made = [(side, *content_of(pieces)) for side, pieces in sides(said)] or [(role, "", "")]
            attached = []
        if attached:  # they do not fit into native content
            made.insert(0, (role, *content_of(attached)))
        parent = text(given.get("parentId")) or None
        for place, (side, body, format) in enumerate(made, 1):
            is_last = place == len(made)
            name = id if is_last else f"{id}.{place}"
            yield ForeignMessage(self._message(chat, name, given, (side, body, format), is_last=is_last), parent)
            parent = name

    def _message(
        self, chat: str, id: str, given: dict[str, Any], made: tuple[str, Any, str], *, is_last: bool
    ) -> Message:
        role, content, format = made
        return Message(
            role,
            content,
            id,
            format=format,
            created_at=time(given.get("timestamp")) or NOT_YET,
            status="interrupted" if given.get("done") is False else "complete",
            usage=_usage(given) if is_last else None,
            sources=tuple(_sources(given)) if is_last else (),
            metadata=(self._metadata(chat, id, given) or None) if is_last else None,
        )

    def _metadata(self, chat: str, id: str, given: dict[str, Any]) -> dict[str, Any]:
        kept = {name: value for name, value in given.items() if value and name not in _USED}
        if given.get("originalContent") and given.get("output"):
            kept["output"] = given["output"]
        rated = self._ratings.pop((chat, id), {})
        rated = mapping(given.get("annotation")) or rated
        comment = "; ".join(filter(None, (text(rated.get("reason")), text(rated.get("comment")))))
        if rated.get("rating") is not None:
            kept |= {"rating": rated["rating"]} | ({"rating_comment": comment} if comment else {})
        elif rated:
            kept["annotation"] = rated
        return kept

    def _attached(self, given: dict[str, Any]) -> Iterator[parts.AnyPart]:
        """The files of a message: inside it, in the folder of uploads, or as the text that was read from them."""
        for each in map(mapping, items(given.get("files"))):
            file = mapping(each.get("file"))
            url, meta = text(each.get("url")), mapping(file.get("meta"))
            name = text(each.get("name")) or text(file.get("filename")) or text(meta.get("name")) or None
            kind = text(each.get("content_type")) or text(meta.get("content_type"))
            id = text(each.get("id")) or text(file.get("id")) or _id_in(url)
            path = self._files.find(id)
            if (part := data_url_part(url, kind, name)) is not None:
                self._report.attachments += 1
                yield part
            elif path is not None and (part := self._files.part(path, name, kind or None)) is not None:
                yield part
            elif extracted := text(mapping(file.get("data")).get("content")) or self._extracted(id):
                self._report.lose("file of Open WebUI, of which there is only its text", name or id)
                yield parts.Document(name=name, text=extracted, media_type="text/plain")
            else:
                self._report.lose("file of Open WebUI, which is only named", name or url or str(each)[:120])

    def _extracted(self, id: str) -> str:
        if self._database is None or not id:
            return ""
        row = next(self._rows("file", ("data",), "WHERE id = ?", id), {})
        return text(mapping(json_of(row.get("data"))).get("content"))


def _id_in(url: str) -> str:
    """The id in a path such as `/api/v1/files/ID/content`; a URL that is only an id is one."""
    found = re.search(r"/files/([^/?#]+)", url)
    return found[1] if found else "" if ":" in url or "/" in url else url


def _decoded(value: object) -> Any:
    """A column of JSON, which is a text where it holds no JSON."""
    found = json_of(value)
    return value if found is None else found


def _chained(messages: list[Any]) -> dict[str, dict[str, Any]]:
    """Messages of old exports, which are a list: each follows the one before it."""
    found: dict[str, dict[str, Any]] = {}
    before = ""
    for place, each in enumerate(map(mapping, messages), 1):
        id = text(each.get("id")) or str(place)
        found[id] = {"parentId": before} | each
        before = id
    return found


def _sources(given: dict[str, Any]) -> Iterator[Source]:
    """The passages that an answer was given."""
    for each in map(mapping, items(given.get("sources")) or items(given.get("citations"))):
        about, scores = mapping(each.get("source")), items(each.get("distances"))
        notes = [mapping(note) for note in items(each.get("metadata"))]
        passages = items(each.get("document")) or [None]
        for place, passage in enumerate(passages):
            note = notes[place] if place < len(notes) else {}
            yield Source(
                text(about.get("id")) or text(about.get("url")) or text(note.get("source")) or None,
                text(about.get("name")) or text(note.get("name")) or None,
                text(passage) or None,
                number(scores[place]) if place < len(scores) else None,
            )


def _usage(given: dict[str, Any]) -> Usage | None:
    """What a message has cost, in the names of OpenAI, Ollama or llama.cpp."""
    info = mapping(given.get("info"))
    used = mapping(given.get("usage")) or mapping(info.get("usage")) or info
    model = text(given.get("model")) or None
    if not model and not used:
        return None
    read = mapping(used.get("prompt_tokens_details")) or mapping(used.get("input_tokens_details"))
    written = mapping(used.get("completion_tokens_details")) or mapping(used.get("output_tokens_details"))
    return Usage(
        model=model,
        input_tokens=_first(used, "input_tokens", "prompt_tokens", "prompt_eval_count", "prompt_n"),
        output_tokens=_first(used, "output_tokens", "completion_tokens", "eval_count", "predicted_n"),
        cached_tokens=count(read.get("cached_tokens")),
        reasoning_tokens=count(written.get("reasoning_tokens")),
        cost=number(used.get("cost")) or number(used.get("total_cost")) or 0.0,
    )


def _first(used: dict[str, Any], *names: str) -> int:
    return next((found for name in names if (found := count(used.get(name)))), 0)
