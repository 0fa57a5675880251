"""Deadlines for requests. All requests share one timer: a timer for each costs as much as the rest of a request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import Any, TypeVar

T = TypeVar("T")


class Deadlines:
    """Deadlines of one length, so that they expire in the order in which they were started."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._open: dict[asyncio.Task[Any], float] = {}
        self._passed: set[asyncio.Task[Any]] = set()
        """Tasks that were cancelled at their deadline."""
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def wait_for(self, work: Awaitable[T]) -> T:
        """Returns the result of `work`. Cancels it and raises `TimeoutError` after the deadline.

        A task can wait for one at a time.
        """
        loop = self._loop
        if loop is None or not loop.is_running():
            # Not for every request: it asks the system for the process id, which costs as much as the rest.
            loop = self._loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None
        self._open[task] = at = time.monotonic() + self.seconds
        if self._timer is None:
            self._start_timer(at)
        try:
            return await work
        except asyncio.CancelledError:
            if task not in self._passed:
                raise
            task.uncancel()
            raise TimeoutError from None
        finally:
            self._open.pop(task, None)
            self._passed.discard(task)

    def _start_timer(self, at: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(at - time.monotonic(), self._cancel_expired)

    def _cancel_expired(self) -> None:
        self._timer = None
        now = time.monotonic()
        while self._open:
            task, at = next(iter(self._open.items()))
            if at > now:
                self._start_timer(at)
                return
            del self._open[task]
            self._passed.add(task)
            task.cancel()
