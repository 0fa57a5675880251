"""Removing messages: named ones, the newest of a branch, or all."""

from __future__ import annotations

from msgspec import structs

from hansard import codec
from hansard.contract.storage import NOTHING, Applied, Changes, Transaction, Wants, Without
from hansard.contract.types import ConversationState, Remove, Removed
from hansard.model import Receipt
from hansard.rules.branches import cleared, lost_summaries, plan_pop, shrunk, without
from hansard.rules.operations.common import is_beyond, places_of, require, runs_of, without_summaries
from hansard.rules.state import check_version


async def remove_messages(tx: Transaction, remove: Remove) -> Removed:
    state = require(tx)
    check_version(state.conversation, remove.expected_version)
    return await {"ids": _remove_ids, "last": _remove_last, "all": _remove_all}[remove.what](tx, state, remove)


async def _remove_ids(tx: Transaction, state: ConversationState, remove: Remove) -> Removed:
    ids = list(dict.fromkeys(remove.ids))
    found = await tx.get(Wants(ids=ids, summaries=True, last_time_without=Without(ids=ids)))
    gone = [found.by_id[id] for id in ids if id in found.by_id]
    if not gone:
        return _nothing(tx, state)
    places = places_of(gone)
    lost = lost_summaries(state, found.summaries, places)
    after = without(tx.context, state, places, found.last_time)
    after = structs.replace(without_summaries(after, found.summaries, lost), has_tombstones=True)
    digests = [codec.digest(tx.id, message.id) for _, message in gone]
    applied = await tx.apply(Changes(state=after, remove=gone, lost_summaries=lost, tombstones=digests))
    return Removed([message for _, message in gone], _receipt(tx, applied), after.conversation.version)


async def _remove_last(tx: Transaction, state: ConversationState, remove: Remove) -> Removed:
    """Removes the newest message of a branch. If another branch reads it, it stays stored."""
    found = await tx.get(Wants(runs=runs_of(state.branch(remove.branch)), newest=2, summaries=True))
    if not found.messages:
        return _nothing(tx, state)
    *before, last = places_of(found.messages)
    after, unreachable = plan_pop(state, remove, last, before[0] if before else None, tx.new_segment)
    popped = found.messages[-1]
    gone = [popped] if is_beyond(last, unreachable) else []
    digests = [ref.sha256 for ref in popped[1].blobs]
    left_out = Without(ids=[popped[1].id]) if gone else None
    more = await tx.get(Wants(blobs=digests, last_time_without=left_out)) if gone or digests else NOTHING
    newest = more.last_time if gone else state.conversation.last_message_at
    lost = lost_summaries(state, found.summaries, places_of(gone)) if gone else []
    after = shrunk(tx.context, without_summaries(after, found.summaries, lost), len(gone), newest)
    applied = await tx.apply(Changes(state=after, remove=gone, lost_summaries=lost))
    return Removed([popped[1]], _receipt(tx, applied), after.conversation.version, more.blobs)


async def _remove_all(tx: Transaction, state: ConversationState, remove: Remove) -> Removed:
    after = cleared(tx.context, state)
    applied = await tx.apply(Changes(state=after, wipes="messages"))
    receipt = structs.replace(_receipt(tx, applied), branches=len(state.branches) - 1)
    return Removed([], receipt, after.conversation.version)


def _nothing(tx: Transaction, state: ConversationState) -> Removed:
    return Removed([], Receipt(at=tx.context.now), state.conversation.version)


def _receipt(tx: Transaction, applied: Applied) -> Receipt:
    return Receipt(
        messages=applied.messages,
        summaries=applied.summaries,
        blobs=applied.blobs,
        at=tx.context.now,
        physically_gone=applied.physically_gone,
    )
