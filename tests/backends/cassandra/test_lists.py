"""Lists: in their order whatever the slots hold, and no dearer than the page."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from tests.backends.cassandra.counted import CountingLink, backend_of, counting_link

import hansard
from hansard.backends.cassandra import effects, listing
from hansard.backends.cassandra.connection import Row
from hansard.backends.cassandra.effects import BUCKETS
from hansard.testing.clock import Clock

MANY = 240
"""Conversations in one slot."""
TASKS = 32
PAGE = 20
WITHOUT_TIMES = listing._FULL * BUCKETS + TASKS
"""Those that may have entered one slot without their exact times: writers at the same time do not see each other."""


async def _open(url: str, clock: Clock) -> tuple[hansard.Store, CountingLink]:
    backend = backend_of(url)
    await backend.storage.open(upgrade=False)
    store = hansard.Store(backend, clock=clock)
    return store, counting_link(store)


async def _fill(store: hansard.Store, numbers: Sequence[int]) -> None:
    for first in range(0, len(numbers), TASKS):
        some = numbers[first : first + TASKS]
        await asyncio.gather(*(store.append_message(f"c{each:04}", "user", "Hello", user_id="ann") for each in some))


async def _page(store: hansard.Store, **arguments: Any) -> tuple[list[str], hansard.Page]:
    page = await store.list_conversations(**{"limit": PAGE} | arguments)
    return [each.id for each in page.items], page


async def _listed(store: hansard.Store, **arguments: Any) -> list[str]:
    """By pages, and each page once more by the way back."""
    ids, page = await _page(store, **arguments)
    found = ids
    while page.next_cursor is not None:
        before = ids
        ids, page = await _page(store, after=page.next_cursor, **arguments)
        back, _ = await _page(store, before=page.previous_cursor, **arguments)
        assert back == before
        found = [*found, *ids]
    return found


def _of_one_partition(count: int) -> list[str]:
    """Ids that are in the same partition of each list."""
    ids = (f"c{number:05}" for number in itertools.count())
    return list(itertools.islice((id for id in ids if effects.bucket_of(id) == 0), count))


async def _expected(store: hansard.Store) -> list[str]:
    """Newest first, by the conversations themselves."""
    found = await asyncio.gather(*(store.get_conversation(f"c{number:04}") for number in range(MANY)))
    places = [(each.last_message_at, each.id) for each in found if each is not None and each.last_message_at]
    return [id for _, id in sorted(places, reverse=True)]


def test_a_page_of_a_dense_slot_reads_no_more_than_a_page(url: str) -> None:
    async def run() -> None:
        store, link = await _open(url, Clock())
        async with store:
            await _fill(store, range(MANY))
            newest = await _expected(store)
            for filters in ({}, {"user_id": "ann"}):
                assert await _listed(store, **filters) == newest
                assert await _listed(store, order="asc", **filters) == newest[::-1]
                await _count(store, link, filters)

    asyncio.run(run())


async def _count(store: hansard.Store, link: CountingLink, filters: dict[str, str]) -> None:
    cursor: str | None = None
    while True:
        link.counts.clear()
        link.rows.clear()
        _, page = await _page(store, after=cursor, **filters)
        # At most the rest of the slot, the page, and as much again.
        assert link.rows["read_heads"] <= WITHOUT_TIMES + 3 * PAGE < MANY
        assert link.counts["read_heads"] <= 7
        # One request for all partitions, and another one where that was not enough.
        assert link.counts["list_newest"] <= 2 + BUCKETS
        if (cursor := page.next_cursor) is None:
            return


def test_writers_of_one_conversation_do_not_move_it_with_each_batch(url: str) -> None:
    """They share batches, each of which takes one request if nothing follows from it elsewhere."""

    async def run() -> None:
        store, link = await _open(url, Clock())
        async with store:
            await _fill(store, range(MANY // 2))
            last = f"c{MANY // 2 - 1:04}"  # it found the slot full
            link.counts.clear()
            for _ in range(8):
                await asyncio.gather(*(store.append_message(last, "user", "hot") for _ in range(TASKS)))
            batches, moves = link.counts["swap"], link.counts["put_together"]
            assert batches >= 8, link.counts
            # In each of four lists: the first writer is alone and moves it, and so does the first batch of several.
            assert moves <= 8, link.counts
            assert (await _page(store))[0][0] == last

    asyncio.run(run())


class WritingLink(CountingLink):
    """Writes to a conversation after its entries were read, and before its head is."""

    write: Callable[[], Awaitable[Any]] | None = None

    async def read(self, name: str, *arguments: Any, serial: bool = False) -> list[Row]:
        if name == "read_heads" and self.write is not None:
            write, self.write = self.write, None
            await write()
        return await super().read(name, *arguments, serial=serial)


def test_a_conversation_that_is_written_while_it_is_listed_is_not_missing(url: str) -> None:
    async def run() -> None:
        clock = Clock()
        store, link = await _open(url, clock)
        link.__class__ = WritingLink
        assert isinstance(link, WritingLink)
        async with store:
            await _fill(store, range(MANY // 4))
            before = await _expected(store)
            for order, moved in (("desc", before[7]), ("asc", before[-8])):
                clock.advance(timedelta(seconds=11))  # to another slot, so that it moves
                link.write = partial(store.append_message, moved, "user", "meanwhile")
                ids, _ = await _page(store, order=order, limit=100)
                assert link.write is None
                assert sorted(ids) == sorted(before)
                assert ids[0 if order == "desc" else -1] == moved

    asyncio.run(run())


def test_a_conversation_that_moves_ahead_of_a_walk_is_shown_once(url: str) -> None:
    """Its old entry and its new one are both read, each by another request."""

    async def run() -> None:
        clock = Clock()
        store, link = await _open(url, clock)
        link.__class__ = WritingLink
        assert isinstance(link, WritingLink)
        async with store:
            ids = _of_one_partition(PAGE)
            for id in ids:
                clock.advance(timedelta(seconds=11))
                await store.create_conversation(id, user_id="ann", metadata={"wanted": id == ids[2]})
            for filters in ({}, {"user_id": "ann"}):
                clock.advance(timedelta(seconds=11))
                link.write = partial(store.append_message, ids[2], "user", "meanwhile")
                # A page that nothing else belongs to, so the walk goes on to the end.
                found, _ = await _page(store, order="asc", metadata={"wanted": True}, limit=3, **filters)
                assert link.write is None
                assert found == [ids[2]]

    asyncio.run(run())


def test_pages_from_the_oldest_on_show_each_conversation_once(url: str) -> None:
    """A cursor in a slot of which a partition has more entries with exact times than are read at once."""

    async def run() -> None:
        store, _ = await _open(url, Clock())
        async with store:
            ids = _of_one_partition(listing._PIECE + 2 * listing._FULL)
            for id in ids:
                await store.append_message(id, "user", "Hello", user_id="ann")
            for filters in ({}, {"user_id": "ann"}):
                _, page = await _page(store, order="asc", limit=1, **filters)
                found, _ = await _page(store, order="asc", after=page.next_cursor, **filters)
                assert found == ids[1 : PAGE + 1]

    asyncio.run(run())


def test_conversations_that_are_written_again_move(url: str) -> None:
    """Within a full slot and to later ones, so that many entries are passed over."""

    async def run() -> None:
        clock = Clock()
        store, _ = await _open(url, clock)
        async with store:
            await _fill(store, range(MANY // 2))
            for number in [*range(0, MANY // 2, 9), *range(0, MANY // 2, 13)]:
                await store.append_message(f"c{number:04}", "user", "again")
            for _ in range(4):
                clock.advance(timedelta(seconds=11))
                for _ in range(3):
                    await store.append_message("c0003", "user", "once more")
            for number in range(0, MANY // 2, 5):
                await store.delete_conversation(f"c{number:04}")
            newest = await _expected(store)
            assert newest[0] == "c0003"
            assert await _listed(store) == newest
            assert await _listed(store, order="asc", user_id="ann") == newest[::-1]
            assert await store.check() == []

    asyncio.run(run())


def test_a_sparse_list_takes_as_few_requests(url: str) -> None:
    async def run() -> None:
        clock = Clock()
        store, link = await _open(url, clock)
        async with store:
            for number in range(2 * PAGE):
                await store.append_message(f"c{number:04}", "user", "Hello", user_id="ann")
                clock.advance(timedelta(days=1))
            newest = [f"c{number:04}" for number in reversed(range(2 * PAGE))]
            for filters in ({}, {"user_id": "ann"}):
                link.counts.clear()
                assert (await _page(store, **filters))[0] == newest[:PAGE]
                assert link.counts == {"read_marks": 1, "list_newest": 1, "read_heads": 1}
                assert await _listed(store, **filters) == newest

    asyncio.run(run())


def test_entries_of_one_moment_are_in_the_order_of_ids(url: str) -> None:
    async def run() -> None:
        clock = Clock()
        clock.stop()
        store, _ = await _open(url, clock)
        async with store:
            begins = ("a", "0", "\N{FULLWIDTH TILDE}", "\N{GRINNING FACE}")
            ids = [f"{begin}{number}" for begin in begins for number in range(40)]
            for first in range(0, len(ids), TASKS):
                await asyncio.gather(*(store.append_message(each, "user", "x") for each in ids[first : first + TASKS]))
            assert await _listed(store) == sorted(ids, reverse=True)
            assert await _listed(store, order="asc") == sorted(ids)

    asyncio.run(run())
