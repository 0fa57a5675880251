"""What another process does between two steps of a call: nothing of it is lost, and nothing is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.backends.redis.dying import PICTURE

import hansard
from hansard.backends.redis import RedisBackend, RedisStorage
from hansard.backends.redis.partitions import RedisPartitions
from hansard.errors import Conflict
from hansard.model import Message

Act = Callable[[], Awaitable[Any]]


def storage_of(store: hansard.Store) -> RedisStorage:
    backend = store.backend
    assert isinstance(backend, RedisBackend)
    return backend.storage


def partitions_of(store: hansard.Store) -> RedisPartitions:
    partitions = storage_of(store)._writer._settling._partitions
    assert isinstance(partitions, RedisPartitions)
    return partitions


@asynccontextmanager
async def two(url: str) -> AsyncIterator[tuple[hansard.Store, hansard.Store]]:
    async with hansard.connect(url) as one, hansard.connect(url) as other:
        yield one, other


def play(scenario: Awaitable[None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(scenario, 60)

    asyncio.run(bounded())


def between(target: Any, method: str, act: Act, *, after: bool = False, when: str = "") -> list[str]:
    """Runs `act` once, before or after the first call of a method of an object whose arguments mention a text."""
    original = getattr(target, method)
    done: list[str] = []

    async def call(*given: Any, **options: Any) -> Any:
        if done or when not in str(given):
            return await original(*given, **options)
        done.append(method)
        if not after:
            await act()
        answer = await original(*given, **options)
        if after:
            await act()
        return answer

    setattr(target, method, call)
    return done


# Writes that cross places of a cluster


def test_a_lost_write_takes_no_blob_from_one_that_is_about_to_commit(cluster_url: str) -> None:
    async def scenario() -> None:
        async with two(cluster_url) as (one, other):
            await one.append_message("c", "user", "hello")
            is_prepared, may_commit = asyncio.Event(), asyncio.Event()
            winning: list[asyncio.Task[Any]] = []

            async def wait() -> None:
                is_prepared.set()
                await may_commit.wait()

            async def win() -> None:
                await other.append_message("c", "user", "first come")
                between(partitions_of(other), "commit", wait)
                winning.append(asyncio.create_task(other.append("c", Message("user", PICTURE, id="p"))))
                await is_prepared.wait()

            between(partitions_of(one), "prepare", win)
            with pytest.raises(Conflict):
                await one.append("c", Message("user", [PICTURE]), expected_version=1)
            may_commit.set()
            await winning[0]
            assert (await one.get_messages("c"))[-1].content == PICTURE
            assert await one.check() == []

    play(scenario())


@pytest.mark.parametrize("step", ["outbox", "apply", "remove_outgoing"])
def test_a_receipt_counts_what_another_process_has_settled(cluster_url: str, step: str) -> None:
    async def scenario() -> None:
        async with two(cluster_url) as (one, other):
            await one.append("c", Message("user", PICTURE))
            await one.records.put(["n"], "k", 1, conversation_id="c")

            async def settle() -> None:
                assert (await other.list_conversations()).items == []

            done = between(partitions_of(one), step, settle)
            receipt = await one.delete_conversation("c")
            assert done
            assert (receipt.blobs, receipt.records) == (1, 1)

    play(scenario())
