"""Writes of adapters that end before their caller hears of a cancellation."""

from __future__ import annotations

import asyncio

import anyio
import pytest
from tests.wait import PATIENCE

from hansard.adapters.history import uninterrupted

pytestmark = pytest.mark.anyio


async def test_the_answer_and_the_error_of_a_write_come_through() -> None:
    async def write() -> int:
        await asyncio.sleep(0)
        return 7

    async def fail() -> int:
        await asyncio.sleep(0)
        raise KeyError("no")

    assert await uninterrupted(write()) == 7
    with pytest.raises(KeyError, match="no"):
        await uninterrupted(fail())


async def test_a_cancelled_caller_hears_of_it_when_the_write_has_ended() -> None:
    began, go_on, written = asyncio.Event(), asyncio.Event(), []

    async def write() -> None:
        began.set()
        await go_on.wait()
        written.append(1)

    caller = asyncio.create_task(uninterrupted(write()))
    await began.wait()
    for _ in range(3):
        caller.cancel()
        await asyncio.sleep(0)
    assert not caller.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert written == [1]


async def test_a_write_that_is_cancelled_before_it_began_leaves_nobody_waiting() -> None:
    async def write() -> None:
        raise AssertionError("it was cancelled")

    others = asyncio.all_tasks()
    caller = asyncio.create_task(uninterrupted(write()))
    await asyncio.sleep(0)
    for task in asyncio.all_tasks() - others - {caller}:
        task.cancel()
    done, _ = await asyncio.wait([caller], timeout=PATIENCE)
    assert done
    assert caller.cancelled()


async def test_a_scope_of_anyio_that_is_cancelled_leaves_time_for_the_write() -> None:
    go_on, written, cancelled = asyncio.Event(), [], []

    async def write() -> None:
        await go_on.wait()
        written.append(1)

    async def call() -> None:
        with anyio.CancelScope() as scope:
            asyncio.get_running_loop().call_soon(scope.cancel)
            await uninterrupted(write())
        cancelled.append(scope.cancelled_caught)

    caller = asyncio.create_task(call())
    for _ in range(50):
        await asyncio.sleep(0)
    assert caller.cancelling() == 1, "not in every turn of the event loop"
    go_on.set()
    await caller
    assert (written, cancelled, caller.cancelling()) == ([1], [True], 0)
