"""Pydantic AI's messages as messages of the history, and back."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import Any

import msgspec
from pydantic import TypeAdapter
from pydantic_ai import ModelMessagesTypeAdapter
from pydantic_ai.conversation_store import ConversationEntry
from pydantic_ai.messages import (
    AudioUrl,
    BinaryContent,
    DocumentUrl,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)

from hansard.adapters.history import reading_of
from hansard.formats.dialogue import side_of
from hansard.formats.parts import AnyPart, Audio, ImagePart, Media, Refusal, Text, ToolCall, ToolResult
from hansard.model import Message, Usage

FORMAT = "pydantic_ai"
_CALL = TypeAdapter(ToolCallPart)


def row_of(entry: ConversationEntry) -> Message:
    content = msgspec.json.decode(ModelMessagesTypeAdapter.dump_json([entry.message]))[0]
    return Message(_role(entry.message), content, id=entry.id, format=FORMAT, usage=_usage(entry.message))


def _role(message: ModelMessage) -> str:
    if isinstance(message, ModelResponse):
        return "assistant"
    if message.parts and all(isinstance(part, ToolReturnPart) for part in message.parts):
        return "tool"
    if message.parts and all(isinstance(part, SystemPromptPart) for part in message.parts):
        return "system"
    return "user"


def _usage(message: ModelMessage) -> Usage | None:
    if not isinstance(message, ModelResponse):
        return None
    spent = message.usage
    return Usage(
        spent.input_tokens,
        spent.output_tokens,
        spent.cache_read_tokens,
        spent.output_reasoning_tokens,
        float(spent.cost or 0),
        message.model_name,
    )


def entries_of(rows: Iterable[Message], parent_id: str | None = None) -> list[ConversationEntry]:
    """Returns the entries of rows of any format. The last entry of a row has the row's id, earlier ones `id~N`."""
    entries: list[ConversationEntry] = []
    names: dict[str, str] = {}
    for row in rows:
        converted = messages_of(row, names)
        for number, message in enumerate(converted, 1 - len(converted)):
            id = row.id if number == 0 else f"{row.id}~{-number}"
            entries.append(ConversationEntry(id=id, parent_id=parent_id, message=message))
            parent_id = id
    return entries


def calls_in(row: Message) -> dict[tuple[str, str], Any]:
    """Returns the tool calls in a row, as JSON, by the entry and the id of each."""
    found = {}
    for entry in entries_of([row]):
        for part in entry.message.parts:
            if isinstance(part, ToolCallPart):
                found[entry.id, part.tool_call_id] = msgspec.json.decode(_CALL.dump_json(part))
    return found


def row_id(entry_id: str) -> str:
    return entry_id.partition("~")[0]


def messages_of(row: Message, names: dict[str, str]) -> list[ModelMessage]:
    """Returns a row as Pydantic AI's messages. `names` are the names of the calls so far.

    A row that Pydantic AI wrote is returned unchanged.
    """
    if row.format == FORMAT and isinstance(row.content, dict):
        return ModelMessagesTypeAdapter.validate_json(msgspec.json.encode([row.content]))
    reading = reading_of(row)
    side = side_of(reading.role or row.role)
    made: list[ModelMessage] = []
    for part in reading.parts:
        if isinstance(part, ToolCall):
            names[part.id] = part.name
        found = _response_part(part) if side == "assistant" and not isinstance(part, ToolResult) else None
        if found is not None:
            if not made or not isinstance(made[-1], ModelResponse):
                made.append(ModelResponse(parts=[], timestamp=row.created_at, model_name=_model(row)))
            made[-1].parts = [*made[-1].parts, found]
        elif side != "assistant" or isinstance(part, ToolResult):
            _add_request_part(made, part, side, row, names)
    return made


def _model(row: Message) -> str | None:
    return row.usage.model if row.usage else None


def _response_part(part: AnyPart) -> TextPart | ToolCallPart | None:
    if isinstance(part, Text | Refusal):
        return TextPart(part.text) if part.text else None
    if isinstance(part, ToolCall):
        return ToolCallPart(part.name, part.arguments, tool_call_id=part.id)
    return None


def _add_request_part(made: list[ModelMessage], part: AnyPart, side: str, row: Message, names: dict[str, str]) -> None:
    """Adds a part of a request. Every time in it is the row's, so that repeated reads are equal."""
    if isinstance(part, ToolResult):
        name = part.name or names.get(part.id, part.id)
        outcome: Any = "failed" if part.is_error else "success"
        output = msgspec.to_builtins(part.output)
        piece: Any = ToolReturnPart(name, output, tool_call_id=part.id, timestamp=row.created_at, outcome=outcome)
    elif side in ("system", "developer") and isinstance(part, Text):
        piece = SystemPromptPart(part.text, timestamp=row.created_at)
    else:
        converted = _user_content(part)
        if converted is None:
            return
        piece = UserPromptPart(converted if isinstance(converted, str) else [converted], timestamp=row.created_at)
    if not made or not isinstance(made[-1], ModelRequest):
        made.append(ModelRequest(parts=[], timestamp=row.created_at))
    made[-1].parts = [*made[-1].parts, piece]


def _user_content(part: AnyPart) -> UserContent | None:
    if isinstance(part, Text | Refusal):
        return part.text
    if not isinstance(part, Media):
        return None
    if part.data:
        try:
            data = base64.b64decode(part.data, validate=True)
        except (binascii.Error, ValueError):
            return None
        return BinaryContent(data, media_type=part.media_type or "application/octet-stream")
    if not part.url:
        return None
    kind = ImageUrl if isinstance(part, ImagePart) else AudioUrl if isinstance(part, Audio) else DocumentUrl
    return kind(part.url, media_type=part.media_type)
