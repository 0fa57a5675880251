"""Conversions between the command line and the store: ages, JSON, text that is safe to print."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from hansard.errors import ValidationError

STDIN = "\0stdin"
"""Replaces a lone hyphen. Arguments cannot contain a null character."""

_AGE = re.compile(r"(\d+)\s*([smhdw])", re.ASCII)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def moment(text: str, what: str) -> datetime | timedelta:
    """Parses an age such as `30d`, or a date or time, which is local unless it has a zone."""
    found = _AGE.fullmatch(text.strip().lower())
    if found:
        try:
            return timedelta(**{_UNITS[found[2]]: int(found[1])})
        except OverflowError as error:
            raise ValidationError(f"{what} is {text!r}: that is too long ago") from error
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError) as error:
        raise ValidationError(f"{what} is {text!r}: write an age such as 30d, 12h or 2w, or a date") from error


def instant(text: str, what: str) -> datetime:
    """Parses like `moment`, and counts an age back from now."""
    found = moment(text, what)
    if isinstance(found, datetime):
        return found
    try:
        return datetime.now(UTC) - found
    except OverflowError as error:
        raise ValidationError(f"{what} is {text!r}: that is too long ago") from error


def json_value(text: str, what: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeEncodeError) as error:
        raise ValidationError(f"{what} is not JSON: {error}") from error


def pairs(items: Sequence[str] | None, what: str) -> dict[str, Any]:
    """Parses `key=value` arguments. A value may be JSON: `n=5`, `on=true`, `x="5"`."""
    found = {}
    for item in items or ():
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise ValidationError(f"{what} is {item!r}: write key=value")
        try:
            found[key] = msgspec.json.decode(value)
        except (msgspec.MsgspecError, UnicodeEncodeError):
            found[key] = value
    return found


def read_stdin() -> str:
    """Returns all of stdin as text, without the line end that an editor or echo adds."""
    try:
        text = sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise ValidationError(f"stdin is not UTF-8 text: {error}") from error
    return text.removesuffix("\n").removesuffix("\r")


_CONTROLS = {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\n\t"}
_CONTROLS |= {127: "␡"} | dict.fromkeys(range(0x80, 0xA0), "�")
# Bidirectional controls can make text look like other text.
_CONTROLS |= dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)), "�")


def visible(text: str) -> str:
    """Returns the text without characters that control a terminal."""
    return text.translate(_CONTROLS)
