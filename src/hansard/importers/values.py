"""Values of foreign files, which may be anything: read with a default instead of an error."""

from __future__ import annotations

import base64
import re
from collections.abc import Generator, Iterable, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from math import isfinite
from typing import Any, TypeVar

from hansard.formats import parts
from hansard.importers.report import ImportReport
from hansard.model import ROLES

_UNITS = ((10**17, 10**9), (10**14, 10**6), (10**11, 10**3))
"""Above the first of each, so many parts of a second are meant: it would be the year 5138 in the next larger unit."""
_NUMBER = re.compile(r"\d{9,}(\.\d+)?")
"""A number of seconds as a table has it. Fewer digits are a date without hyphens, or no time."""
_unread_times: ContextVar[ImportReport | None] = ContextVar("unread_times", default=None)
_EXAMPLE = 100
"""Characters of a value that a report shows."""
_MOST = 1 << 62
_ROLES = {
    **dict.fromkeys(("human", "prompter", "user_message", "humanmessagechunk"), "user"),
    **dict.fromkeys(("ai", "bot", "model", "gpt", "chatgpt", "aimessagechunk", "function_call"), "assistant"),
    **dict.fromkeys(("function", "observation", "toolmessagechunk", "functionmessagechunk"), "tool"),
    "systemmessagechunk": "system",
}
"""What other programs call roles."""

T = TypeVar("T")


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
    """Seconds since 1970, or thousandths, millionths or billionths of one; or ISO 8601. None for anything else.

    A value that is there and no time is reported while `reporting_times` reads on.
    """
    found = _time(value)
    if found is None and value not in (None, "", 0) and (report := _unread_times.get()) is not None:
        report.lose("time that no calendar has", repr(value)[:_EXAMPLE])
    return found


def _time(value: object) -> datetime | None:
    try:
        if isinstance(value, str):
            is_number = value[4:5] != "-" and _NUMBER.fullmatch(value)
            value = float(value) if is_number else datetime.fromisoformat(value) if value else None
        if type(value) is float or type(value) is int:
            parts = next((parts for least, parts in _UNITS if value > least), 1)
            return datetime.fromtimestamp(value / parts, UTC) if value > 0 else None
        if isinstance(value, datetime):
            return value if value.tzinfo else value.replace(tzinfo=UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return None


def reporting_times(read: Iterable[T], report: ImportReport) -> Generator[T]:
    """What an importer reads; values that `time` cannot read meanwhile are reported."""
    each = iter(read)
    try:
        while True:
            before = _unread_times.set(report)
            try:
                found = next(each)
            except StopIteration:
                return
            finally:
                _unread_times.reset(before)
            yield found
    finally:
        if isinstance(each, Generator):
            each.close()


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
