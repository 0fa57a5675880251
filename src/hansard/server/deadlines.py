"""Deadlines for requests. All requests share one timer: a timer for each costs as much as the rest of a request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

T = TypeVar("T")


class _Deadline:
    __slots__ = ("at", "has_passed", "task")

    def __init__(self, task: asyncio.Task[Any], at: float) -> None:
        self.task = task
        self.at = at
        self.has_passed = False


class Deadlines:
    """Deadlines of one length, so that they expire in the order in which they were started."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._open: dict[_Deadline, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def wait_for(self, work: Awaitable[T]) -> T:
        """Returns the result of `work`. Cancels it and raises `TimeoutError` after the deadline."""
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None
        deadline = _Deadline(task, loop.time() + self.seconds)
        self._open[deadline] = None
        if self._timer is None:
            self._timer = loop.call_at(deadline.at, self._cancel_expired, loop)
        try:
            return await work
        except asyncio.CancelledError:
            if not deadline.has_passed:
                raise
            task.uncancel()
            raise TimeoutError from None
        finally:
            self._open.pop(deadline, None)

    def _cancel_expired(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = loop.time()
        while (first := next(iter(self._open), None)) is not None:
            if first.at > now:
                self._timer = loop.call_at(first.at, self._cancel_expired, loop)
                return
            del self._open[first]
            first.has_passed = True
            first.task.cancel()
