"""Claude.ai's data export: `conversations.json` with `chat_messages`, alone, in a folder or in its zip file.

New exports name each message's parent; old ones are flat, and are chained in their order. A message of Claude's may
hold tool calls and their results in one: those are split, so that each result follows its call. Blocks of an unknown
kind are kept as they are. Chats of Claude Design (`design_chats/`) are conversations too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any

from hansard.formats import parts
from hansard.importers import json_stream
from hansard.importers.importer import ForeignConversation, ForeignMessage
from hansard.importers.report import ImportReport
from hansard.importers.source import ImportSource
from hansard.importers.values import content_of, items, mapping, sides, text, time
from hansard.model import NOT_YET, Message, Usage

_ROOT = "00000000-0000-4000-8000-000000000000"
_SIGN = re.compile(rb'"chat_messages"\s*:')
_FILE = re.compile(r"conversations(-\d+)?\.json$")
_ORIGIN = "claude-ai"
"""The origin of parts that are kept as they are."""
_NOTES = ("token_budget", "flag")
"""Blocks that say nothing: they are counted."""
_USED = {
    *("uuid", "name", "chat_messages", "created_at", "updated_at", "current_leaf_message_uuid", "project", "account"),
    *("model", "project_uuid", "settings"),
}


class ClaudeAi:
    name = "claude-ai"
    title = "Claude.ai data export: the zip, its folder, or conversations.json"

    def recognises(self, source: ImportSource) -> bool:
        return any(_SIGN.search(source.head(name)) for name in _files(source))

    def read(self, source: ImportSource, report: ImportReport) -> Iterator[ForeignConversation]:
        files = _files(source)
        for name in files:
            for where, given in json_stream.array_objects(source, name, report):
                if isinstance(given.get("chat_messages"), list):
                    yield _conversation(given, where, report)
                else:
                    report.complain(where, "it has no 'chat_messages'")
        for name in source.named(".json"):
            if "design_chats" in PurePosixPath(name).parts:
                for where, given in json_stream.array_objects(source, name, report, "chat"):
                    yield _conversation(_of_design(given), where, report)
            elif name not in files:
                report.lose("file of the export that holds no conversation", name)


def _files(source: ImportSource) -> list[str]:
    names = [name for name in source.names() if _FILE.search(PurePosixPath(name).name)]
    return names or [name for name in source.names() if name.endswith(".json") and len(source.names()) == 1]


def _conversation(given: dict[str, Any], where: str, report: ImportReport) -> ForeignConversation:
    theirs = items(given["chat_messages"])
    has_parents = any(mapping(each).get("parent_message_uuid") for each in theirs)
    model = text(given.get("model")) or None
    found: list[ForeignMessage] = []
    last_of: dict[str, str] = {}
    """The last message that was made of each of theirs."""
    before: str | None = None
    for number, each in enumerate(theirs, 1):
        if type(each) is not dict:
            report.complain(f"{where}, message {number}", "it is not an object")
            continue
        id = text(each.get("uuid")) or f"{text(given.get('uuid'))}-{number}"
        parent = text(each.get("parent_message_uuid")) if has_parents else before
        parent = None if parent in (None, "", _ROOT) else last_of.get(str(parent), str(parent))
        for message in _messages(each, id, model, report):
            found.append(ForeignMessage(message, parent))
            parent = last_of[id] = message.id
        before = id
    project = mapping(given.get("project"))
    kept = {name: value for name, value in given.items() if value and name not in _USED} | {
        "project": text(project.get("name")) or text(project.get("uuid")) or text(given.get("project_uuid")),
        "account": text(mapping(given.get("account")).get("uuid")),
        "model": model,
    }
    return ForeignConversation(
        id=text(given.get("uuid")) or where,
        messages=found,
        leaf=last_of.get(text(given.get("current_leaf_message_uuid"))) or _newest(found),
        title=text(given.get("name")) or None,
        created_at=time(given.get("created_at")),
        metadata={name: value for name, value in kept.items() if value} | {"imported_from": "claude-ai"},
        is_parsed=True,
    )


def _newest(found: list[ForeignMessage]) -> str | None:
    """Most exports do not say which branch is shown: it is where somebody has last written."""
    timed = [each.message for each in found if each.message.created_at is not NOT_YET]
    if len(timed) != len(found) or not timed:
        return None
    return max(enumerate(timed), key=lambda place: (place[1].created_at, place[0]))[1].id


def _messages(given: dict[str, Any], id: str, model: str | None, report: ImportReport) -> Iterator[Message]:
    """One message, or several where results of tools are among its blocks. The last one has the given id."""
    role = "user" if given.get("sender") == "human" else "assistant"
    at = time(given.get("created_at")) or NOT_YET
    usage = _usage(model) if role == "assistant" else None
    if said := _only_text(given):
        yield Message(role, said, id, format="text", created_at=at, usage=usage)
        return
    pieces = [*_parts(given, id, report)] or [("text", parts.Text(text=text(given.get("text"))))]
    groups = sides(("tool" if kind == "tool_result" else role, part) for kind, part in pieces)
    metadata = _metadata(given)
    for number, (side, each) in enumerate(groups, 1):
        content, format = content_of(each)
        is_last = number == len(groups)
        yield Message(
            side,
            content,
            id if is_last else f"{id}.{number}",
            format=format,
            created_at=at,
            usage=usage if side == "assistant" else None,
            metadata=(metadata or None) if is_last else None,
        )


def _only_text(given: dict[str, Any]) -> str:
    """The text of a message that has nothing else, as most; empty for any other."""
    blocks = given.get("content")
    if given.get("attachments") or given.get("files") or not isinstance(blocks, list) or len(blocks) != 1:
        return ""
    block = mapping(blocks[0])
    is_plain = block.get("type") == "text" and not block.get("citations")
    return text(block.get("text")) if is_plain else ""


@lru_cache
def _usage(model: str | None) -> Usage | None:
    return Usage(model=model) if model else None


def _metadata(given: dict[str, Any]) -> dict[str, Any]:
    """What the parts of a message cannot hold: the sources of its texts, outlines of its thoughts, names of files."""
    blocks = [mapping(each) for each in items(given.get("content"))]
    files = [mapping(each) for each in items(given.get("files"))]
    kept = {
        "citations": [each for block in blocks for each in items(block.get("citations"))],
        "thinking_summaries": [
            text(mapping(each).get("summary"))
            for block in blocks
            if text(block.get("thinking"))
            for each in items(block.get("summaries"))
        ],
        "missing_attachments": [text(each.get("file_name")) or str(each)[:120] for each in files],
    }
    return {name: value for name, value in kept.items() if value}


def _parts(given: dict[str, Any], id: str, report: ImportReport) -> Iterator[tuple[str, parts.AnyPart]]:
    calls: list[str] = []
    blocks = items(given.get("content")) or [{"type": "text", "text": given.get("text")}]
    for number, given_block in enumerate(blocks, 1):
        block = mapping(given_block)
        kind = text(block.get("type"))
        if kind == "text":
            if text(block.get("text")):
                yield kind, parts.Text(text=block["text"])
        elif kind == "thinking":
            yield kind, parts.Reasoning(text=text(block.get("thinking")) or _outline(block))
        elif kind == "tool_use":
            calls.append(text(block.get("id")) or f"{id}-call-{number}")
            yield kind, parts.ToolCall(id=calls[-1], name=text(block.get("name")), arguments=block.get("input"))
        elif kind == "tool_result":
            answered = text(block.get("tool_use_id")) or (calls[-1] if calls else f"{id}-call")
            yield kind, _result(block, answered, report)
        elif kind in _NOTES:
            report.lose(f"block of the kind {kind!r}", str(block)[:120])
        elif given_block:
            yield kind, parts.OtherPart(native=given_block, origin=_ORIGIN)
    yield from _attached(given, report)


def _attached(given: dict[str, Any], report: ImportReport) -> Iterator[tuple[str, parts.AnyPart]]:
    for attachment in map(mapping, items(given.get("attachments"))):
        name, extracted = text(attachment.get("file_name")), text(attachment.get("extracted_content"))
        if extracted:
            report.attachments += 1
        else:
            report.lose("attachment of which Claude.ai exports no text", name or str(attachment)[:120])
        yield "attachment", parts.Document(name=name or None, text=extracted, media_type="text/plain")
    for file in map(mapping, items(given.get("files"))):
        report.lose("uploaded file, which Claude.ai does not export", text(file.get("file_name")) or str(file)[:120])


def _outline(block: dict[str, Any]) -> str:
    return "\n".join(text(mapping(each).get("summary")) for each in items(block.get("summaries")))


def _result(block: dict[str, Any], answered: str, report: ImportReport) -> parts.ToolResult:
    """Only texts are joined: what a search has found has titles and addresses too."""
    content = block.get("content")
    found = [mapping(each) for each in items(content)]
    for each in found:
        if each.get("type") in ("image", "local_resource"):
            report.lose("file of a tool, which Claude.ai does not export", text(each.get("name")) or str(each)[:120])
    is_text = all(each.get("type") in (None, "text") and text(each.get("text")) for each in found)
    output: Any = "\n".join(each["text"] for each in found) if is_text and isinstance(content, list) else content
    if not output:
        output = block.get("structured_content") or text(mapping(block.get("display_content")).get("text"))
    return parts.ToolResult(
        id=answered, output=output, is_error=bool(block.get("is_error")), name=text(block.get("name")) or None
    )


# Claude Design


def _of_design(given: dict[str, Any]) -> dict[str, Any]:
    """A chat of Claude Design in the fields of other conversations."""
    messages = [_of_design_message(each) for each in items(given.get("messages"))]
    others = {name: value for name, value in given.items() if name not in ("messages", "title")}
    return others | {"name": given.get("title"), "chat_messages": messages, "design_chat": True}


def _of_design_message(given: object) -> Any:
    if not isinstance(given, dict):
        return given
    said = mapping(given.get("content"))
    attached = [mapping(each) for each in items(said.get("attachments"))]
    return {
        "uuid": given.get("uuid"),
        "sender": "assistant" if given.get("role") == "assistant" else "human",
        "text": said.get("content") or given.get("content"),
        "content": [_of_design_block(mapping(each)) for each in items(said.get("contentBlocks"))],
        "created_at": given.get("created_at") or said.get("timestamp"),
        "attachments": [{"file_name": each.get("name"), "extracted_content": each.get("content")} for each in attached],
    }


def _of_design_block(block: dict[str, Any]) -> dict[str, Any]:
    if block.get("type") == "thinking":
        return {"type": "thinking", "thinking": block.get("text")}
    if block.get("type") == "tool_call":
        call = mapping(block.get("toolCall"))
        return {"type": "tool_use", "id": call.get("id"), "name": call.get("name"), "input": call.get("input")}
    return block
