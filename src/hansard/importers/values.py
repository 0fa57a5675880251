"""Values of foreign files, which may be anything: read with a default instead of an error."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from math import isfinite
from typing import Any

from hansard.formats import parts
from hansard.model import ROLES

_MILLISECONDS = 10**11
"""Above this a number of seconds would be in the year 5138: it is milliseconds."""
_MOST = 1 << 62
_ROLES = {
    **dict.fromkeys(("human", "prompter", "user_message", "humanmessagechunk"), "user"),
    **dict.fromkeys(("ai", "bot", "model", "gpt", "chatgpt", "aimessagechunk", "function_call"), "assistant"),
    **dict.fromkeys(("function", "observation", "toolmessagechunk", "functionmessagechunk"), "tool"),
    "systemmessagechunk": "system",
}
"""What other programs call roles."""


def text(value: object) -> str:
    return value if isinstance(value, str) else ""


def mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def items(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def role_of(value: object, otherwise: str = "user") -> str:
    """A role by one of its names; another one for what no store has."""
    if type(value) is str and value in ROLES:
        return value
    name = text(value).strip().lower()
    name = _ROLES.get(name, name)
    return name if name in ROLES else otherwise


def count(value: object) -> int:
    """A number of tokens: not negative, and of a size that every storage has room for."""
    return value if type(value) is int and 0 <= value < _MOST else 0


def number(value: object) -> float | None:
    """None for anything else than a finite number."""
    try:
        found = float(value) if isinstance(value, int | float) else None
    except OverflowError:
        return None
    return found if found is not None and isfinite(found) else None


def time(value: object) -> datetime | None:
    """Seconds or milliseconds since 1970, or ISO 8601. None for anything else, and for times that no calendar has."""
    try:
        if type(value) is float or type(value) is int:
            seconds = value / 1000 if value > _MILLISECONDS else value
            return datetime.fromtimestamp(seconds, UTC) if value > 0 else None
        if isinstance(value, str):
            value = datetime.fromisoformat(value) if value else None
        if isinstance(value, datetime):
            return value if value.tzinfo else value.replace(tzinfo=UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return None


def media_part(data: bytes, media_type: str, name: str | None = None) -> parts.AnyPart:
    """An attachment as a part that carries its bytes; the Store moves large ones into blobs."""
    text = base64.b64encode(data).decode("ascii")
    if media_type.startswith("image/"):
        return parts.ImagePart(media_type=media_type, data=text, name=name)
    if media_type.startswith("audio/"):
        return parts.Audio(media_type=media_type, data=text, name=name)
    return parts.Document(media_type=media_type, data=text, name=name)


def content_of(pieces: Sequence[parts.AnyPart]) -> tuple[Any, str]:
    """The content of a message and its format: a text where it is nothing else."""
    if len(pieces) == 1 and isinstance(pieces[0], parts.Text):
        return pieces[0].text, "text"
    return [parts.to_json(piece) for piece in pieces], parts.FORMAT


def sides(given: Iterable[tuple[str, parts.AnyPart]]) -> list[tuple[str, list[parts.AnyPart]]]:
    """Parts with their roles as runs of one role: a tool's result among an answer's parts is a message of its own."""
    found: list[tuple[str, list[parts.AnyPart]]] = []
    for role, part in given:
        if not found or found[-1][0] != role:
            found.append((role, []))
        found[-1][1].append(part)
    return found


def data_url_part(url: str, media_type: str, name: str | None = None) -> parts.AnyPart | None:
    """The attachment of a `data:` URL; None for any other URL and for what is not base64."""
    head, comma, body = url.partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        return None
    try:
        data = base64.b64decode(body, validate=True)
    except ValueError:
        return None
    return media_part(data, media_type or head[5:].partition(";")[0] or "application/octet-stream", name)
