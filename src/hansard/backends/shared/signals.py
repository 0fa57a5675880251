"""Wakes tasks that wait for a conversation, across threads and event loops of one process."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Hashable


class Signals:
    """Counts the writes to each conversation that a task waits for or has waited for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._marks: dict[Hashable, int] = {}
        self._waiters: dict[Hashable, set[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = {}

    def notify(self, key: Hashable) -> None:
        if not self._marks:
            return
        with self._lock:
            if key not in self._marks:
                return
            self._marks[key] += 1
            waiters = list(self._waiters.get(key, ()))
        for loop, event in waiters:
            # If the loop was closed, no task waits on it any longer.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(event.set)

    def notify_all(self) -> None:
        for key in list(self._marks):
            self.notify(key)

    async def wait(self, key: Hashable, seen: int, timeout: float) -> int:
        """Returns the new mark if it differs from `seen`, or the old one after `timeout` seconds."""
        waiter = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            mark = self._marks.setdefault(key, 1)
            if mark != seen:
                return mark
            self._waiters.setdefault(key, set()).add(waiter)
        try:
            async with asyncio.timeout(timeout):
                await waiter[1].wait()
        except TimeoutError:
            pass
        finally:
            with self._lock:
                self._waiters[key].discard(waiter)
        return self._marks[key]

    async def poll(
        self, key: Hashable, seen: int, timeout: float, interval: float, mark: Callable[[], Awaitable[int]]
    ) -> int:
        """Returns a conversation's mark once it differs from `seen`, or after `timeout` seconds.

        `mark` reads it: at once after a write of this process, and at every interval for the writes of others.
        """
        deadline = time.monotonic() + timeout
        heard = await self.wait(key, 0, 0)
        while True:
            found = await mark()
            left = deadline - time.monotonic()
            if found != seen or left <= 0:
                return found
            heard = await self.wait(key, heard, min(interval, left))
