"""LibreChat's export of a conversation: flat (`messages`) or as a tree (`messagesTree`), one object or an array."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from typing import Any

from hansard.formats import parts
from hansard.importers import json_stream
from hansard.importers.attachments import AttachedFiles
from hansard.importers.importer import ForeignConversation, ForeignMessage
from hansard.importers.report import ImportReport
from hansard.importers.source import ImportSource
from hansard.importers.values import content_of, items, mapping, sides, text, time
from hansard.model import NOT_YET, Message, Usage

_ROOT = "00000000-0000-0000-0000-000000000000"
FILES = "files/"
"""Where attachments are in a zip file that Hansard has written."""
_SIGN = re.compile(rb'"conversationId"\s*:')


class LibreChat:
    name = "librechat"
    title = "LibreChat conversation export (.json)"

    def recognises(self, source: ImportSource) -> bool:
        return any(_is_export(source.head(name)) for name in source.named(".json"))

    def read(self, source: ImportSource, report: ImportReport) -> Iterator[ForeignConversation]:
        files = AttachedFiles(source, report)
        for name in source.named(".json"):
            if not name.startswith(FILES):
                for where, given in json_stream.array_objects(source, name, report):
                    yield _conversation(given, where, files, report)


def _is_export(head: bytes) -> bool:
    return _SIGN.search(head) is not None and (b'"messages"' in head or b'"messagesTree"' in head)


def _conversation(given: dict[str, Any], where: str, files: AttachedFiles, report: ImportReport) -> ForeignConversation:
    theirs = items(given.get("messages")) or [*_flattened(items(given.get("messagesTree")))]
    found = [each for message in map(mapping, theirs) for each in _messages(message, files, report)]
    if not found:
        report.complain(where, "it has no messages")
    return ForeignConversation(
        id=text(given.get("conversationId")) or where,
        messages=found,
        title=text(given.get("title")) or None,
        created_at=found[0].message.created_at if found and found[0].message.created_at is not NOT_YET else None,
        metadata={"imported_from": "librechat"}
        | {name: given[name] for name in ("endpoint", "options") if given.get(name)},
    )


def _flattened(tree: list[Any]) -> Iterator[dict[str, Any]]:
    waiting = [*reversed(tree)]
    while waiting:
        message = mapping(waiting.pop())
        waiting += reversed(items(message.get("children")))
        yield {name: value for name, value in message.items() if name != "children"}


def _messages(given: dict[str, Any], files: AttachedFiles, report: ImportReport) -> Iterator[ForeignMessage]:
    """Yields a message, split after each tool call by a message with the result."""
    id = text(given.get("messageId"))
    parent = text(given.get("parentMessageId"))
    parent_id = None if parent in ("", _ROOT) else parent
    role = "user" if given.get("isCreatedByUser") else "assistant"
    attached = ((role, part) for part in _attached(given, files, report))
    groups = sides(chain(_parts(given, role, report), attached)) or [(role, [parts.Text(text="")])]
    for number, (side, pieces) in enumerate(groups, 1):
        content, format = content_of(pieces)
        name = id if number == len(groups) else f"{id}.{number}"
        message = Message(
            side,
            content,
            name,
            format=format,
            created_at=time(given.get("createdAt")) or NOT_YET,
            status="interrupted" if given.get("unfinished") else "complete",
            usage=Usage(model=model) if side == "assistant" and (model := text(given.get("model"))) else None,
        )
        yield ForeignMessage(message, parent_id)
        parent_id = name


def _attached(given: dict[str, Any], files: AttachedFiles, report: ImportReport) -> Iterator[parts.AnyPart]:
    """The files of a message: LibreChat's own export only names them, and a zip file of ours holds them."""
    for file in map(mapping, items(given.get("files"))):
        name = text(file.get("filename")) or None
        path = files.find(text(file.get("file_id")))
        if path is None:
            report.lose("file of LibreChat, which its export only names", name or str(file)[:120])
        elif (part := files.part(path, name, text(file.get("type")) or None)) is not None:
            yield part


def _parts(given: dict[str, Any], role: str, report: ImportReport) -> Iterator[tuple[str, parts.AnyPart]]:
    blocks = items(given.get("content")) or [{"type": "text", "text": given.get("text")}]
    for block in map(mapping, blocks):
        kind = text(block.get("type"))
        body = block.get(kind)
        if kind == "text":
            value = body if isinstance(body, str) else text(mapping(body).get("value"))
            if value:
                yield role, parts.Text(text=value)
        elif kind == "think":
            yield role, parts.Reasoning(text=body if isinstance(body, str) else text(mapping(body).get("value")))
        elif kind == "tool_call":
            call = mapping(body)
            id = text(call.get("id"))
            yield role, parts.ToolCall(id=id, name=text(call.get("name")), arguments=call.get("args") or {})
            if "output" in call:
                yield "tool", parts.ToolResult(id=id, output=call["output"], name=text(call.get("name")) or None)
        else:
            report.lose(f"content of the kind {kind!r}", str(block)[:120])
