"""Work that would hold up an event loop, on threads of our own.

Not on those of `asyncio.to_thread`, which are few and everybody's: a framework runs blocking code there, which may ask
a store on the loop and wait. Once such callers are on all of them, work that went there too would wait for the callers,
and they for it. Nothing that runs here waits for anything else that runs here.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class _ThreadState(threading.local):
    """What is true of the calling thread."""

    is_stepped = False
    """It runs a coroutine that must not suspend, such as one of a blocking store."""


here = _ThreadState()

_MOST = 32


def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(_MOST, (os.cpu_count() or 1) + 4), thread_name_prefix="hansard")


_threads = _pool()


def _reset_after_fork() -> None:
    # A forked child has none of its parent's threads.
    global _threads  # noqa: PLW0603
    _threads = _pool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)


async def run_in_thread(function: Callable[..., T], *args: Any) -> T:
    """What a function gives that blocks or takes its time, while the event loop goes on.

    A blocking store has no loop that could go on: there, the function runs in the calling thread.
    """
    if here.is_stepped:
        return function(*args)
    context = contextvars.copy_context()
    return await asyncio.get_running_loop().run_in_executor(_threads, context.run, function, *args)
