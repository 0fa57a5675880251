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
from operator import attrgetter, eq, is_
from typing import Any, get_type_hints

import msgspec
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.ai import InputTokenDetails, OutputTokenDetails, UsageMetadata

_set = object.__setattr__
_encode = msgspec.msgpack.Encoder().encode
_ATOMS = frozenset((str, int, float, bool, type(None)))
_NUMBERS = frozenset((int, float, bool))
_fields_of = attrgetter("__dict__")
_extra_of = attrgetter("__pydantic_extra__")


class Mould:
    """A message as it is stored. Its fields are never handed out, and never changed."""

    __slots__ = ("_containers", "_marks", "extra", "fields", "given", "kind")

    def __init__(
        self, kind: type[BaseMessage], fields: dict[str, Any], extra: dict[str, Any] | None, given: set[str]
    ) -> None:
        self.kind = kind
        self.fields = fields
        self.extra = extra
        self.given = given
        self._containers: tuple[tuple[str, Any], ...] | None = None
        self._marks: tuple[tuple[str, bytes], ...] | None = None

    def make(self) -> BaseMessage:
        """A message that shares nothing that can be changed."""
        if self._containers is None:
            self._containers = tuple(item for item in self.fields.items() if type(item[1]) not in _ATOMS)
        fields = self.fields.copy()
        for name, value in self._containers:
            fields[name] = copied(value) if value else type(value)()
        made = object.__new__(self.kind)
        _set(made, "__dict__", fields)
        _set(made, "__pydantic_extra__", copied(self.extra) if self.extra else None if self.extra is None else {})
        _set(made, "__pydantic_fields_set__", self.given.copy())
        _set(made, "__pydantic_private__", None)
        return made

    @property
    def marks(self) -> tuple[tuple[str, bytes], ...]:
        """The fields with numbers inside, as bytes: 1, 1.0 and True are equal, and not the same."""
        if self._marks is None:
            fields = [*self.fields.items(), ("", self.extra)]
            self._marks = tuple((name, _encode(value)) for name, value in fields if value and _has_numbers(value))
        return self._marks

    def is_marked_as(self, message: BaseMessage) -> bool:
        """For a message whose fields are equal: whether they are the very same."""
        fields = message.__dict__
        return all(_encode(fields[name] if name else message.__pydantic_extra__) == value for name, value in self.marks)

    def is_exactly(self, message: BaseMessage) -> bool:
        """Whether the message is what this one makes, down to the types of everything in it."""
        return (
            type(message) is self.kind
            and not message.__pydantic_private__
            and _is_same(self.fields, message.__dict__)
            and _is_same(self.extra or {}, message.__pydantic_extra__ or {})
        )


def begins(moulds: Sequence[Mould], messages: Sequence[BaseMessage]) -> bool:
    """Whether the messages are these, and perhaps more. Asked at every step of a graph, of all that was ever said."""
    if len(messages) < len(moulds):
        return False
    try:
        return (
            all(map(is_, map(type, messages), map(attrgetter("kind"), moulds)))
            and all(map(eq, map(_fields_of, messages), map(attrgetter("fields"), moulds)))
            and all(map(eq, map(_extra_of, messages), map(attrgetter("extra"), moulds)))
            and all(
                mould.is_marked_as(message) for mould, message in zip(moulds, messages, strict=False) if mould.marks
            )
        )
    except (TypeError, ValueError, msgspec.MsgspecError):
        return False  # Somebody put something into a message that cannot be compared, or is no JSON.


def mould_of(message: BaseMessage) -> Mould:
    """Of a message that nobody else holds."""
    return Mould(type(message), message.__dict__, message.__pydantic_extra__, message.__pydantic_fields_set__)


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


def native(kind: str, data: Mapping[str, Any]) -> Mould | None:
    """The mould of a message's JSON, if each field is one that LangChain takes as it is; else None."""
    made = _KINDS.get(kind)
    if made is None:
        return None
    defaults, needed = _FIELDS[made]
    for name, value in data.items():
        fits = _FITS.get(name)
        if fits is None or name not in defaults or not fits(value):
            return None
    fields = {**defaults, **data}
    # LangChain reads calls in a provider's words, where it finds none in its own.
    if not needed <= data.keys() or (made is AIMessage and "tool_calls" in fields["additional_kwargs"]):
        return None
    return Mould(made, fields, {}, set(data))


def _is_text(value: Any) -> bool:
    return type(value) is str


def _is_content(value: Any) -> bool:
    return type(value) is str or (type(value) is list and all(type(item) in (str, dict) for item in value))


def _is_object(value: Any) -> bool:
    return type(value) is dict


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
_FITS: dict[str, Callable[[Any], bool]] = {
    "content": _is_content,
    "additional_kwargs": _is_object,
    "response_metadata": _is_object,
    "name": _is_text,
    "id": lambda value: value is None or type(value) is str,
    "tool_calls": _are_calls,
    "usage_metadata": _is_usage,
    "tool_call_id": _is_text,
    "status": lambda value: value in ("success", "error"),
    "artifact": lambda _: True,
}
"""Fields that come through LangChain's constructor unchanged, if they are of this kind."""


def _fields(kind: type[BaseMessage]) -> tuple[dict[str, Any], frozenset[str]]:
    """Every field in its order, with what it is when it is not given; and those that must be."""
    fields = kind.model_fields
    needed = frozenset(name for name, field in fields.items() if field.is_required())
    return {name: field.get_default(call_default_factory=True) for name, field in fields.items()}, needed


_FIELDS = {kind: _fields(kind) for kind in _KINDS.values()}
