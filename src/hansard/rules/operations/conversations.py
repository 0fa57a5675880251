"""Creating, changing, deleting and restoring conversations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import structs

from hansard.contract.storage import NOTHING, Changes, Transaction, Wants
from hansard.contract.types import ConversationChange, ConversationState, Draft, Image, Restore, RestoredRow
from hansard.errors import Conflict, Corrupt
from hansard.model import Conversation, Message, Receipt
from hansard.rules.branches import segments
from hansard.rules.operations.common import require_visible, usage_of, visible, wiped_by_creation
from hansard.rules.restore import restored, restoring
from hansard.rules.state import check_owner, check_version, created, plan_change, tombstone_digests


async def create_conversation(tx: Transaction, given: Conversation) -> Conversation:
    if visible(tx) is not None:
        raise Conflict(f"conversation {tx.id!r} exists already")
    wipes = wiped_by_creation(tx)
    state = created(tx.context, given, tx.new_segment())
    await tx.apply(Changes(state=state, wipes=wipes))
    return state.conversation


async def update_conversation(tx: Transaction, change: ConversationChange) -> Conversation:
    before = require_visible(tx)
    state = plan_change(tx.context, before, change)
    if state is not before:
        await tx.apply(Changes(state=state))
    return state.conversation


async def delete_conversation(tx: Transaction, expected_version: int | None) -> Receipt:
    state = visible(tx)
    if state is None:
        return Receipt(at=tx.context.now)
    check_owner(state.conversation, tx.context)
    check_version(state.conversation, expected_version)
    return await _delete(tx, state, tombstone_digests(state.conversation))


async def drop_conversation(tx: Transaction, *, if_expired: bool) -> Receipt:
    """Deletes a conversation, visible or not, without a tombstone; with `if_expired` only an expired one."""
    state = tx.state
    expires = state.conversation.expires_at if state else None
    if state is None or (if_expired and (expires is None or expires > tx.context.now)):
        return Receipt(at=tx.context.now)
    return await _delete(tx, state, ())


async def _delete(tx: Transaction, state: ConversationState, tombstones: Sequence[str]) -> Receipt:
    gone = await tx.apply(Changes(state=None, wipes="everything", tombstones=tombstones))
    return Receipt(
        conversations=1,
        messages=gone.messages,
        branches=len(state.branches),
        summaries=gone.summaries,
        records=gone.records,
        blobs=gone.blobs,
        at=tx.context.now,
        physically_gone=gone.physically_gone,
    )


async def restore(tx: Transaction, restore: Restore) -> int:
    before = visible(tx)
    if before is not None:
        check_owner(before.conversation, tx.context)
    wipes = "nothing" if before else wiped_by_creation(tx)
    state = before or _new_state(tx, restore.image)
    rows = _mapped([row for row in restore.rows if row.draft.message.seq > state.seq], restore.image, state)
    ids = [row.draft.message.id for row in rows]
    found = await tx.get(Wants(ids=ids, expects_none=True)) if before and ids else NOTHING
    after = restored(state, restore, rows, found.by_id)
    by_segment: dict[int, list[tuple[Message, Draft]]] = {}
    for row in rows:
        by_segment.setdefault(row.segment, []).append((row.draft.message, row.draft))
    usage = usage_of(state.conversation, (row.draft.message for row in rows))
    await tx.apply(Changes(state=after, wipes=wipes, insert=list(by_segment.items()), usage=usage, blobs=restore.blobs))
    return after.seq


def _new_state(tx: Transaction, image: Image) -> ConversationState:
    """Returns the empty conversation that a copy fills. Every segment of the image gets a number of this storage."""
    theirs = dict.fromkeys(segment for branch in image.branches for segment, _ in segments(branch))
    ours = {segment: tx.new_segment() for segment in theirs}
    branches = [
        structs.replace(
            branch, segment=ours[branch.segment], path=tuple((ours[segment], upto) for segment, upto in branch.path)
        )
        for branch in image.branches
    ]
    return restoring(image, branches)


def _mapped(rows: Sequence[RestoredRow], image: Image, state: ConversationState) -> list[RestoredRow]:
    """Returns the rows with this storage's segment numbers."""
    ours = _numbers(image, state)
    for row in rows:
        if row.segment not in ours:
            what = f"message {row.draft.message.id!r} of conversation {image.conversation.id!r}"
            raise Corrupt(f"{what} is on segment {row.segment} of the copy, which none of its branches reads")
    return [structs.replace(row, segment=ours[row.segment]) for row in rows]


def _numbers(image: Image, state: ConversationState) -> Mapping[int, int]:
    """Maps each segment of the image to its number here, by the branches, which are the same in both."""
    ours: dict[int, int] = {}
    for branch in image.branches:
        theirs, here = segments(branch), state.branches.get(branch.id)
        if here is None or len(segments(here)) != len(theirs):
            raise Conflict(
                f"branch {branch.id!r} of conversation {state.conversation.id!r} was changed during the copy"
            )
        ours |= {segment: own for (segment, _), (own, _) in zip(theirs, segments(here), strict=True)}
    return ours
