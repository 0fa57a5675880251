"""Opaque places to page from.

A cursor holds only a position, and a check that it belongs to the listing at hand. It carries no tenant, user or
filter: those always come from the call, so that no cursor can widen what a caller sees. One from elsewhere, or a
damaged one, is refused with a clear error.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from datetime import datetime
from typing import Any

import msgspec

from hansard.errors import ValidationError
from hansard.model import Conversation, ConversationSort, Message, Record, to_micros

PREFIX = "cursor:"


def _write(kind: str, home: str, *place: Any) -> str:
    payload = msgspec.json.encode([kind, *place])
    check = zlib.crc32(payload, zlib.crc32(home.encode()))
    return PREFIX + base64.urlsafe_b64encode(check.to_bytes(4) + payload).decode().rstrip("=")


def _read(cursor: str, kind: str, home: str, belongs: str) -> list[Any]:
    try:
        raw = base64.urlsafe_b64decode(cursor.removeprefix(PREFIX) + "==")
        place = msgspec.json.decode(raw[4:])
    except (binascii.Error, ValueError, msgspec.DecodeError) as error:
        raise ValidationError(f"malformed cursor {cursor[:80]!r}: pass one exactly as it was given") from error
    if zlib.crc32(raw[4:], zlib.crc32(home.encode())).to_bytes(4) != raw[:4] or place[0] != kind:
        raise ValidationError(f"cursor {cursor[:80]!r} does not belong to {belongs}")
    return list(place[1:])


def is_cursor(text: str) -> bool:
    return text.startswith(PREFIX)


def of_message(message: Message) -> str:
    return _write("m", message.conversation_id, to_micros(message.created_at), message.seq)


def message_position(cursor: str, conversation_id: str) -> tuple[int, int]:
    """`(created_at in microseconds, seq)` of the place."""
    micros, seq = _read(cursor, "m", conversation_id, f"conversation {conversation_id!r}")
    return micros, seq


def sort_time(conversation: Conversation, sort: ConversationSort) -> datetime:
    """The time that a listing sorts by: an empty conversation counts from when it was made."""
    if sort == "updated_at":
        return conversation.updated_at
    return conversation.last_message_at or conversation.created_at


def of_conversation(conversation: Conversation, sort: ConversationSort) -> str:
    return _write("c", sort, to_micros(sort_time(conversation, sort)), conversation.id)


def conversation_position(cursor: str, sort: ConversationSort) -> tuple[int, str]:
    micros, id = _read(cursor, "c", sort, f"a listing sorted by {sort!r}")
    return micros, id


def of_record(record: Record) -> str:
    return _write("r", "", list(record.namespace), record.key)


def record_position(cursor: str) -> tuple[tuple[str, ...], str]:
    namespace, key = _read(cursor, "r", "", "a scan of records")
    return tuple(namespace), key
