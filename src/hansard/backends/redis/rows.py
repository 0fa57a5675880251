"""Values of the model as Redis stores them, and back. Everything is JSON, so that `redis-cli` shows the data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, structs

from hansard import codec, rules
from hansard.contract.types import ConversationState, StoredBranch
from hansard.errors import Corrupt
from hansard.model import (
    EPOCH,
    MICROSECOND,
    Conversation,
    Message,
    Record,
    Summary,
    UsageRow,
    from_micros,
    to_micros,
)

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode
_NO_EXTRA = codec.Extra()


def decode_as(decoder: msgspec.json.Decoder[T], data: bytes, where: str) -> T:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(f"unreadable JSON in {where}: {error}", where=where) from error


# Conversations


class StateFacts(Struct, array_like=True):
    """The field `facts` of a head, which few writes change."""

    id: str
    user_id: str | None
    agent_id: str | None
    audit_id: str | None
    title: str | None
    metadata: dict[str, Any]
    summary: str | None
    created_at: int
    branch: str
    expires_at: int | None
    archived_at: int | None
    has_tombstones: bool


class Counters(Struct, array_like=True):
    """The field `counters` of a head, which every append changes."""

    updated_at: int
    last_message_at: int | None
    message_count: int
    version: int
    seq: int
    largest: int
    segments: int = 0


class BranchRow(Struct, array_like=True):
    """A field `branch:<id>` of a head. The only branch of a conversation has the conversation's count."""

    segment: int
    path: tuple[tuple[int, int], ...]
    count: int | None
    parent: str | None
    from_seq: int | None
    created_at: int


_FACTS = msgspec.json.Decoder(StateFacts)
_COUNTERS = msgspec.json.Decoder(Counters)
_BRANCH = msgspec.json.Decoder(BranchRow)
BRANCH = "branch:"


class StoredState(Struct):
    """A conversation as it is stored. `n` grows with every write to it."""

    n: int
    write: str
    """The random name of the write that made it so. Others may have had the same `n`, and were refused."""
    birth: int
    """The `n` of its creation: another conversation of the same id has another."""
    state: ConversationState
    largest: int
    """The size of its largest body ever."""
    segments: int
    """The highest segment number ever used."""


def is_same_write(one: StoredState | None, other: StoredState | None) -> bool:
    """Returns whether the same write has made both."""
    return (one and (one.n, one.write)) == (other and (other.n, other.write))


PIECE = 500
PIECE_BYTES = 4_000_000
"""The most bytes that one round trip of a long walk should read."""


def piece_of(entry: StoredState) -> int:
    """Returns how many messages one round trip of a walk should read."""
    return max(1, min(PIECE, PIECE_BYTES // max(entry.largest, 1)))


def state_of(fields: Mapping[bytes, bytes], where: str) -> StoredState:
    """Decodes the fields of a head."""
    try:
        facts, counters = fields[b"facts"], fields[b"counters"]
        n, birth = int(fields[b"n"]), int(fields[b"birth"])
        write = fields.get(b"write", b"").decode()
    except (KeyError, ValueError) as error:
        raise Corrupt(f"the head of {where} is damaged: {error}", where=where) from error
    known, counted = decode_as(_FACTS, facts, where), decode_as(_COUNTERS, counters, where)
    conversation = Conversation(
        known.id,
        known.user_id,
        known.agent_id,
        known.audit_id,
        known.title,
        known.metadata,
        known.summary,
        from_micros(known.created_at),
        from_micros(counted.updated_at),
        from_micros(counted.last_message_at),
        counted.message_count,
        counted.version,
        known.branch,
        from_micros(known.expires_at),
        from_micros(known.archived_at),
    )
    branches = {
        (id := name[len(BRANCH) :].decode()): _branch_of(id, value, counted.message_count, where)
        for name, value in fields.items()
        if name.startswith(BRANCH.encode())
    }
    state = ConversationState(conversation, counted.seq, branches, known.has_tombstones)
    return StoredState(n, write, birth, state, counted.largest, max({counted.segments} | segments_of(state)))


def segments_of(state: ConversationState) -> set[int]:
    return {segment for branch in state.branches.values() for segment, _ in rules.segments(branch)}


def _branch_of(id: str, data: bytes, count: int, where: str) -> StoredBranch:
    branch = decode_as(_BRANCH, data, where)
    own = count if branch.count is None else branch.count
    return StoredBranch(
        id, branch.segment, branch.path, own, branch.parent, branch.from_seq, from_micros(branch.created_at)
    )


def facts_of(state: ConversationState) -> bytes:
    it = state.conversation
    return _encode(
        StateFacts(
            it.id,
            it.user_id,
            it.agent_id,
            it.audit_id,
            it.title,
            it.metadata,
            it.summary,
            to_micros(it.created_at),
            it.branch,
            to_micros(it.expires_at),
            to_micros(it.archived_at),
            state.has_tombstones,
        )
    )


def counters_of(state: ConversationState, largest: int, segments: int) -> bytes:
    it = state.conversation
    updated = to_micros(it.updated_at)
    # For most appends both are the same time.
    last = updated if it.last_message_at is it.updated_at else to_micros(it.last_message_at)
    return _encode(Counters(updated, last, it.message_count, it.version, state.seq, largest, segments))


def branch_data(branch: StoredBranch, *, alone: bool) -> bytes:
    count = None if alone else branch.count
    return _encode(
        BranchRow(branch.segment, branch.path, count, branch.parent, branch.from_seq, to_micros(branch.created_at))
    )


def state_changes(before: ConversationState | None, entry: StoredState) -> tuple[list[Any], list[str]]:
    """Returns the fields of the head to set, as names and values in turn, and the fields to remove."""
    after = entry.state
    fields: list[Any] = ["counters", counters_of(after, entry.largest, entry.segments)]
    if before is None or not _same_facts(before, after):
        fields += ["facts", facts_of(after)]
    branches = {} if before is None else before.branches
    alone = len(after.branches) == 1
    # If the number of branches changes from or to one, the branches are stored too: their count moves.
    same_company = (len(branches) == 1) == alone
    for id, branch in after.branches.items():
        old = branches.get(id)
        if old is None or not same_company or (old is not branch and not (alone and _same_shape(old, branch))):
            fields += [f"{BRANCH}{id}", branch_data(branch, alone=alone)]
    return fields, [f"{BRANCH}{id}" for id in branches.keys() - after.branches.keys()]


def _same_shape(one: StoredBranch, other: StoredBranch) -> bool:
    return structs.replace(one, count=other.count) == other


def _same_facts(before: ConversationState, after: ConversationState) -> bool:
    one, other = before.conversation, after.conversation
    return (
        one.metadata is other.metadata
        and one.user_id == other.user_id
        and one.agent_id == other.agent_id
        and one.audit_id == other.audit_id
        and one.title == other.title
        and one.summary == other.summary
        and one.branch == other.branch
        and one.created_at == other.created_at
        and one.expires_at == other.expires_at
        and one.archived_at == other.archived_at
        and before.has_tombstones == after.has_tombstones
    )


# Messages


class RedisMessage(Struct, array_like=True, gc=False):
    seq: int
    id: str
    role: str
    format: str | None
    """None for plain text."""
    body: str
    created_at: int
    extra: codec.Extra | None = None


_MESSAGE = msgspec.json.Decoder(RedisMessage)
_MESSAGES = msgspec.json.Decoder(list[RedisMessage])
_json = msgspec.json.Decoder().decode


def message_of(message: Message, body: str) -> bytes:
    format = None if message.format == "text" else message.format
    extra = codec.encode_extra(message)
    row = [message.seq, message.id, message.role, format, body, to_micros(message.created_at)]
    if extra is not None:
        row.append(msgspec.Raw(extra.encode()))
    return _encode(row)


def row_of(data: bytes, conversation_id: str) -> RedisMessage:
    return decode_as(_MESSAGE, data, f"a message of conversation {conversation_id!r}")


def message_from(row: RedisMessage, conversation_id: str) -> Message:
    return messages_from((row,), conversation_id)[0]


def messages_from(rows: Iterable[RedisMessage], conversation_id: str) -> list[Message]:
    """Reading is mostly this loop, so it creates each message directly."""
    made: list[Message] = []
    for row in rows:
        format, body = row.format, row.body
        try:
            content = body if format is None else _json(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            where = f"message {row.id!r} of conversation {conversation_id!r}"
            raise Corrupt(f"unreadable JSON in {where}: {error}", where=where) from error
        more = row.extra or _NO_EXTRA
        message = Message(
            row.role,
            content,
            row.id,
            conversation_id,
            row.seq,
            more.branch,
            format or "text",
            more.participant,
            more.mentions,
            more.scope,
            more.status,
            more.pinned,
            EPOCH + MICROSECOND * row.created_at,
            None if more.updated_at is None else from_micros(more.updated_at),
            more.trace_id,
            more.sources,
            more.usage,
            more.metadata,
            more.blobs,
            more.labels,
            more.ratings,
            None if more.edited_at is None else from_micros(more.edited_at),
            more.prompt_id,
        )
        made.append(message)
    return made


def rows_of(found: Sequence[bytes], conversation_id: str) -> list[RedisMessage]:
    """Decodes all rows at once, which is faster than one by one."""
    try:
        rows = _MESSAGES.decode(b"[" + b",".join(found) + b"]")
    except (msgspec.DecodeError, UnicodeDecodeError):
        rows = []
    # Decode one by one to name the damaged row.
    return rows if len(rows) == len(found) else [row_of(data, conversation_id) for data in found]


def messages_of(found: Sequence[bytes], conversation_id: str) -> list[Message]:
    return messages_from(rows_of(found, conversation_id), conversation_id)


def size_of(row: RedisMessage) -> int:
    """Returns the bytes of a message's content as readers get it, with its blobs restored."""
    size = len(row.body) if row.body.isascii() else len(row.body.encode())
    if row.extra is None:
        return size
    return size + sum(len(ref.prefix) + 4 * -(-ref.size // 3) for ref in row.extra.blobs)


# Summaries, records, usage


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


class RecordHeader(Struct, array_like=True):
    """The header before a record's value, which is JSON or, if `raw`, bytes."""

    namespace: tuple[str, ...]
    key: str
    revision: int
    created_at: int
    updated_at: int
    expires_at: int | None
    conversation_id: str | None
    birth: int | None
    """The birth of the conversation that it belongs to."""
    raw: bool


_RECORD = msgspec.json.Decoder(RecordHeader)


def stored_record(record: Record, birth: int | None) -> bytes:
    raw = isinstance(record.value, bytes)
    header = RecordHeader(
        record.namespace,
        record.key,
        record.revision,
        to_micros(record.created_at),
        to_micros(record.updated_at),
        to_micros(record.expires_at),
        record.conversation_id,
        birth,
        raw,
    )
    # JSON text contains no raw newline, so the first one ends the header.
    return _encode(header) + b"\n" + (record.value if raw else _encode(record.value))


def record_of(data: bytes) -> tuple[Record, int | None]:
    """Returns a record, and the birth of the conversation that it belongs to."""
    header, _, value = data.partition(b"\n")
    it = decode_as(_RECORD, header, "a record")
    record = Record(
        it.namespace,
        it.key,
        value if it.raw else codec.decode(value, f"record {it.key!r} in {it.namespace!r}"),
        it.revision,
        from_micros(it.created_at),
        from_micros(it.updated_at),
        from_micros(it.expires_at),
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
    """Splits a member made by `keys.pair_member`."""
    tenant, name = codec.decode(member, "an index over all tenants")
    return tenant, name
