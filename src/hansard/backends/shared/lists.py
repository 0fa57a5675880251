"""What a storage is asked about messages, conversations and records that it holds in lists.

For storages that read a whole conversation or a whole tenant at a time. Those that keep rows or indexes ask these.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import TypeVar

from msgspec import Struct

from hansard import codec, cursors, rules
from hansard.contract.storage import Changes, Found, Run, Span, Wants, Without
from hansard.contract.types import Context, ConversationQuery, MessageQuery, RecordQuery, Row, Slice, StoredBranch
from hansard.model import Conversation, Message, Record, Summary, UsageRow, to_micros

T = TypeVar("T")


class StoredMessage(Struct):
    """A message, the segment that it is on, and the bytes of its body."""

    segment: int
    size: int
    message: Message


def take(
    found: Iterable[T], limit: int | None, max_bytes: int | None, size: Callable[[T], int]
) -> tuple[list[T], bool]:
    """As many as the limit and the bound in bytes allow, but always one; and whether there are more."""
    taken: list[T] = []
    total = 0
    for count, each in enumerate(found):
        if count == limit or (max_bytes is not None and total >= max_bytes):
            return taken, True
        taken.append(each)
        total += size(each)
    return taken, False


# The messages of a conversation: all of its segments, in the order of seq


def page_of_messages(rows: Iterable[StoredMessage], branch: StoredBranch, query: MessageQuery) -> Slice:
    found = [row for row in rows if rules.sees(branch, row.segment, row.message.seq) and _is_asked(row.message, query)]
    if query.sort == "time":
        found.sort(key=lambda row: rules.position(row.message))
    if query.newest_first:
        found.reverse()
    taken, more = take(found, query.limit, query.max_bytes, _size)
    return Slice([row.message for row in taken], more)


def rows_after(rows: Iterable[StoredMessage], seq: int, limit: int, max_bytes: int) -> list[Row]:
    taken, _ = take((row for row in rows if row.message.seq > seq), limit, max_bytes, _size)
    return [Row(row.segment, row.message) for row in taken]


def answer(rows: Sequence[StoredMessage], summaries: Sequence[Summary], wants: Wants) -> Found:
    """Answers from the messages and summaries; callers must add tombstones, blobs and records."""
    found = [row for run in wants.runs for row in _run(rows, run)]
    if wants.newest is not None:
        found = found[max(0, len(found) - wants.newest) :]
    return Found(
        by_id={row.message.id: (row.segment, row.message) for row in rows if row.message.id in wants.ids},
        messages=[(row.segment, row.message) for row in found],
        spans=[_span(_run(rows, run)) for run in wants.spans],
        last_time=_last_time(rows, wants.last_time_without) if wants.last_time_without else None,
        summaries=summaries if wants.summaries else (),
    )


def change(rows: Sequence[StoredMessage], changes: Changes) -> tuple[list[StoredMessage], list[StoredMessage]]:
    """The messages after the changes, and those that went. What is wiped must be gone already."""
    lost = {message.id for _, message in changes.remove}
    lost |= {row.message.id for run in changes.remove_runs for row in _run(rows, run)}
    gone = [row for row in rows if row.message.id in lost]
    kept = [_changed(row, changes) for row in rows if row.message.id not in lost]
    new = [StoredMessage(segment, draft.size, each) for segment, fresh in changes.insert for each, draft in fresh]
    return sorted([*kept, *new], key=lambda row: row.message.seq), gone


def change_summaries(summaries: Sequence[Summary], changes: Changes) -> list[Summary]:
    kept = [each for position, each in enumerate(summaries) if position not in changes.lost_summaries]
    return [*kept, changes.new_summary] if changes.new_summary else kept


def digests(messages: Iterable[Message]) -> set[str]:
    """The blobs that these messages refer to."""
    return {ref.sha256 for message in messages for ref in message.blobs}


def _is_asked(message: Message, query: MessageQuery) -> bool:
    return rules.is_between(message, query) and rules.is_wanted(message, query)


def _size(row: StoredMessage) -> int:
    return row.size


def _run(rows: Iterable[StoredMessage], run: Run) -> list[StoredMessage]:
    return [row for row in rows if row.segment == run.segment and run.after < row.message.seq <= run.upto]


def _span(rows: Sequence[StoredMessage]) -> Span:
    return Span(len(rows), rows[0].message.seq, rows[-1].message.seq) if rows else Span()


def _last_time(rows: Sequence[StoredMessage], without: Without) -> datetime | None:
    lost = {*without.ids, *(row.message.id for run in without.runs for row in _run(rows, run))}
    left = [row.message.created_at for row in rows if row.message.id not in lost]
    return left[-1] if left else None


def _changed(row: StoredMessage, changes: Changes) -> StoredMessage:
    update = changes.update
    if update is None or row.message.id != update.after.id:
        return row
    return StoredMessage(row.segment, update.draft.size if update.draft else row.size, update.after)


# What a tenant holds


def page_of_conversations(
    conversations: Iterable[Conversation], context: Context, query: ConversationQuery
) -> tuple[list[Conversation], bool]:
    def place(conversation: Conversation) -> tuple[int, str]:
        return to_micros(cursors.sort_time(conversation, query.sort)), conversation.id

    found = [
        each
        for each in conversations
        if rules.matches(each, query, context)
        and (query.above is None or place(each) > query.above)
        and (query.below is None or place(each) < query.below)
    ]
    found.sort(key=place, reverse=query.newest_first)
    end = query.offset + query.limit
    return found[query.offset : end], len(found) > end


async def page_of_walk(
    walk: AsyncGenerator[T, None],
    conversation_of: Callable[[T], Conversation],
    context: Context,
    query: ConversationQuery,
) -> tuple[list[Conversation], bool]:
    """The same of a walk between the query's positions, in its order, which goes no further than it must."""
    found: list[Conversation] = []
    skipped = 0
    async with aclosing(walk) as walked:
        async for each in walked:
            conversation = conversation_of(each)
            if not rules.matches(conversation, query, context):
                continue
            if skipped < query.offset:
                skipped += 1
            elif len(found) == query.limit:
                return found, True
            else:
                found.append(conversation)
    return found, False


def page_of_records(records: Iterable[Record], query: RecordQuery) -> tuple[list[Record], bool]:
    """Of those that the caller may see."""
    prefix = codec.pack_namespace(query.prefix)
    after = record_place(*query.after) if query.after else None

    def is_asked(record: Record) -> bool:
        place = record_place(record.namespace, record.key)
        is_inside = place[0] == prefix if query.exact else place[0].startswith(prefix)
        is_beyond = after is None or (place < after if query.newest_first else place > after)
        return is_inside and is_beyond and record.key.startswith(query.key_prefix)

    found = [record for record in records if is_asked(record)]
    found.sort(key=lambda record: record_place(record.namespace, record.key), reverse=query.newest_first)
    return found[: query.limit], len(found) > query.limit


def record_place(namespace: tuple[str, ...], key: str) -> tuple[bytes, str]:
    """What records are ordered by."""
    return codec.pack_namespace(namespace), key


def select_usage(
    rows: Iterable[UsageRow], context: Context, since: str | None = None, until: str | None = None
) -> list[UsageRow]:
    """The rows of these days that the context may see, in order."""
    found = [
        row
        for row in rows
        if rules.counts_anything(row)
        and context.user in (None, row.user_id)
        and (since is None or row.day >= since)
        and (until is None or row.day < until)
    ]
    return sorted(found, key=lambda row: (row.day, row.user_id or "", row.agent_id or "", row.model or ""))


def usage_key(row: UsageRow) -> rules.UsageKey:
    return row.day, row.user_id, row.agent_id, row.model


def add_up_usage(rows: Iterable[UsageRow]) -> list[UsageRow]:
    """Adds up rows of the same key, including those that cancel out."""
    total: dict[rules.UsageKey, UsageRow] = {}
    for row in rows:
        key = usage_key(row)
        total[key] = rules.add_usage(total[key], row) if key in total else row
    return list(total.values())
