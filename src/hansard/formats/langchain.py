"""LangChain: a message as `message_to_dict` writes it (`{"type": "human", "data": {…}}`), flat, or as from `dumpd`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, cast

import msgspec
from msgspec import UNSET, Struct, UnsetType

from hansard import codec
from hansard.formats import openai_chat
from hansard.formats.dialogue import DialogueEntry, Loss, Losses, Written
from hansard.formats.parts import (
    AnyPart,
    Audio,
    Document,
    ImagePart,
    OtherPart,
    Reading,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    arguments_object,
    result_parts,
)

FORMAT = "langchain"

_ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool", "function": "tool"}
_TYPES = {"user": "human", "assistant": "ai", "system": "system", "developer": "system"}


# What the framework accepts


class LangchainToolCall(Struct):
    name: str
    args: dict[str, Any]
    id: str
    type: Literal["tool_call"] = "tool_call"


class StandardMedia(Struct):
    """LangChain's own blocks, in their first and second version."""

    mime_type: str | None = None
    base64: str | None = None
    data: str | None = None
    url: str | None = None
    file_id: str | None = None
    id: str | None = None


class LangchainUsage(Struct):
    input_tokens: int
    output_tokens: int
    total_tokens: int


class Data(Struct):
    content: str | list[str | dict[str, Any]]
    additional_kwargs: dict[str, Any] = {}
    response_metadata: dict[str, Any] = {}
    name: str | None = None
    id: str | None = None
    tool_calls: list[LangchainToolCall] = []
    invalid_tool_calls: list[None] = []
    usage_metadata: LangchainUsage | None = None
    tool_call_id: str | UnsetType = UNSET
    status: Literal["success", "error"] = "success"
    example: bool = False


codec.prepare(Data, StandardMedia, LangchainToolCall)


# Reading


def read(content: Any, role: str) -> Reading:
    if isinstance(content, str):
        return Reading([Text(content)])
    if not isinstance(content, dict):
        return Reading([OtherPart(native=content, origin=FORMAT)])
    kind, data = _unwrapped(content)
    if not isinstance(data, dict) or "content" not in data:
        return Reading([OtherPart(native=content, origin=FORMAT)])
    own_role = _ROLES.get(kind) if isinstance(kind, str) else None
    name = data.get("name")
    is_result = own_role == "tool" and isinstance(data.get("tool_call_id"), str)
    parts: list[AnyPart] = [_read_result(data)] if is_result else _read_said(data)
    is_native = own_role is not None and set(content) == {"type", "data"} and _is_known(data, own_role)
    return Reading(parts, own_role, name if isinstance(name, str) else None, content if is_native else None)


def _unwrapped(content: dict[str, Any]) -> tuple[Any, Any]:
    """Returns the kind of message, and its fields."""
    if content.get("type") == "constructor" and isinstance(path := content.get("id"), list) and path:
        return str(path[-1]).removesuffix("Chunk").removesuffix("Message").lower(), content.get("kwargs")
    if "data" in content:
        return content.get("type"), content["data"]
    kind = content.get("type") or content.get("role")
    return kind.removesuffix("MessageChunk").lower() if isinstance(kind, str) else kind, content


def _is_known(data: dict[str, Any], own_role: str | None) -> bool:
    """Whether the framework accepts the fields as they are."""
    try:
        known = msgspec.convert(data, Data)
    except msgspec.ValidationError:
        return False
    return (own_role == "tool") == isinstance(known.tool_call_id, str)


def _read_said(data: dict[str, Any]) -> list[AnyPart]:
    content = data["content"]
    calls = data.get("tool_calls")
    parts = [_read_block(block) for block in content] if isinstance(content, list) else [_read_block(content)]
    if isinstance(calls, list) and calls:
        # Some providers' blocks repeat the calls.
        parts = [part for part in parts if not isinstance(part, ToolCall)]
        parts += [_read_call(call) for call in calls]
    return parts


def _read_block(block: Any) -> AnyPart:
    if isinstance(block, str):
        return Text(block)
    kind = block.get("type") if isinstance(block, dict) else None
    if kind in ("image", "audio", "file"):
        return _read_media(block, kind)
    if kind == "tool_use":
        return _read_call({**block, "args": block.get("input"), "type": "tool_call"})
    if kind in ("thinking", "reasoning"):
        text = block.get("thinking") or block.get("reasoning")
        return Reasoning(text if isinstance(text, str) else "")
    part = openai_chat.read_piece(block)
    return OtherPart(native=block, origin=FORMAT) if isinstance(part, OtherPart) else part


def _read_media(block: dict[str, Any], kind: str) -> AnyPart:
    try:
        media = msgspec.convert(block, StandardMedia)
    except msgspec.ValidationError:
        return OtherPart(native=block, origin=FORMAT)
    kinds: dict[str, Any] = {"image": ImagePart, "audio": Audio, "file": Document}
    data = media.base64 or media.data
    part: AnyPart = kinds[kind](media.mime_type, data, url=media.url, file_id=media.file_id or media.id)
    return part


def _read_call(call: Any) -> AnyPart:
    try:
        known = msgspec.convert(call, LangchainToolCall)
    except msgspec.ValidationError:
        return OtherPart(native=call, origin=FORMAT)
    return ToolCall(known.id, known.name, known.args)


def _read_result(data: dict[str, Any]) -> ToolResult:
    content = data["content"]
    parts = [_read_block(block) for block in content] if isinstance(content, list) else []
    known = parts and not any(isinstance(part, OtherPart) for part in parts)
    return ToolResult(data["tool_call_id"], parts if known else content, data.get("status") == "error")


# Writing


def write(entries: Sequence[DialogueEntry], losses: Losses) -> Written:
    items: list[dict[str, Any]] = []
    for entry in entries:
        if entry.side == "tool" and not entry.is_json:
            items += [_result(part, entry, losses) for part in entry.parts if isinstance(part, ToolResult)]
        elif item := _message(entry, losses):
            items.append(item)
    return Written(items)


def _message(entry: DialogueEntry, losses: Losses) -> dict[str, Any] | None:
    if entry.native is not None:
        return cast("dict[str, Any]", entry.native)
    kind = _TYPES.get(entry.side, "human")
    if entry.is_json:
        return {"type": kind, "data": {"content": cast(OtherPart, entry.parts[0]).native}}
    calls = [_call(part) for part in entry.parts if isinstance(part, ToolCall)]
    content = _content([part for part in entry.parts if not isinstance(part, ToolCall)], entry, losses)
    if not content and not calls:
        return None
    data: dict[str, Any] = {"content": content}
    if calls:
        data["tool_calls"] = calls
    if entry.name:
        data["name"] = entry.name
    return {"type": kind, "data": data}


def _content(parts: Sequence[AnyPart], entry: DialogueEntry, losses: Losses) -> str | list[dict[str, Any]]:
    if not parts:
        return ""
    if len(parts) == 1 and type(part := parts[0]) is Text:
        return part.text
    blocks = []
    for part in parts:
        if isinstance(part, Reasoning):
            losses.append(Loss(entry.message.id, "reasoning", "LangChain's blocks for it differ by provider"))
        elif (block := openai_chat.write_piece(part, entry, losses)) is not None:
            blocks.append(block)
    return blocks or ""


def _call(part: ToolCall) -> dict[str, Any]:
    return {"name": part.name, "args": arguments_object(part), "id": part.id, "type": "tool_call"}


def _result(part: ToolResult, entry: DialogueEntry, losses: Losses) -> dict[str, Any]:
    content = _content(result_parts(part), entry, losses) or openai_chat.NO_OUTPUT
    status = "error" if part.is_error else "success"
    return {"type": "tool", "data": {"content": content, "tool_call_id": part.id, "status": status}}
