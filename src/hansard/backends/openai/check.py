"""Checks whether both sides agree: interrupted writes, conversations that never arrived, messages deleted by others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import openai
from msgspec import structs

from hansard.backends.openai.errors import mapped
from hansard.backends.openai.mirror import MirrorPair, SeenEntries, is_growing, is_pulled
from hansard.backends.openai.mirror_state import TENANT, MirrorState
from hansard.contract.types import Context, ConversationQuery
from hansard.model import Message, Problem, to_micros

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
"""Before anything has expired: expired data is not wrong, it only waits for a purge."""
_PAGE = 100


async def check(mirror: MirrorPair, tenant: str | None) -> AsyncIterator[Problem]:
    """Changes nothing."""
    async for owner, id, state in mirror.states.all(Context(TENANT, _LONG_AGO), tenant):
        of = Context(owner, _LONG_AGO)
        with mapped(index_written=False):
            async for what in _differences(mirror, of, id, state):
                yield Problem(f"{owner}/{id}", what)
    for owner in [tenant] if tenant is not None else await mirror.index.list_tenants():
        if owner != TENANT:
            async for id in _unreached(mirror, Context(owner, _LONG_AGO)):
                yield Problem(f"{owner}/{id}", "it has never reached the API: the next write adds it")


async def _unreached(mirror: MirrorPair, context: Context) -> AsyncIterator[str]:
    query, more = ConversationQuery(archived=None, sort="updated_at", newest_first=False, limit=_PAGE), True
    while more:
        found, more = await mirror.index.list_conversations(context, query)
        for conversation in await mirror.states.unreached(context, found):
            yield conversation.id
        if found:
            query = structs.replace(query, above=(to_micros(found[-1].updated_at), found[-1].id))


async def _differences(mirror: MirrorPair, context: Context, id: str, state: MirrorState) -> AsyncIterator[str]:
    if await mirror.index.get_conversation(context, id) is None:
        yield f"it is deleted here, and may still be at the API, as {state.remote}: delete it again"
        return
    if state.is_dirty:
        yield "a change was interrupted before it reached the API: the next write completes it"
        return
    try:
        seen = SeenEntries()
        async for entry in mirror.remote.entries(state.remote, None):
            seen.add(entry)
    except openai.NotFoundError:
        yield f"the API does not have it, as {state.remote}"
        return
    if mirror.mode == "delta":
        missing, waiting = await _counted(mirror, context, id, state, seen)
        if missing:
            yield f"{missing:,} of its messages were deleted at the API: a read will notice"
        if waiting:
            yield f"{waiting:,} of its messages are not at the API yet: the next write adds them"


async def _counted(
    mirror: MirrorPair, context: Context, id: str, state: MirrorState, seen: SeenEntries
) -> tuple[int, int]:
    missing = waiting = 0
    async for rows in mirror.rows(context, id):
        for row in rows:
            message = row.message
            if is_growing(message, datetime.now(UTC)) and message.seq > state.pushed:
                return missing, waiting
            if seen.has(message, mirror.stem(context, id, message, state)) or not _can_be_there(mirror, message):
                continue
            if message.seq > state.pushed and not is_pulled(message):
                waiting += 1
            else:
                missing += 1
    return missing, waiting


def _can_be_there(mirror: MirrorPair, message: Message) -> bool:
    if mirror.remote.takes_ids or is_pulled(message):
        return True
    return message.updated_at is None and bool(mirror.remote.pieces(message, ""))
