"""Pydantic AI: a request or a response as its type adapter writes them. Read only: Pydantic AI writes its own.

A request may hold instructions besides the user's content. They are the agent's own, not part of the conversation, and
are read only if a request holds nothing else.
"""

from __future__ import annotations

from typing import Any

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
    arguments_of,
)

FORMAT = "pydantic_ai"

_ERRORS = ("failed", "retried")
_KINDS: dict[str, type[ImagePart] | type[Audio]] = {"image": ImagePart, "audio": Audio}
_FROM_URLS = str.maketrans("-_", "+/")


def read(content: Any, role: str) -> Reading:
    pieces = content.get("parts") if isinstance(content, dict) else None
    if not isinstance(pieces, list):
        return Reading([OtherPart(native=content, origin=FORMAT)])
    if content.get("kind") == "response":
        return Reading([part for piece in pieces for part in _response_parts(piece)], "assistant")
    others = [piece for piece in pieces if _kind(piece) != "system-prompt"]
    if pieces and not others:
        return Reading([Text(str(piece.get("content"))) for piece in pieces], "system")
    return Reading([part for piece in others for part in _request_parts(piece)])


def _kind(piece: Any) -> Any:
    return piece.get("part_kind") if isinstance(piece, dict) else None


def _response_parts(piece: Any) -> list[AnyPart]:
    kind = _kind(piece)
    origin: dict[str, Any] = {"native": piece, "origin": FORMAT}
    if kind == "text":
        return [Text(str(piece.get("content")), **origin)]
    if kind == "thinking":
        return [Reasoning(str(piece.get("content") or ""), **origin)]
    if kind == "tool-call" and isinstance(piece.get("tool_call_id"), str):
        given = piece.get("args")
        arguments = arguments_of(given) if isinstance(given, str) else given
        return [ToolCall(piece["tool_call_id"], str(piece.get("tool_name")), arguments or {}, **origin)]
    if kind == "file":
        return [_media(piece.get("content"))]
    return [OtherPart(**origin)]


def _request_parts(piece: Any) -> list[AnyPart]:
    kind = _kind(piece)
    content = piece.get("content") if isinstance(piece, dict) else None
    if kind == "user-prompt":
        return [_media(item) for item in (content if isinstance(content, list) else [content])]
    if kind in ("tool-return", "retry-prompt") and isinstance(piece.get("tool_call_id"), str):
        is_error = kind == "retry-prompt" or piece.get("outcome") in _ERRORS
        return [ToolResult(piece["tool_call_id"], content, is_error=is_error, name=piece.get("tool_name"))]
    if kind in ("retry-prompt", "retry-feedback") and isinstance(content, str):
        return [Text(content)]
    return [OtherPart(native=piece, origin=FORMAT)]


def _media(item: Any) -> AnyPart:
    origin: dict[str, Any] = {"native": item, "origin": FORMAT}
    if isinstance(item, str):
        return Text(item)
    kind = item.get("kind") if isinstance(item, dict) else None
    if kind == "text-content":
        return Text(str(item.get("content")), **origin)
    media_type = item.get("media_type") if isinstance(item, dict) else None
    if kind == "binary" and isinstance(item.get("data"), str):
        binary = _KINDS.get(str(media_type).partition("/")[0], Document)
        return binary(media_type, item["data"].translate(_FROM_URLS), **origin)
    if isinstance(kind, str) and kind.endswith("-url") and kind != "video-url":
        made = _KINDS.get(kind.removesuffix("-url"), Document)
        return made(media_type, url=item.get("url"), **origin)
    return OtherPart(**origin)
