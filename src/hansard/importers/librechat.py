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
from hansard.importers.values import content_of, count, data_url_part, items, mapping, sides, text, time
from hansard.model import NOT_YET, Message, Usage

_ROOT = "00000000-0000-0000-0000-000000000000"
FILES = "files/"
"""Where attachments are in a zip file that Hansard has written."""
_SIGN = re.compile(rb'"conversationId"\s*:')
_OF_CONVERSATION = {"conversationId", "title", "messages", "messagesTree", "branches", "recursive", "exportAt"}
_OF_MESSAGE = {
    *("messageId", "parentMessageId", "conversationId", "text", "content", "sender", "isCreatedByUser", "model"),
    *("createdAt", "updatedAt", "unfinished", "feedback", "files", "children", "user", "_id", "__v", "depth"),
    *("siblingIndex", "iconURL", "clientId", "conversationSignature", "_meiliIndex", "tenantId"),
}
_ARGUMENTS = ("args", "arguments", "input")


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
    found = [
        each
        for place, message in enumerate(map(mapping, theirs), 1)
        for each in _messages(message, place, files, report)
    ]
    if not found:
        report.complain(where, "it has no messages")
    return ForeignConversation(
        id=text(given.get("conversationId")) or where,
        messages=found,
        title=text(given.get("title")) or None,
        created_at=found[0].message.created_at if found and found[0].message.created_at is not NOT_YET else None,
        metadata={name: value for name, value in given.items() if value and name not in _OF_CONVERSATION}
        | {"imported_from": "librechat"},
    )


def _flattened(tree: list[Any]) -> Iterator[dict[str, Any]]:
    waiting = [(each, _ROOT) for each in reversed(tree)]
    while waiting:
        given, parent = waiting.pop()
        message = {"parentMessageId": parent} | mapping(given)
        children = items(message.pop("children", None))
        waiting += [(child, text(message.get("messageId"))) for child in reversed(children)]
        yield message


def _messages(
    given: dict[str, Any], place: int, files: AttachedFiles, report: ImportReport
) -> Iterator[ForeignMessage]:
    """Yields a message, split after each tool call by a message with the result."""
    id = text(given.get("messageId")) or str(place)
    parent = text(given.get("parentMessageId"))
    parent_id = None if parent in ("", _ROOT) else parent
    is_user = given["isCreatedByUser"] if "isCreatedByUser" in given else text(given.get("sender")).lower() == "user"
    role = "user" if is_user else "assistant"
    attached = ((role, part) for part in _attached(given, files, report))
    groups = sides(chain(_parts(given, role, files, report), attached)) or [(role, [parts.Text(text="")])]
    metadata = _metadata(given, role)
    answer = max((number for number, (side, _) in enumerate(groups, 1) if side == "assistant"), default=0)
    for number, (side, pieces) in enumerate(groups, 1):
        content, format = content_of(pieces)
        is_last = number == len(groups)
        name = id if is_last else f"{id}.{number}"
        message = Message(
            side,
            content,
            name,
            format=format,
            created_at=time(given.get("createdAt")) or NOT_YET,
            status="interrupted" if given.get("unfinished") else "complete",
            usage=_usage(given, has_tokens=number == answer) if side == "assistant" else None,
            metadata=(metadata or None) if is_last else None,
        )
        yield ForeignMessage(message, parent_id)
        parent_id = name


def _usage(given: dict[str, Any], *, has_tokens: bool) -> Usage | None:
    """The tokens are those of the whole message: only its last piece has them."""
    model, tokens = text(given.get("model")) or None, count(given.get("tokenCount")) if has_tokens else 0
    return Usage(model=model, output_tokens=tokens) if model or tokens else None


def _metadata(given: dict[str, Any], role: str) -> dict[str, Any]:
    """What a message has besides its content: a rating, what its tools have found, and what else was noted."""
    kept = {name: value for name, value in given.items() if value and name not in _OF_MESSAGE}
    if role == "assistant":
        kept.pop("tokenCount", None)
    if text(given.get("sender")) not in ("", "User", "user", "Assistant", text(given.get("model"))):
        kept["sender"] = given["sender"]
    feedback = mapping(given.get("feedback"))
    if rating := text(feedback.get("rating")):
        tag = feedback.get("tag")
        named = text(tag) or text(mapping(tag).get("label")) or text(mapping(tag).get("key"))
        comment = "; ".join(filter(None, (named, text(feedback.get("text")))))
        kept |= {"rating": rating} | ({"rating_comment": comment} if comment else {})
    return kept


def _attached(given: dict[str, Any], files: AttachedFiles, report: ImportReport) -> Iterator[parts.AnyPart]:
    """The files of a message: LibreChat's own export only names them, and a zip file of ours holds them."""
    for file in map(mapping, items(given.get("files"))):
        yield from _file(file, files, report)
    for file in map(mapping, items(given.get("attachments"))):
        if file.get("file_id") or file.get("filepath"):
            yield from _file(file, files, report)


def _file(file: dict[str, Any], files: AttachedFiles, report: ImportReport) -> Iterator[parts.AnyPart]:
    name = text(file.get("filename")) or None
    path = files.find(text(file.get("file_id")))
    if path is None:
        report.lose("file of LibreChat, which its export only names", name or str(file)[:120])
    elif (part := files.part(path, name, text(file.get("type")) or None)) is not None:
        yield part


def _parts(
    given: dict[str, Any], role: str, files: AttachedFiles, report: ImportReport
) -> Iterator[tuple[str, parts.AnyPart]]:
    blocks = items(given.get("content")) or [{"type": "text", "text": given.get("text")}]
    for place, given_block in enumerate(blocks):
        block = mapping(given_block)
        kind = text(block.get("type"))
        body = block.get(kind)
        said = text(body) or text(mapping(body).get("value")) or (text(block.get("text")) if kind == "error" else "")
        if kind in ("text", "error"):
            if said:
                yield role, parts.Text(text=said)
        elif kind == "think":
            yield role, parts.Reasoning(text=said)
        elif kind == "tool_call":
            yield from _call(mapping(body), place, role)
        elif kind == "image_file":
            yield from ((role, part) for part in _file(mapping(body), files, report))
        elif kind == "image_url":
            url = text(body) or text(mapping(body).get("url"))
            yield role, data_url_part(url, "") or parts.ImagePart(url=url)
        elif given_block:
            yield role, parts.OtherPart(native=given_block, origin="librechat")


def _call(call: dict[str, Any], place: int, role: str) -> Iterator[tuple[str, parts.AnyPart]]:
    """A tool call, and its result inside of it. Calls of assistants have other names for the same."""
    inside = mapping(call.get("function")) or mapping(call.get("code_interpreter"))
    id = text(call.get("id")) or f"call-{place}"
    name = text(call.get("name")) or text(inside.get("name")) or text(call.get("type")) or "tool"
    arguments: Any = next((found[key] for found in (call, inside) for key in _ARGUMENTS if found.get(key)), {})
    if isinstance(arguments, str):
        arguments = parts.arguments_of(arguments)
    yield role, parts.ToolCall(id=id, name=name, arguments=arguments)
    for key in ("output", "outputs"):
        for found in (call, inside):
            if key in found:
                yield "tool", parts.ToolResult(id=id, output=found[key], name=name)
                return
