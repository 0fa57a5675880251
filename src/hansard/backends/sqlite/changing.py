"""The jobs that change, remove and replace messages, and those of branches and summaries."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from msgspec import structs

from hansard import codec, rules
from hansard.backends.sqlite import indexing, rows
from hansard.backends.sqlite.reading import cut_of, get_blobs, read_line
from hansard.backends.sqlite.rows import run, unpack
from hansard.backends.sqlite.writer import Entry, Writer
from hansard.backends.sqlite.writing import (
    Place,
    add_usage,
    count_usage,
    drop_blobs,
    insert,
    keep_blobs,
    release_blobs,
    remove_runs,
    tombstones,
    use_blobs,
)
from hansard.contract.types import (
    Context,
    Head,
    MessageChange,
    NewBranch,
    Remove,
    Removed,
    Replace,
)
from hansard.model import Appended, Branch, Message, Receipt, Summary, from_micros, to_micros

# Messages


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
    writer.run("save_message", format, body, extra, message.pinned or None, key)
    indexing.change(writer, key, before, message)
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


def newest(writer: Writer, head: Head) -> datetime | None:
    """The time of the last message that is left."""
    lines = {line for lane in head.lanes.values() for line, _ in rules.segments(lane)}
    found = [row for line in lines if (row := writer.one("newest_between", *run(line)))]
    last = max(found, key=lambda row: unpack(row[0])[1], default=None)
    return from_micros(last[1]) if last else None


def forget_summaries(writer: Writer, entry: Entry, gone: Iterable[Place]) -> int:
    """Drops what the loss of these messages takes along; gives how many summaries that were."""
    found = writer.run("find_summaries", entry.pk).fetchall()
    if not found:
        return 0
    made = [rows.summary_of(row, entry.head.conversation.id) for row in found]
    kept = {id(summary) for summary in rules.surviving(entry.head, made, gone)}
    lost = [row[-1] for row, summary in zip(found, made, strict=True) if id(summary) not in kept]
    for pk in lost:
        writer.run("delete_summary", pk)
    if lost:
        _renew_summary(writer, entry)
    return len(lost)


def _renew_summary(writer: Writer, entry: Entry) -> None:
    row = writer.one("newest_summary", entry.pk)
    entry.head = with_summary(entry.head, row[0] if row else None)


def with_summary(head: Head, summary: str | None) -> Head:
    if head.conversation.summary == summary:
        return head
    return structs.replace(head, conversation=structs.replace(head.conversation, summary=summary))


def first_lost(writer: Writer, doomed: Iterable[Place]) -> list[Place]:
    """Where each of these runs begins: enough to tell what its loss takes along."""
    return [unpack(row[0]) for line, seq in doomed if (row := writer.one("first_between", *run(line, seq)))]


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
        indexing.forget(writer, row[0] - 1, row[0] + 1)
        writer.run("delete_message", row[0])
        blobs += release_blobs(writer, row[0] - 1, row[0] + 1)
        writer.run("bury", context.tenant, codec.digest(id, row[1]), to_micros(context.now))
    summaries = forget_summaries(writer, entry, [unpack(row[0]) for row in found])
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
    blobs = get_blobs(writer.connection, context, [ref.sha256 for ref in popped.blobs])
    receipt = _shrink(writer, context, entry, after, doomed)
    return Removed([popped], receipt, entry.head.conversation.version, blobs)


def _shrink(
    writer: Writer, context: Context, entry: Entry, after: Head, doomed: list[Place], branches: int = 0
) -> Receipt:
    """Removes what no branch reads any longer, and saves the head."""
    summaries = forget_summaries(writer, entry, first_lost(writer, doomed))
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
    stored = {row[1] for row in doomed}
    _refuse_taken(writer, entry, plan, stored)
    if not replace.revive:
        new = [draft for _, draft in plan.fresh if draft.message.id not in stored]
        rules.refuse_deleted(context, entry.head, new, tombstones(writer, context))
    rules.check_quota(entry.head.conversation, len(plan.fresh) - len(doomed), replace.max_messages)
    if doomed:
        forget_summaries(writer, entry, [unpack(row[0]) for row in doomed])
    gone, _ = remove_runs(writer, context, plan.doomed)
    insert(writer, context, entry, plan.lane.line, plan.fresh, replace.blobs, count=False)
    add_usage(writer, context, plan.usage)
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
    rules.check_summary(entry.head, summary)
    writer.run("insert_summary", *rows.summary_row(entry.pk, summary))
    writer.save(context.tenant, id, entry, with_summary(entry.head, summary.text))
