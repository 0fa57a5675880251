"""OpenAI's Responses: an item, a list of items, or the content of a message item."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, cast

import msgspec
from msgspec import UNSET, Struct, UnsetType

from hansard import codec
from hansard.formats.dialogue import DialogueEntry, Loss, Losses, Written
from hansard.formats.openai_chat import NO_OUTPUT, Breakpoint, image_at
from hansard.formats.parts import (
    AnyPart,
    Document,
    ImagePart,
    OtherPart,
    Part,
    Reading,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    arguments_of,
    as_text,
    data_url,
    result_parts,
    split_data_url,
    tool_name,
)

FORMAT = "openai.responses"

Status = Literal["in_progress", "completed", "incomplete"]


# What the provider accepts


class InputText(Struct, tag="input_text"):
    text: str
    prompt_cache_breakpoint: Breakpoint | UnsetType = UNSET


class InputImage(Struct, tag="input_image"):
    detail: Literal["auto", "low", "high"] = "auto"
    image_url: str | None = None
    file_id: str | None = None
    prompt_cache_breakpoint: Breakpoint | UnsetType = UNSET


class InputFile(Struct, tag="input_file"):
    file_data: str | UnsetType = UNSET
    file_url: str | UnsetType = UNSET
    file_id: str | None = None
    filename: str | UnsetType = UNSET
    detail: Literal["auto", "low", "high"] | UnsetType = UNSET
    prompt_cache_breakpoint: Breakpoint | UnsetType = UNSET


class OutputText(Struct, tag="output_text"):
    text: str
    annotations: list[Any] = []


class OutputRefusal(Struct, tag="refusal"):
    refusal: str


AnyPiece = InputText | InputImage | InputFile | OutputText | OutputRefusal


class SummaryText(Struct):
    text: str
    type: Literal["summary_text"]


class ReasoningText(Struct):
    text: str
    type: Literal["reasoning_text"]


class ReasoningItem(Struct, tag="reasoning"):
    id: str
    summary: list[SummaryText]
    content: list[ReasoningText] | UnsetType = UNSET
    encrypted_content: str | None = None
    status: Status | UnsetType = UNSET


class FunctionCallItem(Struct, tag="function_call"):
    call_id: str
    name: str
    arguments: str
    id: str | None = None
    status: Status | None = None
    namespace: str | None = None


class CustomCallItem(Struct, tag="custom_tool_call"):
    call_id: str
    name: str
    input: str
    id: str | None = None
    namespace: str | None = None


class SearchSource(Struct):
    type: Literal["url"]
    url: str


class SearchAction(Struct, tag="search"):
    query: str | UnsetType = UNSET
    queries: list[str] | UnsetType = UNSET
    sources: list[SearchSource] | UnsetType = UNSET


class OpenPage(Struct, tag="open_page"):
    url: str | None = None


class FindInPage(Struct, tag="find_in_page"):
    pattern: str
    url: str


class WebSearchItem(Struct, tag="web_search_call"):
    id: str
    action: SearchAction | OpenPage | FindInPage
    status: Literal["in_progress", "searching", "completed", "failed", "incomplete"]


class FileSearchItem(Struct, tag="file_search_call"):
    id: str
    queries: list[str]
    status: Literal["in_progress", "searching", "completed", "incomplete", "failed"]
    results: None = None


class Logs(Struct, tag="logs"):
    logs: str


class ShownImage(Struct, tag="image"):
    url: str


class CodeItem(Struct, tag="code_interpreter_call"):
    id: str
    code: str | None
    container_id: str
    outputs: list[Logs | ShownImage] | None
    status: Literal["in_progress", "completed", "incomplete", "interpreting", "failed"]


class McpItem(Struct, tag="mcp_call"):
    id: str
    arguments: str
    name: str
    server_label: str
    output: str | None = None
    error: None = None
    approval_request_id: str | None = None
    status: Literal["in_progress", "completed", "incomplete", "calling", "failed"] | UnsetType = UNSET


HostedItem = WebSearchItem | FileSearchItem | CodeItem | McpItem
AnyItem = ReasoningItem | FunctionCallItem | CustomCallItem | HostedItem
codec.prepare(AnyPiece, AnyItem)

_CALLS = ("function_call", "custom_tool_call")
_OUTPUTS = ("function_call_output", "custom_tool_call_output")
PAIRED = (*_CALLS, *_OUTPUTS)
"""Tool calls and their results, which every provider can represent."""
_LED_TO = ("mcp_approval_request", "mcp_list_tools", "program")
"""What may follow reasoning, besides text and calls."""
_UNCHECKED = ("async", "caller")
"""Optional fields of calls that are not checked here; a call that has one is rewritten."""


# Reading


def read(content: Any, role: str) -> Reading:
    items = content if isinstance(content, list) else [content]
    readings = [_read_item(item) for item in items]
    own_role = next((reading.role for reading in readings if reading.role), None)
    return Reading([part for reading in readings for part in reading.parts], own_role)


def _read_item(item: Any) -> Reading:
    if isinstance(item, dict):
        kind = item.get("type")
        if ("role" in item and kind in (None, "message")) or kind == "agent_message":
            return _read_message(item)
        if kind in _OUTPUTS and isinstance(item.get("call_id"), str):
            return Reading([_read_output(item, kind)])
        try:
            # The SDKs write null for missing fields, and the provider refuses null.
            present = {name: value for name, value in item.items() if value is not None} if _has_null(item) else item
            return Reading([_known_item(present, msgspec.convert(present, AnyItem))])
        except msgspec.ValidationError:
            pass
    return Reading([_read_piece(item)])


def _has_null(item: dict[str, Any]) -> bool:
    return any(value is None for value in item.values())


def _read_message(item: dict[str, Any]) -> Reading:
    role = item["role"] if isinstance(item.get("role"), str) else None
    content = item.get("content")
    pieces = content if isinstance(content, list) else [content]
    return Reading([_read_piece(piece) for piece in pieces], role)


def _known_item(item: dict[str, Any], known: AnyItem) -> AnyPart:
    if isinstance(known, HostedItem):
        return OtherPart(native=item, origin=FORMAT, is_hosted=True)
    if isinstance(known, ReasoningItem):
        said = known.summary or known.content or ()
        return Reasoning("\n".join(each.text for each in said), native=item, origin=FORMAT)
    origin: dict[str, Any] = {}
    if all(item.get(name) is None for name in _UNCHECKED):
        origin = {"native": item, "origin": FORMAT}
    if isinstance(known, CustomCallItem):
        return ToolCall(known.call_id, known.name, known.input, **origin)
    return ToolCall(known.call_id, known.name, arguments_of(known.arguments), **origin)


def _read_output(item: dict[str, Any], kind: str) -> ToolResult:
    output = item.get("output")
    if isinstance(output, list):
        parts = [_read_piece(piece) for piece in output]
        if not any(isinstance(part, OtherPart) for part in parts):
            output = parts
    return ToolResult(item["call_id"], "" if output is None else output, native=kind, origin=FORMAT)


def _read_piece(piece: Any) -> AnyPart:
    if isinstance(piece, str):
        return Text(piece)
    try:
        known: AnyPiece = msgspec.convert(piece, AnyPiece)
    except msgspec.ValidationError:
        return OtherPart(native=piece, origin=FORMAT)
    origin: dict[str, Any] = {"native": piece, "origin": FORMAT}
    if isinstance(known, InputText | OutputText):
        # The two types differ by side, so text is always rewritten.
        return Text(known.text)
    if isinstance(known, OutputRefusal):
        return Refusal(known.refusal)
    if isinstance(known, InputImage):
        if known.image_url:
            return image_at(known.image_url, **origin)
        return ImagePart(file_id=known.file_id, **origin) if known.file_id else OtherPart(native=piece, origin=FORMAT)
    return _read_file(known, origin)


def _read_file(known: InputFile, origin: dict[str, Any]) -> AnyPart:
    data = known.file_data or None
    found = split_data_url(data) if data else None
    media_type, data = found or (None, data)
    if not (data or known.file_url or known.file_id):
        return OtherPart(**origin)
    return Document(
        media_type, data, url=known.file_url or None, file_id=known.file_id, name=known.filename or None, **origin
    )


# Writing


def write(entries: Sequence[DialogueEntry], losses: Losses) -> Written:
    items: list[dict[str, Any]] = []
    kinds: dict[str, str] = {}
    for entry in entries:
        if entry.is_json:
            items.append({"role": _role(entry), "content": cast(OtherPart, entry.parts[0]).native})
        elif entry.side == "tool":
            items += [_output(part, entry, kinds, losses) for part in entry.parts if isinstance(part, ToolResult)]
        elif entry.side == "assistant":
            items += _assistant(entry, kinds, losses)
        elif content := _content(entry.parts, entry, losses):
            items.append({"role": entry.side, "content": content})
    return Written(_without_lone_ids(_without_lone_reasoning(items, losses)))


def _role(entry: DialogueEntry) -> str:
    return "user" if entry.side == "tool" else entry.side


def _content(parts: Sequence[AnyPart], entry: DialogueEntry, losses: Losses) -> str | list[dict[str, Any]]:
    if len(parts) == 1 and type(part := parts[0]) is Text:
        return part.text
    return [piece for part in parts if (piece := _piece(part, entry, losses)) is not None]


def _assistant(entry: DialogueEntry, kinds: dict[str, str], losses: Losses) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    for part in entry.parts:
        if isinstance(part, ToolCall):
            item = _call(part)
            kinds[part.id] = "custom_tool_call_output" if item["type"] == "custom_tool_call" else "function_call_output"
            items.append(item)
        elif isinstance(part, Reasoning | OtherPart) and part.origin == FORMAT:
            items.append(cast("dict[str, Any]", part.native))
        elif isinstance(part, Text | Refusal):
            items.append({"role": "assistant", "content": part.text})
        else:
            losses.append(
                Loss(entry.message.id, str(part.__struct_config__.tag), "an assistant message cannot contain it")
            )
    return items


def _piece(part: AnyPart, entry: DialogueEntry, losses: Losses) -> dict[str, Any] | None:
    if isinstance(part, Text):
        return {"type": "input_text", "text": part.text}
    if isinstance(part, ImagePart | Document) and part.origin == FORMAT:
        native = cast("dict[str, Any]", part.native)
        return {"detail": "auto", **native} if isinstance(part, ImagePart) else native
    piece = _media(part)
    if piece is None:
        losses.append(Loss(entry.message.id, str(part.__struct_config__.tag), "Responses has no content part for it"))
    return piece


def _media(part: Part) -> dict[str, Any] | None:
    if isinstance(part, ImagePart):
        if url := data_url(part, "image/png"):
            return {"type": "input_image", "detail": "auto", "image_url": url}
        return {"type": "input_image", "detail": "auto", "file_id": part.file_id} if part.file_id else None
    if isinstance(part, Document):
        if part.text:
            return {"type": "input_text", "text": part.text}
        if part.data:
            url = data_url(part, "application/pdf")
            return {"type": "input_file", "filename": part.name or "document", "file_data": url}
        if part.url:
            return {"type": "input_file", "file_url": part.url}
        if part.file_id:
            return {"type": "input_file", "file_id": part.file_id}
    return None


def _call(part: ToolCall) -> dict[str, Any]:
    if part.origin == FORMAT:
        native = cast("dict[str, Any]", part.native)
        return native if native["call_id"] == part.id else {**native, "call_id": part.id}
    return {"type": "function_call", "call_id": part.id, "name": tool_name(part), "arguments": as_text(part.arguments)}


def _output(part: ToolResult, entry: DialogueEntry, kinds: dict[str, str], losses: Losses) -> dict[str, Any]:
    kind = kinds.get(part.id, "function_call_output")
    output = _content(result_parts(part), entry, losses) or NO_OUTPUT
    if part.is_error:
        losses.append(Loss(entry.message.id, "is_error", "Responses cannot mark a result as an error"))
    return {"type": kind, "call_id": part.id, "output": output}


def _without_lone_reasoning(items: list[dict[str, Any]], losses: Losses) -> list[dict[str, Any]]:
    """Removes reasoning that is not followed by what it led to."""
    kept: list[dict[str, Any]] = []
    following = False
    for item in reversed(items):
        is_reasoning = item.get("type") == "reasoning"
        if is_reasoning and not following:
            losses.append(Loss("", "reasoning", "what it led to is not there"))
            continue
        kind = str(item.get("type"))
        following = item.get("role") == "assistant" or is_reasoning or kind.endswith("_call") or kind in _LED_TO
        kept.append(item)
    return kept[::-1]


def _without_lone_ids(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Removes the `id` of calls that have no reasoning before them.

    By that id OpenAI knows which reasoning led to a call, and refuses the call without it: a window may have cut
    between them. A call without an id needs none; its result is found by `call_id`.
    """
    kept: list[dict[str, Any]] = []
    is_led = False
    for item in items:
        kind = str(item.get("type"))
        is_lone = kind in _CALLS and not is_led
        kept.append({name: value for name, value in item.items() if name != "id"} if is_lone else item)
        is_said = item.get("role") == "assistant" or kind.endswith("_call")
        is_led = kind == "reasoning" or (is_led and is_said)
    return kept
