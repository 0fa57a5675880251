"""Opaque cursors: positions to page from.

A cursor holds only a position, and a check that it belongs to the listing at hand: for a search, to the same query and
filters. That of a message in progress also holds its revision, so that a tail can continue there. It carries no tenant,
user or filter: those always come from the call, so that no cursor can widen what a caller sees. A foreign or damaged
cursor is refused with a clear error.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from datetime import datetime
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from hansard.contract.types import RecordQuery
from hansard.errors import ValidationError
from hansard.model import Conversation, ConversationSort, Message, Record, to_micros

PREFIX = "cursor:"
_SAME_SEARCH = "this search: pass the query, mode, match, order and filters of the page before"

_Number = Annotated[int, Meta(ge=-(1 << 62), le=1 << 62)]
P = TypeVar("P", bound=Struct)


class _MessagePlace(Struct, array_like=True):
    kind: str
    micros: _Number
    seq: _Number
    seen: _Number | None = None
    """The revision of a message in progress; None for one that had ended."""


class _ConversationPlace(Struct, array_like=True):
    kind: str
    micros: _Number
    id: str


class _RecordPlace(Struct, array_like=True):
    kind: str
    namespace: tuple[str, ...]
    key: str


class _SearchPlace(Struct, array_like=True):
    kind: str
    micros: _Number
    seq: _Number
    id: str


class _Offset(Struct, array_like=True):
    kind: str
    offset: Annotated[int, Meta(ge=0, le=1 << 31)]


def _write(kind: str, home: str, *place: Any) -> str:
    payload = msgspec.json.encode([kind, *place])
    check = zlib.crc32(payload, zlib.crc32(home.encode()))
    return PREFIX + base64.urlsafe_b64encode(check.to_bytes(4) + payload).decode().rstrip("=")


def _read(cursor: str, kind: str, home: str, belongs: str, shape: type[P]) -> P:
    try:
        raw = base64.urlsafe_b64decode(cursor.removeprefix(PREFIX) + "==")
        found = msgspec.json.decode(raw[4:], type=list[Any])
    except (binascii.Error, ValueError, msgspec.DecodeError) as error:
        raise ValidationError(f"malformed cursor {cursor[:80]!r}: pass it exactly as it was returned") from error
    if zlib.crc32(raw[4:], zlib.crc32(home.encode())).to_bytes(4) != raw[:4] or found[:1] != [kind]:
        raise ValidationError(f"cursor {cursor[:80]!r} does not belong to {belongs}")
    try:
        return msgspec.convert(found, shape)
    except msgspec.ValidationError as error:
        raise ValidationError(f"malformed cursor {cursor[:80]!r}: it does not come from this store") from error


def is_cursor(text: str) -> bool:
    return text.startswith(PREFIX)


def of_message(message: Message) -> str:
    seen = [revision(message)] if message.status == "in_progress" else []
    return _write("m", message.conversation_id, to_micros(message.created_at), message.seq, *seen)


def revision(message: Message) -> int:
    """Returns a number that grows with every change of a message."""
    return 0 if message.updated_at is None else to_micros(message.updated_at)


def message_position(cursor: str, conversation_id: str) -> tuple[int, int]:
    """Returns the position as `(created_at in microseconds, seq)`."""
    place = _message_place(cursor, conversation_id)
    return place.micros, place.seq


def message_seen(cursor: str, conversation_id: str) -> int | None:
    """Returns the revision of the message, if it was in progress when the cursor was made."""
    return _message_place(cursor, conversation_id).seen


def _message_place(cursor: str, conversation_id: str) -> _MessagePlace:
    return _read(cursor, "m", conversation_id, f"conversation {conversation_id!r}", _MessagePlace)


def sort_time(conversation: Conversation, sort: ConversationSort) -> datetime:
    """Returns the time that a listing sorts by: an empty conversation counts from its creation."""
    if sort == "updated_at":
        return conversation.updated_at
    return conversation.last_message_at or conversation.created_at


def of_conversation(conversation: Conversation, sort: ConversationSort) -> str:
    return _write("c", sort, to_micros(sort_time(conversation, sort)), conversation.id)


def conversation_position(cursor: str, sort: ConversationSort) -> tuple[int, str]:
    place = _read(cursor, "c", sort, f"a listing sorted by {sort!r}", _ConversationPlace)
    return place.micros, place.id


def of_record(record: Record, scan: RecordQuery) -> str:
    return _write("r", _scanned(scan), list(record.namespace), record.key)


def record_position(cursor: str, scan: RecordQuery) -> tuple[tuple[str, ...], str]:
    belongs = f"a scan of records in {scan.prefix!r} with key_prefix={scan.key_prefix!r}, exact={scan.exact}"
    place = _read(cursor, "r", _scanned(scan), belongs, _RecordPlace)
    return place.namespace, place.key


def _scanned(scan: RecordQuery) -> str:
    """Identifies the records that a scan walks: scans with the same ones may use each other's cursors."""
    return msgspec.json.encode([scan.prefix, scan.key_prefix, scan.exact]).decode()


def of_search(home: str, micros: int, seq: int, conversation_id: str) -> str:
    return _write("s", home, micros, seq, conversation_id)


def is_of_search(cursor: str, home: str) -> bool:
    """Returns whether the cursor belongs to this search, of those that can be meant."""
    try:
        _read(cursor, "s", home, _SAME_SEARCH, _SearchPlace)
    except ValidationError:
        return False
    return True


def search_position(cursor: str, home: str) -> tuple[int, int, str]:
    place = _read(cursor, "s", home, _SAME_SEARCH, _SearchPlace)
    return place.micros, place.seq, place.id


def of_search_offset(home: str, offset: int) -> str:
    return _write("o", home, offset)


def search_offset(cursor: str, home: str) -> int:
    return _read(cursor, "o", home, _SAME_SEARCH, _Offset).offset
