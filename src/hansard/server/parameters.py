"""Decodes query strings into structs by the types of their fields."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl, unquote_to_bytes

import msgspec
from msgspec import Struct

from hansard.errors import ValidationError
from hansard.shown import shown

_WHOLE = re.compile(r"-?[0-9]{1,18}")
_DECIMAL = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,15})?")
_FLAGS = {"true": True, "false": False}
_MOST = 1000


def _number(text: str) -> int | str:
    return int(text) if _WHOLE.fullmatch(text) else text


def _decimal(text: str) -> float | str:
    return float(text) if _DECIMAL.fullmatch(text) else text


def _flag(text: str) -> bool | str:
    return _FLAGS.get(text, text)


def _text(text: str) -> str:
    return text


class Field(Struct, frozen=True):
    read: Callable[[str], Any]
    is_list: bool


@cache
def fields_of(kind: type[Struct]) -> dict[str, Field]:
    return {name: _field(hint) for name, hint in get_type_hints(kind, include_extras=True).items()}


def _field(hint: Any) -> Field:
    """Returns how to convert the text of a field. Text that cannot be converted fails the later type check."""
    kind = _bare(hint)
    if get_origin(kind) in (list, tuple):
        return Field(_field(get_args(kind)[0]).read, is_list=True)
    return Field({int: _number, float: _decimal, bool: _flag}.get(kind, _text), is_list=False)


def _bare(hint: Any) -> Any:
    """Returns a type without its constraints and without None."""
    if get_origin(hint) is Annotated:
        return _bare(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        kinds = [each for each in get_args(hint) if each is not NoneType]
        return _bare(kinds[0]) if len(kinds) == 1 else str
    return hint


def decode(query_string: bytes, kind: type[Struct]) -> Any:
    """Decodes the parameters of a route. Refuses unknown, repeated and mistyped parameters."""
    if not query_string:
        return _all_defaults(kind)
    fields = fields_of(kind)
    values: dict[str, Any] = {}
    for name, text in _pairs(query_string):
        field = fields.get(name)
        if field is None:
            raise ValidationError(f"unknown parameter {name!r}: known are {', '.join(fields) or 'none'}")
        if field.is_list:
            values.setdefault(name, []).append(field.read(text))
        elif name in values:
            raise ValidationError(f"the parameter {name!r} is given twice")
        else:
            values[name] = field.read(text)
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise ValidationError(_explained(str(error), kind, values)) from error


_AT = re.compile(r"(.+) - at `\$\.(\w+)(?:\[[^\]]*\])?`")
_EXPECTED = re.compile(r"Expected `(int|float|bool)(?: \| null)?`(?: ([<>]=?) (\S+)|, got `\w+`)?")
_KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false"}
_BOUNDS = {">=": "at least", "<=": "at most", ">": "more than", "<": "less than"}


def _explained(text: str, kind: type[Struct], values: dict[str, Any]) -> str:
    """Returns the error of the decoder in words for people who typed an address."""
    if (found := _AT.fullmatch(text)) is None:
        return f"wrong parameter: {text}"
    problem, name = found.groups()
    beginning = f"the parameter {name!r} is {shown(values.get(name))}"
    if (expected := _EXPECTED.fullmatch(problem)) is not None:
        what, sign, bound = expected.groups()
        return f"{beginning}: write {_KINDS[what]}" + (f" of {_BOUNDS[sign]} {bound}" if sign else "")
    hint = _bare(get_type_hints(kind, include_extras=True)[name])
    choices = get_args(_bare(get_args(hint)[0]) if fields_of(kind)[name].is_list else hint)
    if problem.startswith("Invalid enum value") and choices:
        return f"{beginning}: it is one of {', '.join(map(str, choices))}"
    return f"{beginning}: {problem}"


@cache
def _defaults(kind: type[Struct]) -> Struct:
    return msgspec.convert({}, kind)


def _all_defaults(kind: type[Struct]) -> Struct:
    try:
        return _defaults(kind)
    except msgspec.ValidationError as error:
        raise ValidationError(f"wrong parameter: {error}") from error


def _pairs(query_string: bytes) -> list[tuple[str, str]]:
    if not query_string:
        return []
    try:
        text = query_string.decode("ascii")
        return parse_qsl(text, keep_blank_values=True, strict_parsing=True, errors="strict", max_num_fields=_MOST)
    except ValueError as error:
        raise ValidationError(f"the query string cannot be read: {error}") from error


def json_object(text: str | None, what: str) -> dict[str, Any] | None:
    """Decodes a parameter that is a JSON object."""
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeError, RecursionError, ValueError) as error:
        raise ValidationError(f"{what} must be a JSON object: {error}") from error


def unquote(raw: bytes, what: str) -> str:
    """Decodes percent-encoded UTF-8. `what` names the value in the error."""
    try:
        return unquote_to_bytes(raw).decode() if b"%" in raw else raw.decode()
    except UnicodeDecodeError as error:
        raise ValidationError(f"{what} is not UTF-8") from error
