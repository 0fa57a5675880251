"""LangChain's messages as messages of the history, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from langchain_core.messages import BaseMessage, convert_to_messages, message_to_dict, messages_from_dict
from langgraph.types import Overwrite

from hansard import codec
from hansard.adapters.history import reading_of
from hansard.adapters.langgraph.templates import Mould, mould_of, native
from hansard.errors import ValidationError
from hansard.formats import registry
from hansard.model import Message, Role

FORMAT = "langchain"

_SAYING = ("content", "tool_calls", "invalid_tool_calls", "additional_kwargs", "artifact")
"""The fields of a message that hold what was said or done."""
_NAMING = frozenset(("type", "id", "name", "index", "role", "mime_type", "source_type", "signature"))
"""Fields in them that say what a part is, not what it says."""
_ROLES: dict[str, Role] = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool", "function": "tool"}

_SPEAKING = frozenset((*_ROLES, *_ROLES.values()))
"""What the objects that stand for a message call their role."""
_OVERWRITE = "__overwrite__"


def is_messages(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, BaseMessage) for item in value)


def messages_in(written: Any) -> list[BaseMessage]:
    """The messages in what was written to a delta channel. A channel may hold anything: the rest is left out."""
    is_overwrite, value = _unwrapped(written)
    items = value if isinstance(value, list) or (is_overwrite and isinstance(value, tuple)) else [value]
    return [message for item in items if (message := _message_of(item)) is not None]


def _unwrapped(written: Any) -> tuple[bool, Any]:
    """What replaces the whole value of a channel, in each of the forms in which LangGraph accepts that."""
    if isinstance(written, Overwrite):
        return True, written.value
    if isinstance(written, dict):
        if written.keys() == {_OVERWRITE}:
            return True, written[_OVERWRITE]
        if written.get("type") == _OVERWRITE and "value" in written:
            return True, written["value"]
    return False, written


def _message_of(item: Any) -> BaseMessage | None:
    """A message, or an object or a pair of role and text that stands for one; None for everything else."""
    if isinstance(item, BaseMessage):
        return item
    role = item.get("role", item.get("type")) if isinstance(item, dict) else None
    if isinstance(item, tuple | list) and len(item) == 2:  # Serializers read a tuple as a list.
        role = item[0]
    if not isinstance(role, str) or role not in _SPEAKING:
        return None
    try:
        return convert_to_messages([item])[0]
    except (NotImplementedError, ValueError, TypeError, KeyError):
        return None


class Draft(NamedTuple):
    """A message that is to be stored: its row, and what will be made of that."""

    row: Message
    mould: Mould


def draft_of(message: BaseMessage) -> Draft | None:
    """None when the history could not give back the very same: an artifact that is no JSON, say."""
    try:
        native = message_to_dict(message)
        data = native["data"]
        lean = {name: value for name, value in data.items() if value or name in _needed(type(message))}
        lean.pop("type", None)
        _, plain = codec.snapshot({"type": native["type"], "data": lean}, "message")
        row = Message(_role_of(message), plain, format=FORMAT)
        moulds = moulds_of(row)
    except (ValidationError, ValueError, TypeError):
        return None
    return Draft(row, moulds[0]) if len(moulds) == 1 and moulds[0].is_exactly(message) else None


@cache
def _needed(kind: type[BaseMessage]) -> frozenset[str]:
    """The fields that are stored even when they are empty: without a required one, no message can be made again."""
    required = {name for name, field in kind.model_fields.items() if field.is_required()}
    return frozenset(("content", "id", *required))


def _role_of(message: BaseMessage) -> Role:
    return _ROLES.get(message.type.removesuffix("MessageChunk").lower(), "user")


def moulds_of(row: Message) -> list[Mould]:
    """What a message of the history is to a graph: its very self where a graph wrote it."""
    content = row.content
    if row.format != FORMAT or not _is_native(content):
        said = messages_from_dict(registry.write(reading_of(row), FORMAT, row))
        for number, message in enumerate(said):
            message.id = row.id if len(said) == 1 else f"{row.id}.{number}"
        return list(map(mould_of, said))
    made = native(content["type"], content["data"])
    return [made if made is not None else mould_of(messages_from_dict([content])[0])]


def _is_native(content: Any) -> bool:
    return isinstance(content, dict) and isinstance(content.get("data"), dict)


def id_of(row: Message) -> str | None:
    """The id that a graph gave to a message; None where others wrote it."""
    id = row.content["data"].get("id") if row.format == FORMAT and _is_native(row.content) else None
    return id if isinstance(id, str) else None


def texts_of(row: Message) -> list[bytes]:
    """The texts that a serializer writes for what the message says, as bytes: each string of its content and calls."""
    is_own = row.format == FORMAT and _is_native(row.content)
    said = [row.content["data"]] if is_own else [mould.given for mould in moulds_of(row)]
    return [text for data in said for text in texts_in(data)]


def texts_in(data: Mapping[str, Any]) -> Iterator[bytes]:
    """The same of the fields of one message."""
    return (text.encode() for name in _SAYING if name in data for text in _strings(data[name]))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            if name not in _NAMING:
                yield from _strings(item)
