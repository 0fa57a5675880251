"""The jobs that change messages and conversations, each inside the writer's transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from msgspec import structs

from hansard import codec, rules
from hansard.backends.sqlite import rows
from hansard.backends.sqlite.reading import cut_of, read_line
from hansard.backends.sqlite.rows import pack, run, unpack
from hansard.backends.sqlite.writer import Entry, Writer
from hansard.backends.values import own_conversation
from hansard.errors import Conflict
from hansard.model import Appended, Branch, Conversation, Message, Receipt, Summary, from_micros, to_micros
from hansard.requests import (
    Append,
    Context,
    ConversationChange,
    Draft,
    MessageChange,
    NewBranch,
    Remove,
    Removed,
    Replace,
    Restore,
)
from hansard.rules import Head

Place = tuple[int, int]


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
    writer.save(context.tenant, id, entry, rules.plan_change(context, entry.head, change))
    return own_conversation(entry.head.conversation)


def delete_conversation(writer: Writer, context: Context, id: str) -> Receipt:
    entry = writer.find(context, id)
    if entry is None:
        return Receipt(at=context.now)
    receipt = drop(writer, context, id, entry)
    writer.run("bury", context.tenant, codec.digest(id), to_micros(context.now))
    return receipt


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
    if head.buried and not append.revive:
        _refuse_buried(writer, context, id, append, stored)
    plan = rules.plan_append(context, head, append, stored)
    entry.largest = max([entry.largest, *[draft.size for _, draft in plan.fresh]])
    if plan.head.conversation.user_id != head.conversation.user_id:
        writer.save(context.tenant, id, entry, plan.head)
    elif plan.head is not head:
        writer.save_later(context.tenant, id, entry, plan.head)
    if plan.fresh:
        insert(writer, context, entry, plan.lane.line, plan.fresh, append.blobs)
    return Appended(plan.result, plan.head.conversation.version, len(plan.fresh))


def _append_first(writer: Writer, context: Context, id: str, append: Append) -> Appended:
    """An append to a conversation that it has to make."""
    plan = rules.plan_append(context, new_head(writer, context, id, append), append, {})
    entry = make(writer, context, plan.head, max(draft.size for _, draft in plan.fresh))
    insert(writer, context, entry, entry.head.lanes[plan.lane.id].line, plan.fresh, append.blobs)
    return Appended(plan.result, plan.head.conversation.version, len(plan.fresh), created=True)


def new_head(writer: Writer, context: Context, id: str, append: Append) -> Head:
    if append.new is None:
        raise rules.not_found(id)
    deleted = writer.one("find_tombstone", context.tenant, codec.digest(id))
    if deleted is not None and not append.revive:
        rules.refuse_replay(id, append, from_micros(deleted[0]))
    return rules.new_head(context, id, append.new, 0)


def find_stored(writer: Writer, entry: Entry, id: str, drafts: Iterable[Draft]) -> dict[str, Message]:
    """Those of the drafts whose ids were given and are there already."""
    given = [draft.message.id for draft in drafts if draft.given_id]
    if not given:
        return {}
    writer.flush()
    found = [row for each in given if (row := writer.one("find_message", entry.pk, each))]
    return {message.id: message for message in rows.messages_of(found, id)}


def _refuse_buried(writer: Writer, context: Context, id: str, append: Append, stored: Mapping[str, Message]) -> None:
    ids = (draft.message.id for draft in append.drafts if draft.given_id and draft.message.id not in stored)
    rules.refuse_buried(
        id, (each for each in ids if writer.one("find_tombstone", context.tenant, codec.digest(id, each)))
    )


def insert(
    writer: Writer,
    context: Context,
    entry: Entry,
    line: int,
    fresh: Sequence[tuple[Message, Draft]],
    blobs: Mapping[str, bytes],
) -> None:
    """Inserts messages on a line, with their blobs and usage."""
    pk = entry.pk
    writer.insert_later([rows.message_row(pack(line, message.seq), pk, message, draft) for message, draft in fresh])
    if blobs:
        keep_blobs(writer, context, blobs)
    for message, _ in fresh:
        if message.blobs:
            use_blobs(writer, context, pack(line, message.seq), message)
        if message.usage is not None:
            count_usage(writer, context, entry, message, None)


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
        for _, row in rules.usage_change(entry.head.conversation, message, old, message.usage):
            writer.run("add_usage", *rows.usage_row(context.tenant, row))


# Changing and removing


def update_message(writer: Writer, context: Context, id: str, message_id: str, change: MessageChange) -> Message:
    entry = writer.need(context, id)
    writer.flush()
    row = writer.one("find_message", entry.pk, message_id)
    if row is None:
        raise rules.no_message(id, message_id)
    before = rows.message_of(row, id)
    head, message = rules.plan_update(context, entry.head, before, change)
    if change.draft is not None:
        entry.largest = max(entry.largest, change.draft.size)
    key, body = row[0], change.draft.body if change.draft else row[4]
    format = None if message.format == "text" else message.format
    extra = codec.encode_extra(message, rows.micros_of(message.updated_at))
    writer.run("save_message", format, body, extra, key)
    if head is not entry.head:
        writer.save_later(context.tenant, id, entry, head)
    writer.touch(context.tenant, id)
    if before.blobs != message.blobs:
        keep_blobs(writer, context, change.blobs)
        old = release_blobs(writer, key - 1, key + 1)
        use_blobs(writer, context, key, message)
        drop_blobs(writer, context, old)
    count_usage(writer, context, entry, message, before)
    return message


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
        messages += writer.run("delete_between", above, below).rowcount
        blobs += release_blobs(writer, above, below)
    return messages, drop_blobs(writer, context, blobs)


def newest(writer: Writer, head: Head) -> datetime | None:
    """The time of the last message that is left."""
    lines = {line for lane in head.lanes.values() for line, _ in rules.segments(lane)}
    found = [row for line in lines if (row := writer.one("newest_between", *run(line)))]
    last = max(found, key=lambda row: unpack(row[0])[1], default=None)
    return from_micros(last[1]) if last else None


def forget_summaries(writer: Writer, entry: Entry, first: int) -> int:
    """A deleted message takes every summary that covers it or builds on one that does."""
    lost = writer.run("delete_summaries_from", entry.pk, first).rowcount
    if lost:
        _renew_summary(writer, entry)
    return lost


def _renew_summary(writer: Writer, entry: Entry) -> None:
    row = writer.one("newest_summary", entry.pk)
    entry.head = with_summary(entry.head, row[0] if row else None)


def with_summary(head: Head, summary: str | None) -> Head:
    if head.conversation.summary == summary:
        return head
    return structs.replace(head, conversation=structs.replace(head.conversation, summary=summary))


def first_seq(writer: Writer, doomed: Iterable[Place]) -> int | None:
    found = [unpack(row[0])[1] for line, seq in doomed if (row := writer.one("first_between", *run(line, seq)))]
    return min(found, default=None)


def remove_messages(writer: Writer, context: Context, id: str, remove: Remove) -> Removed:
    entry = writer.need(context, id)
    rules.check_version(entry.head.conversation, remove.expected_version)
    writer.flush()
    return {"ids": _remove_ids, "last": _pop, "all": _clear}[remove.what](writer, context, entry, remove)


def _remove_ids(writer: Writer, context: Context, entry: Entry, remove: Remove) -> Removed:
    id = entry.head.conversation.id
    found = [row for each in dict.fromkeys(remove.ids) if (row := writer.one("find_message", entry.pk, each))]
    if not found:
        return Removed([], Receipt(at=context.now), entry.head.conversation.version)
    gone = [rows.message_of(row, id) for row in found]
    blobs: list[int] = []
    for row in found:
        writer.run("delete_message", row[0])
        blobs += release_blobs(writer, row[0] - 1, row[0] + 1)
        writer.run("bury", context.tenant, codec.digest(id, row[1]), to_micros(context.now))
    summaries = forget_summaries(writer, entry, min(message.seq for message in gone))
    head = rules.without(context, entry.head, (unpack(row[0]) for row in found), newest(writer, entry.head))
    writer.save(context.tenant, id, entry, structs.replace(head, buried=True))
    receipt = Receipt(messages=len(gone), summaries=summaries, blobs=drop_blobs(writer, context, blobs), at=context.now)
    return Removed(gone, receipt, entry.head.conversation.version)


def _pop(writer: Writer, context: Context, entry: Entry, remove: Remove) -> Removed:
    id = entry.head.conversation.id
    last = read_line(writer.connection, entry.head.lane(remove.branch), newest_first=True, limit=2)
    if not last:
        return Removed([], Receipt(at=context.now), entry.head.conversation.version)
    places = [unpack(row[0]) for row in last]
    before = places[1] if len(places) > 1 else None
    after, doomed = rules.plan_pop(entry.head, remove, places[0], before, writer.fresh_line)
    popped = rows.message_of(last[0], id)
    receipt = _shrink(writer, context, entry, after, doomed)
    return Removed([popped], receipt, entry.head.conversation.version)


def _shrink(
    writer: Writer, context: Context, entry: Entry, after: Head, doomed: list[Place], branches: int = 0
) -> Receipt:
    """Removes what no branch reads any longer, and saves the head."""
    first = first_seq(writer, doomed)
    summaries = 0 if first is None else forget_summaries(writer, entry, first)
    gone, blobs = remove_runs(writer, context, doomed)
    after = with_summary(after, entry.head.conversation.summary)
    after = rules.shrunk(context, after, gone, newest(writer, after))
    writer.save(context.tenant, after.conversation.id, entry, after)
    return Receipt(messages=gone, branches=branches, summaries=summaries, blobs=blobs, at=context.now)


def _clear(writer: Writer, context: Context, entry: Entry, remove: Remove) -> Removed:
    id, before = entry.head.conversation.id, entry.head
    lines = {line for lane in before.lanes.values() for line, _ in rules.segments(lane)}
    gone, blobs = remove_runs(writer, context, [(line, 0) for line in lines])
    summaries = writer.run("delete_summaries", entry.pk).rowcount
    writer.save(context.tenant, id, entry, rules.cleared(context, before))
    receipt = Receipt(messages=gone, branches=len(before.lanes) - 1, summaries=summaries, blobs=blobs, at=context.now)
    return Removed([], receipt, entry.head.conversation.version)


def replace_messages(writer: Writer, context: Context, id: str, replace: Replace) -> Appended:
    entry = writer.need(context, id)
    writer.flush()
    found = read_line(writer.connection, entry.head.lane(replace.branch))
    current = [(unpack(row[0])[0], rows.message_of(row, id)) for row in found]
    plan = rules.plan_replace(context, entry.head, replace, current, writer.fresh_line)
    doomed = [row for line, seq in plan.doomed for row in writer.run("keys_between", *run(line, seq))]
    _refuse_taken(writer, entry, plan, {row[1] for row in doomed})
    rules.check_quota(entry.head.conversation, len(plan.fresh) - len(doomed), replace.max_messages)
    if doomed:
        forget_summaries(writer, entry, min(unpack(row[0])[1] for row in doomed))
    gone, _ = remove_runs(writer, context, plan.doomed)
    insert(writer, context, entry, plan.lane.line, plan.fresh, replace.blobs)
    writer.flush()
    entry.largest = max([entry.largest, *(draft.size for _, draft in plan.fresh)])
    head = rules.replaced(context, plan, gone, newest(writer, plan.head))
    writer.save(context.tenant, id, entry, with_summary(head, entry.head.conversation.summary))
    result = [*plan.kept, *(message for message, _ in plan.fresh)]
    return Appended(result, entry.head.conversation.version, len(plan.fresh))


def _refuse_taken(writer: Writer, entry: Entry, plan: rules.ReplacePlan, doomed: set[str]) -> None:
    ids = [draft.message.id for _, draft in plan.fresh if draft.given_id]
    rules.used_elsewhere(
        each for each in ids if each not in doomed and writer.one("find_message", entry.pk, each) is not None
    )


# Branches and summaries


def create_branch(writer: Writer, context: Context, id: str, new: NewBranch) -> Branch:
    entry = writer.need(context, id)
    writer.flush()
    cut = cut_of(writer.connection, entry.pk, entry.head, new)
    head, lane = rules.plan_branch(context, entry.head, new, cut, writer.fresh_line())
    writer.save(context.tenant, id, entry, head)
    return rules.as_branch(lane, entry.head.conversation)


def delete_branch(writer: Writer, context: Context, id: str, branch: str, expected_version: int | None) -> Receipt:
    entry = writer.need(context, id)
    writer.flush()
    after, doomed = rules.plan_delete_branch(entry.head, branch, expected_version)
    own = writer.run("delete_summaries_of", entry.pk, branch).rowcount
    if own:
        _renew_summary(writer, entry)
    receipt = _shrink(writer, context, entry, after, doomed, 1)
    return structs.replace(receipt, summaries=receipt.summaries + own)


def put_summary(writer: Writer, context: Context, summary: Summary) -> None:
    id = summary.conversation_id
    entry = writer.need(context, id)
    entry.head.lane(summary.branch)
    writer.run("insert_summary", *rows.summary_row(entry.pk, summary))
    writer.save(context.tenant, id, entry, with_summary(entry.head, summary.text))


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
    writer.save(context.tenant, id, entry, rules.restored(entry.head, restore, mapped))
    return entry.head.seq


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
