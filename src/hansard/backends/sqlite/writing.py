"""The jobs that make conversations and append to them, inside the writer's transaction, and what others share."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

from msgspec import structs

from hansard import rules
from hansard.backends.sqlite import indexing, rows
from hansard.backends.sqlite.rows import pack, run
from hansard.backends.sqlite.writer import Entry, Writer
from hansard.backends.values import own_conversation
from hansard.contract.types import (
    Append,
    Context,
    ConversationChange,
    Draft,
    Head,
    Restore,
    RestoredRow,
)
from hansard.errors import Conflict
from hansard.model import Appended, Conversation, Message, Receipt, UsageRow, from_micros, to_micros

Place = tuple[int, int]
"""The line and seq of a message."""


# Conversations


def make(writer: Writer, context: Context, head: Head, largest: int = 0) -> Entry:
    """A place for a conversation that does not exist, or has expired."""
    id = head.conversation.id
    old = writer.load(context.tenant, id)
    if old is not None:
        expires = old.head.conversation.expires_at
        if expires is None or expires > context.now:
            # Behind the wall of a user's view: it must look as if it were not there.
            raise rules.not_found(id)
        drop(writer, context, id, old)
    return writer.insert(context.tenant, head, largest)


def create_conversation(writer: Writer, context: Context, conversation: Conversation) -> Conversation:
    if writer.find(context, conversation.id) is not None:
        raise Conflict(f"conversation {conversation.id!r} exists already")
    return own_conversation(make(writer, context, rules.created(context, conversation, 0)).head.conversation)


def update_conversation(writer: Writer, context: Context, id: str, change: ConversationChange) -> Conversation:
    entry = writer.need(context, id)
    head = rules.plan_change(context, entry.head, change)
    indexing.hand_over(writer, entry, head.conversation.user_id)
    writer.save(context.tenant, id, entry, head)
    return own_conversation(entry.head.conversation)


def delete_conversation(writer: Writer, context: Context, id: str, expected_version: int | None) -> Receipt:
    entry = writer.find(context, id)
    if entry is None:
        return Receipt(at=context.now)
    rules.check_version(entry.head.conversation, expected_version)
    for mark in rules.graves(entry.head.conversation):
        writer.run("bury", context.tenant, mark, to_micros(context.now))
    return drop(writer, context, id, entry)


def drop(writer: Writer, context: Context, id: str, entry: Entry) -> Receipt:
    """Removes a conversation with everything that belongs to it."""
    writer.flush()
    head = entry.head
    lines = {line for lane in head.lanes.values() for line, _ in rules.segments(lane)}
    blobs = remove_runs(writer, context, [(line, 0) for line in lines])[1]
    writer.run("delete_branches", entry.pk)
    summaries = writer.run("delete_summaries", entry.pk).rowcount
    records = writer.run("delete_records_of", entry.pk).rowcount
    writer.run("delete_conversation", entry.pk)
    writer.forget(context.tenant, id)
    return Receipt(
        conversations=1,
        messages=head.conversation.message_count,
        branches=len(head.lanes),
        summaries=summaries,
        records=records,
        blobs=blobs,
        at=context.now,
    )


# Appending


def append(writer: Writer, context: Context, id: str, append: Append) -> Appended:
    entry = writer.find(context, id)
    if entry is None:
        return _append_first(writer, context, id, append)
    head = entry.head
    stored = find_stored(writer, entry, id, append.drafts)
    if not append.revive:
        new = [draft for draft in append.drafts if draft.message.id not in stored] if stored else append.drafts
        rules.refuse_deleted(context, head, new, _tombstones_of(writer, context, id, entry))
    plan = rules.plan_append(context, head, append, stored)
    for _, draft in plan.fresh:
        entry.largest = max(entry.largest, draft.size)
    if plan.head.conversation.user_id != head.conversation.user_id:
        indexing.hand_over(writer, entry, plan.head.conversation.user_id)
        writer.save(context.tenant, id, entry, plan.head)
    elif plan.head is not head:
        writer.save_later(context.tenant, id, entry, plan.head)
    if plan.fresh:
        line = plan.lane.line
        made = insert(writer, context, entry, line, plan.fresh, append.blobs, count=append.count_usage)
        writer.add_later(line, head, plan.head, made, entry.largest)
    return Appended(plan.result, plan.head.conversation.version, len(plan.fresh))


def _append_first(writer: Writer, context: Context, id: str, append: Append) -> Appended:
    """An append to a conversation that it has to make."""
    if append.new is None:
        raise rules.not_found(id)
    head = rules.new_head(context, id, append.new, 0)
    if not append.revive:
        rules.refuse_deleted(context, head, append.drafts, tombstones(writer, context))
    plan = rules.plan_append(context, head, append, {})
    entry = make(writer, context, plan.head, max(draft.size for _, draft in plan.fresh))
    line = entry.head.lanes[plan.lane.id].line
    insert(writer, context, entry, line, plan.fresh, append.blobs, count=append.count_usage)
    return Appended(plan.result, plan.head.conversation.version, len(plan.fresh), created=True)


def find_stored(writer: Writer, entry: Entry, id: str, drafts: Iterable[Draft]) -> dict[str, Message]:
    """Those of the drafts whose ids were given and are there already."""
    given = [draft.message.id for draft in drafts if draft.given_id]
    if not given:
        return {}
    writer.flush()
    found = [row for each in given if (row := writer.one("find_message", entry.pk, each))]
    return {message.id: message for message in rows.messages_of(found, id)}


def tombstones(writer: Writer, context: Context) -> Callable[[str], datetime | None]:
    """Finds the time of a deletion by its digest."""

    def find(digest: str) -> datetime | None:
        row = writer.one("find_tombstone", context.tenant, digest)
        return from_micros(row[0]) if row else None

    return find


def _tombstones_of(writer: Writer, context: Context, id: str, entry: Entry) -> Callable[[str], datetime | None]:
    """The same for a conversation, which is asked for its own grave with every append.

    That changes only with a deletion, and the entry goes with it, and when old deletions are forgotten.
    """
    find, own, known = tombstones(writer, context), rules.grave(context, id), entry.graves

    def find_or_know(digest: str) -> datetime | None:
        if digest != own:
            return find(digest)
        if own not in known:
            known[own] = find(own)
        return known[own]

    return find_or_know


def insert(
    writer: Writer,
    context: Context,
    entry: Entry,
    line: int,
    fresh: Sequence[tuple[Message, Draft]],
    blobs: Mapping[str, bytes],
    *,
    count: bool = True,
) -> list[rows.Row]:
    """Inserts messages on a line, with their blobs and usage; gives their rows."""
    made = rows.message_rows(line, entry.pk, fresh)
    writer.insert_later(made)
    if blobs:
        keep_blobs(writer, context, blobs)
    for message, _ in fresh:
        if message.blobs:
            use_blobs(writer, context, pack(line, message.seq), message)
        if count and message.usage is not None:
            count_usage(writer, context, entry, message, None)
    return made


def keep_blobs(writer: Writer, context: Context, blobs: Mapping[str, bytes]) -> None:
    """Bytes that come with a message need no keeping time: the message refers to them at once."""
    for sha256, data in blobs.items():
        writer.run("keep_blob", context.tenant, sha256, 0, data)


def use_blobs(writer: Writer, context: Context, key: int, message: Message) -> None:
    for ref in message.blobs:
        writer.run("use_blob", key, context.tenant, ref.sha256)


def count_usage(writer: Writer, context: Context, entry: Entry, message: Message, before: Message | None) -> None:
    old = before.usage if before else None
    if old != message.usage:
        add_usage(writer, context, rules.usage_change(entry.head.conversation, message, old, message.usage))


def add_usage(writer: Writer, context: Context, changes: Iterable[tuple[rules.UsageKey, UsageRow]]) -> None:
    for _, row in changes:
        writer.run("add_usage", *rows.usage_row(context.tenant, row))


# Removing


def release_blobs(writer: Writer, above: int, below: int) -> list[int]:
    used = [blob for (blob,) in writer.run("used_blobs_between", above, below)]
    if used:
        writer.run("release_blobs_between", above, below)
    return used


def drop_blobs(writer: Writer, context: Context, blobs: Iterable[int]) -> int:
    now = to_micros(context.now)
    return sum(writer.run("drop_blob", blob, now).rowcount for blob in set(blobs))


def remove_runs(writer: Writer, context: Context, doomed: Iterable[Place]) -> tuple[int, int]:
    """Removes everything on these lines beyond these seqs. Gives how many messages and blobs went."""
    messages, blobs = 0, []
    for line, seq in doomed:
        above, below = run(line, seq)
        indexing.forget(writer, above, below)
        messages += writer.run("delete_between", above, below).rowcount
        blobs += release_blobs(writer, above, below)
    return messages, drop_blobs(writer, context, blobs)


# Copying


def restore(writer: Writer, context: Context, restore: Restore) -> int:
    image = restore.image
    id = image.conversation.id
    entry = writer.find(context, id) or _begin_restore(writer, context, restore)
    lines = dict(_line_pairs(restore, entry.head))
    fresh = [row for row in restore.rows if row.draft.message.seq > entry.head.seq]
    mapped = [structs.replace(row, line=lines[row.line]) for row in fresh]
    keep_blobs(writer, context, restore.blobs)
    for line in dict.fromkeys(row.line for row in mapped):
        own = [(row.draft.message, row.draft) for row in mapped if row.line == line]
        insert(writer, context, entry, line, own, {})
    entry.largest = max([entry.largest, *(row.draft.size for row in fresh)])
    after = rules.restored(entry.head, restore, mapped)
    try:
        writer.save(context.tenant, id, entry, after)
    except sqlite3.IntegrityError as error:
        raise _repeated(writer, entry, id, fresh) or error from error
    return entry.head.seq


def _repeated(writer: Writer, entry: Entry, id: str, fresh: Iterable[RestoredRow]) -> Conflict | None:
    """Which id of these rows an older message has."""
    for message in (row.draft.message for row in fresh):
        found = writer.one("find_message", entry.pk, message.id)
        if found and rows.messages_of([found], id)[0].seq != message.seq:
            return rules.repeated(id, message.id)
    return None


def _begin_restore(writer: Writer, context: Context, restore: Restore) -> Entry:
    """Makes the conversation, giving every line of the image a line of this file."""
    image = restore.image
    entry = make(writer, context, rules.restoring(image, image.lanes))
    own = {lane.line: entry.head.lanes[lane.id].line for lane in image.lanes}
    for lane in image.lanes:
        for line, _ in lane.path:
            if line not in own:
                own[line] = writer.fresh_line()
    lanes = {
        id: structs.replace(lane, path=tuple((own[line], upto) for line, upto in lane.path))
        for id, lane in entry.head.lanes.items()
    }
    writer.save(context.tenant, image.conversation.id, entry, structs.replace(entry.head, lanes=lanes))
    return entry


def _line_pairs(restore: Restore, head: Head) -> Iterable[Place]:
    """Lines of the image and of this file. The lanes are the same in both, so their segments match one to one."""
    for lane in restore.image.lanes:
        here = head.lanes[lane.id]
        for (theirs, _), (ours, _) in zip(rules.segments(lane), rules.segments(here), strict=True):
            yield theirs, ours
