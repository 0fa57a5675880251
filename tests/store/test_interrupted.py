"""Calls during which another writer changes something, or whose second write fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from msgspec import structs

import hansard
from hansard import Message, Participant, Store
from hansard.backends.lazy import lazy
from hansard.backends.memory import MemoryBackend
from hansard.contract.backend import Capabilities
from hansard.contract.types import Context, Participation, RecordWrite
from hansard.errors import Conflict, Corrupt, Unavailable, Unsupported
from hansard.model import Record
from hansard.search import Embedding, vectors
from hansard.store import vector_records


async def _ones(texts: Sequence[str]) -> list[list[float]]:
    return [[1.0, 0.0] for _ in texts]


EMBEDDER = Embedding(_ones, name="ones", dimensions=2)


async def _marks(store: Store) -> int:
    return len((await store.records.scan(vector_records.STALE)).items)


class TestRemoval:
    def test_the_mark_stays_when_removing_vectors_fails(self) -> None:
        """The message is deleted but its vector is not: later callers must notice."""

        async def run() -> None:
            async with hansard.connect("memory://", embedder=EMBEDDER) as store:
                await store.append("c", [Message("user", "one", id="m1"), Message("user", "two", id="m2")])
                await store.embed()
                place = ((*vector_records.VECTORS, "c", vectors.identity(EMBEDDER)), vector_records.key_of(0))
                whole = await store.records.get(*place)
                assert whole is not None
                await store.records.put(*place, b"odd", conversation_id="c")
                with pytest.raises(Corrupt):
                    await store.delete_message("c", "m1")
                assert await _marks(store) == 1
                await store.records.put(*place, whole.value, conversation_id="c")
                await store.delete_message("c", "m2")
                assert await store.records.get(*place) is None, "the vector that was left behind went too"

        asyncio.run(run())

    def test_the_mark_is_removed_when_no_message_was_removed(self) -> None:
        async def run() -> None:
            async with hansard.connect("memory://", embedder=EMBEDDER) as store:
                await store.append("c", Message("user", "one", id="m1"))
                await store.embed()
                with pytest.raises(Conflict):
                    await store.clear_messages("c", expected_version=77)
                assert await _marks(store) == 0

        asyncio.run(run())

    def test_vectors_that_change_at_each_attempt_raise_an_error(self) -> None:
        class Busy(MemoryBackend):
            is_busy = False

            async def write_records(self, context: Context, writes: Sequence[RecordWrite]) -> list[Record | None]:
                if self.is_busy and any(write.namespace[:2] == vector_records.VECTORS for write in writes):
                    raise Conflict("another process embeds")
                return await super().write_records(context, writes)

        async def run() -> None:
            backend = Busy()
            async with Store(backend, embedder=EMBEDDER) as store:
                await store.append("c", Message("user", "one", id="m1"))
                await store.embed()
                backend.is_busy = True
                with pytest.raises(Unavailable, match="vectors") as error:
                    await store.delete_message("c", "m1")
                assert error.value.outcome == "unknown"
                assert await _marks(store) == 1

        asyncio.run(run())


class TestErasure:
    def test_erasure_succeeds_when_a_conversation_is_deleted_meanwhile(self) -> None:
        class Interrupted(MemoryBackend):
            meanwhile: Callable[[], Awaitable[Any]] | None = None

            async def participations(self, context: Context, participant_id: str, limit: int) -> list[Participation]:
                found = await super().participations(context, participant_id, limit)
                act, self.meanwhile = self.meanwhile, None
                if act is not None:
                    await act()
                return found

        async def run(embedder: Embedding | None) -> None:
            backend = Interrupted()
            async with Store(backend, embedder=embedder) as store:
                ann = Participant("user", "ann")
                for id in ("a", "b"):
                    await store.append(id, Message("user", "hers", participant=ann), user_id="bob")
                if embedder is not None:
                    await store.embed()
                backend.meanwhile = lambda: store.delete_conversation("a")
                receipt = await store.erase_user("ann")
                assert receipt.messages == 1
                assert await store.get_messages("b") == []

        asyncio.run(run(None))
        asyncio.run(run(EMBEDDER))


class TestLazy:
    def test_the_largest_batch_is_that_of_the_open_backend(self) -> None:
        class Small(MemoryBackend):
            @property
            def capabilities(self) -> Capabilities:
                return structs.replace(super().capabilities, atomic_batch=2)

        async def run() -> None:
            async def open() -> MemoryBackend:
                return Small()

            async with Store(lazy(open, "small")) as store:
                await store.append_message("c", role="user", content="opens it")
                batch = [Message("user", f"{number}") for number in range(3)]
                with pytest.raises(Unsupported, match="split=True"):
                    await store.append("c", batch)
                appended = await store.append("c", batch, split=True)
                assert [message.seq for message in appended.messages] == [2, 3, 4]

        asyncio.run(run())


class ListingForever(MemoryBackend):
    """Lists a message that its conversation does not have, as a damaged index does."""

    async def participations(self, context: Context, participant_id: str, limit: int) -> list[Participation]:
        return [Participation("c", ["missing"])]


def test_an_erasure_that_removes_nothing_reports_damage_and_ends() -> None:
    async def check() -> None:
        async with Store(ListingForever()) as store:
            await store.append("c", Message("user", "hello"))
            with pytest.raises(Corrupt, match="'c' lists messages that it does not have"):
                await store.erase_user("ann")
            assert len(await store.get_messages("c")) == 1

    asyncio.run(check())
