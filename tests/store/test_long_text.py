"""A text of megabytes is checked and encoded in a thread, so that other tasks of the loop can run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hansard import Message, connect

LONG = "x" * 1_100_000


async def _lets_others_run(content: Any) -> bool:
    """Returns whether another task ran during the append. Nothing else of the memory backend suspends."""
    async with connect("memory://") as store:
        ran = asyncio.Event()

        async def note() -> None:
            ran.set()

        task = asyncio.create_task(note())
        await store.append("c", [Message("user", content)])
        has_run = ran.is_set()
        await task
        (stored,) = await store.get_messages("c")
        assert stored.content == content
        return has_run


@pytest.mark.parametrize(
    "content",
    [LONG, [{"type": "text", "text": LONG}], [{"type": "image_url", "image_url": {"url": LONG}}]],
    ids=["text", "part", "image"],
)
def test_a_long_text_does_not_hold_up_the_loop(content: Any) -> None:
    assert asyncio.run(_lets_others_run(content))


def test_a_short_text_needs_no_thread() -> None:
    assert not asyncio.run(_lets_others_run("short"))
    assert not asyncio.run(_lets_others_run([{"type": "text", "text": "short"}]))
