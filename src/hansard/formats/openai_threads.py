"""The messages of OpenAI's Threads (Assistants), which can hold less than a history.

On input a message is one of Chat Completions, except for files in the content, and is stored as one, in the format
`openai.chat`. Its attachments, which Chat Completions does not have, are stored in the message's metadata. On output a
thread shows the text and images of users and assistants: calls, results and instructions are left out.
"""

from __future__ import annotations

from typing import Any

from hansard.formats import openai_chat, registry
from hansard.formats.openai_items import BadItem
from hansard.formats.parts import AnyPart, ImagePart, Refusal, Text, data_url
from hansard.model import Message

ROLES = ("user", "assistant")
SHOWN_ROLES = (*ROLES, "agent")
ATTACHMENTS = "openai.attachments"
"""The key of a message's metadata that holds them."""

_PARTS = {"text": "text", "image_file": "image_file", "image_url": "image_url"}


def message_of(given: dict[str, Any], id: str, metadata: dict[str, str], where: str) -> Message:
    """Returns the message that stores what was sent. `BadItem` if it is invalid."""
    role = given.get("role")
    if role not in ROLES:
        what = "Missing required parameter" if role is None else "Invalid value. Supported are 'user' and 'assistant'"
        code = "missing_required_parameter" if role is None else "invalid_value"
        raise BadItem(f"{what}: '{where}role'.", f"{where}role", code)
    content = given.get("content")
    if content is None:
        raise BadItem(f"Missing required parameter: '{where}content'.", f"{where}content", "missing_required_parameter")
    _check_content(content, f"{where}content")
    own_metadata: dict[str, Any] = dict(metadata)
    if attachments := _attachments(given.get("attachments"), f"{where}attachments"):
        own_metadata[ATTACHMENTS] = attachments
    native = {"role": role, "content": content}
    return Message(role, native, id, format=openai_chat.FORMAT, metadata=own_metadata or None)


def _check_content(content: Any, where: str) -> None:
    if isinstance(content, str):
        return
    if not isinstance(content, list) or not content:
        raise BadItem(f"Invalid type for '{where}': expected a string or an array of parts.", where, "invalid_type")
    for number, part in enumerate(content):
        at = f"{where}[{number}]"
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in _PARTS:
            raise BadItem(f"Invalid value for '{at}.type': one of {', '.join(_PARTS)}.", at, "invalid_value")
        value = part.get(_PARTS[kind])
        wanted = str if kind == "text" else dict
        if not isinstance(value, wanted):
            raise BadItem(f"Invalid type for '{at}.{kind}'.", f"{at}.{kind}", "invalid_type")
        named = "file_id" if kind == "image_file" else "url"
        if isinstance(value, dict) and not isinstance(value.get(named), str):
            raise BadItem(f"Missing required parameter: '{at}.{kind}.{named}'.", at, "missing_required_parameter")


def _attachments(given: Any, where: str) -> list[Any]:
    if given is None:
        return []
    if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
        raise BadItem(f"Invalid type for '{where}': expected an array of objects.", where, "invalid_type")
    return given


# Output


def content_of(message: Message) -> list[dict[str, Any]] | None:
    """Returns what a thread shows of a message; None if it shows nothing."""
    if message.role not in SHOWN_ROLES:
        return None
    native = message.content
    if message.format == openai_chat.FORMAT and isinstance(native, dict) and isinstance(native.get("content"), list):
        pieces = [_native(piece) for piece in native["content"]]
    else:
        pieces = [_piece(part) for part in registry.read(message).parts]
    return [piece for piece in pieces if piece is not None] or None


def _native(piece: Any) -> dict[str, Any] | None:
    if isinstance(piece, dict) and piece.get("type") in ("image_file", "image_url"):
        return piece
    return _piece(openai_chat.read_piece(piece))


def _piece(part: AnyPart) -> dict[str, Any] | None:
    if isinstance(part, Text):
        return _text(part.text)
    if isinstance(part, Refusal):
        return {"type": "refusal", "refusal": part.text}
    if not isinstance(part, ImagePart):
        return None
    if url := data_url(part, "image/png"):
        return {"type": "image_url", "image_url": {"url": url, "detail": "auto"}}
    return {"type": "image_file", "image_file": {"file_id": part.file_id}} if part.file_id else None


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": {"value": text, "annotations": []}}
