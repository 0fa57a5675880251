"""Queues the writers of this process to one conversation, or to other data that is swapped.

Without turns they would overtake each other, and each would decide again and again.
"""

from __future__ import annotations

import asyncio

Name = tuple[str, str]
"""The tenant, and the id of a conversation or the owner of records."""


class _Queue:
    __slots__ = ("lock", "users")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0


Queues = dict[Name, _Queue]
"""The queues that have a holder or waiters."""


class Turn:
    """Of one writer; `async with` takes it and leaves it."""

    __slots__ = ("_name", "_queue", "_queues")

    def __init__(self, queues: Queues, name: Name) -> None:
        self._queues = queues
        self._name = name
        self._queue: _Queue | None = None

    async def __aenter__(self) -> None:
        await self.take()

    async def __aexit__(self, *_: object) -> None:
        self.leave()

    async def take(self) -> None:
        """Waits for the turn, unless it is held already."""
        if self._queue is not None:
            return
        queue = self._queues.get(self._name)
        if queue is None:
            queue = self._queues[self._name] = _Queue()
        queue.users += 1
        try:
            await queue.lock.acquire()
        except BaseException:
            self._discard(queue)
            raise
        self._queue = queue

    def leave(self) -> None:
        """Lets the next writer continue. May be called again."""
        queue, self._queue = self._queue, None
        if queue is not None:
            queue.lock.release()
            self._discard(queue)

    def _discard(self, queue: _Queue) -> None:
        queue.users -= 1
        if not queue.users:
            del self._queues[self._name]
