"""LibreChat's own export of a conversation, as a tree (`messagesTree`).

LibreChat keeps a tool's result inside of the answer that called it. So an answer, its tool results and what follows
them become one message, with the id of the last one. LibreChat imports one conversation a file; of several, an array is
written, which Hansard imports.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from hansard import formats
from hansard.exporters.archive import Archive
from hansard.exporters.exporter import ExportedConversation, TreeMessage
from hansard.exporters.json_array import json_array
from hansard.exporters.report import ExportReport
from hansard.formats import parts
from hansard.formats.dialogue import side_of
from hansard.model import Message

_ROOT = "00000000-0000-0000-0000-000000000000"
_OURS = ("sender", "rating", "rating_comment", "hidden")
"""Metadata of imported messages that are no fields of LibreChat's, or are written in another way."""

Body = dict[str, Any]


class LibreChatExporter:
    name = "librechat"
    title = "LibreChat conversation, a whole tree"
    media_type = "application/json"

    async def write(
        self, conversations: AsyncIterator[ExportedConversation], report: ExportReport
    ) -> AsyncIterator[bytes]:
        async for piece in _text(_objects(conversations, report, None)):
            yield piece


class LibreChatZipExporter:
    name = "librechat-zip"
    title = "LibreChat conversation with its attachments, a zip file that Hansard imports"
    media_type = "application/zip"

    async def write(
        self, conversations: AsyncIterator[ExportedConversation], report: ExportReport
    ) -> AsyncIterator[bytes]:
        archive = Archive("librechat.json", "files/")
        async for piece in archive.with_text(_text(_objects(conversations, report, archive))):
            yield piece


async def _text(objects: AsyncIterator[Body]) -> AsyncIterator[bytes]:
    first = await anext(objects, None)
    second = await anext(objects, None)
    if first is not None and second is None:
        yield msgspec.json.encode(first) + b"\n"
        return
    async for piece in json_array(_chained(first, second, objects)):
        yield piece


async def _chained(first: Body | None, second: Body | None, others: AsyncIterator[Body]) -> AsyncIterator[Body]:
    if first is not None:
        yield first
    if second is not None:
        yield second
    async for each in others:
        yield each


async def _objects(
    conversations: AsyncIterator[ExportedConversation], report: ExportReport, archive: Archive | None
) -> AsyncIterator[Body]:
    async for each in conversations:
        active = {message.id async for message in each.line()}
        conversation = each.conversation
        is_theirs = conversation.metadata.get("imported_from") == "librechat"
        tree = _Tree([given async for given in each.tree()], active, report, archive, is_theirs=is_theirs)
        names = conversation.metadata.keys() - {"imported_from"} if is_theirs else ("endpoint", "options")
        yield {name: value for name, value in conversation.metadata.items() if name in names} | {
            "conversationId": conversation.id,
            "title": conversation.title or "",
            "branches": True,
            "recursive": True,
            "messagesTree": tree.children(None, _ROOT),
        }
        report.wrote(tree.count)


class _Tree:
    def __init__(
        self,
        messages: list[TreeMessage],
        active: set[str],
        report: ExportReport,
        archive: Archive | None,
        *,
        is_theirs: bool,
    ) -> None:
        self._is_theirs = is_theirs
        self._report = report
        self._archive = archive
        self.count = len(messages)
        self._children: dict[str | None, list[Message]] = {}
        for each in messages:
            self._children.setdefault(each.parent, []).append(each.message)
        # Of messages that follow the same one, LibreChat shows the last.
        for children in self._children.values():
            children.sort(key=lambda message: message.id in active)

    def children(self, parent: str | None, parent_id: str) -> list[Body]:
        """The messages below one. Without recursion: a conversation may be long."""
        found: list[Body] = []
        waiting: list[tuple[Message, str, list[Body]]] = [
            (message, parent_id, found) for message in reversed(self._children.get(parent, []))
        ]
        while waiting:
            message, above, place = waiting.pop()
            run = self._run(message)
            if side_of(message.role) in ("system", "developer"):
                self._report.lose("system message, for which LibreChat has no place", message.id)
                inside, id = place, above
            else:
                id = run[-1].id
                body = self._message(run, above)
                place.append(body)
                inside = body["children"]
            waiting += [(child, id, inside) for child in reversed(self._children.get(run[-1].id, []))]
        return found

    def _run(self, message: Message) -> list[Message]:
        """A message, with the tool results and the answer that follow it."""
        run = [message]
        while side_of(message.role) == "assistant" or side_of(run[-1].role) == "tool":
            after = self._children.get(run[-1].id, [])
            if len(after) != 1 or not _continues(run[-1], after[0]):
                break
            run.append(after[0])
        return run

    def _message(self, run: list[Message], parent_id: str) -> Body:
        last = run[-1]
        is_user = last.role == "user"
        model = next((each.usage.model for each in reversed(run) if each.usage and each.usage.model), None)
        content, files = self._content(run)
        texts = [each["text"] for each in content if each["type"] == "text"]
        tokens = sum(each.usage.output_tokens for each in run if each.usage)
        return (
            self._fields(last)
            | {
                "messageId": last.id,
                "parentMessageId": parent_id,
                "text": "\n".join(texts),
                "sender": "User" if is_user else (last.metadata or {}).get("sender") or model or "Assistant",
                "isCreatedByUser": is_user,
                "createdAt": last.created_at.isoformat(),
                "unfinished": last.status != "complete",
                "children": [],
            }
            | ({"files": files} if files else {})
            | ({} if is_user else {"model": model})
            | ({"tokenCount": tokens} if tokens else {})
            # LibreChat passes over a message that has neither text nor content, and over all that follow it.
            | ({"content": content} if not is_user or not texts else {})
            | _feedback(last)
        )

    def _fields(self, message: Message) -> Body:
        """Other fields of a message that came from LibreChat."""
        metadata = message.metadata or {}
        return {name: value for name, value in metadata.items() if name not in _OURS} if self._is_theirs else {}

    def _content(self, run: list[Message]) -> tuple[list[Body], list[Body]]:
        """The blocks and the files of a message."""
        found: list[Body] = []
        files: list[Body] = []
        calls: dict[str, Body] = {}
        for message in run:
            for part in formats.read(message).parts:
                match part:
                    case parts.Text() | parts.Refusal():
                        found.append({"type": "text", "text": part.text})
                    case parts.Reasoning():
                        found.append({"type": "think", "think": part.text})
                    case parts.ToolCall():
                        calls[part.id] = {"id": part.id, "name": part.name, "args": part.arguments}
                        found.append({"type": "tool_call", "tool_call": calls[part.id]})
                    case parts.ToolResult(id=id) if id in calls:
                        calls[id]["output"] = parts.result_text(part)
                    case parts.Document(text=str(text)):
                        found.append({"type": "text", "text": text})
                    case parts.Media() if (file := self._file(part)) is not None:
                        files.append(file)
                    case _:
                        self._report.lose("content that LibreChat's export cannot hold", message.id)
        return found, files

    def _file(self, part: parts.Media) -> Body | None:
        id = self._archive.add(part) if self._archive is not None else None
        named = {"file_id": id, "filename": part.name, "type": part.media_type}
        return None if id is None else {name: value for name, value in named.items() if value is not None}


def _feedback(message: Message) -> Body:
    """What somebody thought of a message, in LibreChat's words for it."""
    if not message.ratings or not message.ratings[0].value:
        return {}
    rating = message.ratings[0]
    said = {"rating": "thumbsUp" if rating.value > 0 else "thumbsDown"}
    return {"feedback": said | ({"text": rating.comment} if rating.comment else {})}


def _continues(message: Message, after: Message) -> bool:
    sides = side_of(message.role), side_of(after.role)
    return sides in (("assistant", "tool"), ("tool", "tool"), ("tool", "assistant"))
