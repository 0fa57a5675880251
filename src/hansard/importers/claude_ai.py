"""Claude.ai's data export: `conversations.json` with `chat_messages`, alone, in a folder or in its zip file.

New exports name each message's parent; old ones are flat, and are chained in their order. A message of Claude's may
hold tool calls and their results in one: those are split, so that each result follows its call.
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


class ClaudeAi:
    name = "claude-ai"
    title = "Claude.ai data export: the zip, its folder, or conversations.json"

    def recognises(self, source: ImportSource) -> bool:
        return any(_SIGN.search(source.head(name)) for name in _files(source))

    def read(self, source: ImportSource, report: ImportReport) -> Iterator[ForeignConversation]:
        for name in _files(source):
            for where, given in json_stream.array_objects(source, name, report):
                if isinstance(given.get("chat_messages"), list):
                    yield _conversation(given, where, report)
                else:
                    report.complain(where, "it has no 'chat_messages'")
        for name in source.named("projects.json", "memories.json"):
            report.lose("file of the export that holds no conversation", name)


def _files(source: ImportSource) -> list[str]:
    names = [name for name in source.names() if PurePosixPath(name).name == "conversations.json"]
    return names or [name for name in source.names() if name.endswith(".json") and len(source.names()) == 1]


def _conversation(given: dict[str, Any], where: str, report: ImportReport) -> ForeignConversation:
    given_messages = [mapping(each) for each in given["chat_messages"]]
    has_parents = any(each.get("parent_message_uuid") for each in given_messages)
    model = text(given.get("model")) or None
    found: list[ForeignMessage] = []
    last_of: dict[str, str] = {}
    """The last message that was made of each of theirs."""
    before: str | None = None
    for number, each in enumerate(given_messages, 1):
        id = text(each.get("uuid")) or f"{text(given.get('uuid'))}-{number}"
        parent = text(each.get("parent_message_uuid")) if has_parents else before
        parent = None if parent in (None, "", _ROOT) else last_of.get(str(parent), str(parent))
        for message in _messages(each, id, model, report):
            found.append(ForeignMessage(message, parent))
            parent = last_of[id] = message.id
        before = id if id in last_of else before
    leaf = text(given.get("current_leaf_message_uuid"))
    project = mapping(given.get("project"))
    kept = {"summary": text(given.get("summary")), "project": text(project.get("name")) or text(project.get("uuid"))}
    return ForeignConversation(
        id=text(given.get("uuid")) or where,
        messages=found,
        leaf=last_of.get(leaf),
        title=text(given.get("name")) or None,
        created_at=time(given.get("created_at")),
        metadata={"imported_from": "claude-ai"} | {name: value for name, value in kept.items() if value},
    )


def _messages(given: dict[str, Any], id: str, model: str | None, report: ImportReport) -> Iterator[Message]:
    """One message, or several where results of tools are among its blocks. The last one has the given id."""
    role = "user" if given.get("sender") == "human" else "assistant"
    at = time(given.get("created_at")) or NOT_YET
    usage = _usage(model) if role == "assistant" else None
    if said := _only_text(given):
        yield Message(role, said, id, format="text", created_at=at, usage=usage)
        return
    groups = sides(("tool" if kind == "tool_result" else role, part) for kind, part in _parts(given, id, report))
    for number, (side, pieces) in enumerate(groups, 1):
        content, format = content_of(pieces)
        yield Message(
            side,
            content,
            id if number == len(groups) else f"{id}.{number}",
            format=format,
            created_at=at,
            usage=usage if side == "assistant" else None,
        )


def _only_text(given: dict[str, Any]) -> str:
    """The text of a message that has nothing else, as most; empty for any other."""
    blocks = given.get("content")
    if given.get("attachments") or given.get("files") or not isinstance(blocks, list) or len(blocks) != 1:
        return ""
    block = mapping(blocks[0])
    return text(block.get("text")) if block.get("type") == "text" else ""


@lru_cache
def _usage(model: str | None) -> Usage | None:
    return Usage(model=model) if model else None


def _parts(given: dict[str, Any], id: str, report: ImportReport) -> Iterator[tuple[str, parts.AnyPart]]:
    calls: list[str] = []
    blocks = items(given.get("content")) or [{"type": "text", "text": given.get("text")}]
    for number, block in enumerate(map(mapping, blocks), 1):
        kind = text(block.get("type"))
        if kind == "text" and text(block.get("text")):
            yield kind, parts.Text(text=block["text"])
        elif kind == "thinking":
            yield kind, parts.Reasoning(text=text(block.get("thinking")))
        elif kind == "tool_use":
            calls.append(text(block.get("id")) or f"{id}-call-{number}")
            yield kind, parts.ToolCall(id=calls[-1], name=text(block.get("name")), arguments=block.get("input"))
        elif kind == "tool_result":
            answered = text(block.get("tool_use_id")) or (calls[-1] if calls else f"{id}-call")
            yield kind, _result(block, answered)
        elif kind != "text":
            report.lose(f"block of the kind {kind!r}", str(block)[:120])
    for attachment in map(mapping, items(given.get("attachments"))):
        report.attachments += 1
        name, extracted = text(attachment.get("file_name")), text(attachment.get("extracted_content"))
        yield "attachment", parts.Document(name=name or None, text=extracted, media_type="text/plain")
    for file in map(mapping, items(given.get("files"))):
        report.lose("uploaded file, which Claude.ai does not export", text(file.get("file_name")) or str(file)[:120])


def _result(block: dict[str, Any], answered: str) -> parts.ToolResult:
    content = block.get("content")
    texts = [text(mapping(each).get("text")) for each in items(content)]
    output: Any = "\n".join(each for each in texts if each) if all(texts) else content
    return parts.ToolResult(
        id=answered, output=output, is_error=bool(block.get("is_error")), name=text(block.get("name")) or None
    )
