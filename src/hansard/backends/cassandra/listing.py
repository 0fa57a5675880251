"""Lists of conversations. An entry says only that a conversation is in a slot of time; the rest its head tells.

A page is made slot by slot: of each slot all entries are read, with their heads, and put in order by the exact times.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncGenerator
from contextlib import aclosing

from hansard import cursors
from hansard.backends.cassandra import effects, read, rows
from hansard.backends.cassandra.connection import Link
from hansard.backends.cassandra.effects import BUCKETS, Entry
from hansard.backends.cassandra.rows import Head
from hansard.backends.shared import lists
from hansard.contract.types import Context, ConversationQuery
from hansard.model import Conversation, to_micros

_PIECE = 100
_AT_ONCE = 64
_FAR = 2**62


async def list_conversations(link: Link, context: Context, query: ConversationQuery) -> tuple[list[Conversation], bool]:
    found = walk(link, context, query, min(_PIECE, query.offset + query.limit + 1))
    return await lists.page_of_walk(found, lambda head: head.conversation, context, query)


async def walk(
    link: Link, context: Context, query: ConversationQuery, piece: int = _PIECE
) -> AsyncGenerator[Head, None]:
    """The conversations of a list between the query's places, in its order, without the wall of the context."""
    slot: int | None = None
    entries: list[Entry] = []
    ids: list[str] = []
    async with aclosing(_entries(link, context, query, piece)) as walked:
        async for bucket, at, id in walked:
            if at != slot and ids:
                for head in await _ordered(link, context, query, entries, ids):
                    yield head
                entries, ids = [], []
            slot = at
            entries.append((_list(context, query)[0], bucket, at))
            ids.append(id)
    for head in await _ordered(link, context, query, entries, ids):
        yield head


async def _ordered(
    link: Link, context: Context, query: ConversationQuery, entries: list[Entry], ids: list[str]
) -> list[Head]:
    """The conversations of one slot that are there, between the query's places, in its order."""
    found: list[tuple[tuple[int, str], Head]] = []
    for first in range(0, len(ids), _AT_ONCE):
        some = ids[first : first + _AT_ONCE]
        heads = await asyncio.gather(*(read.load(link, (context.tenant, id)) for id in some))
        for entry, head in zip(entries[first : first + _AT_ONCE], heads, strict=True):
            if head is None or head.state is None or not effects.is_listed(head, entry):
                continue
            conversation = head.state.conversation
            place = (to_micros(cursors.sort_time(conversation, query.sort)), conversation.id)
            if (query.above is None or place > query.above) and (query.below is None or place < query.below):
                found.append((place, head))
    found.sort(key=lambda each: each[0], reverse=query.newest_first)
    return [head for _, head in found]


def _list(context: Context, query: ConversationQuery) -> tuple[str, range]:
    """The name of a list, and its buckets."""
    owner = query.user_id if query.user_id is not None else context.user
    if owner is not None:
        return effects.user_list(query.sort, owner), range(1)
    if query.agent_id is not None:
        return effects.agent_list(query.sort, query.agent_id), range(BUCKETS)
    return effects.whole_list(query.sort), range(BUCKETS)


async def _entries(
    link: Link, context: Context, query: ConversationQuery, piece: int
) -> AsyncGenerator[tuple[int, int, str], None]:
    """Bucket, slot and id, over all buckets in the order of the slots."""
    _, buckets = _list(context, query)
    walks = [_bucket(link, context, query, bucket, piece) for bucket in buckets]
    sign = -1 if query.newest_first else 1
    try:
        firsts = await asyncio.gather(*(anext(walk, None) for walk in walks))
        heap = [(sign * first[1], number, first) for number, first in enumerate(firsts) if first is not None]
        heapq.heapify(heap)
        while heap:
            _, number, entry = heap[0]
            yield entry
            following = await anext(walks[number], None)
            if following is None:
                heapq.heappop(heap)
            else:
                heapq.heapreplace(heap, (sign * following[1], number, following))
    finally:
        for each in walks:
            await each.aclose()


async def _bucket(
    link: Link, context: Context, query: ConversationQuery, bucket: int, piece: int
) -> AsyncGenerator[tuple[int, int, str], None]:
    """The entries of one partition, by whole slots."""
    name = _list(context, query)[0]
    low = rows.slot_of(query.above[0]) if query.above else -_FAR
    high = rows.slot_of(query.below[0]) if query.below else _FAR
    question = "list_newest" if query.newest_first else "list_oldest"
    while low <= high:
        page = await link.read(question, context.tenant, name, bucket, low, high, piece)
        is_last = len(page) < piece
        if not is_last:
            # The last slot of the page may continue after it.
            end = page[-1][0]
            page = [row for row in page if row[0] != end]
            page += await link.read("list_slot", context.tenant, name, bucket, end)
            low, high = (low, end - 1) if query.newest_first else (end + 1, high)
        for slot, id in page:
            yield bucket, slot, id
        if is_last:
            return
        piece = _PIECE
