"""LangChain's messages as they are stored, from which any number are made, and with which any can be compared.

A thread has thousands of messages, and LangChain's own constructor is most of what reading them costs. A mould holds
the fields of a message; making one copies them. Where a row is of the shape that graphs write, the mould is made of
its JSON directly; every other row goes through LangChain, once.

Nodes change messages in place. So whether a message of a state is the one that was stored is asked of all its fields.
A mould shares its texts with the messages made from it, so comparing costs by their number, not by their length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import cache
from operator import attrgetter, eq, is_
from typing import Any, get_type_hints

import msgspec
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.ai import InputTokenDetails, OutputTokenDetails, UsageMetadata

_set = object.__setattr__
_encode = msgspec.msgpack.Encoder().encode
_NO_EXTRA: dict[str, Any] = {}
_ATOMS = frozenset((str, int, float, bool, type(None)))
_NUMBERS = frozenset((int, float, bool))
_fields_of = attrgetter("__dict__")
_extra_of = attrgetter("__pydantic_extra__")


class Mould:
    """A message as it is stored. What it holds is never handed out, and never changed."""

    __slots__ = ("_fields", "_marks", "extra", "given", "kind")

    def __init__(self, kind: type[BaseMessage], given: dict[str, Any], extra: dict[str, Any] = _NO_EXTRA) -> None:
        self.kind = kind
        self.given = given
        self.extra = extra
        self._fields: dict[str, Any] | None = None
        self._marks: tuple[tuple[str, bytes], ...] | None = None

    def make(self) -> BaseMessage:
        """A message that shares nothing that can be changed."""
        defaults, names = _shape(self.kind)
        fields = {**defaults, **self.given}
        for name, value in fields.items():
            kind = type(value)
            if kind is dict or kind is list:
                fields[name] = copied(value) if value else kind()
        made = object.__new__(self.kind)
        _set(made, "__dict__", fields)
        _set(made, "__pydantic_extra__", copied(self.extra) if self.extra else {})
        # Every field was given, as when a serializer reads a message. Fields of somebody's own are added to the set.
        _set(made, "__pydantic_fields_set__", {*names, *self.extra})
        _set(made, "__pydantic_private__", None)
        return made

    @property
    def fields(self) -> dict[str, Any]:
        if self._fields is None:
            self._fields = {**_shape(self.kind)[0], **self.given}
        return self._fields

    @property
    def weight(self) -> int:
        """How much memory it takes, roughly: its characters, and a thousand for what is around them."""
        return 1000 + _characters(self.given) + (_characters(self.extra) if self.extra else 0)

    @property
    def marks(self) -> tuple[tuple[str, bytes], ...]:
        """The fields with numbers inside, as bytes: 1, 1.0 and True are equal, and not the same."""
        if self._marks is None:
            inside = [*self.given.items(), *([("", self.extra)] if self.extra else [])]
            self._marks = tuple([(name, _encode(value)) for name, value in inside if _has_numbers(value)])
        return self._marks

    def is_marked_as(self, message: BaseMessage) -> bool:
        """For a message whose fields are equal: whether they are the very same."""
        for name, mark in self.marks:
            if _encode(message.__dict__[name] if name else message.__pydantic_extra__) != mark:
                return False
        return True

    def is_exactly(self, message: BaseMessage) -> bool:
        """Whether the message is what this one makes, down to the types of everything in it."""
        return (
            type(message) is self.kind
            and not message.__pydantic_private__
            and _is_same(self.fields, message.__dict__)
            and _is_same(self.extra, message.__pydantic_extra__ or {})
        )


class Moulds:
    """Those of a state, in order, as columns: at every step of a graph all that was ever said is compared with them."""

    def __init__(self, moulds: Sequence[Mould] = ()) -> None:
        self._kinds: list[type[BaseMessage]] = [mould.kind for mould in moulds]
        self._fields: list[dict[str, Any]] = [mould.fields for mould in moulds]
        self._extras: list[dict[str, Any]] = [mould.extra for mould in moulds]
        self._marked: list[tuple[int, Mould]] = [(at, mould) for at, mould in enumerate(moulds) if mould.marks]

    def and_more(self, moulds: Sequence[Mould]) -> Moulds:
        made, more, size = Moulds(), Moulds(moulds), len(self._kinds)
        made._kinds = self._kinds + more._kinds
        made._fields = self._fields + more._fields
        made._extras = self._extras + more._extras
        made._marked = self._marked + [(size + at, mould) for at, mould in more._marked]
        return made

    def begin(self, messages: Sequence[BaseMessage]) -> bool:
        """Whether the messages are these, and perhaps more."""
        if len(messages) < len(self._kinds):
            return False
        try:
            return (
                all(map(is_, map(type, messages), self._kinds))
                and all(map(eq, map(_fields_of, messages), self._fields))
                and all(map(eq, map(_extra_of, messages), self._extras))
                and all(mould.is_marked_as(messages[number]) for number, mould in self._marked)
            )
        except (TypeError, ValueError, msgspec.MsgspecError):
            return False  # Somebody put something into a message that cannot be compared, or is no JSON.


def mould_of(message: BaseMessage) -> Mould:
    """Of a message that nobody else holds."""
    return Mould(type(message), message.__dict__, message.__pydantic_extra__ or {})


@cache
def _shape(kind: type[BaseMessage]) -> tuple[dict[str, Any], set[str]]:
    """Every field in its order, with what it is when it is not given; and their names."""
    fields = kind.model_fields
    return {name: field.get_default(call_default_factory=True) for name, field in fields.items()}, set(fields)


def copied(value: Any) -> Any:
    """A copy of JSON; of anything else what `deepcopy` makes."""
    kind = type(value)
    if kind is dict:
        return {name: item if type(item) in _ATOMS else copied(item) for name, item in value.items()}
    if kind is list:
        return [item if type(item) in _ATOMS else copied(item) for item in value]
    return deepcopy(value)


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


def _is_same(one: Any, other: Any) -> bool:
    kind = type(one)
    if kind is not type(other):
        return False
    if kind is dict:
        return one.keys() == other.keys() and all(_is_same(value, other[name]) for name, value in one.items())
    if kind is list:
        return len(one) == len(other) and all(map(_is_same, one, other))
    return kind in _ATOMS and one == other


# --- rows of the usual shape ------------------------------------------------------------------------------------------


def native(kind: str, data: dict[str, Any]) -> Mould | None:
    """The mould of a message's JSON, if each field is one that LangChain takes as it is; else None."""
    made = _KINDS.get(kind)
    if made is None:
        return None
    fits = _FITS[made]
    for name, value in data.items():
        if type(value) is not str or name not in _TEXTS:
            fit = fits.get(name)
            if fit is None or not fit(value):
                return None
    if not _NEEDED[made] <= data.keys():
        return None
    return Mould(made, data)


def _is_content(value: Any) -> bool:
    return type(value) is list and all(type(item) in (str, dict) for item in value)


def _is_object(value: Any) -> bool:
    return type(value) is dict


def _is_without_calls(value: Any) -> bool:
    """LangChain reads calls in a provider's words, where it finds none in its own."""
    return type(value) is dict and "tool_calls" not in value


def _are_calls(value: Any) -> bool:
    return type(value) is list and all(type(call) is dict and _is_call(call) for call in value)


def _is_call(call: Mapping[str, Any]) -> bool:
    return (
        call.keys() == {"name", "args", "id", "type"}
        and type(call["name"]) is str
        and type(call["args"]) is dict
        and (call["id"] is None or type(call["id"]) is str)
        and call["type"] == "tool_call"
    )


def _is_usage(value: Any) -> bool:
    if type(value) is not dict or not {"input_tokens", "output_tokens", "total_tokens"} <= value.keys() <= _USAGE:
        return False
    return all(
        type(item) is int or (name in _DETAILS and _are_details(item, _DETAILS[name])) for name, item in value.items()
    )


def _are_details(value: Any, names: frozenset[str]) -> bool:
    return type(value) is dict and value.keys() <= names and all(type(item) is int for item in value.values())


_USAGE = frozenset(get_type_hints(UsageMetadata))
_DETAILS = {
    "input_token_details": frozenset(get_type_hints(InputTokenDetails)),
    "output_token_details": frozenset(get_type_hints(OutputTokenDetails)),
}
_KINDS: dict[str, type[BaseMessage]] = {
    "human": HumanMessage,
    "ai": AIMessage,
    "system": SystemMessage,
    "tool": ToolMessage,
}
_NEEDED = {
    kind: frozenset(name for name, field in kind.model_fields.items() if field.is_required())
    for kind in _KINDS.values()
}
_TEXTS = frozenset(("content", "id"))
"""Fields of every message that may be any text."""
_COMMON: dict[str, Callable[[Any], bool]] = {
    "content": _is_content,
    "additional_kwargs": _is_object,
    "response_metadata": _is_object,
    "name": lambda value: type(value) is str,
    "id": lambda value: value is None,
}
_FITS: dict[type[BaseMessage], dict[str, Callable[[Any], bool]]] = {
    HumanMessage: _COMMON,
    SystemMessage: _COMMON,
    AIMessage: {
        **_COMMON,
        "additional_kwargs": _is_without_calls,
        "tool_calls": _are_calls,
        "usage_metadata": _is_usage,
    },
    ToolMessage: {
        **_COMMON,
        "tool_call_id": lambda value: type(value) is str,
        "status": lambda value: value in ("success", "error"),
        "artifact": lambda _: True,
    },
}
"""Fields that come through LangChain's constructor unchanged, if they are of this kind."""
