"""Rows that are stored as JSON documents: encoding and decoding."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from msgspec import Raw

from hansard import codec
from hansard.errors import Corrupt
from hansard.model import Message, Record, from_micros

S = TypeVar("S")
_NO_EXTRA = codec.Extra()

encode = msgspec.json.Encoder().encode


def decode(data: bytes | Raw, kind: type[S], where: str) -> S:
    codec.prepare(kind)
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError) as error:
        raise Corrupt(f"{where} cannot be read: {error}", where=where) from error


def extra_of(text: str | None, where: str) -> codec.Extra:
    return _NO_EXTRA if text is None else codec.decode_extra(text, where)


def message_of(
    conversation_id: str,
    id: str,
    seq: int,
    *,
    role: str,
    format: str,
    body: str,
    created_at: int,
    extra: str | None,
) -> Message:
    where = f"message {id!r} of conversation {conversation_id!r}"
    rest = extra_of(extra, where)
    return Message(
        role,
        codec.content_of(body, format, where),
        id,
        conversation_id,
        seq,
        rest.branch,
        format,
        rest.participant,
        rest.mentions,
        rest.scope,
        rest.status,
        rest.pinned,
        from_micros(created_at),
        None if rest.updated_at is None else from_micros(rest.updated_at),
        rest.trace_id,
        rest.sources,
        rest.usage,
        rest.metadata,
        rest.blobs,
        rest.labels,
        rest.ratings,
        None if rest.edited_at is None else from_micros(rest.edited_at),
        rest.prompt_id,
    )


def split_record(record: Record) -> tuple[Record, bytes | None]:
    """Takes out a value that is bytes, which JSON cannot represent."""
    if not isinstance(record.value, bytes):
        return record, None
    return msgspec.structs.replace(record, value=None), record.value


def join_record(record: Record, data: bytes | None) -> Record:
    return record if data is None else msgspec.structs.replace(record, value=data)
