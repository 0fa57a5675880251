"""Writers that die between two steps, and what others find of them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.backends.cassandra.counted import backend_of
from tests.backends.cassandra.mortal_link import Died, MortalLink
from tests.backends.cassandra.raw import rows_with

import hansard
from hansard.backends.cassandra import CassandraBackend, read
from hansard.backends.cassandra.partitions import CassandraPartitions
from hansard.backends.shared import settling
from hansard.testing.clock import Clock


async def _open(url: str) -> CassandraBackend:
    backend = backend_of(url)
    await backend.storage.open(upgrade=False)
    return backend


def _dies(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    async def die(*_: Any) -> None:
        raise Died

    monkeypatch.setattr(CassandraPartitions, step, die)


def test_what_a_dead_writer_has_stored_is_listed(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with hansard.Store(await _open(url)) as store:
            with monkeypatch.context() as patch:
                _dies(patch, "apply")
                with pytest.raises(Died):
                    await store.append_message("c", "user", "Hello", user_id="ann")
        async with hansard.Store(await _open(url)) as other:
            assert [each.id for each in (await other.list_conversations(user_id="ann")).items] == ["c"]
            assert await other.check() == []

    asyncio.run(run())


@pytest.mark.parametrize("step", ["prepare", "swap"])
def test_what_a_dead_writer_has_prepared_is_undone(url: str, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD" * 40_000}}

    async def run() -> None:
        backend = await _open(url)
        async with hansard.Store(backend) as store:
            await store.append_message("c", "user", "Hello")
            with monkeypatch.context() as patch:
                _dies(patch, step)
                with pytest.raises(Died):
                    await store.append("c", [hansard.Message("user", [picture], format="anthropic")])
            # Long after its deadline: nothing of it is left, and the next write is not disturbed.
            monkeypatch.setattr(settling, "GRACE", -60)
            await store.list_conversations()
            assert (await store.stats()).blobs == 0
            await store.append_message("c", "user", "Again")
            assert [each.text for each in await store.get_messages("c")] == ["Hello", "Again"]

    asyncio.run(run())


def test_an_overdue_writer_cannot_commit(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its mark was cleared, so no process would look for its outbox."""

    async def run() -> None:
        backend, other = await _open(url), await _open(url)
        async with hansard.Store(backend) as store, hansard.Store(other) as settler:
            await store.append_message("c", "user", "Hello")
            prepare = CassandraPartitions.prepare
            tried: list[str] = []

            async def slow(self: CassandraPartitions, write: Any, deadline: int) -> bool:
                ready = await prepare(self, write, deadline)
                if not tried:
                    tried.append(write.head.stamp)
                    with monkeypatch.context() as patch:
                        patch.setattr(settling, "GRACE", -60)
                        await settler.list_conversations()
                return ready

            monkeypatch.setattr(CassandraPartitions, "prepare", slow)
            await store.update_conversation("c", user_id="ann")
            head = await read.load(backend.storage.link, ("default", "c"))
            assert head is not None
            assert tried
            assert tried[0] not in head.recent
            assert [each.id for each in (await settler.list_conversations(user_id="ann")).items] == ["c"]

    asyncio.run(run())


@pytest.mark.parametrize("kind", ["blob", "record"])
def test_a_sweep_deletes_what_a_dead_writer_has_uploaded(url: str, kind: str) -> None:
    clock = Clock(datetime.now(UTC))

    async def put(store: hansard.Store, fill: str) -> None:
        if kind == "record":
            await store.records.put(("notes",), "long", fill * 100_000)
        else:
            await store.blobs.put(fill.encode() * 100_000)

    async def run() -> None:
        backend = backend_of(url)
        link = backend.storage.link
        link.__class__ = MortalLink
        assert isinstance(link, MortalLink)
        await backend.storage.open(upgrade=False)
        async with hansard.Store(backend, clock=clock) as store:
            await put(store, "kept")
            link.left = 1
            with pytest.raises(Died):
                await put(store, "lost")
        clock.advance(timedelta(days=2))
        other = await _open(url)
        async with hansard.Store(other, clock=clock) as store:
            link = other.storage.link
            assert await rows_with(link, "lostlost")
            await store.purge()
            assert await rows_with(link, "lostlost") == []
            # A blob that no message refers to has expired by then.
            assert bool(await rows_with(link, "keptkept")) == (kind == "record")

    asyncio.run(run())
