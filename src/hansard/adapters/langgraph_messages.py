"""LangChain's messages as messages of the history, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from langchain_core.messages import BaseMessage, message_to_dict, messages_from_dict

from hansard import codec
from hansard.adapters.history import reading_of
from hansard.adapters.langgraph_moulds import Mould, mould_of, native
from hansard.errors import ValidationError
from hansard.formats import registry
from hansard.model import Message, Role

FORMAT = "langchain"

_SAYING = ("content", "tool_calls", "invalid_tool_calls", "additional_kwargs", "artifact")
"""The fields of a message that hold what was said or done."""
_NAMING = frozenset(("type", "id", "name", "index", "role", "mime_type", "source_type", "signature"))
"""Fields in them that say what a part is, not what it says."""
_ROLES: dict[str, Role] = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool", "function": "tool"}


def is_messages(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, BaseMessage) for item in value)


class Draft(NamedTuple):
    """A message that is to be stored: its row, and what will be made of that."""

    row: Message
    mould: Mould


def draft_of(message: BaseMessage) -> Draft | None:
    """None when the history could not give back the very same: an artifact that is no JSON, say."""
    try:
        native = message_to_dict(message)
        data = native["data"]
        lean = {name: value for name, value in data.items() if value or name in ("content", "id")}
        lean.pop("type", None)
        _, plain = codec.snapshot({"type": native["type"], "data": lean}, "message")
        row = Message(_role_of(message), plain, format=FORMAT)
        moulds = moulds_of(row)
    except (ValidationError, ValueError, TypeError):
        return None
    return Draft(row, moulds[0]) if len(moulds) == 1 and moulds[0].is_exactly(message) else None


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
