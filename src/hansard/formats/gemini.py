"""Gemini: a content (`{"role": …, "parts": […]}`), its parts, or a text. Both spellings of keys are read."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct, structs

from hansard import codec
from hansard.formats.anthropic import OPENING
from hansard.formats.dialogue import DialogueEntry, Loss, Losses, Written
from hansard.formats.parts import (
    AnyPart,
    Audio,
    Document,
    ImagePart,
    Media,
    OtherPart,
    Reading,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    arguments_object,
    result_parts,
    result_text,
)

FORMAT = "gemini"

_FROM_URLS = str.maketrans("-_", "+/")
_HUMP = re.compile(r"(?<=[a-z])([A-Z])")


# What the provider accepts


class GeminiBlob(Struct, forbid_unknown_fields=True):
    data: str
    mime_type: str | None = None
    display_name: str | None = None


class FileData(Struct, forbid_unknown_fields=True):
    file_uri: str
    mime_type: str | None = None
    display_name: str | None = None


class GeminiFunctionCall(Struct, forbid_unknown_fields=True):
    name: str
    args: dict[str, Any] | None = None
    id: str | None = None


class FunctionResponse(Struct, forbid_unknown_fields=True):
    name: str
    response: dict[str, Any] | None = None
    id: str | None = None


class GeminiPart(Struct, forbid_unknown_fields=True):
    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    inline_data: GeminiBlob | None = None
    file_data: FileData | None = None
    function_call: GeminiFunctionCall | None = None
    function_response: FunctionResponse | None = None


codec.prepare(GeminiPart)


# Reading


def read(content: Any, role: str) -> Reading:
    own_role = None
    if isinstance(content, dict) and "parts" in content:
        own_role = content["role"] if isinstance(content.get("role"), str) else None
        content = content["parts"]
    pieces = content if isinstance(content, list) else [content]
    return Reading([_read_part(piece) for piece in pieces], own_role)


def _read_part(piece: Any) -> AnyPart:
    if isinstance(piece, str):
        return Text(piece)
    try:
        known = msgspec.convert(_snake_case(piece), GeminiPart)
    except msgspec.ValidationError:
        return OtherPart(native=piece, origin=FORMAT)
    kinds = (known.text, known.inline_data, known.file_data, known.function_call, known.function_response)
    encoded = (known.thought_signature, known.inline_data and known.inline_data.data)
    if sum(kind is not None for kind in kinds) != 1 or not all(_is_base64(text) for text in encoded if text):
        return OtherPart(native=piece, origin=FORMAT)
    return _part(known, {"native": piece, "origin": FORMAT})


def _snake_case(value: Any) -> Any:
    """Returns the part with keys in snake_case, except inside arguments and responses, which are the tool's."""
    if not isinstance(value, dict):
        return value
    return {
        _HUMP.sub(r"_\1", key).lower(): _snake_case(item) if key not in ("args", "response") else item
        for key, item in value.items()
    }


def _part(known: GeminiPart, origin: dict[str, Any]) -> AnyPart:
    if known.thought or (known.thought_signature and not known.text and known.text is not None):
        return Reasoning(known.text or "", **origin)
    if known.text is not None:
        return Text(known.text, **origin)
    if known.function_call is not None:
        call = known.function_call
        return ToolCall(call.id or call.name, call.name, call.args or {}, **origin)
    if known.function_response is not None:
        answer = known.function_response
        output, is_error = _output(answer.response or "")
        return ToolResult(answer.id or answer.name, output, is_error, name=answer.name)
    if known.inline_data is not None:
        blob = known.inline_data
        return _media_kind(blob.mime_type)(blob.mime_type, _standard(blob.data), name=blob.display_name, **origin)
    file = cast(FileData, known.file_data)
    return _media_kind(file.mime_type)(file.mime_type, url=file.file_uri, name=file.display_name, **origin)


def _output(response: Any) -> tuple[Any, bool]:
    """Returns the output of a tool, and whether it is an error: Gemini has a key for each."""
    if isinstance(response, dict) and len(response) == 1:
        ((key, value),) = response.items()
        if key in ("output", "error"):
            # A tool may also report the absence of an error this way.
            return value if isinstance(value, str) else response, key == "error" and value not in (None, False)
    return response, False


def _media_kind(media_type: str | None) -> type[ImagePart] | type[Audio] | type[Document]:
    kind = (media_type or "").partition("/")[0]
    return ImagePart if kind == "image" else Audio if kind == "audio" else Document


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(_standard(text), validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _standard(text: str) -> str:
    """Returns standard base64, as other providers expect: Google's SDK writes the URL-safe alphabet."""
    return text.translate(_FROM_URLS)


# Writing


def write(entries: Sequence[DialogueEntry], losses: Losses) -> Written:
    system: list[str] = []
    contents: list[dict[str, Any]] = []
    nameless: set[str] = set()
    for entry in entries:
        nameless.update(
            part.id for part in entry.parts if isinstance(part, ToolCall) and not _called(_call(part)).get("id")
        )
        role = "model" if entry.side == "assistant" else "user"
        if entry.is_json:
            native = cast(OtherPart, entry.parts[0]).native
            contents.append({"role": role, "parts": native if isinstance(native, list) else [native]})
            continue
        if entry.side in ("system", "developer"):
            system += [part.text for part in entry.parts if isinstance(part, Text)]
            continue
        pieces = [piece for part in entry.parts for piece in _pieces(_like_its_call(part, nameless), entry, losses)]
        if pieces and contents and contents[-1]["role"] == role:
            contents[-1]["parts"] = [*contents[-1]["parts"], *pieces]
        elif pieces:
            contents.append({"role": role, "parts": pieces})
    if contents and contents[0]["role"] == "model":
        contents.insert(0, {"role": "user", "parts": [{"text": OPENING}]})
    return Written(_responses_first(contents), "\n\n".join(system) or None)


def _pieces(part: AnyPart, entry: DialogueEntry, losses: Losses) -> list[dict[str, Any]]:
    if isinstance(part, ToolResult):
        return _response(part, entry, losses)
    if isinstance(part, ToolCall):
        return [_call(part)]
    if part.origin == FORMAT:
        return [cast("dict[str, Any]", part.native)]
    if isinstance(part, Text | Refusal):
        return [{"text": part.text}]
    piece = _media(part) if isinstance(part, Media) else None
    if piece is None:
        why = "Gemini accepts only its own thoughts" if isinstance(part, Reasoning) else "Gemini has no part for it"
        losses.append(Loss(entry.message.id, str(part.__struct_config__.tag), why))
        return []
    return [piece]


def _media(part: Media) -> dict[str, Any] | None:
    if isinstance(part, Document) and part.text:
        return {"text": part.text}
    default = {ImagePart: "image/png", Audio: "audio/wav", Document: "application/pdf"}[type(part)]
    if part.data and _is_base64(part.data):
        return {"inline_data": {"mime_type": part.media_type or default, "data": part.data}}
    return {"file_data": {"mime_type": part.media_type or default, "file_uri": part.url}} if part.url else None


def _call(part: ToolCall) -> dict[str, Any]:
    if part.origin == FORMAT:
        native = cast("dict[str, Any]", part.native)
        called = _called(native)
        if called.get("id") in (None, part.id):
            return native
        return {**native, "functionCall" if "functionCall" in native else "function_call": {**called, "id": part.id}}
    return {"function_call": {"id": part.id, "name": part.name, "args": arguments_object(part)}}


def _called(piece: dict[str, Any]) -> dict[str, Any]:
    called: dict[str, Any] = piece["functionCall" if "functionCall" in piece else "function_call"]
    return called


def _like_its_call(part: AnyPart, nameless: set[str]) -> AnyPart:
    """Returns the part; a result loses its id if its call has none: the provider then pairs them by order."""
    return structs.replace(part, id="") if isinstance(part, ToolResult) and part.id in nameless else part


def _response(part: ToolResult, entry: DialogueEntry, losses: Losses) -> list[dict[str, Any]]:
    pieces = [piece for each in result_parts(part) if isinstance(each, Media) for piece in _pieces(each, entry, losses)]
    key = "error" if part.is_error else "output"
    response = part.output if isinstance(part.output, dict) else {key: result_text(part)}
    answer = {"name": part.name or part.id, "response": response}
    return [{"function_response": {"id": part.id, **answer} if part.id else answer}, *pieces]


def _responses_first(contents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Moves responses to the start of their content, before images of a tool or text of a user."""
    for content in contents:
        pieces = content["parts"]
        content["parts"] = sorted(
            pieces, key=lambda piece: not (isinstance(piece, dict) and "function_response" in piece)
        )
    return contents
