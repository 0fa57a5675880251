"""A message that is stored while it is generated.

Pieces come by the thousand; writes are made by the clock. The first piece creates the message in the store, in progress
and with a lease. After that, new text is written once an interval; if none comes, only the lease is renewed. So the
number of writes is bounded by time, and a writer that is killed loses at most its last interval; when its lease has run
out, its message reads as interrupted.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any

from msgspec import Struct, structs

from hansard import rules
from hansard.errors import ValidationError
from hansard.model import Message, Status
from hansard.store import checks
from hansard.store.core import utc_now

logger = logging.getLogger("hansard.capture")

Put = Callable[[Message], Awaitable[None]]
"""Brings the message into this state in the store. A failure while the message grows is logged and tried again."""


class Pace(Struct, frozen=True, kw_only=True):
    """How often a message in progress is written. All in seconds."""

    interval: float = 0.5
    lease: float = 30.0
    """How long after its last write a message still counts as in progress."""
    idle: float = 600.0
    """How long the lease of a message is renewed while no piece comes."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            checks.seconds(getattr(self, name), name)
        if self.lease <= self.interval:
            raise ValidationError(f"lease is {self.lease}: it must be longer than interval, {self.interval}")


class StreamingMessage:
    """Takes pieces with `add`, and completes the message with `end`."""

    def __init__(self, put: Put, message: Message, pace: Pace) -> None:
        self._put = put
        self._message = message
        self._pace = pace
        self._pieces: list[str] = []
        self._last = 0.0
        self._is_dirty = False
        self._wake = asyncio.Event()
        self._over = asyncio.Event()
        self._writing: asyncio.Task[None] | None = None

    @property
    def text(self) -> str:
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    @property
    def has_begun(self) -> bool:
        return self._writing is not None

    def add(self, piece: str) -> None:
        self._pieces.append(piece)
        self._last = time.monotonic()
        self._is_dirty = True
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write())
        else:
            self._wake.set()

    async def end(self, status: Status, *, content: Any = None, **changes: Any) -> Message:
        """Completes the message, writes it and returns it. Cancelling this does not stop the write."""
        ending = asyncio.get_running_loop().create_task(self._end(status, content, changes))
        _ENDINGS.add(ending)
        ending.add_done_callback(_ENDINGS.discard)
        return await asyncio.shield(ending)

    async def _end(self, status: Status, content: Any, changes: Mapping[str, Any]) -> Message:
        self._over.set()
        self._wake.set()
        if self._writing is not None:
            # Not awaited directly: when a program ends, its loop cancels every task, and the end must still be written.
            await asyncio.wait([self._writing])
        final = structs.replace(
            self._message, content=self.text if content is None else content, status=status, **changes
        )
        await self._put(final)
        return final

    async def _write(self) -> None:
        while not self._over.is_set():
            self._is_dirty = False
            try:
                await self._put(self._now())
            except Exception as error:
                self._is_dirty = True
                logger.warning("message %r is not written yet: %s", self._message.id, error)
            await _wait(self._over, self._pace.interval)
            await self._news()

    def _now(self) -> Message:
        until = utc_now() + timedelta(seconds=self._pace.lease)
        metadata = rules.leased(self._message.metadata, until)
        return structs.replace(self._message, content=self.text, status="in_progress", metadata=metadata)

    async def _news(self) -> None:
        """Waits until there is something to write, or the lease has to be renewed."""
        while not self._is_dirty and not self._over.is_set():
            self._wake.clear()
            is_idle = time.monotonic() - self._last > self._pace.idle
            if not await _wait(self._wake, None if is_idle else self._pace.lease / 3) and not is_idle:
                return


_ENDINGS: set[asyncio.Task[Message]] = set()
"""Messages that are being completed, so that their tasks are not garbage-collected."""


async def all_ended() -> None:
    """Waits for messages that are still being completed, of tasks that were cancelled."""
    loop = asyncio.get_running_loop()
    if waiting := [task for task in _ENDINGS if task.get_loop() is loop]:
        await asyncio.wait(waiting)


async def _wait(event: asyncio.Event, seconds: float | None) -> bool:
    """Whether the event was set in time."""
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False
