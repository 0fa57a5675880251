"""Rows of the database to values of the model, and back.

PostgreSQL's text holds every character but NUL. So in free text (ids have none) U+0000 is written as U+0001 U+0001, and
U+0001 as U+0001 U+0002: this keeps the order of texts, and their prefixes. JSON escapes both by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from hansard import codec
from hansard.contract.types import ConversationState, Draft, StoredBranch
from hansard.errors import Corrupt
from hansard.model import MAIN, Conversation, Message, Record, Summary, UsageRow, from_micros, to_micros

NO_EXTRA = codec.Extra()
_decode = msgspec.json.Decoder().decode
_decode_extra = codec.extra_decoder().decode

Row = Sequence[Any]


def escaped(text: str) -> str:
    if "\0" in text or "\1" in text:
        return text.replace("\1", "\1\2").replace("\0", "\1\1")
    return text


def unescaped(text: str) -> str:
    return text.replace("\1\1", "\0").replace("\1\2", "\1") if "\1" in text else text


def _maybe_escaped(text: str | None) -> str | None:
    return None if text is None else escaped(text)


def _maybe_unescaped(text: str | None) -> str | None:
    return None if text is None else unescaped(text)


def columns(rows: Sequence[Row], width: int) -> list[list[Any]]:
    """Returns rows as the arrays that `unnest` turns into rows again."""
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]


# Conversations


def possible(ids: Iterable[str]) -> list[str]:
    """Removes ids with NUL: none is stored, and PostgreSQL would refuse the query."""
    return [id for id in ids if "\0" not in id]


def conversation_of(row: Row, where: str) -> Conversation:
    """Decodes the first columns of `lock_conversation`."""
    (
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
        *_,
    ) = row
    at = from_micros(updated)
    return Conversation(
        id,
        user_id,
        agent_id,
        audit_id,
        None if title is None else unescaped(title),
        {} if metadata is None else codec.decode(metadata, where),
        None if summary is None else unescaped(summary),
        from_micros(created),
        at,
        # After an append, the last message and the last change have the same time.
        at if last == updated else from_micros(last),
        count,
        version,
        branch,
        None if expires is None else from_micros(expires),
        None if archived is None else from_micros(archived),
    )


def conversation_row(state: ConversationState, largest: int, segment: int, stamp: int) -> Row:
    """Returns the columns of `save_conversation` after the key, in order."""
    conversation = state.conversation
    return (
        conversation.user_id,
        conversation.agent_id,
        conversation.audit_id,
        _maybe_escaped(conversation.title),
        codec.encode(conversation.metadata) if conversation.metadata else None,
        _maybe_escaped(conversation.summary),
        to_micros(conversation.created_at),
        to_micros(conversation.updated_at),
        to_micros(conversation.last_message_at),
        active_at(conversation),
        conversation.message_count,
        conversation.version,
        conversation.branch,
        to_micros(conversation.expires_at),
        to_micros(conversation.archived_at),
        state.seq,
        state.has_tombstones,
        largest,
        segment,
        stamp,
    )


def active_at(conversation: Conversation) -> int:
    return to_micros(conversation.last_message_at or conversation.created_at)


def counters_row(id: str, tombstone_digest: str, known: int, stamp: int, state: ConversationState, largest: int) -> Row:
    """Returns the columns of `append` that save a conversation, in order."""
    conversation = state.conversation
    updated, last = conversation.updated_at, conversation.last_message_at
    updated_at = to_micros(updated)
    # Most appends give both the same moment.
    last_at = updated_at if last is updated else to_micros(last)
    return (
        id,
        tombstone_digest,
        known,
        stamp,
        conversation.user_id,
        updated_at,
        last_at,
        active_at(conversation) if last_at is None else last_at,
        conversation.message_count,
        conversation.version,
        state.seq,
        largest,
    )


def beginning_row(id: str, stamp: int, state: ConversationState, largest: int) -> Row:
    """Returns the columns of `begin` that create a conversation, in order."""
    conversation = state.conversation
    return (
        id,
        conversation.user_id,
        conversation.agent_id,
        conversation.audit_id,
        _maybe_escaped(conversation.title),
        codec.encode(conversation.metadata) if conversation.metadata else None,
        to_micros(conversation.created_at),
        to_micros(conversation.updated_at),
        to_micros(conversation.last_message_at),
        active_at(conversation),
        conversation.message_count,
        conversation.version,
        to_micros(conversation.expires_at),
        state.seq,
        largest,
        stamp,
    )


def state_of(row: Row, branches: str | None, where: str) -> ConversationState:
    """Decodes the columns of `lock_conversation` and the JSON of `find_branches`."""
    conversation = conversation_of(row, where)
    made = [_branch_of(branch, conversation.message_count) for branch in codec.decode(branches or "[]", where)]
    return ConversationState(conversation, row[15], {branch.id: branch for branch in made}, row[16])


def _branch_of(row: Row, count: int) -> StoredBranch:
    """Decodes a branch. `count` is used if it is the only one."""
    id, segment, segments, uptos, own_count, parent, from_seq, created_at = row
    return StoredBranch(
        # The identical object: the encoder omits a default only if it is the same object.
        MAIN if id == MAIN else id,
        segment,
        tuple(zip(segments, uptos, strict=True)),
        count if own_count is None else own_count,
        parent,
        from_seq,
        from_micros(created_at),
    )


def branch_row(branch: StoredBranch, *, alone: bool) -> Row:
    """Returns the columns of `save_branch` after the conversation. An only branch has the conversation's count."""
    return (
        branch.id,
        branch.segment,
        [segment for segment, _ in branch.path],
        [upto for _, upto in branch.path],
        None if alone else branch.count,
        branch.parent,
        branch.from_seq,
        to_micros(branch.created_at),
    )


# Messages

MESSAGE_WIDTH = 14


def message_row(conversation: str, segment: int, message: Message, draft: Draft) -> Row:
    """Returns the columns of `insert_messages`, in order."""
    format = message.format
    who = message.participant
    return (
        conversation,
        segment,
        message.seq,
        message.id,
        message.role,
        None if format == "text" else escaped(format),
        body_of(draft.body, format),
        draft.size,
        to_micros(message.created_at),
        escaped(who.id) if who else None,
        who.kind if who else None,
        message.scope,
        codec.encode_extra(message),
        message.pinned,
    )


def body_of(body: str, format: str) -> str:
    return escaped(body) if format == "text" else body


def message_of(row: Row, conversation_id: str) -> Message:
    return messages_of((row,), conversation_id)[0]


def messages_of(found: Iterable[Row], conversation_id: str) -> list[Message]:
    """Decodes the columns of `find_messages`. Reading is mostly this loop, so it creates each message directly."""
    made: list[Message] = []
    for _, seq, id, role, format, body, created_at, extra, *_ in found:
        try:
            content = unescaped(body) if format is None else _decode(body)
            more = NO_EXTRA if extra is None else _decode_extra(extra)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            where = f"message {id!r} of conversation {conversation_id!r}"
            raise Corrupt(f"unreadable JSON in {where}: {error}", where=where) from error
        message = Message(
            role,
            content,
            id,
            conversation_id,
            seq,
            more.branch,
            "text" if format is None else unescaped(format),
            more.participant,
            more.mentions,
            more.scope,
            more.status,
            more.pinned,
            from_micros(created_at),
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


# Summaries, records, usage


def summary_of(row: Row, conversation_id: str) -> Summary:
    branch, from_seq, to_seq, text, model, prompt_id, token_count, created_at, _ = row
    return Summary(
        conversation_id,
        from_seq,
        to_seq,
        unescaped(text),
        branch,
        _maybe_unescaped(model),
        _maybe_unescaped(prompt_id),
        token_count,
        from_micros(created_at),
    )


def summary_row(summary: Summary) -> Row:
    return (
        summary.branch,
        summary.from_seq,
        summary.to_seq,
        escaped(summary.text),
        _maybe_escaped(summary.model),
        _maybe_escaped(summary.prompt_id),
        summary.token_count,
        to_micros(summary.created_at),
    )


def record_of(row: Row) -> Record:
    """Decodes the first columns of `find_records`."""
    namespace, key, value, data, revision, created_at, updated_at, expires_at, conversation, *_ = row
    names = codec.unpack_namespace(namespace)
    return Record(
        names,
        key,
        codec.decode(value, f"record {key!r} in {names!r}") if data is None else data,
        revision,
        from_micros(created_at),
        from_micros(updated_at),
        from_micros(expires_at),
        conversation,
    )


def record_row(record: Record) -> Row:
    """Returns the columns of `insert_record` after the owner, in order."""
    value = record.value
    is_data = isinstance(value, bytes)
    return (
        codec.pack_namespace(record.namespace),
        record.key,
        None if is_data else codec.encode(value),
        value if is_data else None,
        record.revision,
        to_micros(record.created_at),
        to_micros(record.updated_at),
        to_micros(record.expires_at),
        record.conversation_id,
    )


def usage_of(row: Row) -> UsageRow:
    day, user_id, agent_id, model, *numbers = row
    return UsageRow(day, user_id or None, agent_id or None, unescaped(model) or None, *numbers)


def usage_row(row: UsageRow) -> Row:
    return (
        row.day,
        row.user_id or "",
        row.agent_id or "",
        escaped(row.model or ""),
        row.messages,
        row.input_tokens,
        row.output_tokens,
        row.cached_tokens,
        row.reasoning_tokens,
        row.cost,
    )
