"""OpenAI's Chat Completions: a whole message (`{"role": …, "content": …, "tool_calls": …}`), or its content alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, cast

import msgspec
from msgspec import UNSET, Struct, UnsetType

from hansard import codec
from hansard.formats.dialogue import DialogueEntry, Loss, Losses, Written
from hansard.formats.parts import (
    AnyPart,
    Audio,
    Document,
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
    plain_name,
    result_parts,
    result_text,
    split_data_url,
    tool_name,
)

FORMAT = "openai.chat"
NO_OUTPUT = "(no output)"

_AUDIO = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


# What the provider accepts


class Breakpoint(Struct):
    mode: Literal["explicit"]
    ttl: Literal["30m", "12h"] | UnsetType = UNSET


class ChatContentPart(Struct):
    prompt_cache_breakpoint: Breakpoint | UnsetType = UNSET


class TextPiece(ChatContentPart, tag="text", kw_only=True):
    text: str


class ImageUrl(Struct):
    url: str
    detail: Literal["auto", "low", "high"] | UnsetType = UNSET


class ImagePiece(ChatContentPart, tag="image_url", kw_only=True):
    image_url: ImageUrl


class InputAudio(Struct):
    data: str
    format: Literal["wav", "mp3"]


class AudioPiece(ChatContentPart, tag="input_audio", kw_only=True):
    input_audio: InputAudio


class File(Struct):
    file_data: str | UnsetType = UNSET
    file_id: str | UnsetType = UNSET
    filename: str | UnsetType = UNSET


class FilePiece(ChatContentPart, tag="file", kw_only=True):
    file: File


class RefusalPiece(Struct, tag="refusal"):
    refusal: str


class Function(Struct):
    name: str
    arguments: str


class ChatFunctionCall(Struct, tag="function"):
    id: str
    function: Function


class Custom(Struct):
    name: str
    input: str


class CustomCall(Struct, tag="custom"):
    id: str
    custom: Custom


class AudioId(Struct):
    id: str


AnyPiece = TextPiece | ImagePiece | AudioPiece | FilePiece | RefusalPiece
AnyCall = ChatFunctionCall | CustomCall


class UserMessage(Struct, tag_field="role", tag="user"):
    content: str | list[TextPiece | ImagePiece | AudioPiece | FilePiece]
    name: str | UnsetType = UNSET


class SystemMessage(Struct, tag_field="role", tag="system"):
    content: str | list[TextPiece]
    name: str | UnsetType = UNSET


class DeveloperMessage(Struct, tag_field="role", tag="developer"):
    content: str | list[TextPiece]
    name: str | UnsetType = UNSET


class AssistantMessage(Struct, tag_field="role", tag="assistant"):
    content: str | list[TextPiece | RefusalPiece] | None = None
    refusal: str | None = None
    tool_calls: list[AnyCall] | UnsetType = UNSET
    audio: AudioId | None = None
    function_call: None = None
    name: str | UnsetType = UNSET


class ToolMessage(Struct, tag_field="role", tag="tool"):
    content: str | list[TextPiece]
    tool_call_id: str


AnyMessage = UserMessage | SystemMessage | DeveloperMessage | AssistantMessage | ToolMessage
codec.prepare(AnyPiece, AnyCall, AnyMessage)


# Reading


def read(content: Any, role: str) -> Reading:
    if isinstance(content, dict) and ("role" in content or "tool_calls" in content):
        return _read_message(content, role)
    pieces = content if isinstance(content, list) else [content]
    return Reading([read_piece(piece) for piece in pieces])


def _read_message(message: dict[str, Any], role: str) -> Reading:
    own_role = message.get("role", role)
    own_role = own_role if isinstance(own_role, str) else role
    if own_role in ("tool", "function") and isinstance(message.get("tool_call_id"), str):
        parts: list[AnyPart] = [_read_result(message)]
    else:
        parts = _read_said(message)
    name = message.get("name")
    return Reading(parts, own_role, name if isinstance(name, str) else None, _whole(message))


def _whole(message: dict[str, Any]) -> dict[str, Any] | None:
    """Returns the message if the provider accepts it as it is."""
    if message.get("tool_calls", True) == [] or not _is_plain(message.get("name", "")):
        return None
    try:
        msgspec.convert(message, AnyMessage)
    except msgspec.ValidationError:
        return None
    return message


def _is_plain(name: Any) -> bool:
    return isinstance(name, str) and plain_name(name) == name


def _read_said(message: dict[str, Any]) -> list[AnyPart]:
    content = message.get("content")
    pieces = content if isinstance(content, list) else [] if content is None else [content]
    parts = [read_piece(piece) for piece in pieces]
    if isinstance(refusal := message.get("refusal"), str):
        parts.append(Refusal(refusal))
    if isinstance(audio := message.get("audio"), dict) and isinstance(audio.get("id"), str):
        parts.append(Audio(file_id=audio["id"]))
    calls = message.get("tool_calls")
    parts += [_read_call(call) for call in calls] if isinstance(calls, list) else []
    return parts or [OtherPart(native=message, origin=FORMAT)]


def read_piece(piece: Any) -> AnyPart:
    if isinstance(piece, str):
        return Text(piece)
    try:
        known: AnyPiece = msgspec.convert(piece, AnyPiece)
    except msgspec.ValidationError:
        return OtherPart(native=piece, origin=FORMAT)
    origin: dict[str, Any] = {"native": piece, "origin": FORMAT}
    if isinstance(known, TextPiece):
        return Text(known.text, **origin)
    if isinstance(known, RefusalPiece):
        return Refusal(known.refusal, **origin)
    if isinstance(known, ImagePiece):
        return image_at(known.image_url.url, **origin)
    if isinstance(known, AudioPiece):
        audio = known.input_audio
        return Audio(f"audio/{'mpeg' if audio.format == 'mp3' else audio.format}", audio.data, **origin)
    return _read_file(known.file, origin)


def image_at(url: str, **origin: Any) -> ImagePart:
    found = split_data_url(url)
    return ImagePart(*found, **origin) if found else ImagePart(url=url, **origin)


def _read_file(file: File, origin: dict[str, Any]) -> Document:
    data = file.file_data or None
    found = split_data_url(data) if data else None
    media_type, data = found or (None, data)
    return Document(media_type, data, file_id=file.file_id or None, name=file.filename or None, **origin)


def _read_call(call: Any) -> AnyPart:
    try:
        known: AnyCall = msgspec.convert(call, AnyCall)
    except msgspec.ValidationError:
        return OtherPart(native=call, origin=FORMAT)
    if isinstance(known, CustomCall):
        return ToolCall(known.id, known.custom.name, known.custom.input, native=call, origin=FORMAT)
    return ToolCall(known.id, known.function.name, arguments_of(known.function.arguments), native=call, origin=FORMAT)


def _read_result(message: dict[str, Any]) -> ToolResult:
    content = message.get("content")
    parts = [read_piece(piece) for piece in content] if isinstance(content, list) else []
    known = parts and not any(isinstance(part, OtherPart) for part in parts)
    return ToolResult(message["tool_call_id"], parts if known else "" if content is None else content)


# Writing


def write(entries: Sequence[DialogueEntry], losses: Losses) -> Written:
    items: list[dict[str, Any]] = []
    seen: list[dict[str, Any]] = []
    for entry in entries:
        if entry.side != "tool" and seen:
            # Images from tools: only a user message can contain them, after all results.
            items.append({"role": "user", "content": seen})
            seen = []
        if entry.is_json:
            items.append({"role": entry.side, "content": cast(OtherPart, entry.parts[0]).native})
        elif entry.side == "tool":
            items += _results(entry, seen, losses)
        elif item := _message(entry, losses):
            items.append(item)
    if seen:
        items.append({"role": "user", "content": seen})
    return Written(items)


def _message(entry: DialogueEntry, losses: Losses) -> dict[str, Any] | None:
    if entry.native is not None:
        return cast("dict[str, Any]", entry.native)
    item = _assistant(entry, losses) if entry.side == "assistant" else _plain_message(entry, losses)
    if item and entry.name and (name := plain_name(entry.name)):
        item["name"] = name
    return item


def _plain_message(entry: DialogueEntry, losses: Losses) -> dict[str, Any] | None:
    if len(entry.parts) == 1 and type(part := entry.parts[0]) is Text and part.origin != FORMAT:
        return {"role": entry.side, "content": part.text}
    pieces = [piece for part in entry.parts if (piece := write_piece(part, entry, losses)) is not None]
    return {"role": entry.side, "content": pieces} if pieces else None


def _assistant(entry: DialogueEntry, losses: Losses) -> dict[str, Any] | None:
    item: dict[str, Any] = {"role": "assistant"}
    texts: list[dict[str, Any]] = []
    for part in entry.parts:
        if isinstance(part, ToolCall):
            item.setdefault("tool_calls", []).append(_call(part))
        elif isinstance(part, Text | Refusal):
            texts.append(cast("dict[str, Any]", write_piece(part, entry, losses)))
        else:
            losses.append(
                Loss(entry.message.id, str(part.__struct_config__.tag), "an assistant message cannot contain it")
            )
    if texts:
        plain = len(texts) == 1 and texts[0].keys() == {"type", "text"}
        item["content"] = texts[0]["text"] if plain else texts
    return item if len(item) > 1 else None


def write_piece(part: AnyPart, entry: DialogueEntry, losses: Losses) -> dict[str, Any] | None:
    if part.origin == FORMAT and not isinstance(part, OtherPart):
        return cast("dict[str, Any]", part.native)
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if isinstance(part, Refusal):
        return {"type": "refusal", "refusal": part.text}
    piece = _media(part)
    if piece is None:
        losses.append(
            Loss(entry.message.id, str(part.__struct_config__.tag), "Chat Completions has no content part for it")
        )
    return piece


def _media(part: AnyPart) -> dict[str, Any] | None:
    if isinstance(part, ImagePart) and (url := data_url(part, "image/png")):
        return {"type": "image_url", "image_url": {"url": url}}
    if isinstance(part, Audio) and part.data and part.media_type in _AUDIO:
        return {"type": "input_audio", "input_audio": {"data": part.data, "format": _AUDIO[part.media_type]}}
    if isinstance(part, Document):
        if part.text:
            return {"type": "text", "text": part.text}
        if part.file_id:
            return {"type": "file", "file": {"file_id": part.file_id}}
        if part.data:
            name = part.name or "document"
            return {"type": "file", "file": {"filename": name, "file_data": data_url(part, "application/pdf")}}
    return None


def _call(part: ToolCall) -> dict[str, Any]:
    if part.origin == FORMAT:
        native = cast("dict[str, Any]", part.native)
        return native if native["id"] == part.id else {**native, "id": part.id}
    function = {"name": tool_name(part), "arguments": as_text(part.arguments)}
    return {"id": part.id, "type": "function", "function": function}


def _results(entry: DialogueEntry, seen: list[dict[str, Any]], losses: Losses) -> list[dict[str, Any]]:
    items = []
    for part in entry.parts:
        if not isinstance(part, ToolResult):
            continue
        shown = [
            write_piece(each, entry, losses) for each in result_parts(part) if not isinstance(each, Text | Refusal)
        ]
        seen += filter(None, shown)
        if part.is_error:
            losses.append(Loss(entry.message.id, "is_error", "Chat Completions cannot mark a result as an error"))
        items.append({"role": "tool", "tool_call_id": part.id, "content": result_text(part) or NO_OUTPUT})
    return items
