"""The search index: it finds what `memory` finds, and keeps nothing of what is gone, whoever dies."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from tests.backends.cassandra.counted import backend_of, counted
from tests.backends.cassandra.mortal_link import Died, MortalLink
from tests.backends.cassandra.raw import rows_with

import hansard
from hansard.backends.cassandra import CassandraBackend, index, search
from hansard.backends.cassandra.changes import Change
from hansard.backends.cassandra.connection import Link, Row, Statement
from hansard.backends.cassandra.heads import Heads
from hansard.backends.cassandra.rows import IndexProgress
from hansard.testing.clock import Clock
from hansard.testing.contract.judged import CORPUS, QUERIES

SECRET = "zanzibar"


@pytest.fixture
def no_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every search indexes everything first."""
    monkeypatch.setattr(search, "_TAIL", 0)


class MortalIndexerLink(MortalLink):
    async def put_together(self, statements: Sequence[Statement]) -> None:
        self.count()
        await super().put_together(statements)

    async def put(self, name: str, *arguments: Any) -> None:
        self.count()
        await super().put(name, *arguments)


async def _open(url: str) -> CassandraBackend:
    backend = backend_of(url)
    await backend.storage.open(upgrade=False)
    return backend


async def _fill(store: hansard.Store) -> None:
    for at, (id, content) in enumerate(CORPUS.items()):
        await store.append(f"c{at % 5}", [hansard.Message("user", content, id=id)], user_id=f"u{at % 5 % 2}")
    await store.branch("c0", at=(await store.get_messages("c0", last=50))[3].id, branch_id="side")
    await store.append_message("c0", "assistant", "the lamps on another branch, and the order")


async def _found(store: Any, query: str, **options: Any) -> list[tuple[str, float | None]]:
    hits = await store.search(query, limit=100, token_cap=None, **options)
    return [(hit.message.text, hit.score) for hit in hits]


def test_an_index_ranks_as_memory_does(url: str, no_tail: None) -> None:
    async def run() -> None:
        async with (
            hansard.Store(await _open(url), clock=Clock()) as store,
            hansard.connect("memory://", clock=Clock()) as memory,
        ):
            await _fill(store)
            await _fill(memory)
            queries = [*[query for query, _ in QUERIES][::20], '"lamps last"', "ord* -refund", "lamp OR order", "l*"]
            for query in queries:
                for options in ({}, {"conversation_id": "c0"}, {"order": "newest"}, {"all_branches": True}):
                    assert await _found(store, query, **options) == await _found(memory, query, **options), query
                assert await _found(store.user("u0"), query) == await _found(memory.user("u0"), query), query
            for query in ("amp", '"amps las"', "rder OR ürc -efun"):
                for options in ({"match": "part"}, {"match": "part", "user_id": "u0", "order": "newest"}):
                    pieces = await _found(memory, query, **options)
                    assert pieces, query
                    assert await _found(store, query, **options) == pieces, query

    asyncio.run(run())


def test_changes_of_indexed_messages_are_found(url: str, no_tail: None) -> None:
    async def run() -> None:
        backend = await _open(url)
        async with hansard.Store(backend) as store:
            ann, ben = store.user("ann"), store.user("ben")
            first = await store.append_message("c", "user", f"one {SECRET}", user_id="ann")
            await store.append_message("c", "user", "two words")
            assert len(await _found(ann, SECRET)) == 1
            await store.update_message("c", first, content="one changed")
            assert await _found(ann, SECRET) == []
            assert len(await _found(ann, "changed")) == 1
            await store.update_conversation("c", user_id="ben")
            assert await _found(ann, "changed") == []
            assert len(await _found(ben, "changed")) == 1
            assert await rows_with(backend.storage.link, "ann") == []
            await store.delete_message("c", first)
            assert await _found(ben, "changed") == []
            assert len(await _found(store, "words")) == 1
            await store.append_message("c", "user", "three words")
            assert len(await _found(store, "words")) == 2
            await store.clear_messages("c")
            assert await _found(store, "words") == []

    asyncio.run(run())


def test_appends_between_searches_are_one_batch(url: str) -> None:
    async def run() -> None:
        async with counted(url) as (store, counts):
            await store.append_message("c", "user", "one word")
            assert len(await _found(store, "word")) == 1
            counts.clear()
            await store.append_message("c", "user", "two word")
            assert counts == {"swap": 1}
            assert len(await _found(store, "word")) == 2

    asyncio.run(run())


def test_nothing_is_left_of_what_a_dead_indexer_has_put(url: str) -> None:
    """Whatever statement it dies before; and those after it find everything."""

    async def run() -> None:
        backend = await _open(url)
        async with hansard.Store(backend) as store:
            link = backend.storage.link
            link.__class__ = MortalIndexerLink
            assert isinstance(link, MortalIndexerLink)
            for number in range(1, 30):
                id = f"c{number}"
                await store.append_message(id, "user", f"one {SECRET}", user_id="ann")
                await store.append_message(id, "user", f"two {SECRET}")
                link.left = number
                try:
                    await backend.storage.indexer.index(("default", id))
                except Died:
                    assert link.left <= 0
                link.left, lived = -1, link.left > 0
                assert len(await _found(store.user("ann"), SECRET)) == 2
                await store.delete_conversation(id)
                assert await rows_with(link, SECRET) == []
                if lived:
                    break
            else:
                raise AssertionError("it has no end")
            assert number > 5

    asyncio.run(run())


def test_a_late_indexer_brings_nothing_back(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        backend = await _open(url)
        async with hansard.Store(backend) as store:
            indexer, link = backend.storage.indexer, backend.storage.link
            put = indexer._put
            first = await store.append_message("c", "user", f"one {SECRET}")
            second = await store.append_message("c", "user", "two words")

            async def late(*arguments: Any) -> None:
                monkeypatch.undo()
                await store.delete_message("c", first)
                await store.update_message("c", second, content="other words")
                await put(*arguments)

            monkeypatch.setattr(indexer, "_put", late)
            await indexer.index(("default", "c"))
            assert await rows_with(link, SECRET) == []
            assert await _found(store, "two") == []
            assert len(await _found(store, "other")) == 1
            assert await backend.storage.indexer.unindexed("default", None) == []

    asyncio.run(run())


def test_a_store_without_an_index_is_indexed_by_its_first_search(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        backend = await _open(url)
        async with hansard.Store(backend) as store:
            with monkeypatch.context() as patch:
                patch.setattr(Change, "_index", lambda *_: IndexProgress())
                for number in range(3):
                    await store.append_message(f"c{number}", "user", "some words", user_id="ann")
            assert await backend.storage.indexer.unindexed("default", None) == []
            assert len(await _found(store.user("ann"), "words")) == 3
            assert [done async for done in backend.reindex()] == [1, 2, 3]
            assert len(await _found(store, "words")) == 3

    asyncio.run(run())


class RefusedHeads(Heads):
    """As if another writer were always faster, so many times."""

    refused = 0

    async def swap(self, *arguments: Any) -> Any:
        self.refused -= 1
        return None if self.refused >= 0 else await super().swap(*arguments)


def test_a_search_that_others_keep_overtaking_says_what_it_lacks(
    url: str, no_tail: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        backend = await _open(url)
        heads = backend.storage.indexer._heads = RefusedHeads(backend.storage.link)
        async with hansard.Store(backend) as store:
            await store.append_message("c", "user", "some words")
            heads.refused = 12
            hits = await store.search("words")
            assert (len(hits), hits.complete) == (1, True)
            await store.append_message("c", "user", "other words")
            heads.refused = 10**9
            with monkeypatch.context() as patch:
                patch.setattr(index, "_PATIENCE", 0.1)
                for order in ("newest", "relevance"):
                    hits = await store.search("words", order=order)
                    assert (len(hits), hits.complete) == (1, False)
                with pytest.raises(hansard.TimedOut, match="kept changing"):
                    await backend.catch_up()
            heads.refused = 3
            assert [done async for done in backend.reindex()] == [2]
            hits = await store.search("words")
            assert (len(hits), hits.complete) == (2, True)

    asyncio.run(run())


class CountingRowsLink(Link):
    rows = 0

    async def find(self, name: str, *arguments: Any) -> list[Row]:
        found = await super().find(name, *arguments)
        self.rows += len(found)
        return found


def test_a_tenant_wide_search_for_a_common_word_reads_few_rows(
    url: str, no_tail: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_MOST", 20)
    monkeypatch.setattr(search, "_MOST_RANKED", 100)

    async def run() -> None:
        backend = await _open(url)
        async with (
            hansard.Store(backend, clock=Clock()) as store,
            hansard.connect("memory://", clock=Clock()) as memory,
        ):
            for number in range(40):
                new = [hansard.Message("user", f"common words {number} {each}") for each in range(25)]
                for each in (store, memory):
                    await each.append(f"c{number}", new, user_id=f"u{number % 5}")
            link = backend.storage.link
            link.__class__ = CountingRowsLink
            assert isinstance(link, CountingRowsLink)
            for query in ("words", '"common words" 3', "wor* 7 -5"):
                assert await _found(store, query, order="newest") == await _found(memory, query, order="newest")
            hits = await store.search("words", order="newest", limit=30, token_cap=None)
            assert hits.next_cursor is not None
            until = hits[-1].message.created_at
            for options in ({"cursor": hits.next_cursor}, {"until": until, "since": until - timedelta(milliseconds=5)}):
                found = [await _found(each, "words", order="newest", **options) for each in (store, memory)]
                assert found[0] == found[1]
                assert found[0]
            link.rows = 0
            hits = await store.search("words", order="newest", limit=5, token_cap=None)
            assert [hit.message.text for hit in hits] == [f"common words 39 {each}" for each in range(24, 19, -1)]
            assert hits.complete
            assert link.rows < 500
            link.rows = 0
            hits = await store.search("words", limit=5)
            assert (len(hits), hits.complete) == (5, False)
            assert link.rows <= 101

    asyncio.run(run())
