"""Appending, replacing and changing messages."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import UNSET

from hansard.contract.storage import NOTHING, Changes, Found, Placed, RecordChange, Transaction, Update, Wants, Without
from hansard.contract.types import Append, ConversationState, Draft, MessageChange, Replace
from hansard.errors import ValidationError
from hansard.model import Appended, Message, Rating, UsageRow
from hansard.rules.append import check_quota, digests_to_check, plan_append, refuse_deleted
from hansard.rules.branches import ReplacePlan, lost_summaries, plan_replace, plan_update, replaced, used_elsewhere
from hansard.rules.marks import is_marking
from hansard.rules.operations.common import (
    is_beyond,
    places_of,
    require,
    require_visible,
    runs_beyond,
    runs_of,
    usage_of,
    visible,
    wiped_by_creation,
    without_summaries,
)
from hansard.rules.records import plan_records, unwritten
from hansard.rules.state import check_owner, new_state, no_message, not_found
from hansard.rules.usage import total_usage, usage_change


async def append(tx: Transaction, append: Append) -> Appended:
    """Appends a batch and writes records in one commit. Reads only if something may be stored already."""
    before = visible(tx)
    wipes = "nothing" if before else wiped_by_creation(tx)
    state = before or _new_state(tx, append)
    found = await _stored(tx, before, state, append)
    stored = {id: message for id, (_, message) in found.by_id.items()} if found.by_id else {}
    if found.tombstones:
        new = [draft for draft in append.drafts if draft.message.id not in stored]
        refuse_deleted(tx.context, state, new, found.tombstones.get)
    plan = plan_append(tx.context, state, append, stored)
    changed = _changed(tx, append, found, is_repeated=not plan.fresh) if append.records else []
    if before is None or plan.state is not state or changed:
        used = [each for each, _ in plan.fresh if each.usage is not None] if append.count_usage else ()
        usage = usage_of(plan.state.conversation, used) if used else ()
        insert = ((plan.branch.segment, plan.fresh),) if plan.fresh else ()
        blobs = append.blobs if plan.fresh else {}
        await tx.apply(Changes(state=plan.state, wipes=wipes, insert=insert, usage=usage, blobs=blobs, records=changed))
    return Appended(plan.result, plan.state.conversation.version, len(plan.fresh), before is None)


def _changed(tx: Transaction, append: Append, found: Found, *, is_repeated: bool) -> list[RecordChange]:
    writes = unwritten(append.records, found.records) if is_repeated else append.records
    return plan_records(tx.context, writes, found.records)[0]


def _new_state(tx: Transaction, append: Append) -> ConversationState:
    if append.new is None:
        raise not_found(tx.id)
    return new_state(tx.context, tx.id, append.new, tx.new_segment())


async def _stored(tx: Transaction, before: ConversationState | None, state: ConversationState, append: Append) -> Found:
    if before is not None and any(write.conversation_id is not None for write in append.records):
        check_owner(before.conversation, tx.context)
    for write in append.records:
        if write.conversation_id not in (None, tx.id):
            raise ValidationError(
                f"record {write.key!r} names conversation {write.conversation_id!r}: "
                f"with an append to {tx.id!r} it may name only that one"
            )
    ids = [draft.message.id for draft in append.drafts if draft.given_id] if before else []
    digests = [] if append.revive else digests_to_check(tx.context, state, append.drafts)
    if not (ids or digests or append.records):
        return NOTHING
    keys = list(dict.fromkeys((write.namespace, write.key) for write in append.records))
    return await tx.get(Wants(ids=ids, tombstones=digests, records=keys, expects_none=True))


async def update_message(tx: Transaction, message_id: str, change: MessageChange) -> Message:
    state = require_visible(tx)
    found = (await tx.get(Wants(ids=[message_id]))).by_id.get(message_id)
    if found is None:
        raise no_message(tx.id, message_id)
    segment, before = found
    if not _may_member_change(tx, before, change):
        check_owner(state.conversation, tx.context)
    after, message = plan_update(tx.context, state, before, change)
    if message is before:
        return message
    usage: Sequence[UsageRow] = ()
    if before.usage != message.usage:
        usage = total_usage(usage_change(after.conversation, message, before.usage, message.usage))
    update = Update(segment=segment, before=before, after=message, draft=change.draft)
    await tx.apply(Changes(state=after, update=update, usage=usage, blobs=change.blobs))
    return message


def _may_member_change(tx: Transaction, message: Message, change: MessageChange) -> bool:
    """A member finishes the messages that are still in progress, and rates any."""
    user = tx.context.user
    rated = [change.rating.by] if isinstance(change.rating, Rating) else []
    if change == MessageChange(rating=change.rating, unrated_by=change.unrated_by):
        return {*rated, *([] if change.unrated_by is UNSET else [change.unrated_by])} <= {user}
    return message.status == "in_progress" and not is_marking(change)


async def replace_messages(tx: Transaction, replace: Replace) -> Appended:
    """Reads the branch, and again only if a new message may be stored or deleted already, or none is new."""
    state = require(tx)
    found = await tx.get(Wants(runs=runs_of(state.branch(replace.branch)), summaries=True))
    plan = plan_replace(tx.context, state, replace, found.messages, tx.new_segment)
    rest = found.messages[len(plan.kept) :]
    gone = [placed for placed in rest if is_beyond((placed[0], placed[1].seq), plan.unreachable)]
    newest = await _check_new(tx, state, replace, plan, gone)
    check_quota(state.conversation, len(plan.fresh) - len(gone), replace.max_messages)
    lost = lost_summaries(state, found.summaries, places_of(gone)) if gone else []
    after = without_summaries(replaced(tx.context, plan, len(gone), newest), found.summaries, lost)
    await tx.apply(
        Changes(
            state=after,
            remove_runs=runs_beyond(plan.unreachable) if gone else (),
            insert=((plan.branch.segment, plan.fresh),) if plan.fresh else (),
            lost_summaries=lost,
            usage=[row for _, row in plan.usage],
            blobs=replace.blobs,
        )
    )
    result = [*plan.kept, *(message for message, _ in plan.fresh)]
    return Appended(result, after.conversation.version, len(plan.fresh))


async def _check_new(
    tx: Transaction, state: ConversationState, replace: Replace, plan: ReplacePlan, gone: Sequence[Placed]
) -> datetime | None:
    """Refuses ids in use on another branch, and deleted messages. Returns the time of the newest message left."""
    ids = {message.id for _, message in gone}
    new: list[Draft] = [draft for _, draft in plan.fresh if draft.message.id not in ids]
    given = [draft.message.id for draft in new if draft.given_id]
    digests = [] if replace.revive else digests_to_check(tx.context, state, new)
    without = Without(runs=runs_beyond(plan.unreachable)) if gone and not plan.fresh else None
    found = NOTHING
    if given or digests or without:
        found = await tx.get(Wants(ids=given, tombstones=digests, last_time_without=without))
    used_elsewhere(id for id in given if id in found.by_id)
    if found.tombstones:
        refuse_deleted(tx.context, state, new, found.tombstones.get)
    if plan.fresh:
        return plan.fresh[-1][0].created_at
    return found.last_time if gone else state.conversation.last_message_at
