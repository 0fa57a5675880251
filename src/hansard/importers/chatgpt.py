"""ChatGPT's data export: `conversations.json` or its shards, alone, in a folder or in the zip file that people get.

A conversation is a tree of nodes (`mapping`) and the node that is shown (`current_node`). Nodes without a message, as
the root, are passed over: their children follow their parents. Hidden messages are kept, with `hidden` in their
metadata. What a model thought (`thoughts`) becomes a reasoning part of a message of its own; a message to a tool
becomes a tool call, and the tool's answer its result.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any

from hansard.formats import parts
from hansard.importers import json_stream
from hansard.importers.attachments import AttachedFiles
from hansard.importers.importer import ForeignConversation, ForeignMessage
from hansard.importers.report import ImportReport
from hansard.importers.source import ImportSource
from hansard.importers.values import content_of, items, mapping, text, time
from hansard.model import NOT_YET, Message, Usage

_FILE = re.compile(r"conversations(-\d+)?\.json$")
_SIGN = re.compile(rb'"mapping"\s*:')
_ROLES = {"user", "assistant", "system", "tool"}


class ChatGpt:
    name = "chatgpt"
    title = "ChatGPT data export: the zip, its folder, or conversations.json"

    def recognises(self, source: ImportSource) -> bool:
        return any(_SIGN.search(source.head(name)) for name in _files(source))

    def read(self, source: ImportSource, report: ImportReport) -> Iterator[ForeignConversation]:
        attachments = AttachedFiles(source, report)
        ratings = _ratings(source)
        for name in _files(source):
            for where, given in json_stream.array_objects(source, name, report):
                if isinstance(given.get("mapping"), dict):
                    yield _Reader(given, attachments, ratings, report).conversation(where)
                else:
                    report.complain(where, "it has no messages ('mapping')")


def _files(source: ImportSource) -> list[str]:
    return [name for name in source.names() if _FILE.search(PurePosixPath(name).name)]


def _ratings(source: ImportSource) -> dict[str, str]:
    """`message_feedback.json`: what was rated, by message id."""
    found: dict[str, str] = {}
    for name in source.named("message_feedback.json"):
        with source.open(name) as file:
            for element in json_stream.array_elements(file):
                given = mapping(element.value)
                if given.get("id") and given.get("rating"):
                    found[str(given["id"])] = str(given["rating"])
    return found


class _Reader:
    """One conversation of an export."""

    def __init__(
        self, given: dict[str, Any], attachments: AttachedFiles, ratings: dict[str, str], report: ImportReport
    ) -> None:
        self._given = given
        self._nodes: dict[str, dict[str, Any]] = {id: mapping(node) for id, node in given["mapping"].items()}
        self._attachments = attachments
        self._ratings = ratings
        self._report = report
        self._messages: dict[str, Message] = {}

    def conversation(self, where: str) -> ForeignConversation:
        given = self._given
        for id, node in self._nodes.items():
            if (message := self._message(id, mapping(node.get("message")))) is not None:
                self._messages[id] = message
        found = [ForeignMessage(message, self._parent(id)) for id, message in self._messages.items()]
        if not found:
            self._report.lose("conversation without any message", where)
        kept = ("default_model_slug", "gizmo_id", "conversation_origin", "is_starred")
        return ForeignConversation(
            id=text(given.get("conversation_id")) or text(given.get("id")) or where,
            messages=found,
            leaf=self._nearest(text(given.get("current_node")) or None),
            title=text(given.get("title")) or None,
            created_at=time(given.get("create_time")),
            archived_at=time(given.get("update_time")) if given.get("is_archived") else None,
            metadata={"imported_from": "chatgpt"} | {name: given[name] for name in kept if given.get(name)},
        )

    def _parent(self, id: str) -> str | None:
        parent = text(self._nodes[id].get("parent")) or None
        return parent if parent in self._messages and parent != id else self._nearest(parent, id)

    def _nearest(self, id: str | None, below: str | None = None) -> str | None:
        """The node, or the first one above it that has a message. A parent that is missing is left as it is."""
        seen = {below}
        while id in self._nodes and id not in self._messages and id not in seen:
            seen.add(id)
            id = text(self._nodes[id].get("parent")) or None
        return id

    def _message(self, id: str, given: dict[str, Any]) -> Message | None:
        if not given:
            return None
        author, theirs = mapping(given.get("author")), mapping(given.get("metadata"))
        role = text(author.get("role"))
        content, format = self._content(id, given, role)
        if not content and role == "system":
            return None
        return Message(
            role if role in _ROLES else "system",
            content,
            id,
            format=format,
            created_at=time(given.get("create_time")) or NOT_YET,
            status="complete" if given.get("status") != "in_progress" else "interrupted",
            usage=_usage(text(theirs.get("model_slug"))),
            metadata=self._metadata(id, given, author, theirs) or None,
        )

    def _content(self, id: str, given: dict[str, Any], role: str) -> tuple[Any, str]:
        content, theirs = mapping(given.get("content")), mapping(given.get("metadata"))
        is_only_text = content.get("content_type") == "text" and role != "tool" and given.get("recipient") == "all"
        if is_only_text and not theirs.get("attachments") and (plain := _plain_text(content)):
            return plain, "text"
        return content_of([*self._pieces(id, given, content), *self._attached(given)])

    def _metadata(
        self, id: str, given: dict[str, Any], author: dict[str, Any], theirs: dict[str, Any]
    ) -> dict[str, Any]:
        kept = {
            "hidden": bool(theirs.get("is_visually_hidden_from_conversation")) or given.get("weight") == 0,
            "citations": theirs.get("citations"),
            "finish": mapping(theirs.get("finish_details")).get("type"),
            "channel": given.get("channel"),
            "tool": author.get("name"),
            "rating": self._ratings.get(id),
        }
        return {name: value for name, value in kept.items() if value}

    def _pieces(self, id: str, given: dict[str, Any], content: dict[str, Any]) -> Iterator[parts.AnyPart]:
        kind = content.get("content_type")
        recipient = text(given.get("recipient")) or "all"
        author = mapping(given.get("author"))
        if recipient != "all" and author.get("role") == "assistant":
            yield parts.ToolCall(id=text(given.get("id")), name=recipient, arguments=_plain_text(content))
        elif author.get("role") == "tool":
            yield parts.ToolResult(
                id=self._call_before(id, text(given.get("id"))), output=_plain_text(content), name=author.get("name")
            )
        elif kind == "thoughts":
            thoughts = [
                f"{text(each.get('summary'))}\n{text(each.get('content'))}".strip()
                for each in items(content.get("thoughts"))
            ]
            yield parts.Reasoning(text="\n\n".join(thoughts))
        elif kind == "reasoning_recap":
            yield parts.Reasoning(text=text(content.get("content")))
        elif kind == "multimodal_text":
            yield from self._multimodal(given, content)
        elif plain := _plain_text(content):
            yield parts.Text(text=plain)
        elif kind not in (None, "text", "code", "model_editable_context", "user_editable_context"):
            self._report.lose(f"content of the kind {kind!r}", str(content)[:120])

    def _multimodal(self, given: dict[str, Any], content: dict[str, Any]) -> Iterator[parts.AnyPart]:
        for piece in items(content.get("parts")):
            if isinstance(piece, str):
                if piece:
                    yield parts.Text(text=piece)
            elif (pointer := text(mapping(piece).get("asset_pointer"))) or (
                pointer := text(mapping(mapping(piece).get("audio_asset_pointer")).get("asset_pointer"))
            ):
                if (part := self._attachment(pointer, given)) is not None:
                    yield part
            elif mapping(piece).get("text"):
                yield parts.Text(text=str(piece["text"]))
            else:
                self._report.lose("part of a message", str(piece)[:120])

    def _attached(self, given: dict[str, Any]) -> Iterator[parts.AnyPart]:
        attachments = items(mapping(given.get("metadata")).get("attachments"))
        shown = str(mapping(given.get("content")).get("parts")) if attachments else ""
        for each in attachments:
            id = text(mapping(each).get("id"))
            if id and id not in shown and (part := self._attachment(id, given)):
                yield part

    def _attachment(self, pointer: str, given: dict[str, Any]) -> parts.AnyPart | None:
        """The file of a pointer. The message may say its name and kind; else its path does."""
        id = pointer.rpartition("/")[2].partition("#")[0]
        path = self._attachments.find(id)
        if path is None:
            self._report.lose("attachment that is not in the export", pointer)
            return None
        listed = map(mapping, items(mapping(given.get("metadata")).get("attachments")))
        said = next((each for each in listed if each.get("id") == id), None)
        if said is None:
            return self._attachments.part(path, PurePosixPath(path).name)
        return self._attachments.part(path, text(said.get("name")) or None, text(said.get("mime_type")) or None)

    def _call_before(self, node: str, id: str) -> str:
        """The id of the message that called the tool: the parent of the tool's message."""
        parent = mapping(self._nodes.get(text(self._nodes[node].get("parent")), {}).get("message"))
        return text(parent.get("id")) or id


@lru_cache
def _usage(model: str) -> Usage | None:
    return Usage(model=model) if model else None


def _plain_text(content: dict[str, Any]) -> str:
    """The text of a content, whatever its kind."""
    if isinstance(content.get("parts"), list):
        return "\n".join(part for part in content["parts"] if isinstance(part, str) and part)
    for name in ("text", "result", "content", "user_instructions", "user_profile"):
        if text(content.get(name)):
            return text(content[name])
    return ""
