"""A coordinator that times out between the batch and its answer: the writer must find out what happened."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from tests.backends.cassandra.counted import backend_of

import hansard
from hansard.backends.cassandra.connection import Link, Row, Statement
from hansard.errors import TimedOut, Unavailable

PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD" * 40_000}}


class LosingLink(Link):
    """Loses the answers to conditional batches: to those that were stored, or to those that never will be."""

    lost = 0
    passes = 0
    """Batches before those that are lost."""
    stores = True
    reads_fail = False

    async def swap(self, statements: Sequence[Statement]) -> bool:
        if self.passes or not self.lost:
            self.passes = max(0, self.passes - 1)
            return await super().swap(statements)
        self.lost -= 1
        if self.stores:
            await super().swap(statements)
        raise TimedOut("the coordinator did not answer", outcome="unknown")

    async def read(self, name: str, *arguments: Any, serial: bool = False) -> list[Row]:
        if serial and self.reads_fail:
            raise Unavailable("no replica answers")
        return await super().read(name, *arguments, serial=serial)


async def _open(url: str) -> tuple[hansard.Store, LosingLink]:
    backend = backend_of(url)
    link = backend.storage.link
    link.__class__ = LosingLink
    assert isinstance(link, LosingLink)
    await backend.storage.open(upgrade=False)
    return hansard.Store(backend), link


@pytest.mark.parametrize("stores", [True, False])
@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("passes", [0, 1], ids=["blob", "conversation"])
def test_a_lost_answer_is_looked_up(url: str, stores: bool, is_first: bool, passes: int) -> None:
    async def run() -> None:
        store, link = await _open(url)
        async with store:
            texts = [] if is_first else ["before"]
            for text in texts:
                await store.append_message("c", "user", text)
            link.lost, link.passes, link.stores = 1, passes, stores
            messages = [hansard.Message("user", "one"), hansard.Message("user", [PICTURE], format="anthropic")]
            appended = await store.append("c", messages)
            assert link.lost == 0
            stored = await store.get_messages("c")
            assert [each.id for each in stored][len(texts) :] == [each.id for each in appended.messages]
            await store.append_message("c", "user", "after")
            assert len(await store.get_messages("c")) == len(texts) + 3
            assert (await store.stats()).blobs == 1
            assert await store.check() == []

    asyncio.run(run())


@pytest.mark.parametrize("stores", [True, False])
def test_writers_of_one_batch_all_learn_what_happened(url: str, stores: bool) -> None:
    async def run() -> None:
        store, link = await _open(url)
        async with store:
            await store.append_message("c", "user", "before")
            link.lost, link.stores = 2, stores
            await asyncio.gather(*(store.append_message("c", "user", f"{n}", id=f"m{n}") for n in range(20)))
            stored = [each.id for each in await store.get_messages("c", last=100)][1:]
            assert sorted(stored) == sorted(f"m{n}" for n in range(20))

    asyncio.run(run())


def test_what_cannot_be_looked_up_is_unknown_and_may_be_retried(url: str) -> None:
    async def run() -> None:
        store, link = await _open(url)
        async with store:
            await store.append_message("c", "user", "before")
            link.lost, link.reads_fail = 1, True
            with pytest.raises(Unavailable) as failed:
                await store.append_message("c", "user", "one", id="m1")
            assert failed.value.outcome == "unknown"
            link.reads_fail = False
            again = await store.append("c", [hansard.Message("user", "one", id="m1")])
            assert again.messages[0].seq == 2
            assert [each.text for each in await store.get_messages("c")] == ["before", "one"]

    asyncio.run(run())


@pytest.mark.parametrize("stores", [True, False])
@pytest.mark.parametrize("passes", [0, 1], ids=["conversation", "blob"])
def test_a_deletion_whose_answer_is_lost(url: str, stores: bool, passes: int) -> None:
    async def run() -> None:
        store, link = await _open(url)
        async with store:
            await store.append("c", [hansard.Message("user", [PICTURE], format="anthropic")])
            link.lost, link.passes, link.stores = 1, passes, stores
            receipt = await store.delete_conversation("c")
            assert link.lost == 0
            assert (receipt.conversations, receipt.messages, receipt.blobs) == (1, 1, 1)
            assert await store.get_conversation("c") is None
            assert (await store.list_conversations()).items == []

    asyncio.run(run())


@pytest.mark.parametrize("stores", [True, False])
def test_a_record_whose_answer_is_lost(url: str, stores: bool) -> None:
    """Records have no ids that a retry could be known by: the caller is told that the outcome is unknown."""

    async def run() -> None:
        store, link = await _open(url)
        async with store:
            link.lost, link.stores = 1, stores
            with pytest.raises(Unavailable) as failed:
                await store.records.put(("a",), "k", 1)
            assert failed.value.outcome == "unknown"
            found = await store.records.get(("a",), "k")
            assert (found is not None) is stores

    asyncio.run(run())


def test_closing_waits_for_the_write_of_a_cancelled_caller(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        store = await hansard.connect(url)
        await store.append_message("c", "user", "first")
        sent = asyncio.Event()
        swap = Link.swap

        async def slow(self: Link, statements: Sequence[Statement]) -> bool:
            sent.set()
            await asyncio.sleep(0.05)
            return await swap(self, statements)

        monkeypatch.setattr(Link, "swap", slow)
        append = asyncio.create_task(store.append_message("c", "user", "second"))
        await sent.wait()
        append.cancel()
        with pytest.raises(asyncio.CancelledError):
            await append
        await store.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        async with hansard.connect(url) as again:
            assert [each.text for each in await again.get_messages("c")] == ["first", "second"]

    asyncio.run(run())
