"""Runs work that would block an event loop, on threads of our own.

The threads of `asyncio.to_thread` are few and shared: a framework may run blocking code there that calls a store on the
loop and waits. If such callers occupied all of them, our work would wait for the callers, and they for our work.
Nothing that runs here waits for anything else that runs here.
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
    """State of the calling thread."""

    is_stepped = False
    """True while it runs a coroutine that must not suspend, such as one of a blocking store."""


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
    """Returns the result of a blocking or slow function, without blocking the event loop.

    A blocking store has no loop to block: there, the function runs in the calling thread.
    """
    if here.is_stepped:
        return function(*args)
    context = contextvars.copy_context()
    return await asyncio.get_running_loop().run_in_executor(_threads, context.run, function, *args)
