"""Fills the search index when nothing was appended for a moment, in one task of the event loop."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from hansard.backends.postgres import index
from hansard.backends.postgres.engine import PostgresEngine
from hansard.errors import Denied, HansardError

IDLE = 0.1
"""Seconds without an append after which the index is filled."""
PATIENCE = 10
"""How many times longer other processes get to index their own messages before we do it for them."""
REFUSED = 60.0
"""Seconds until a process that may not write, such as on a replica, tries again: it may have become the primary."""
MOST_WAITING = 5000
"""With this many waiting messages, the index is filled during appends."""
_CONVERSATIONS = 50
"""Conversations whose messages are indexed in one sweep: each of its passes looks all of them up in the queue."""

_log = logging.getLogger("hansard")


class IndexTask:
    """Indexes the messages that this process has written, so that processes do not repeat each other's work.

    The queue of a process that died is indexed by the next process whose search finds it.
    """

    def __init__(self, engine: PostgresEngine) -> None:
        self._engine = engine
        self._task: asyncio.Task[None] | None = None
        self._stopped = asyncio.Event()
        self._fresh = 0
        """Messages written since the task last ran."""
        self._written: dict[str, set[str]] = {}
        """The conversations of these messages, by tenant."""
        self._left: dict[str, float] = {}
        """When a search first found a message in the queue, by tenant."""
        self._refused_until = 0.0

    def note(self, tenant: str, conversation_id: str, messages: int) -> None:
        """Records messages that are not indexed yet."""
        if not messages or self._stopped.is_set():
            return
        self._fresh += messages
        self._written.setdefault(tenant, set()).add(conversation_id)
        self._start()

    def note_left(self, tenant: str) -> None:
        """Records that a search found messages in the queue: their writer may no longer exist."""
        now = asyncio.get_running_loop().time()
        if tenant not in self._left and now >= self._refused_until and not self._stopped.is_set():
            self._left[tenant] = now + PATIENCE * IDLE
            self._start()

    def _start(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def close(self) -> None:
        """Waits for the running pass."""
        self._stopped.set()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _work(self) -> None:
        try:
            while (self._fresh or self._left) and not self._stopped.is_set():
                if self._fresh:
                    await self._wait_for_pause()
                    await self._fill()
                else:
                    await self._pause()
                await self._fill_left()
        except HansardError:
            # Harmless: a search makes up for it, or reports the error.
            _log.warning(
                "the search index of %s was not filled; a search will do it", self._engine.where, exc_info=True
            )
        finally:
            self._left.clear()
            self._task = None

    async def _wait_for_pause(self) -> None:
        """Waits until no message has arrived for a moment, or too many have."""
        waiting = 0
        while self._fresh and waiting < MOST_WAITING and not self._stopped.is_set():
            waiting += self._fresh
            self._fresh = 0
            await self._pause()

    async def _pause(self) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopped.wait(), IDLE)

    async def _fill(self) -> None:
        written, self._written = self._written, {}
        for tenant, conversations in written.items():
            ordered = sorted(conversations)
            for first in range(0, len(ordered), _CONVERSATIONS):
                await self._sweep(tenant, ordered[first : first + _CONVERSATIONS])

    async def _fill_left(self) -> None:
        """Indexes messages that no process has indexed for a while, in any conversation."""
        now = asyncio.get_running_loop().time()
        for tenant in [tenant for tenant, due in self._left.items() if due <= now]:
            try:
                await self._sweep(tenant, None)
            except Denied as error:
                _log.info("what waits for the search index of %s is left to others: %s", self._engine.where, error)
                self._refused_until = asyncio.get_running_loop().time() + REFUSED
                self._left.clear()
                return
            self._left.pop(tenant, None)

    async def _sweep(self, tenant: str, conversations: list[str] | None) -> None:
        place: index.Place | None = index.FIRST
        while place is not None and not self._stopped.is_set():
            passed = await index.index_some(self._engine, tenant, place, index.SHORT_PASS, conversations)
            place = passed.last
