"""Copies of values, so that callers never share mutable parts with the storage."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from hansard import codec
from hansard.model import Conversation, Message, Record


def _copy(value: Any) -> Any:
    return codec.decode(codec.encode(value), "memory")


def own_message(message: Message) -> Message:
    """Returns a copy of the message that callers may change."""
    changes: dict[str, Any] = {}
    if not isinstance(message.content, str):
        changes["content"] = _copy(message.content)
    if message.metadata is not None:
        changes["metadata"] = _copy(message.metadata)
    who = message.participant
    if who is not None and who.metadata is not None:
        changes["participant"] = structs.replace(who, metadata=_copy(who.metadata))
    return structs.replace(message, **changes) if changes else message


def own_conversation(conversation: Conversation) -> Conversation:
    return structs.replace(conversation, metadata=_copy(conversation.metadata) if conversation.metadata else {})


def own_record(record: Record) -> Record:
    if isinstance(record.value, bytes | str):
        return record
    return structs.replace(record, value=_copy(record.value))
