"""What is kept beside the messages, as Redis keeps it, and back: summaries, records, usage."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from hansard import codec
from hansard.backends.redis.coding import decode_as, micros_of, time_of
from hansard.model import Record, Summary, UsageRow, from_micros, to_micros

_encode = msgspec.json.Encoder().encode


def summary_of(data: bytes, conversation_id: str) -> Summary:
    where = f"a summary of conversation {conversation_id!r}"
    branch, from_seq, to_seq, text, model, prompt_id, token_count, created_at = codec.decode(data, where)
    return Summary(
        conversation_id, from_seq, to_seq, text, branch, model, prompt_id, token_count, from_micros(created_at)
    )


def stored_summary(summary: Summary) -> bytes:
    return _encode(
        [
            summary.branch,
            summary.from_seq,
            summary.to_seq,
            summary.text,
            summary.model,
            summary.prompt_id,
            summary.token_count,
            to_micros(summary.created_at),
        ]
    )


class StoredRecord(Struct, array_like=True):
    """What stands before a record's value, which is JSON or, when `raw`, bytes."""

    namespace: tuple[str, ...]
    key: str
    revision: int
    created_at: int
    updated_at: int
    expires_at: int | None
    conversation_id: str | None
    birth: int | None
    """Of the conversation that it belongs to."""
    raw: bool


_RECORD = msgspec.json.Decoder(StoredRecord)


def stored_record(record: Record, birth: int | None) -> bytes:
    raw = isinstance(record.value, bytes)
    header = StoredRecord(
        record.namespace,
        record.key,
        record.revision,
        to_micros(record.created_at),
        to_micros(record.updated_at),
        micros_of(record.expires_at),
        record.conversation_id,
        birth,
        raw,
    )
    # JSON text has no raw newline in it, so the first one ends the header.
    return _encode(header) + b"\n" + (record.value if raw else _encode(record.value))


def record_of(data: bytes) -> tuple[Record, int | None]:
    """A record, and the birth of the conversation that it belongs to."""
    header, _, value = data.partition(b"\n")
    it = decode_as(_RECORD, header, "a record")
    record = Record(
        it.namespace,
        it.key,
        value if it.raw else codec.decode(value, f"record {it.key!r} in {it.namespace!r}"),
        it.revision,
        from_micros(it.created_at),
        from_micros(it.updated_at),
        time_of(it.expires_at),
        it.conversation_id,
    )
    return record, it.birth


def usage_field(row: UsageRow) -> bytes:
    return _encode([row.user_id, row.agent_id, row.model])


def usage_user(field: bytes) -> str | None:
    user_id: str | None = codec.decode(field, "a row of usage")[0]
    return user_id


def usage_of(day: str, field: bytes, value: bytes) -> UsageRow:
    user_id, agent_id, model = codec.decode(field, f"usage of {day}")
    messages, read, written, cached, reasoning, cost = value.split()
    tokens = (int(read), int(written), int(cached), int(reasoning))
    return UsageRow(day, user_id, agent_id, model, int(messages), *tokens, float(cost))


def pair_of(member: bytes) -> tuple[str, str]:
    """From `keys.whom`."""
    tenant, name = codec.decode(member, "an index over all tenants")
    return tenant, name
