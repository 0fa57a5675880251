"""Blocking code of a framework over an async store, on the threads that everybody shares."""

from __future__ import annotations

import asyncio
import contextvars
import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.contract.backends import BACKENDS, BY_URL, quick_folder
from tests.wait import PATIENCE

import hansard
from hansard import Message
from hansard.adapters.blocking import caller_of
from hansard.executor import run_in_thread

LONG = "word " * 200_000


@pytest.mark.parametrize("name", BY_URL)
def test_callers_on_every_shared_thread_get_their_answers(name: str) -> None:
    async def run(folder: Path) -> None:
        target = BACKENDS[name](folder)
        # One thread is as many as there are callers: whatever else needed it would wait for them.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        async with hansard.connect(target.url) as store:
            call = caller_of(store)

            def work() -> int:
                call(store.append("c", [Message("user", LONG), Message("user", {"image": "QUJD" * 40_000})]))
                call(store.search("word -absent", conversation_id="c"))
                return len(call(store.get_messages("c", last=10)))

            assert await asyncio.wait_for(asyncio.to_thread(work), PATIENCE) == 2

    with quick_folder() as folder:
        asyncio.run(run(folder))


def test_work_aside_sees_the_context_of_its_caller() -> None:
    who = contextvars.ContextVar("who", default="nobody")

    async def run() -> str:
        who.set("me")
        return await run_in_thread(who.get)

    assert asyncio.run(run()) == "me"


def _child() -> None:
    assert asyncio.run(run_in_thread(str, 5)) == "5"


def test_a_forked_child_has_threads_of_its_own() -> None:
    assert asyncio.run(run_in_thread(str, 4)) == "4"
    child = multiprocessing.get_context("fork").Process(target=_child)
    child.start()
    child.join(PATIENCE)
    assert child.exitcode == 0
