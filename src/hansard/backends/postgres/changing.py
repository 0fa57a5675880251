"""The jobs that change, remove and replace messages, and those of branches and summaries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from msgspec import structs

from hansard import codec, rules
from hansard.analysis import searchable
from hansard.backends.postgres import heads, reading, rows
from hansard.backends.postgres.engine import Work
from hansard.backends.postgres.heads import Entry, FreshLines
from hansard.backends.postgres.writing import (
    Place,
    add_usage,
    drop_blobs,
    insert,
    refuse_deleted,
    use_blobs,
)
from hansard.contract.types import Context, Head, MessageChange, NewBranch, Remove, Removed, Replace
from hansard.model import Appended, Branch, Message, Receipt, Summary, from_micros, to_micros

# Messages


async def update_message(work: Work, context: Context, id: str, message_id: str, change: MessageChange) -> Message:
    entry = await heads.need(work, context, id)
    found = await work.link.all("find_messages", work.tenant, id, [message_id])
    if not found:
        raise rules.no_message(id, message_id)
    row = found[0]
    before = rows.message_of(row, id)
    head, message = rules.plan_update(context, entry.head, before, change)
    await _save_message(work, id, row, message, change)
    if searchable(before) != searchable(message):
        await work.link.run("queue_message", work.tenant, id, row[0], row[1])
    # Saved even where nothing counts it, as when a message grows: the new stamp tells those who watch.
    await heads.save(work, entry, head, largest=change.draft.size if change.draft else 0)
    if before.blobs != message.blobs:
        old = await work.link.all("release_blobs", work.tenant, id, [row[0]], [row[1]])
        await use_blobs(work, id, row[0], [message], change.blobs)
        await drop_blobs(work, context, [sha256 for (sha256,) in old])
    if before.usage != message.usage:
        changes = rules.usage_change(head.conversation, message, before.usage, message.usage)
        await add_usage(work, [usage for _, usage in changes])
    return message


async def _save_message(work: Work, id: str, row: Sequence[Any], message: Message, change: MessageChange) -> None:
    draft = change.draft
    extra = codec.encode_extra(message, rows.micros_of(message.updated_at))
    if draft is None:
        await work.link.run("save_extra", work.tenant, id, row[0], row[1], extra, message.pinned)
        return
    format = None if message.format == "text" else rows.escaped(message.format)
    body = rows.body_of(draft.body, message.format)
    place = (work.tenant, id, row[0], row[1])
    await work.link.run("save_message", *place, format, body, draft.size, extra, message.pinned)


async def newest(work: Work, head: Head) -> datetime | None:
    """The time of the last message that is left."""
    row = await work.link.one("newest_of_lines", work.tenant, head.conversation.id, lines_of(head))
    return from_micros(row[0]) if row else None


def lines_of(head: Head) -> list[int]:
    return sorted({line for lane in head.lanes.values() for line, _ in rules.segments(lane)})


async def forget_summaries(work: Work, head: Head, gone: Iterable[Place]) -> tuple[Head, int]:
    """Drops what the loss of these messages takes along; gives the head without, and how many summaries that were."""
    id = head.conversation.id
    found = await work.link.all("find_summaries", work.tenant, id)
    if not found:
        return head, 0
    made = [rows.summary_of(row, id) for row in found]
    survivors = rules.surviving(head, made, gone)
    # By identity: two summaries may be equal.
    lost = [row[-1] for row, summary in zip(found, made, strict=True) if not any(summary is one for one in survivors)]
    return await _delete_summaries(work, head, found, lost), len(lost)


async def _delete_summaries(work: Work, head: Head, found: Sequence[Any], lost: list[int]) -> Head:
    if not lost:
        return head
    await work.link.run("delete_summaries", work.tenant, head.conversation.id, lost)
    left = [rows.summary_of(row, "") for row in found if row[-1] not in lost]
    return with_summary(head, left[-1].text if left else None)


def with_summary(head: Head, summary: str | None) -> Head:
    if head.conversation.summary == summary:
        return head
    return structs.replace(head, conversation=structs.replace(head.conversation, summary=summary))


async def remove_messages(work: Work, context: Context, id: str, remove: Remove) -> Removed:
    entry = await heads.need(work, context, id)
    rules.check_version(entry.head.conversation, remove.expected_version)
    return await {"ids": _remove_ids, "last": _pop, "all": _clear}[remove.what](work, context, entry, remove)


async def _remove_ids(work: Work, context: Context, entry: Entry, remove: Remove) -> Removed:
    id = entry.head.conversation.id
    wanted = list(dict.fromkeys(remove.ids))
    found = {row[2]: row for row in await work.link.all("find_messages", work.tenant, id, wanted)}
    if not found:
        return Removed([], Receipt(at=context.now), entry.head.conversation.version)
    gone = rows.messages_of([found[each] for each in wanted if each in found], id)
    places = [(row[0], row[1]) for row in found.values()]
    key = (work.tenant, id, *rows.columns(places, 2))
    used = await work.link.all("release_blobs", *key)
    await work.link.run("delete_messages", *key)
    graves = [codec.digest(id, message.id) for message in gone]
    await work.link.run("bury", work.tenant, graves, to_micros(context.now))
    head, summaries = await forget_summaries(work, entry.head, places)
    head = rules.without(context, head, places, await newest(work, head))
    await heads.save(work, entry, structs.replace(head, buried=True))
    blobs = await drop_blobs(work, context, [sha256 for (sha256,) in used])
    receipt = Receipt(messages=len(gone), summaries=summaries, blobs=blobs, at=context.now)
    return Removed(gone, receipt, head.conversation.version)


async def _pop(work: Work, context: Context, entry: Entry, remove: Remove) -> Removed:
    id = entry.head.conversation.id
    last = await reading.last_of_branch(work.link, work.tenant, id, entry.head.lane(remove.branch), limit=2)
    if not last:
        return Removed([], Receipt(at=context.now), entry.head.conversation.version)
    places = [(row[0], row[1]) for row in last]
    before = places[1] if len(places) > 1 else None
    lines = FreshLines(entry)
    after, doomed = rules.plan_pop(entry.head, remove, places[0], before, lines)
    popped = rows.message_of(last[0], id)
    blobs = await reading.get_blobs(work.link, context, [ref.sha256 for ref in popped.blobs])
    head, receipt = await _shrink(work, context, entry, after, doomed, lines)
    return Removed([popped], receipt, head.conversation.version, blobs)


async def _shrink(
    work: Work, context: Context, entry: Entry, after: Head, doomed: Sequence[Place], lines: FreshLines
) -> tuple[Head, Receipt]:
    """Removes what no branch reads any longer, and saves the head."""
    id = after.conversation.id
    key = (work.tenant, id, *rows.columns(doomed, 2))
    lost = [(line, seq) for line, seq, _ in await work.link.all("places_beyond", *key)]
    before, summaries = await forget_summaries(work, entry.head, lost)
    used = await work.link.all("release_blobs_beyond", *key)
    gone = await work.link.run("delete_beyond", *key)
    after = with_summary(after, before.conversation.summary)
    after = rules.shrunk(context, after, gone, await newest(work, after))
    await heads.save(work, entry, after, line=lines.last)
    blobs = await drop_blobs(work, context, [sha256 for (sha256,) in used])
    return after, Receipt(messages=gone, summaries=summaries, blobs=blobs, at=context.now)


async def _clear(work: Work, context: Context, entry: Entry, remove: Remove) -> Removed:
    before = entry.head
    key = (work.tenant, before.conversation.id)
    used = await work.link.all("release_all_blobs", *key)
    gone = await work.link.run("delete_all_messages", *key)
    summaries = await work.link.run("delete_all_summaries", *key)
    head = rules.cleared(context, before)
    await heads.save(work, entry, head)
    blobs = await drop_blobs(work, context, [sha256 for (sha256,) in used])
    receipt = Receipt(messages=gone, branches=len(before.lanes) - 1, summaries=summaries, blobs=blobs, at=context.now)
    return Removed([], receipt, head.conversation.version)


async def replace_messages(work: Work, context: Context, id: str, replace: Replace) -> Appended:
    entry = await heads.need(work, context, id)
    head, lines = entry.head, FreshLines(entry)
    found = await reading.read_branch(work.link, work.tenant, id, head.lane(replace.branch))
    current = list(zip((row[0] for row in found), rows.messages_of(found, id), strict=True))
    plan = rules.plan_replace(context, head, replace, current, lines)
    doomed = (work.tenant, id, *rows.columns(plan.doomed, 2))
    lost = await work.link.all("places_beyond", *doomed)
    stored = {row[2] for row in lost}
    await _refuse_taken(work, id, plan, stored)
    if not replace.revive:
        await refuse_deleted(work, context, head, [each for _, each in plan.fresh if each.message.id not in stored])
    rules.check_quota(head.conversation, len(plan.fresh) - len(lost), replace.max_messages)
    head, _ = await forget_summaries(work, head, [(line, seq) for line, seq, _ in lost]) if lost else (head, 0)
    used = await work.link.all("release_blobs_beyond", *doomed)
    gone = await work.link.run("delete_beyond", *doomed)
    await insert(work, plan.head, plan.lane.line, plan.fresh, replace.blobs, count=False)
    await add_usage(work, [row for _, row in plan.usage])
    after = rules.replaced(context, plan, gone, await newest(work, plan.head))
    after = with_summary(after, head.conversation.summary)
    largest = max((draft.size for _, draft in plan.fresh), default=0)
    await heads.save(work, entry, after, largest=largest, line=lines.last)
    await drop_blobs(work, context, [sha256 for (sha256,) in used])
    result = [*plan.kept, *(message for message, _ in plan.fresh)]
    return Appended(result, after.conversation.version, len(plan.fresh))


async def _refuse_taken(work: Work, id: str, plan: rules.ReplacePlan, doomed: set[str]) -> None:
    given = [draft.message.id for _, draft in plan.fresh if draft.given_id and draft.message.id not in doomed]
    if given:
        found = {row[0] for row in await work.link.all("find_ids", work.tenant, id, given)}
        rules.used_elsewhere(each for each in given if each in found)


# Branches and summaries


async def create_branch(work: Work, context: Context, id: str, new: NewBranch) -> Branch:
    entry = await heads.need(work, context, id)
    lines = FreshLines(entry)
    cut = await _cut_of(work, entry.head, new)
    head, lane = rules.plan_branch(context, entry.head, new, cut, lines())
    await heads.save(work, entry, head, line=lines.last)
    return rules.as_branch(lane, head.conversation)


async def _cut_of(work: Work, head: Head, new: NewBranch) -> rules.Cut:
    """Where a new branch leaves its source, and how many messages it shares."""
    if new.empty:
        return rules.Cut()
    id, lane = head.conversation.id, head.lane(new.source)
    wanted, end = new.at or new.before, rules.NO_END
    if wanted is not None:
        row = await work.link.one("find_place", work.tenant, id, wanted)
        if row is None or not rules.sees(lane, row[0], row[1]):
            raise rules.no_message(id, wanted)
        end = row[1] if new.at else row[1] - 1
    last = await reading.last_of_branch(work.link, work.tenant, id, lane, limit=1, upto=end)
    if not last:
        return rules.Cut()
    count = lane.count
    if wanted is not None:
        found = await work.link.one("count_of_branch", work.tenant, id, *reading.parts(lane), end)
        count = found[0] if found else 0
    return rules.Cut((last[0][0], last[0][1]), count)


async def delete_branch(work: Work, context: Context, id: str, branch: str, expected_version: int | None) -> Receipt:
    entry = await heads.need(work, context, id)
    after, doomed = rules.plan_delete_branch(entry.head, branch, expected_version)
    found = await work.link.all("find_summaries", work.tenant, id)
    own = [row[-1] for row in found if row[0] == branch]
    without = structs.replace(entry, head=await _delete_summaries(work, entry.head, found, own))
    _, receipt = await _shrink(work, context, without, after, doomed, FreshLines(entry))
    return structs.replace(receipt, summaries=receipt.summaries + len(own), branches=1)


async def put_summary(work: Work, context: Context, summary: Summary) -> None:
    id = summary.conversation_id
    entry = await heads.need(work, context, id)
    rules.check_summary(entry.head, summary)
    await work.link.run("insert_summary", work.tenant, id, *rows.summary_row(summary))
    await heads.save(work, entry, with_summary(entry.head, summary.text))
