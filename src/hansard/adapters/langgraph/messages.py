"""LangChain's messages as messages of the history, and back."""

from __future__ import annotations

from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
    convert_to_messages,
    message_to_dict,
    messages_from_dict,
)
from langgraph.types import Overwrite
from msgspec import structs

from hansard import codec
from hansard.adapters.history import reading_of
from hansard.adapters.langgraph.versions import Version
from hansard.errors import ValidationError
from hansard.formats import registry
from hansard.model import NOT_YET, Message, Role

FORMAT = "langchain"

_ROLES: dict[str, Role] = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool", "function": "tool"}
_KINDS: dict[str, type[BaseMessage]] = {
    "human": HumanMessage,
    "ai": AIMessage,
    "system": SystemMessage,
    "tool": ToolMessage,
}
_SPEAKING = frozenset((*_ROLES, *_ROLES.values()))
"""The values that objects standing for a message use as their role."""
_OVERWRITE = "__overwrite__"


def is_messages(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, BaseMessage) for item in value)


def messages_in(written: Any) -> list[BaseMessage]:
    """Returns the messages in a write to a delta channel. A channel may hold anything; the rest is left out."""
    is_overwrite, value = _unwrapped(written)
    items = value if isinstance(value, list) or (is_overwrite and isinstance(value, tuple)) else [value]
    return [message for item in items if (message := message_of(item)) is not None]


def _unwrapped(written: Any) -> tuple[bool, Any]:
    """Returns what replaces the whole value of a channel, in each form that LangGraph accepts for that."""
    if isinstance(written, Overwrite):
        return True, written.value
    if isinstance(written, dict):
        if written.keys() == {_OVERWRITE}:
            return True, written[_OVERWRITE]
        if written.get("type") == _OVERWRITE and "value" in written:
            return True, written["value"]
    return False, written


def message_of(item: Any) -> BaseMessage | None:
    """Returns a message, or an object or a role-text pair as one; None for everything else."""
    if isinstance(item, BaseMessage):
        return item
    role = item.get("role", item.get("type")) if isinstance(item, dict) else None
    if isinstance(item, tuple | list) and len(item) == 2:  # Serializers return a tuple as a list.
        role = item[0]
    if not isinstance(role, str) or role not in _SPEAKING:
        return None
    try:
        return convert_to_messages([item])[0]
    except (NotImplementedError, ValueError, TypeError, KeyError):
        return None


class MessageDraft(NamedTuple):
    """A message to store: its row, and the version as which the row will be read."""

    row: Message
    version: Version

    def at(self, time: datetime) -> MessageDraft:
        """Returns the draft of a message that was written at that time."""
        return self if time is NOT_YET else self._replace(row=structs.replace(self.row, created_at=time))


def draft_of(message: BaseMessage) -> MessageDraft | None:
    """None if the row could not be read back as the same message, for example with an artifact that is not JSON."""
    if isinstance(message, RemoveMessage):
        return None
    try:
        _, native = codec.snapshot(native_of(message), "message")
        row = Message(_role_of(message), native, format=FORMAT)
        version = Version(message_from(native))
    except (ValidationError, ValueError, TypeError):
        return None
    return MessageDraft(row, version) if version.is_exactly(message) else None


def native_of(message: BaseMessage) -> dict[str, Any]:
    """Returns the content of a row: the message in LangChain's JSON, without its empty fields."""
    found = message_to_dict(message)
    kept = required(type(message)) | {"content", "id"}
    data = {name: value for name, value in found["data"].items() if value or name in kept}
    data.pop("type", None)
    return {"type": found["type"], "data": data}


def message_from(native: dict[str, Any]) -> BaseMessage:
    kind = _KINDS.get(native["type"])
    return kind(**native["data"]) if kind is not None else messages_from_dict([native])[0]


@cache
def required(kind: type[BaseMessage]) -> frozenset[str]:
    """Returns the fields without which such a message cannot be created."""
    return frozenset(name for name, field in kind.model_fields.items() if field.is_required())


def _role_of(message: BaseMessage) -> Role:
    return _ROLES.get(message.type.removesuffix("MessageChunk").lower(), "user")


def versions_of(row: Message) -> list[Version]:
    """Returns the messages of a row: exactly the original message if a graph wrote it."""
    if row.format == FORMAT and _is_native(row.content):
        return [Version(message_from(row.content))]
    latest = messages_from_dict(registry.write(reading_of(row), FORMAT, row))
    for number, message in enumerate(latest):
        message.id = row.id if len(latest) == 1 else f"{row.id}.{number}"
    return list(map(Version, latest))


def _is_native(content: Any) -> bool:
    return isinstance(content, dict) and isinstance(content.get("data"), dict)


def id_of(row: Message) -> str | None:
    """Returns the id that a graph gave to a message; None if others wrote it."""
    id = row.content["data"].get("id") if row.format == FORMAT and _is_native(row.content) else None
    return id if isinstance(id, str) else None
