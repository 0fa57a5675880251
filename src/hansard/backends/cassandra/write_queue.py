"""Group commit: the writers of one conversation in this process take turns, and share conditional batches.

A cluster answers time-outs to writers that swap the same row at once. So here one batch is under way for each
conversation. Writes that only add are decided meanwhile, one after another, each on what the one before will make, and
are the next batch. If a batch is lost, what was decided on it is decided again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from hansard.backends.cassandra.read import Name
from hansard.backends.cassandra.rows import ID, Head
from hansard.backends.cassandra.write import Write
from hansard.backends.shared.optimistic import Overtaken
from hansard.backends.shared.settling import RemovedCounts

Commit = Callable[[Write], Awaitable[RemovedCounts | None]]
LARGEST = 2000
"""Rows up to which a batch takes in further writes."""


class Group:
    """Writes that will be stored together."""

    def __init__(self, write: Write) -> None:
        self.write = write
        self.size = 0
        self._waiters: list[asyncio.Future[RemovedCounts]] = []

    def wait(self) -> asyncio.Future[RemovedCounts]:
        """One for each waiter: if it is cancelled, the others get their answer."""
        waiter: asyncio.Future[RemovedCounts] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        return waiter

    def finish(self, answer: RemovedCounts | BaseException) -> None:
        for waiter in self._waiters:
            if waiter.done():
                continue
            if isinstance(answer, RemovedCounts):
                waiter.set_result(answer)
            else:
                waiter.set_exception(answer)

    def ids(self) -> set[str]:
        return {key[4] for key in self.write.rows if key[1] == ID}


class Queue:
    def __init__(self, forget: Callable[[], None]) -> None:
        self._forget = forget
        self._users = 0
        self.open: Group | None = None
        """What the next batch will hold."""
        self.under_way: Group | None = None
        self._task: asyncio.Task[None] | None = None

    def enter(self) -> None:
        self._users += 1

    def leave(self) -> None:
        self._users -= 1
        self._end()

    def _end(self) -> None:
        """A cancelled writer leaves while its batch is under way: the queue stays until that is stored."""
        if not self._users and self._task is None:
            self._forget()

    @property
    def is_shared(self) -> bool:
        """Whether several writers use it at this moment."""
        return self._users > 1

    @property
    def foreseen(self) -> Head | None:
        """The head as all decided writes will leave it; None when nothing is under way."""
        group = self.open or self.under_way
        return group.write.head if group else None

    def has_ids(self, ids: set[str]) -> bool:
        """Whether one of these messages is about to be stored."""
        return any(group is not None and ids & group.ids() for group in (self.open, self.under_way))

    async def idle(self) -> None:
        """Waits until nothing is under way."""
        while self._task is not None:
            await asyncio.wait([self._task])

    def add(self, group: Group, commit: Commit) -> None:
        self.open = group
        group.size += 1
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work(commit))

    async def _work(self, commit: Commit) -> None:
        try:
            while self.open is not None:
                group, self.open = self.open, None
                self.under_way = group
                failure = await self._store(group, commit)
                self.under_way = None
                if failure is not None and self.open is not None:
                    # What was decided on it does not hold either.
                    lost, self.open = self.open, None
                    lost.finish(Overtaken())
        finally:
            self.under_way = None
            self._task = None
            self._end()

    async def _store(self, group: Group, commit: Commit) -> BaseException | None:
        try:
            gone = await commit(group.write)
        except BaseException as error:
            group.finish(error)
            return error
        if gone is None:
            lost = Overtaken()
            group.finish(lost)
            return lost
        group.finish(gone)
        return None


class Queues:
    def __init__(self) -> None:
        self._queues: dict[Name, Queue] = {}
        self.commits = 0
        self.writes = 0

    def enter(self, name: Name) -> Queue:
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = Queue(partial(self._forget, name))
        queue.enter()
        return queue

    def _forget(self, name: Name) -> None:
        del self._queues[name]

    async def idle(self) -> None:
        for queue in list(self._queues.values()):
            await queue.idle()
