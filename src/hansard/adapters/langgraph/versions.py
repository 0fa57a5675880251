"""Versions of messages: LangChain's messages as they are stored.

Nodes change messages in place. So whether a message of a state is the stored one is decided by comparing all its
fields. A version shares its strings with the messages created from it, so the cost of a comparison follows their
number, not their length.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy, deepcopy
from operator import attrgetter, eq, is_
from typing import Any

import msgspec
from langchain_core.messages import BaseMessage

_encode = msgspec.msgpack.Encoder().encode
_ATOMS = frozenset((str, int, float, bool, type(None)))
_NUMBERS = frozenset((int, float, bool))
_fields_of = attrgetter("__dict__")
_extra_of = attrgetter("__pydantic_extra__")


class Version:
    """A message as it is stored. The message itself is never returned to callers and never changed."""

    __slots__ = ("_numbers", "message")

    def __init__(self, message: BaseMessage) -> None:
        # A serializer sets every field when it reads a message.
        message.model_fields_set.update(type(message).model_fields)
        self.message = message
        self._numbers: tuple[tuple[str, bytes], ...] | None = None

    @property
    def id(self) -> str | None:
        return self.message.id

    def make(self) -> BaseMessage:
        """Returns a copy that shares nothing mutable."""
        made = copy(self.message)
        fields = made.__dict__
        for name, value in fields.items():
            kind = type(value)
            if kind is dict or kind is list:
                fields[name] = copied(value) if value else kind()
        if made.__pydantic_extra__:
            made.__pydantic_extra__.update(copied(made.__pydantic_extra__))
        return made

    @property
    def weight(self) -> int:
        """Roughly how much memory it takes: its characters, and a thousand for the objects around them."""
        return 1000 + _characters(self.message.__dict__) + _characters(self.message.__pydantic_extra__)

    @property
    def numbers(self) -> tuple[tuple[str, bytes], ...]:
        """The fields that contain numbers, encoded: 1, 1.0 and True are equal but not the same."""
        if self._numbers is None:
            message = self.message
            fields = [*message.__dict__.items(), *([("", message.__pydantic_extra__)] if _extra_of(message) else [])]
            self._numbers = tuple([(name, _encode(value)) for name, value in fields if _has_numbers(value)])
        return self._numbers

    def has_numbers_of(self, message: BaseMessage) -> bool:
        """For a message with equal fields: whether the numbers in them have the same types."""
        return all(
            _encode(message.__dict__[name] if name else message.__pydantic_extra__) == encoded
            for name, encoded in self.numbers
        )

    def is_exactly(self, message: BaseMessage) -> bool:
        """Whether the message is a copy of this one, down to the types of everything in it."""
        return (
            type(message) is type(self.message)
            and not message.__pydantic_private__
            and is_same(self.message.__dict__, message.__dict__)
            and is_same(self.message.__pydantic_extra__ or {}, message.__pydantic_extra__ or {})
        )


def begin_with(versions: Sequence[Version], messages: Sequence[BaseMessage]) -> bool:
    """Whether the messages begin with copies of these versions.

    Called at every step of a graph for every message of the thread, hence without a Python function for each.
    """
    if len(messages) < len(versions):
        return False
    stored = [version.message for version in versions]
    try:
        return (
            all(map(is_, map(type, messages), map(type, stored)))
            and all(map(eq, map(_fields_of, messages), map(_fields_of, stored)))
            and all(map(eq, map(_extra_of, messages), map(_extra_of, stored)))
            and all(each.has_numbers_of(messages[at]) for at, each in enumerate(versions) if each.numbers)
        )
    except (TypeError, ValueError, msgspec.MsgspecError):
        return False  # A field has a value that cannot be compared or is not JSON.


def copied(value: Any) -> Any:
    """Returns a copy of JSON; of anything else what `deepcopy` returns."""
    kind = type(value)
    if kind is dict:
        return {name: item if type(item) in _ATOMS else copied(item) for name, item in value.items()}
    if kind is list:
        return [item if type(item) in _ATOMS else copied(item) for item in value]
    return value if kind in _ATOMS else deepcopy(value)


def _has_numbers(value: Any) -> bool:
    kind = type(value)
    if kind is dict:
        return any(map(_has_numbers, value.values()))
    if kind is list:
        return any(map(_has_numbers, value))
    return kind in _NUMBERS


def _characters(value: Any) -> int:
    kind = type(value)
    if kind is str:
        return len(value)
    if kind is dict:
        return sum(map(_characters, value.values()))
    return sum(map(_characters, value)) if kind is list else 8


def is_same(one: Any, other: Any) -> bool:
    kind = type(one)
    if kind is not type(other):
        return False
    if kind is dict:
        return one.keys() == other.keys() and all(is_same(value, other[name]) for name, value in one.items())
    if kind is list:
        return len(one) == len(other) and all(map(is_same, one, other))
    return kind in _ATOMS and bool(one == other)
