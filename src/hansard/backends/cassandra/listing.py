"""Lists of conversations. An entry says only where a conversation is; the rest its head tells.

A conversation enters a list in a *slot* of ten seconds, and stays there while it is written within these: a move for
each write would leave as many tombstones. So readers read all heads of a slot, and put them in order by the exact
times. In a slot that has enough such conversations, others enter at their *exact* time, and are moved by each write. So
readers read no more of it than they need. A conversation to which several writers of a process append at once is not
moved so: that would take most of their time.

The entries of a list are in several partitions. A walk takes them in the order of their times, reads the heads of some
at once, and hands out those that no later entry can precede.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import NamedTuple

from hansard import cursors
from hansard.backends.cassandra import effects, read, rows
from hansard.backends.cassandra.connection import Link, Row
from hansard.backends.cassandra.effects import BUCKETS, SORTS
from hansard.backends.cassandra.rows import SLOT, Head
from hansard.backends.shared import lists
from hansard.contract.types import Context, ConversationQuery, ConversationState
from hansard.model import Conversation, ConversationSort, to_micros

_PIECE = 100
_FULL = 4
"""Conversations that enter one slot of one partition without their exact times: a page may have to read the heads of
all of them, in each bucket. Those beyond cost their writers a move for each write."""
_SEEN = 100_000
"""Conversations that a walk remembers in order to show each once. In a longer one, what is written meanwhile may come
twice."""
_FAR = 2**62
_ALL = 2**31 - 1
_FIRST_ID = "\1"
"""Names of entries with exact times are before it, all ids are not."""

Place = tuple[int, str]
"""Time and id of a conversation."""
Key = tuple[int, str]
"""Slot and name of an entry."""
Range = tuple[Key, Key]
"""After the one and before the other."""


class _ListEntry(NamedTuple):
    bucket: int
    slot: int
    name: str

    @property
    def is_exact(self) -> bool:
        return self.name < _FIRST_ID

    @property
    def id(self) -> str:
        return self.name[rows.EXACT_DIGITS + 1 :] if self.is_exact else self.name

    @property
    def place(self) -> Place:
        """Of an entry with the exact time."""
        return self.slot * SLOT + int(self.name[1 : rows.EXACT_DIGITS + 1]), self.id


async def list_conversations(link: Link, context: Context, query: ConversationQuery) -> tuple[list[Conversation], bool]:
    found = walk(link, context, query, min(_PIECE, query.offset + query.limit + 1))
    return await lists.page_of_walk(found, lambda head: head.conversation, context, query)


async def walk(
    link: Link, context: Context, query: ConversationQuery, piece: int = _PIECE
) -> AsyncGenerator[Head, None]:
    """The conversations of a list between the query's places, in its order, without the wall of the context."""
    entries = _Entries(link, context, query, piece)
    found: list[tuple[Place, Head]] = []
    seen: set[str] = set()
    while batch := await entries.take(piece):
        placed = await _placed(link, context, query, entries.list, [each.id for each in batch if each.id not in seen])
        found += placed
        if len(seen) > _SEEN:
            seen.clear()
        seen.update(id for (_, id), _ in placed)
        found.sort(key=lambda each: each[0], reverse=query.newest_first)
        bound = await entries.bound()
        count = next((at for at, (place, _) in enumerate(found) if not entries.precedes(place, bound)), len(found))
        for _, head in found[:count]:
            yield head
        del found[:count]
        piece = min(_PIECE, 2 * piece)


async def _placed(
    link: Link, context: Context, query: ConversationQuery, name: str, ids: Sequence[str]
) -> list[tuple[Place, Head]]:
    """The conversations that are in the list and between the query's places.

    One that was written since its entry was read is somewhere else by now, and counts there: its new entry may be where
    the walk has been.
    """
    found: list[tuple[Place, Head]] = []
    for id, head in (await read.load_many(link, context.tenant, ids)).items():
        if head is None or not effects.is_in_list(head, name):
            continue
        place = (to_micros(cursors.sort_time(head.conversation, query.sort)), id)
        if (query.above is None or place > query.above) and (query.below is None or place < query.below):
            found.append((place, head))
    return found


class _Entries:
    """The entries of a list in the order of a walk: of each slot, those with exact times come last."""

    def __init__(self, link: Link, context: Context, query: ConversationQuery, piece: int) -> None:
        self._newest_first = query.newest_first
        self.list, buckets = _list(context, query)
        # What is newest in the whole list is spread evenly over its buckets.
        first = _FULL + (piece if len(buckets) == 1 else 4 + 2 * piece // len(buckets))
        kind = _NewestFirst if query.newest_first else _OldestFirst
        self._source = kind(link, (context.tenant, self.list))
        self._buckets = [_Bucket(each, _ranges(query), first) for each in buckets]

    async def take(self, count: int) -> list[_ListEntry]:
        """So many, and those without exact times up to the end of a slot: none of it has a place without them."""
        found: list[_ListEntry] = []
        while (bucket := await self._next()) is not None:
            entry = bucket.entries[-1]
            if len(found) >= count and (entry.is_exact or entry.slot != found[-1].slot):
                break
            found.append(bucket.entries.pop())
        return found

    async def _next(self) -> _Bucket | None:
        """The bucket that has the next entry."""
        while empty := [each for each in self._buckets if not each.entries and each.ranges]:
            await self._source.fill(empty)
        filled = [each for each in self._buckets if each.entries]
        choose = max if self._newest_first else min
        return choose(filled, key=lambda each: self._source.order(each.entries[-1]), default=None)

    async def bound(self) -> Place | None:
        """A place that no conversation of a later entry precedes; None if there is no later one."""
        bucket = await self._next()
        if bucket is None:
            return None
        entry = bucket.entries[-1]
        return entry.place if entry.is_exact else ((entry.slot + self._newest_first) * SLOT, "")

    def precedes(self, place: Place, bound: Place | None) -> bool:
        return bound is None or (place >= bound if self._newest_first else place < bound)


def _list(context: Context, query: ConversationQuery) -> tuple[str, range]:
    """The name of a list, and its buckets."""
    owner = query.user_id if query.user_id is not None else context.user
    if owner is not None:
        return effects.user_list(query.sort, owner), range(1)
    if query.agent_id is not None:
        return effects.agent_list(query.sort, query.agent_id), range(BUCKETS)
    return effects.whole_list(query.sort), range(BUCKETS)


class _Bucket:
    """What was read of one partition, and what is still to be read: the next one last."""

    def __init__(self, number: int, ranges: list[Range], piece: int) -> None:
        self.number = number
        self.entries: list[_ListEntry] = []
        self.ranges = ranges
        self.piece = piece
        self.whole: int | None = None
        """The slot whose entries without exact times have all been read."""

    def advance(self, found: Sequence[Row], *, newest_first: bool) -> bool:
        """Moves behind what was found. Returns whether that was the end of a range."""
        is_last = len(found) < self.piece
        low, high = self.ranges.pop()
        if not is_last:
            end: Key = (found[-1][1], found[-1][2])
            self.ranges.append((low, end) if newest_first else (end, high))
        self.piece = _PIECE
        return is_last


class _NewestFirst:
    def __init__(self, link: Link, name: tuple[str, str]) -> None:
        self._link = link
        self._name = name

    @staticmethod
    def order(entry: _ListEntry) -> tuple[int, bool, str]:
        return entry.slot, not entry.is_exact, entry.name

    async def fill(self, buckets: Sequence[_Bucket]) -> None:
        """One request for all that read the same range."""
        together: dict[tuple[Range, int], list[_Bucket]] = {}
        for bucket in buckets:
            together.setdefault((bucket.ranges[-1], bucket.piece), []).append(bucket)
        await asyncio.gather(*(self._read(*asked, some) for asked, some in together.items()))

    async def _read(self, asked: Range, piece: int, buckets: Sequence[_Bucket]) -> None:
        numbers = [each.number for each in buckets]
        found = await self._link.read("list_newest", *self._name, numbers, *asked[0], *asked[1], piece)
        for bucket in buckets:
            rows_of = [row for row in found if row[0] == bucket.number]
            bucket.advance(rows_of, newest_first=True)
            bucket.entries = sorted((_ListEntry(*row) for row in rows_of), key=self.order)


class _OldestFirst:
    def __init__(self, link: Link, name: tuple[str, str]) -> None:
        self._link = link
        self._name = name

    @staticmethod
    def order(entry: _ListEntry) -> tuple[int, bool, str]:
        return entry.slot, entry.is_exact, entry.name

    async def fill(self, buckets: Sequence[_Bucket]) -> None:
        """One request for each: a server does not order several partitions and page them."""
        await asyncio.gather(*map(self._read, buckets))

    async def _read(self, bucket: _Bucket) -> None:
        low, high = bucket.ranges[-1]
        found = await self._link.read("list_oldest", *self._name, bucket.number, *low, *high, bucket.piece)
        is_last = bucket.advance(found, newest_first=False)
        entries = {_ListEntry(*row) for row in found}
        if not is_last and found[-1][1] != bucket.whole:
            # The end of a slot is stored last but needed first: its entries without exact times.
            bucket.whole = found[-1][1]
            rest = await self._link.read("list_newest", *self._name, [bucket.number], *_inexact(bucket.whole), _ALL)
            entries |= {_ListEntry(*row) for row in rest}
        bucket.entries = sorted(entries, key=self.order, reverse=True)


def _inexact(slot: int) -> tuple[int, str, int, str]:
    """The range of the entries of a slot that have no exact times."""
    return slot, rows.EXACT_END, slot + 1, ""


def _ranges(query: ConversationQuery) -> list[Range]:
    """What to read of a partition between the query's places. The first range last."""
    low: Key = effects.exact_key(*query.above) if query.above is not None else (-_FAR, "")
    high: Key = (rows.slot_of(query.below[0]) + 1, "") if query.below is not None else (_FAR, "")
    if query.newest_first and query.below is not None:
        begin = _inexact(high[0] - 1)
        return [(low, effects.exact_key(*query.below)), (begin[:2], begin[2:])]
    if not query.newest_first and query.above is not None:
        begin = _inexact(low[0])
        return [(begin[2:], high), (low, begin[:2]), (begin[:2], begin[2:])]
    return [(low, high)]


# Writers


async def exact_sorts(link: Link, tenant: str, before: Head | None, after: ConversationState | None) -> tuple[str, ...]:
    """The sorts by which a write lists a conversation at its exact times."""
    if after is None:
        return ()
    moved = [sort for sort in SORTS if not _stays(before, after, sort)]
    kept = [sort for sort in SORTS if before is not None and sort in before.exact and sort not in moved]
    slots = {sort: rows.slot_of(_time(after, sort)) for sort in moved}
    # Nearly always one question: a write that enters a slot by the last message also enters it by the update.
    asked = {slot: (effects.whole_list(sort), slot) for sort, slot in slots.items()}
    bucket = effects.bucket_of(after.conversation.id)
    full = {slot for slot, place in asked.items() if await _is_full(link, tenant, bucket, *place)}
    return (*kept, *(sort for sort, slot in slots.items() if slot in full))


async def _is_full(link: Link, tenant: str, bucket: int, name: str, slot: int) -> bool:
    """By the list of the whole tenant: those of users and agents have no more conversations in a slot."""
    return len(await link.read("list_newest", tenant, name, [bucket], *_inexact(slot), _FULL)) == _FULL


def _stays(before: Head | None, after: ConversationState, sort: ConversationSort) -> bool:
    """Whether a write leaves a conversation where it is."""
    if before is None or before.state is None:
        return False
    was, now = _time(before.state, sort), _time(after, sort)
    return was == now if sort in before.exact else rows.slot_of(was) == rows.slot_of(now)


def _time(state: ConversationState, sort: ConversationSort) -> int:
    return to_micros(cursors.sort_time(state.conversation, sort))
