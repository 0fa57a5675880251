"""What the formats of training data share: finished messages in OpenAI's shape, and the tools that they call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from hansard import formats
from hansard.exporters.exporter import ExportedConversation
from hansard.exporters.report import ExportReport
from hansard.formats.parts import arguments_of
from hansard.model import Conversation, Message

NDJSON = "application/x-ndjson"

_encode = msgspec.json.Encoder().encode


def line(value: object) -> bytes:
    return _encode(value) + b"\n"


async def chat(given: ExportedConversation, report: ExportReport) -> list[dict[str, Any]] | None:
    """The active branch as Chat Completions messages. None, with an entry in the report, if it has no answer."""
    found = converted([message async for message in given.line()], report)
    if any(each["role"] == "assistant" for each in found):
        return found
    report.lose("conversation without an answer", given.conversation.id)
    return None


def converted(messages: Sequence[Message], report: ExportReport) -> list[dict[str, Any]]:
    finished = [message for message in messages if message.status == "complete"]
    for message in messages:
        if message.status != "complete":
            report.lose(f"message that is {message.status.replace('_', ' ')}", message.id)
    found = formats.convert(finished, "openai.chat")
    report.lose_all(found.losses)
    return list(found)


def tools_of(conversation: Conversation, messages: Sequence[dict[str, Any]]) -> list[Any]:
    """The definitions in the conversation's metadata (`tools`), or else what can be known from the calls."""
    given = conversation.metadata.get("tools")
    if isinstance(given, list) and given:
        return given
    arguments: dict[str, dict[str, Any]] = {}
    for message in messages:
        for call in message.get("tool_calls") or ():
            if call.get("type") == "function":
                found = arguments_of(call["function"]["arguments"])
                properties = arguments.setdefault(call["function"]["name"], {})
                properties |= {name: {} for name in found} if isinstance(found, dict) else {}
    return [
        {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}}
        for name, properties in arguments.items()
    ]


def text_of(message: dict[str, Any], report: ExportReport, where: str) -> str:
    """The text of a Chat Completions message, for formats that have nothing else."""
    content = message.get("content")
    if not isinstance(content, list):
        return content if isinstance(content, str) else "" if content is None else _encode(content).decode()
    texts = []
    for piece in content:
        text = piece.get("text") or piece.get("refusal") if isinstance(piece, dict) else piece
        if isinstance(text, str):
            texts.append(text)
        else:
            report.lose(f"content of the kind {piece.get('type')}", where)
    return "\n".join(texts)
