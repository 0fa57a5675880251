"""A large request lets other tasks of the event loop run. The test counts turns of the loop, not time."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

import hansard
from hansard import Message
from hansard.store import drafts


def test_a_large_batch_is_checked_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[threading.Thread] = []
    make = drafts.make_drafts

    def noting(*given: Any) -> drafts.Drafts:
        ran.append(threading.current_thread())
        return make(*given)

    monkeypatch.setattr(drafts, "make_drafts", noting)

    async def play() -> None:
        async with hansard.connect("memory://") as store:
            await store.append("c", [Message("user", "x")] * 501)

    asyncio.run(play())
    assert ran
    assert threading.main_thread() not in ran


@pytest.fixture
def switching_often() -> Iterator[None]:
    """By default a thread that computes keeps the others waiting 5 ms: a fast one would be done after few turns."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(0.0001)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.search("message*", limit=100, token_cap=None),
        lambda store: store.assemble_prompt("c", token_budget=1_000_000, max_turns=2000),
        lambda store: store.append("d", [Message("user", f"x {number}") for number in range(5000)]),
    ],
    ids=["search", "prompt", "append"],
)
def test_large_requests_let_other_tasks_run(
    call: Callable[[hansard.Store], Awaitable[Any]], tmp_path: Any, switching_often: None
) -> None:
    turns = 0

    async def play() -> None:
        nonlocal turns
        async with hansard.connect(f"sqlite:///{tmp_path}/a.db") as store:
            # Enough work that even a fast machine takes more than ten turns.
            text = "the heron stands in the reeds and waits for a fish " * 5
            await store.append("c", [Message("user", f"message {number} {text}") for number in range(2000)])
            work = asyncio.ensure_future(call(store))
            while not work.done():
                turns += 1
                await asyncio.sleep(0)
            work.result()

    asyncio.run(play())
    assert turns > 10
