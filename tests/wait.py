"""How a test waits: for a condition, as long as a busy machine may need, and never for a time."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

PATIENCE = 120.0
"""Seconds, only so that a fault does not hang: what works is there at once, or as soon as the machine gets to it."""


def until(look: Callable[[], T]) -> T:
    """What is looked for, as soon as it is there."""
    give_up = time.monotonic() + PATIENCE
    while not (found := look()):
        assert time.monotonic() < give_up, "it never came to that"
        time.sleep(0.01)
    return found


async def coming(look: Callable[[], Any]) -> Any:
    """The same beside an event loop; it may ask with `await`."""
    give_up = time.monotonic() + PATIENCE
    while True:
        answer = look()
        found = await answer if inspect.isawaitable(answer) else answer
        if found:
            return found
        assert time.monotonic() < give_up, "it never came to that"
        await asyncio.sleep(0.01)
