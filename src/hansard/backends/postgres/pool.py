"""A pool of connections, opened on demand, checked after idling, and replaced when old.

asyncpg's own pool resets the session each time a connection is returned: a round trip, as long as a read. We leave no
state in a session, so there is nothing to reset.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from hansard.backends.postgres.connection import PostgresConnection
from hansard.backends.postgres.errors import DRIVER, translate
from hansard.errors import Closed, TimedOut

_CHECK_AFTER = 30.0
"""Seconds of idling after which a connection is tested: firewalls drop them silently."""
_LIFETIME = 1800.0
"""Seconds after which a connection is replaced, so that a new primary or certificate is eventually used."""


class Pool:
    def __init__(
        self, connect: Callable[[], Awaitable[PostgresConnection]], size: int, *, where: str, patience: float
    ) -> None:
        self._connect = connect
        self._size = size
        self._where = where
        self._patience = patience
        self._idle: list[PostgresConnection] = []
        self._places = asyncio.Semaphore(size)
        self._closed = False

    @asynccontextmanager
    async def borrow(self) -> AsyncIterator[PostgresConnection]:
        """Lends a working connection. An error ends the transaction that it leaves behind."""
        if self._closed:
            raise Closed("this store was closed")
        await self._take_place()
        try:
            link = await self._find() or await self._open()
            try:
                yield link
            except BaseException as error:
                await link.undo(error)
                if isinstance(error, Exception) and not link.is_usable:
                    self._drop_idle()
                raise
            finally:
                self._give_back(link)
        finally:
            self._places.release()

    def _give_back(self, link: PostgresConnection) -> None:
        if link.is_usable and not self._closed:
            link.used_at = time.monotonic()
            self._idle.append(link)
        else:
            link.terminate()

    def _drop_idle(self) -> None:
        """Closes the other connections: their server has died, too, or is no longer the primary."""
        while self._idle:
            self._idle.pop().terminate()

    async def close(self) -> None:
        """Waits for the connections in use."""
        self._closed = True
        for _ in range(self._size):
            await self._places.acquire()
        while self._idle:
            await _close(self._idle.pop())

    async def _take_place(self) -> None:
        if not self._places.locked():
            await self._places.acquire()
            return
        try:
            async with asyncio.timeout(self._patience):
                await self._places.acquire()
        except TimeoutError:
            raise TimedOut(
                f"all {self._size} connections to {self._where} were busy for {self._patience:g} seconds: "
                "raise pool_size=… in the URL",
                outcome="not_applied",
            ) from None

    async def _open(self) -> PostgresConnection:
        try:
            return await self._connect()
        except DRIVER as error:
            raise translate(error, self._where) from error

    async def _find(self) -> PostgresConnection | None:
        """Returns the most recently used connection, so that the others can idle and be replaced."""
        while self._idle:
            link = self._idle.pop()
            try:
                if await _check_usable(link):
                    return link
            except BaseException:
                # Cancelled: no other code would close this connection.
                link.terminate()
                raise
        return None


async def _check_usable(link: PostgresConnection) -> bool:
    """Returns whether the connection may be used; closes it if not."""
    now = time.monotonic()
    if now - link.made_at > _LIFETIME:
        await _close(link)
        return False
    if not link.is_usable or (now - link.used_at > _CHECK_AFTER and not await _answers(link)):
        link.terminate()
        return False
    return True


async def _answers(link: PostgresConnection) -> bool:
    try:
        async with asyncio.timeout(_CHECK_AFTER / 6):
            await link.script("SELECT 1")
    except DRIVER:
        return False
    return True


async def _close(link: PostgresConnection) -> None:
    try:
        await link.close()
    except DRIVER:
        link.terminate()
