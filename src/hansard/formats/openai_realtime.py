"""OpenAI's Realtime: a conversation item, as in its events. Speech is read as its transcript.

As a target it produces items for `conversation.item.create`. Their ids are made from those of their messages, as short
as the API requires; if a message becomes several items, the later ones end in `.1`, `.2` and so on. An assistant's
audio cannot be created: it becomes text.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct

from hansard import codec
from hansard.formats.dialogue import DialogueEntry, Loss, Losses, Written
from hansard.formats.openai_chat import NO_OUTPUT, image_at
from hansard.formats.parts import (
    AnyPart,
    Audio,
    ImagePart,
    OtherPart,
    Reading,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    arguments_of,
    as_text,
    data_url,
    result_text,
    tool_name,
)

FORMAT = "openai.realtime"

_TEXTS = ("input_text", "output_text", "text")
_AUDIOS = ("input_audio", "output_audio", "audio")
_ID_LENGTH = 32
_IMAGES = ("image/png", "image/jpeg")


class RealtimeFunctionCall(Struct, tag="function_call"):
    name: str
    arguments: str
    call_id: str | None = None
    id: str | None = None


class FunctionOutput(Struct, tag="function_call_output"):
    call_id: str
    output: str


AnyItem = RealtimeFunctionCall | FunctionOutput
codec.prepare(AnyItem)


# Reading


def read(content: Any, role: str) -> Reading:
    items = content if isinstance(content, list) else [content]
    readings = [_read_item(item) for item in items]
    own_role = next((reading.role for reading in readings if reading.role), None)
    return Reading([part for reading in readings for part in reading.parts], own_role)


def _read_item(item: Any) -> Reading:
    if isinstance(item, str):
        return Reading([Text(item)])
    if isinstance(item, dict) and "role" in item and item.get("type", "message") == "message":
        content = item.get("content")
        pieces = content if isinstance(content, list) else [content]
        role = item["role"]
        return Reading([_read_piece(piece) for piece in pieces], role if isinstance(role, str) else None)
    try:
        known: AnyItem = msgspec.convert(item, AnyItem)
    except msgspec.ValidationError:
        return Reading([_read_piece(item)])
    if isinstance(known, FunctionOutput):
        return Reading([ToolResult(known.call_id, known.output)])
    return Reading([ToolCall(known.call_id or known.id or "", known.name, arguments_of(known.arguments))])


def _read_piece(piece: Any) -> AnyPart:
    if isinstance(piece, str):
        return Text(piece)
    kind = piece.get("type") if isinstance(piece, dict) else None
    if kind in _TEXTS and isinstance(piece.get("text"), str):
        return Text(piece["text"])
    if kind in _AUDIOS:
        return _read_audio(piece)
    if kind == "input_image" and isinstance(piece.get("image_url"), str):
        return image_at(piece["image_url"])
    return OtherPart(native=piece, origin=FORMAT)


def _read_audio(piece: dict[str, Any]) -> AnyPart:
    transcript, audio = piece.get("transcript"), piece.get("audio")
    if isinstance(transcript, str) and transcript:
        return Text(transcript)
    return Audio("audio/pcm", audio) if isinstance(audio, str) and audio else Text("")


# Writing


def item_id(message_id: str, number: int = 0) -> str:
    """Returns the id of an item that is made from a message: the message's own if the API accepts it."""
    id = f"{message_id}.{number}" if number else message_id
    if len(id) <= _ID_LENGTH and id.isascii() and id.replace("_", "").replace("-", "").replace(".", "").isalnum():
        return id
    return "h_" + hashlib.sha256(id.encode()).hexdigest()[: _ID_LENGTH - 2]


def write(entries: Sequence[DialogueEntry], losses: Losses) -> Written:
    items: list[dict[str, Any]] = []
    made: Counter[str] = Counter()
    for entry in entries:
        for item in _items(entry, losses):
            id = entry.message.id
            items.append({"id": item_id(id, made[id]), **item} if id else item)
            made[id] += 1
    return Written(items)


def _items(entry: DialogueEntry, losses: Losses) -> list[dict[str, Any]]:
    if entry.is_json:
        text = as_text(cast(OtherPart, entry.parts[0]).native)
        return [_message(entry, [Text(text)], losses)]
    if entry.side == "tool":
        return [_output(part, entry, losses) for part in entry.parts if isinstance(part, ToolResult)]
    items: list[dict[str, Any]] = []
    pending: list[AnyPart] = []
    for part in entry.parts:
        if isinstance(part, ToolCall):
            items += [_message(entry, pending, losses)] if pending else []
            pending = []
            items.append(_call(part))
        else:
            pending.append(part)
    items += [_message(entry, pending, losses)] if pending else []
    return [item for item in items if item.get("content", True)]


def _message(entry: DialogueEntry, parts: Sequence[AnyPart], losses: Losses) -> dict[str, Any]:
    role = entry.side if entry.side in ("user", "assistant") else "system"
    pieces = [piece for part in parts if (piece := _piece(part, role, entry, losses)) is not None]
    return {"type": "message", "role": role, "content": pieces}


def _piece(part: AnyPart, role: str, entry: DialogueEntry, losses: Losses) -> dict[str, Any] | None:
    if isinstance(part, Text | Refusal):
        return {"type": "output_text" if role == "assistant" else "input_text", "text": part.text}
    if isinstance(part, ImagePart) and role == "user" and part.data and part.media_type in _IMAGES:
        return {"type": "input_image", "image_url": data_url(part, "image/png")}
    losses.append(Loss(entry.message.id, str(part.__struct_config__.tag), f"Realtime takes none from the {role}"))
    return None


def _call(part: ToolCall) -> dict[str, Any]:
    return {"type": "function_call", "call_id": part.id, "name": tool_name(part), "arguments": as_text(part.arguments)}


def _output(part: ToolResult, entry: DialogueEntry, losses: Losses) -> dict[str, Any]:
    if part.is_error:
        losses.append(Loss(entry.message.id, "is_error", "Realtime cannot mark a result as an error"))
    return {"type": "function_call_output", "call_id": part.id, "output": result_text(part) or NO_OUTPUT}
