"""`conversations.json` as ChatGPT exports it, which LibreChat, Open WebUI and others import: whole trees of messages.

A node of ChatGPT holds one kind of content. So a message with reasoning, tool calls and text becomes a chain of nodes,
of which the last has the message's id.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec

from hansard import formats
from hansard.exporters.archive import Archive
from hansard.exporters.exporter import ExportedConversation, TreeMessage
from hansard.exporters.json_array import json_array
from hansard.exporters.report import ExportReport
from hansard.formats import parts
from hansard.model import Conversation, Message

ROOT = "client-created-root"
_ROLES = {"user": "user", "assistant": "assistant", "agent": "assistant", "system": "system", "developer": "system"}
_OURS = ("hidden", "finish", "channel", "tool", "rating", "rating_comment")
"""Metadata of messages that have places of their own in ChatGPT's export."""

_THUMBS: dict[float, str] = {1: "thumbs_up", -1: "thumbs_down"}

Body = dict[str, Any]


class ChatGptExporter:
    name = "chatgpt"
    title = "conversations.json as ChatGPT exports it, whole trees"
    media_type = "application/json"

    async def write(
        self, conversations: AsyncIterator[ExportedConversation], report: ExportReport
    ) -> AsyncIterator[bytes]:
        async for piece in json_array(_objects(conversations, report, None)):
            yield piece


class ChatGptZipExporter:
    name = "chatgpt-zip"
    title = "ChatGPT's zip file: conversations.json, attachments and ratings"
    media_type = "application/zip"

    async def write(
        self, conversations: AsyncIterator[ExportedConversation], report: ExportReport
    ) -> AsyncIterator[bytes]:
        archive = Archive("conversations.json")
        async for piece in archive.with_text(json_array(_objects(conversations, report, archive))):
            yield piece


async def _objects(
    conversations: AsyncIterator[ExportedConversation], report: ExportReport, archive: Archive | None
) -> AsyncIterator[Body]:
    ratings: list[Body] = []
    async for each in conversations:
        tree = _Tree(report, archive, keeps_metadata=_is_theirs(each.conversation))
        count = 0
        async for given in each.tree():
            tree.add(given)
            ratings += _ratings(each.conversation.id, given.message, report, archive)
            count += 1
        last = ROOT
        async for message in each.line():
            last = message.id
        yield _conversation(each.conversation, tree.mapping, last)
        report.wrote(count)
    if archive is not None and ratings:
        archive.put("message_feedback.json", msgspec.json.encode(ratings))


def _ratings(conversation_id: str, message: Message, report: ExportReport, archive: Archive | None) -> Iterator[Body]:
    """The first rating of a message as ChatGPT has it, which knows one thumb a message, in a file of its own."""
    for number, rating in enumerate(message.ratings):
        if archive is None:
            report.lose("rating: write it with --as chatgpt-zip", message.id)
        elif number or rating.value not in _THUMBS:
            report.lose("rating that is no thumb, or a second one", message.id)
        else:
            yield {
                "id": message.id,
                "conversation_id": conversation_id,
                "rating": _THUMBS[rating.value],
                "content": msgspec.json.encode({"text": rating.comment} if rating.comment else {}).decode(),
            }


def _conversation(given: Conversation, mapping: Body, current: str) -> Body:
    theirs = {name: value for name, value in given.metadata.items() if _is_theirs(given) and name != "imported_from"}
    return theirs | {
        "id": given.id,
        "conversation_id": given.id,
        "title": given.title,
        "create_time": given.created_at.timestamp(),
        "update_time": (given.last_message_at or given.created_at).timestamp(),
        "current_node": current,
        "is_archived": given.archived_at is not None,
        "mapping": mapping,
    }


def _is_theirs(given: Conversation) -> bool:
    """Whether metadata come from ChatGPT, and go back to it."""
    return given.metadata.get("imported_from") == "chatgpt"


class _Tree:
    def __init__(self, report: ExportReport, archive: Archive | None, *, keeps_metadata: bool) -> None:
        self._report = report
        self._keeps_metadata = keeps_metadata
        self._archive = archive
        self.mapping: Body = {ROOT: _node(ROOT, None, None)}
        self._calls: dict[str, tuple[str, str]] = {}
        """The node and the tool of each call, by its id."""

    def add(self, given: TreeMessage) -> None:
        parent = given.parent or ROOT
        bodies = [*self._bodies(given.message)] or [_text([""])]
        for number, body in enumerate(bodies, 1):
            id = given.message.id if number == len(bodies) else f"{given.message.id}.{number}"
            if call := body.pop("call", None):
                self._calls[call] = (id, body["recipient"])
            shared = _shared(given.message, keeps_metadata=self._keeps_metadata)
            shared["metadata"] |= body.pop("metadata", {})
            self.mapping[id] = _node(id, parent, shared | {"id": id} | body)
            self.mapping[parent]["children"].append(id)
            parent = id

    def _bodies(self, message: Message) -> Iterator[Body]:
        """What is special about each node of a message."""
        role = _ROLES.get(message.role, "tool")
        said: list[str | parts.Media] = []
        for part in formats.read(message).parts:
            if isinstance(part, parts.Text | parts.Refusal | parts.Document) and part.text is not None:
                said.append(part.text)
            elif isinstance(part, parts.Media) and self._archive is not None:
                said.append(part)
            elif (body := self._other(part, message)) is not None:
                if said:
                    yield self._said(said, role, message)
                    said = []
                yield body
        if said:
            yield self._said(said, role, message)

    def _said(self, said: list[str | parts.Media], role: str, message: Message) -> Body:
        """Texts, with the attachments between them if they are written."""
        attachments: list[Body] = []
        pieces: list[Any] = []
        for each in said:
            if isinstance(each, str):
                pieces.append(each)
            elif self._archive is None or (id := self._archive.add(each)) is None:
                self._report.lose("attachment without its bytes", message.id)
            else:
                kind = {parts.ImagePart: "image", parts.Audio: "audio"}.get(type(each), "file")
                pieces.append({"content_type": f"{kind}_asset_pointer", "asset_pointer": f"file-service://{id}"})
                named = {"id": id, "name": each.name, "mime_type": each.media_type}
                attachments.append({name: value for name, value in named.items() if value is not None})
        if not attachments:
            return _text(pieces, role)
        content = {"content_type": "multimodal_text", "parts": pieces}
        return {"author": _author(role), "content": content, "metadata": {"attachments": attachments}}

    def _result(self, part: parts.ToolResult, message: Message) -> Body:
        """The texts and pictures of a result."""
        said: list[str | parts.Media] = []
        for each in parts.result_parts(part):
            if isinstance(each, parts.Text):
                said.append(each.text)
            elif isinstance(each, parts.Media) and self._archive is not None:
                said.append(each)
            else:
                self._report.lose("attachment: write it with --as chatgpt-zip", message.id)
        body = self._said(said or [""], "tool", message)
        if part.is_error and body["content"]["content_type"] == "text":
            text = "\n".join(body["content"]["parts"])
            named = (message.metadata or {}).get("error")
            body["content"] = {"content_type": "system_error", "name": named, "text": text}
        return body

    def _other(self, part: parts.AnyPart, message: Message) -> Body | None:
        match part:
            case parts.Reasoning():
                thoughts = [{"summary": "", "content": part.text}]
                content: Body = {"content_type": "thoughts", "thoughts": thoughts}
                return {"author": _author("assistant"), "content": content}
            case parts.ToolCall():
                content = {"content_type": "code", "language": "unknown", "text": parts.as_text(part.arguments)}
                author = _author("assistant")
                return {"author": author, "content": content, "recipient": part.name or "tool", "call": part.id}
            case parts.ToolResult():
                name = part.name or self._calls.get(part.id, ("", None))[1] or (message.metadata or {}).get("tool")
                return self._result(part, message) | {"author": _author("tool", name)}
            case parts.OtherPart(native=dict(native), origin="chatgpt"):
                return {"author": _author(_ROLES.get(message.role, "tool")), "content": native}
            case parts.Media():
                self._report.lose("attachment: write it with --as chatgpt-zip", message.id)
            case _:
                self._report.lose("content of an unknown kind", message.id)
        return None


def _author(role: str, name: Any = None) -> Body:
    return {"role": role, "name": name, "metadata": {}}


def _text(texts: list[str], role: str = "assistant") -> Body:
    return {"author": _author(role), "content": {"content_type": "text", "parts": texts}}


def _node(id: str, parent: str | None, message: Body | None) -> Body:
    return {"id": id, "parent": parent, "children": [], "message": message}


def _shared(message: Message, *, keeps_metadata: bool) -> Body:
    """What all nodes of a message have."""
    ours = message.metadata or {}
    kept = {name: value for name, value in ours.items() if keeps_metadata and name not in _OURS}
    theirs = kept | {
        "model_slug": message.usage.model if message.usage else None,
        "is_visually_hidden_from_conversation": bool(ours.get("hidden")) or None,
        "citations": ours.get("citations"),
        "finish_details": {"type": ours["finish"]} if ours.get("finish") else None,
    }
    return {
        "create_time": message.created_at.timestamp(),
        "status": "finished_successfully" if message.status == "complete" else "in_progress",
        "weight": 1.0,
        "recipient": "all",
        "channel": ours.get("channel"),
        "metadata": {name: value for name, value in theirs.items() if value is not None},
    }
