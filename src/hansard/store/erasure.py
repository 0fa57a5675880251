"""Bulk deletion, of a user or of old conversations. Each step is complete, so an interrupted run can be repeated."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import datetime
from typing import Literal

from msgspec import structs

from hansard import rules
from hansard.contract.types import (
    Context,
    ConversationChange,
    ConversationQuery,
    MessageChange,
    MessageQuery,
    Participation,
    RecordQuery,
    RecordWrite,
    Remove,
)
from hansard.errors import Conflict, ConversationNotFound, Corrupt, NotFound
from hansard.model import Conversation, Receipt, to_micros
from hansard.store import marks, shares, vector_records
from hansard.store.core import View

PurgeBy = Literal["last_message", "updated"]

_BATCH = 100
_SWEEP = 1000
_FRUITLESS = 100
"""Rounds that remove nothing after which a listing counts as damaged. Others may be removing the same messages."""


async def user(view: View, user_id: str) -> Receipt:
    """Erases the conversations that the user owns, the user's messages and ratings in others, records and usage."""
    # Expired conversations are invisible but still stored.
    context = Context(view.tenant, view.clock(), with_expired=True)
    total = Receipt(at=context.now, physically_gone=True)
    # Repeat until nothing is found: a listing may miss a conversation that changes its place meanwhile.
    while (deleted := await _owned(view, context, user_id)).conversations:
        total += deleted
    await vector_records.finish_interrupted(view.backend, context)
    total += await _participations(view, context, user_id)
    await _ratings(view, context, user_id)
    await _memberships(view, context, user_id)
    return total + await view.backend.erase_user_data(context, user_id)


async def _owned(view: View, context: Context, user_id: str) -> Receipt:
    total = Receipt(at=context.now, physically_gone=True)
    async for conversation in _conversations(view, context, ConversationQuery(user_id=user_id, archived=None)):
        total += await view.backend.delete_conversation(context, conversation.id)
    return total


async def _participations(view: View, context: Context, user_id: str) -> Receipt:
    """Erases the messages of the user in conversations of others."""
    total = Receipt(at=context.now, physically_gone=True)
    fruitless = 0
    while found := await view.backend.participations(context, user_id, _BATCH):
        before = total.messages
        for each in found:
            with suppress(ConversationNotFound):  # deleted meanwhile
                total += await _messages(view, context, each)
        fruitless = 0 if total.messages > before else fruitless + 1
        if fruitless == _FRUITLESS:
            raise Corrupt(f"conversation {found[0].conversation_id!r} lists messages that it does not have: run check")
    return total


async def _messages(view: View, context: Context, of: Participation) -> Receipt:
    async with vector_records.removal(view.backend, context, of.conversation_id) as removal:
        remove = Remove("ids", tuple(of.message_ids))
        removed = await view.backend.remove_messages(context, of.conversation_id, remove)
        await removal.delete_vectors({message.seq for message in removed.messages})
        await shares.forget_removed(view.backend, context, of.conversation_id)
        return removed.receipt


async def _ratings(view: View, context: Context, user_id: str) -> None:
    """Removes the ratings that the user gave in conversations of others."""
    while rated := await marks.rated_by(view.backend, context, user_id, _BATCH):
        for id, message_ids in rated.items():
            for message_id in message_ids:
                with suppress(NotFound):  # deleted meanwhile
                    change = MessageChange(unrated_by=user_id)
                    await view.backend.update_message(context, id, message_id, change)
            await marks.forget_rater(view.backend, context, user_id, id, message_ids)


async def _memberships(view: View, context: Context, user_id: str) -> None:
    if not marks.can_index(view.backend):
        return
    query = RecordQuery(prefix=(*rules.MEMBERSHIPS, user_id), exact=True, limit=_BATCH)
    while (noted := await view.backend.scan_records(context, query))[0]:
        for record in noted[0]:
            with suppress(ConversationNotFound):
                change = ConversationChange(removed_members=(user_id,))
                await view.backend.update_conversation(context, record.key, change)
        deletions = [RecordWrite(record.namespace, record.key, delete=True) for record in noted[0]]
        await view.backend.write_records(context, deletions)


async def older_than(view: View, until: datetime, by: PurgeBy, *, dry_run: bool = False) -> Receipt:
    """Deletes conversations of the view whose last message, or last change of any kind, is from before `until`.

    A conversation without messages counts from its creation. One that was backfilled may have newer messages than its
    last.
    """
    context = view.context()
    total = Receipt(at=context.now, physically_gone=True)
    query = ConversationQuery(user_id=view.user, archived=None, newest_first=False, below=(to_micros(until), ""))
    async for conversation in _conversations(view, context, query):
        if conversation.updated_at >= until and (
            by == "updated" or await _has_message_since(view, conversation, until)
        ):
            continue
        if dry_run:
            total += Receipt(conversations=1, messages=conversation.message_count, physically_gone=True)
        elif await _is_as_listed(view, conversation):
            # A write in this moment raises Conflict, and the conversation stays.
            expected = conversation.version if view.backend.capabilities.compare_and_swap else None
            with suppress(Conflict):
                total += await view.backend.delete_conversation(context, conversation.id, expected)
    return total


async def _has_message_since(view: View, conversation: Conversation, since: datetime) -> bool:
    """Whether any branch has a message created since then. Times need not ascend: see `MessageQuery.sort`."""
    context, backend = view.context(), view.backend
    branches = [each.id for each in await backend.list_branches(context, conversation.id)]
    for branch in branches if backend.capabilities.branches else [None]:
        query = MessageQuery(branch=branch, newest_first=True, since=since, limit=1)
        if (await backend.get_messages(context, conversation.id, query)).messages:
            return True
    return False


async def _is_as_listed(view: View, conversation: Conversation) -> bool:
    """Whether it is the same conversation, unchanged: one that was deleted and recreated may have the same version."""
    now = await view.backend.get_conversation(view.context(), conversation.id)
    return now is not None and (now.version, now.created_at) == (conversation.version, conversation.created_at)


async def sweep(view: View) -> Receipt:
    """Deletes, in all tenants, what has expired or is no longer referred to.

    Where deleted bytes are overwritten, the receipt also tells whether those of earlier deletions are gone.
    """
    total = Receipt(at=view.clock(), physically_gone=True)
    is_clean = more = True
    while more:
        swept = await view.backend.sweep(view.context(), _SWEEP)
        total, more = total + swept.receipt, swept.more
        is_clean = swept.receipt.physically_gone
    if view.backend.capabilities.secure_delete and not is_clean:
        return structs.replace(total, physically_gone=False)
    return total


async def _conversations(view: View, context: Context, query: ConversationQuery) -> AsyncIterator[Conversation]:
    """Yields every conversation of a query, oldest first, a page at a time."""
    query = structs.replace(query, newest_first=False, limit=_BATCH)
    more = True
    while more:
        page, more = await view.backend.list_conversations(context, query)
        for conversation in page:
            yield conversation
        if page:
            last = page[-1]
            place = (to_micros(last.last_message_at or last.created_at), last.id)
            query = structs.replace(query, above=place)
