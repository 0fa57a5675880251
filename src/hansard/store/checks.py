"""Argument checks, made before anything is written. Each error names the value and the remedy."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, TypeVar, cast

import msgspec

from hansard import codec, cursors
from hansard.errors import ValidationError
from hansard.limits import Limits
from hansard.model import ROLES
from hansard.shown import shown

T = TypeVar("T")


def id_of(value: object, what: str, limits: Limits) -> str:
    """Returns an id as text. Integers become strings, as users of other stores expect."""
    if type(value) is not str:
        value = _as_id(value, what)
    if not value:
        raise ValidationError(f"{what} is empty")
    if len(value) * 4 > limits.id_bytes or not value.isascii() or "\0" in value:
        _check_odd_id(value, what, limits)
    return value


def _as_id(value: object, what: str) -> str:
    if isinstance(value, str):
        return str.__str__(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValidationError(f"{what} must be text, not {_kind(value)}")
    try:
        return str(int(value))
    except ValueError as error:
        raise ValidationError(f"{what} is a number of too many digits: {error}") from error


def _check_odd_id(value: str, what: str, limits: Limits) -> None:
    codec.check_text(value, what)
    if "\0" in value:
        raise ValidationError(f"{what} contains a NUL character")
    size = len(value.encode())
    if size > limits.id_bytes:
        raise ValidationError(f"{what} is {size} bytes; the limit is {limits.id_bytes} (Limits.id_bytes)")


def optional_id(value: object, what: str, limits: Limits) -> str | None:
    return None if value is None else id_of(value, what, limits)


def message_id(value: object, limits: Limits) -> str:
    id = id_of(value, "message id", limits)
    if id.startswith(cursors.PREFIX):
        raise ValidationError(f"message ids may not begin with {cursors.PREFIX!r}, which marks a cursor")
    return id


def text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise ValidationError(f"{what} must be text, not {_kind(value)}")
    # A subclass, such as a member of a StrEnum, becomes plain text.
    plain = value if type(value) is str else str.__str__(value)
    return plain if plain.isascii() else codec.check_text(plain, what)


def optional_text(value: object, what: str) -> str | None:
    return None if value is None else text(value, what)


def role(value: object) -> str:
    if not isinstance(value, str) or value not in ROLES:
        raise ValidationError(f"unknown role {shown(value)}: one of {', '.join(ROLES)}")
    return value if type(value) is str else str.__str__(value)


def one_of(value: T, choices: Collection[object], what: str) -> T:
    """Returns the choice that equals the value: plain text even if the value is of a subclass."""
    if (value is None or type(value) is str) and value in choices:
        return value
    for choice in choices:
        is_text = isinstance(value, str) and isinstance(choice, str)
        if (str.__str__(value) == choice) if is_text else (type(value) is type(choice) and value == choice):
            return cast(T, choice)
    raise ValidationError(f"{what} is {shown(value)}: one of {', '.join(map(repr, choices))}")


def time(value: object, what: str) -> datetime:
    if not isinstance(value, datetime):
        raise ValidationError(f"{what} must be a datetime, not {_kind(value)}")
    if type(value) is not datetime:
        value = datetime.combine(value.date(), value.timetz())
    if value.tzinfo is UTC:
        return value
    if value.utcoffset() is None:
        raise ValidationError(f"{what} has no time zone: use datetime.now(UTC), or give it one")
    try:
        return value.astimezone(UTC)
    except OverflowError as error:
        raise ValidationError(f"{what} is {value.isoformat()}, which is out of range in UTC") from error


def time_of(value: object, what: str) -> datetime:
    """Returns a time from a mapping: a datetime, or text in ISO 8601."""
    if not isinstance(value, str):
        return time(value, what)
    try:
        read = datetime.fromisoformat(value)
    except ValueError as error:
        raise ValidationError(
            f"{what} is {value[:50]!r}, which is not a time: write it as 2026-01-31T12:00:00Z"
        ) from error
    return time(read, what)


def optional_time(value: object, what: str) -> datetime | None:
    return None if value is None else time(value, what)


def moment(value: object, now: datetime, what: str) -> datetime:
    """Returns a time, given as one or as an age before now."""
    return _shifted(now, value, what, back=True) if isinstance(value, timedelta) else time(value, what)


def deadline(value: object, now: datetime, what: str) -> datetime | None:
    """Returns a time, given as one or as a duration from now; None for never."""
    return _shifted(now, value, what) if isinstance(value, timedelta) else optional_time(value, what)


def _shifted(now: datetime, by: timedelta, what: str, *, back: bool = False) -> datetime:
    try:
        return now - by if back else now + by
    except OverflowError as error:
        raise ValidationError(f"{what} is {by.days:,} days from now, beyond the range of a datetime") from error


MOST = 1 << 62
"""The largest number that every storage can store."""


def count(value: object, what: str, most: int = MOST, least: int = 1) -> int:
    if type(value) is not int and (not isinstance(value, int) or isinstance(value, bool)):
        raise ValidationError(f"{what} must be a whole number, not {_kind(value)}")
    if value < least or value > most:
        raise ValidationError(f"{what} is {shown(value)}: it must be between {least} and {most}")
    return value if type(value) is int else int.__index__(value)


def optional_count(value: object, what: str, least: int = 0) -> int | None:
    return None if value is None else count(value, what, least=least)


_MOST_SECONDS = 10**9
"""About thirty years, which every event loop's clock can represent."""


def seconds(value: object, what: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= _MOST_SECONDS:
        return float(value)
    raise ValidationError(f"{what} must be a number of seconds above 0 and at most {_MOST_SECONDS}, not {shown(value)}")


def flag(value: object, what: str) -> bool:
    if value is True or value is False:
        return value
    raise ValidationError(f"{what} must be True or False, not {shown(value)}")


def metadata(value: object, what: str = "metadata") -> dict[str, Any]:
    if value is None:
        return {}
    if type(value) is not dict:
        if not isinstance(value, Mapping):
            raise ValidationError(f"{what} must be a mapping, not {_kind(value)}")
        value = dict(value)
    return codec.snapshot(value, what)[1]  # type: ignore[no-any-return]


def texts(value: object, what: str) -> tuple[str, ...]:
    return tuple(text(item, f"an element of {what}") for item in items(value, what, "texts"))


def items(value: Any, what: str, of: str) -> list[Any]:
    """Returns the elements of any iterable except text, whose characters are never meant."""
    # A type such as `list[str]` also claims to be iterable.
    if isinstance(value, str | bytes | type) or not isinstance(value, Iterable):
        raise ValidationError(f"{what} must be a list of {of}, not {_kind(value)}")
    return list(value)


def function(value: T, what: str) -> T:
    """Returns a function, or None."""
    if value is not None and not callable(value):
        raise ValidationError(f"{what} must be a function, not {_kind(value)}")
    return value


def summarizer(value: T) -> T:
    """Returns an instance of a `Summarizer`."""
    if isinstance(value, type) or not callable(getattr(value, "summarize", None)):
        raise ValidationError(
            f"summarizer must be an object with an async method summarize(request), not {_kind(value)}"
        )
    lacking = [name for name in ("model", "prompt_id") if not hasattr(value, name)]
    if lacking:
        raise ValidationError(f"summarizer has no {' and no '.join(lacking)}: set it to a text or to None")
    return value


def filter_set(value: object, what: str) -> frozenset[str] | None:
    """Returns a filter as a set; None if it is None or empty, which filters nothing."""
    return None if value is None else frozenset(texts(value, what)) or None


def struct(value: object, kind: type[T], what: str) -> T:
    """Returns a value of the model, given as one or as a mapping of its fields, named in snake_case or camelCase."""
    if isinstance(value, kind):
        _, plain = codec.snapshot(_fields_of(value), what)  # type: ignore[arg-type]
    elif isinstance(value, Mapping):
        _, plain = codec.snapshot(dict(value), what)
    else:
        raise ValidationError(f"{what} must be a {kind.__name__} or a mapping, not {_kind(value)}")
    known: tuple[str, ...] = kind.__struct_encode_fields__  # type: ignore[attr-defined]
    if set(plain).difference(known):
        plain = _in_snake_case(plain, known)
    if unknown := set(plain).difference(known):
        raise ValidationError(f"{what} has unknown fields {sorted(unknown)}: known are {sorted(known)}")
    codec.prepare(kind)
    try:
        return msgspec.convert(plain, kind)
    except msgspec.ValidationError as error:
        raise ValidationError(f"{what} is wrong: {error}") from error


def _fields_of(value: msgspec.Struct) -> dict[str, Any]:
    """Returns the fields that are not at their default, as msgspec writes them."""
    defaults = _defaults(type(value))
    return {name: given for name, given in msgspec.structs.asdict(value).items() if given is not defaults[name]}


@cache
def _defaults(kind: type[msgspec.Struct]) -> dict[str, Any]:
    # msgspec evaluates the annotations of a class every time that it is asked for its fields.
    return {field.name: field.default for field in msgspec.structs.fields(kind)}


def _in_snake_case(plain: dict[str, Any], known: Iterable[str]) -> dict[str, Any]:
    """Renames `displayName` to `display_name`, unless both are present."""
    names = {_in_camel_case(name): name for name in known if name not in plain}
    return {names.get(name, name): value for name, value in plain.items()}


def _in_camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def only_one(**given: object) -> None:
    """Raises if more than one of these is given."""
    names = [name for name, value in given.items() if value is not None]
    if len(names) > 1:
        raise ValidationError(f"{' and '.join(names)} cannot be used together")


def _kind(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
