"""Rows of the database to values of the model, and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import repeat
from operator import index
from typing import Any

import msgspec

from hansard import codec
from hansard.backends.sqlite.errors import decodes, unreadable
from hansard.contract.types import ConversationState, Draft, StoredBranch
from hansard.errors import Corrupt
from hansard.model import (
    EPOCH,
    MAIN,
    MICROSECOND,
    Conversation,
    Message,
    Record,
    Summary,
    UsageRow,
    from_micros,
    to_micros,
)

_NO_EXTRA = codec.Extra()
_decode = msgspec.json.Decoder().decode
_decode_extra = codec.extra_decoder().decode

_COLUMNS = 8
"""The fields of a message without rare ones."""

SEQ_BITS = 30
SEQ_MASK = (1 << SEQ_BITS) - 1

Row = tuple[Any, ...]


def pack(segment: int, seq: int) -> int:
    """Returns the key of a message: its segment and seq."""
    return segment << SEQ_BITS | seq


def unpack(key: int) -> tuple[int, int]:
    return key >> SEQ_BITS, key & SEQ_MASK


def key_range(segment: int, above: int = 0, upto: int = SEQ_MASK) -> tuple[int, int]:
    """Returns the open interval of keys of a segment after seq `above`, up to and including seq `upto`."""
    return pack(segment, above), pack(segment, min(upto, SEQ_MASK)) + 1


@decodes
def moment_of(micros: int) -> datetime:
    """Decodes a time that a row must have."""
    return EPOCH + MICROSECOND * micros


def time_of(micros: int | None) -> datetime | None:
    return None if micros is None else moment_of(micros)


_MOST_TIMES = 10_000
_times: dict[int, datetime] = {}
"""Times by their microseconds. The same messages are read turn after turn, and half of that is decoding times."""
_known_time = _times.get


def _new_time(micros: int) -> datetime:
    if len(_times) >= _MOST_TIMES:
        _times.clear()
    time = _times[micros] = EPOCH + MICROSECOND * micros
    return time


# Conversations


def conversation_of(row: Row, where: str) -> Conversation:
    """Decodes the columns of `find_head` between the pk and the seq."""
    return conversations_of((row,), where)[0]


@decodes
def conversations_of(found: Iterable[Row], where: str) -> list[Conversation]:
    """Listing is mostly this loop, so it decodes its times inline.

    After an append, the last message and the last change have the same time.
    """
    return [
        Conversation(
            id,
            user_id,
            agent_id,
            audit_id,
            title,
            {} if metadata is None else codec.decode(metadata, where),
            summary,
            EPOCH + MICROSECOND * created,
            at := EPOCH + MICROSECOND * updated,
            at if last == updated else from_micros(last),
            count | 0,
            version | 0,
            branch,
            None if expires is None else from_micros(expires),
            None if archived is None else from_micros(archived),
        )
        for (
            id,
            user_id,
            agent_id,
            audit_id,
            title,
            metadata,
            summary,
            created,
            updated,
            last,
            count,
            version,
            branch,
            expires,
            archived,
        ) in found
    ]


def conversation_row(state: ConversationState, largest: int) -> Row:
    """Returns the columns of `save_conversation`, in order."""
    conversation = state.conversation
    created_at, last_at = to_micros(conversation.created_at), to_micros(conversation.last_message_at)
    return (
        conversation.user_id,
        conversation.agent_id,
        conversation.audit_id,
        conversation.title,
        codec.encode(conversation.metadata) if conversation.metadata else None,
        conversation.summary,
        created_at,
        to_micros(conversation.updated_at),
        last_at,
        created_at if last_at is None else last_at,
        conversation.message_count,
        conversation.version,
        conversation.branch,
        conversation.expires_at and to_micros(conversation.expires_at),
        conversation.archived_at and to_micros(conversation.archived_at),
        state.seq,
        state.has_tombstones,
        largest,
    )


def counters_row(state: ConversationState, largest: int, pk: int) -> Row:
    """Returns the columns of `save_counters`, in order."""
    conversation = state.conversation
    updated = to_micros(conversation.updated_at)
    last = conversation.last_message_at
    # For most appends both are the same time.
    last_at = updated if last is conversation.updated_at else to_micros(last)
    active_at = to_micros(conversation.created_at) if last_at is None else last_at
    return (
        updated,
        last_at,
        active_at,
        conversation.message_count,
        conversation.version,
        state.seq,
        largest,
        pk,
    )


@decodes
def branch_of(row: Row, count: int, where: str) -> StoredBranch:
    """Decodes the columns of `find_head` after the conversation's. `count` is used if the branch is the only one."""
    id, segment, path, own_count, parent, from_seq, created_at = row
    return StoredBranch(
        id,
        index(segment),
        path_of(path, where),
        count if own_count is None else index(own_count),
        parent,
        None if from_seq is None else index(from_seq),
        moment_of(created_at),
    )


@decodes
def path_of(text: str | None, where: str) -> tuple[tuple[int, int], ...]:
    return () if text is None else tuple((index(segment), index(upto)) for segment, upto in codec.decode(text, where))


def branch_row(pk: int, branch: StoredBranch, *, alone: bool) -> Row:
    """Returns the columns of `save_branch` after the segment, in order. An only branch has its conversation's count."""
    path = codec.encode(branch.path) if branch.path else None
    count = None if alone else branch.count
    return pk, branch.id, path, count, branch.parent, branch.from_seq, to_micros(branch.created_at)


# Messages


def message_rows(segment: int, conversation: int, placed: Iterable[tuple[Message, Draft]]) -> list[Row]:
    """Returns the columns of `insert_message`, in order, or of `insert_rare_message` if needed.

    Messages of one call mostly have the same time.
    """
    made: list[Row] = []
    time, micros = EPOCH, 0
    for message, draft in placed:
        if message.created_at is not time:
            time, micros = message.created_at, to_micros(message.created_at)
        row: Row = (
            pack(segment, message.seq),
            conversation,
            message.id,
            message.role,
            message.format,
            draft.body,
            micros,
            codec.encode_extra(message) or "",
        )
        who = message.participant
        if who or message.scope or message.pinned:
            row += (who.id if who else None, message.scope, message.pinned or None)
        made.append(row)
    return made


def is_rare(row: Row) -> bool:
    return len(row) > _COLUMNS


def as_read(inserted: Row) -> Row:
    """Returns the columns of `tail` of a row that was inserted."""
    key, _, id, role, format, body, created_at, extra = inserted[:_COLUMNS]
    return key, id, role, None if format == "text" else format, body, created_at, extra or None


def message_of(row: Row, conversation_id: str) -> Message:
    """Decodes the columns of `tail`."""
    return messages_of((row,), conversation_id)[0]


def messages_of(found: Iterable[Row], conversation_id: str) -> list[Message]:
    return messages_from(found, repeat(conversation_id))


@decodes
def messages_from(found: Iterable[Row], conversation_ids: Iterable[str]) -> list[Message]:
    """Decodes the columns of `tail`.

    Reading is mostly this loop. Plain messages, the common case, get only what is not a default.
    """
    return [
        # By position, since names take longer: those after the format are defaults.
        Message(
            role,
            body,
            id,
            conversation_id,
            key & SEQ_MASK,
            MAIN,
            "text",
            None,
            (),
            None,
            "complete",
            False,
            _known_time(created_at) or _new_time(created_at),
        )
        if format is None and extra is None
        else _any_message((key, id, role, format, body, created_at, extra), conversation_id)
        for (key, id, role, format, body, created_at, extra), conversation_id in zip(
            found, conversation_ids, strict=False
        )
    ]


def _any_message(row: Row, conversation_id: str) -> Message:
    key, id, role, format, body, created_at, extra = row
    try:
        content = body if format is None else _decode(body)
        more = _NO_EXTRA if extra is None else _decode_extra(extra)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        where = f"message {id!r} of conversation {conversation_id!r}"
        raise Corrupt(f"unreadable JSON in {where}: {error}", where=where) from error
    return Message(
        role,
        content,
        id,
        conversation_id,
        key & SEQ_MASK,
        more.branch,
        format or "text",
        more.participant,
        more.mentions,
        more.scope,
        more.status,
        more.pinned,
        _known_time(created_at) or _new_time(created_at),
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


def size_of(row: Row) -> int:
    """Returns the bytes of a message's content as readers get it, with its blobs restored.

    It is asked of every row of a long read, so it does without the call that `decodes` adds.
    """
    body, extra = row[4], row[6]
    try:
        size = len(body) if body.isascii() else len(body.encode())
        if extra is None or '"blobs"' not in extra:
            return size
    except (AttributeError, TypeError) as error:
        raise unreadable(error) from error
    blobs = codec.decode_extra(extra, f"message {row[1]!r}").blobs
    return size + sum(len(ref.prefix) + 4 * -(-ref.size // 3) for ref in blobs)


# Summaries, records, usage


@decodes
def summary_of(row: Row, conversation_id: str) -> Summary:
    branch, from_seq, to_seq, text, model, prompt_id, token_count, created_at, _ = row
    return Summary(
        conversation_id, from_seq, to_seq, text, branch, model, prompt_id, token_count, moment_of(created_at)
    )


def summary_row(pk: int, summary: Summary) -> Row:
    return (
        pk,
        summary.branch,
        summary.from_seq,
        summary.to_seq,
        summary.text,
        summary.model,
        summary.prompt_id,
        summary.token_count,
        to_micros(summary.created_at),
    )


@decodes
def record_of(row: Row, conversation_id: str | None) -> Record:
    """Decodes the columns of `find_record`."""
    _, namespace, key, value, revision, created_at, updated_at, expires_at, _ = row
    names = codec.unpack_namespace(namespace)
    if not isinstance(key, str):
        raise TypeError(f"the key of a record in {names!r} is not text")
    return Record(
        names,
        key,
        value if isinstance(value, bytes) else codec.decode(value, f"record {key!r} in {names!r}"),
        revision,
        moment_of(created_at),
        moment_of(updated_at),
        from_micros(expires_at),
        conversation_id,
    )


def record_row(tenant: str, owner: str, record: Record, conversation: int | None) -> Row:
    value = record.value
    return (
        tenant,
        owner,
        codec.pack_namespace(record.namespace),
        record.key,
        value if isinstance(value, bytes) else codec.encode(value),
        record.revision,
        to_micros(record.created_at),
        to_micros(record.updated_at),
        to_micros(record.expires_at),
        conversation,
    )


@decodes
def usage_of(row: Sequence[Any]) -> UsageRow:
    day, user_id, agent_id, model, *numbers = row
    return UsageRow(day, user_id or None, agent_id or None, model or None, *numbers)


def usage_row(tenant: str, row: UsageRow) -> Row:
    return (
        tenant,
        row.day,
        row.user_id or "",
        row.agent_id or "",
        row.model or "",
        row.messages,
        row.input_tokens,
        row.output_tokens,
        row.cached_tokens,
        row.reasoning_tokens,
        row.cost,
    )
