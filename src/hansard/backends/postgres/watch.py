"""Waking those who wait for a conversation that other processes write to.

Every commit sends one NOTIFY with short hashes of the conversations that it changed. Whoever waits has a listening
connection, which needs a session of its own. While there is none (behind a pooler without `direct_url`, on a replica,
while the connection is being made anew), the stamps of the conversations are looked at now and then. When the
connection is back, everybody who waits is woken once, and reads again: what was notified meanwhile is not lost.
"""

from __future__ import annotations

import asyncio
import logging
import time
import zlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from hansard.backends.postgres.connection import PostgresConnection, connect
from hansard.backends.postgres.errors import DRIVER
from hansard.errors import HansardError

if TYPE_CHECKING:
    from hansard.backends.postgres.engine import PostgresEngine

Key = tuple[str, str]

_log = logging.getLogger("hansard")

EVERYTHING = "*"
_LONGEST = 7900
"""Bytes: the server takes less than 8,000."""
_FORGET_AFTER = 120.0
"""Seconds after which a conversation that nobody waits for any longer is no longer followed."""


def channel_of(schema: str) -> str:
    """The name has to be shorter than that of a schema may be."""
    return f"hansard_{zlib.crc32(schema.encode()):08x}"


def mark_of(tenant: str, id: str) -> str:
    """Short, and telling nobody who or what. Where two share one, somebody reads once too often."""
    return f"{zlib.crc32(id.encode(), zlib.crc32(tenant.encode())):08x}"


def payload_of(tenant: str, changed: Iterable[str]) -> str | None:
    """What a commit tells; None for nothing."""
    payload = " ".join([mark_of(tenant, id) for id in changed])
    return (payload if len(payload) <= _LONGEST else EVERYTHING) or None


class Watch:
    """Follows the conversations that somebody waits for, on one task."""

    def __init__(self, engine: PostgresEngine) -> None:
        self._engine = engine
        self._followed: dict[Key, float] = {}
        """When somebody last waited for them."""
        self._marks: dict[str, set[Key]] = {}
        """The same by what a commit calls them."""
        self._stamps: dict[Key, int | None] = {}
        """As they were last looked at, while nobody listens."""
        self._task: asyncio.Task[None] | None = None
        self._tried = asyncio.Event()

    async def wait(self, tenant: str, id: str, seen: int, timeout: float) -> int:
        key = (tenant, id)
        self._followed[key] = time.monotonic()
        self._marks.setdefault(mark_of(tenant, id), set()).add(key)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._follow())
        # Before the caller reads: what is written after that reading must not be missed.
        await self._tried.wait()
        return await self._engine.signals.wait(key, seen, timeout)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    async def _follow(self) -> None:
        while True:
            link = await self._listen()
            self._tried.set()
            if link is None:
                await self._poll()
                continue
            # What happened until now, nobody has told us. The next time that we have to look, all is new.
            self._stamps.clear()
            self._wake_all()
            try:
                await self._until_lost(link)
            finally:
                link.terminate()

    async def _listen(self) -> PostgresConnection | None:
        engine = self._engine
        if engine.options.direct_dsn is None:
            return None
        link = None
        try:
            link = await connect(engine.options, engine.options.direct_dsn, engine.queries)
            await link.connection.add_listener(engine.channel, self._on_notification)
        except DRIVER as error:
            _log.warning("cannot listen at %s, looking instead: %s", engine.where, error)
            if link is not None:
                link.terminate()
            return None
        return link

    async def _until_lost(self, link: PostgresConnection) -> None:
        lost = asyncio.Event()
        link.connection.add_termination_listener(lambda _: lost.set())
        while not link.connection.is_closed():
            try:
                async with asyncio.timeout(30):
                    await lost.wait()
            except TimeoutError:
                # A connection that nobody uses can die without a sound.
                try:
                    await link.script("SELECT 1")
                except DRIVER:
                    return
                self._forget_old()

    def _on_notification(self, connection: Any, pid: int, channel: str, payload: str) -> None:
        if payload == EVERYTHING:
            self._wake_all()
            return
        for mark in payload.split():
            for key in self._marks.get(mark, ()):
                self._engine.signals.notify(key)

    def _wake_all(self) -> None:
        for key in self._followed:
            self._engine.signals.notify(key)

    def _forget_old(self) -> None:
        now = time.monotonic()
        for key in [key for key, at in self._followed.items() if now - at > _FORGET_AFTER]:
            del self._followed[key]
            self._stamps.pop(key, None)
            mark = mark_of(*key)
            self._marks[mark].discard(key)
            if not self._marks[mark]:
                del self._marks[mark]

    # Looking, where listening is not to be had

    async def _poll(self) -> None:
        """Looks for a while, then lets listening be tried again."""
        interval = self._engine.options.poll_interval
        for _ in range(max(1, int(5 / interval))):
            await asyncio.sleep(interval)
            self._forget_old()
            try:
                await self._compare()
            except HansardError as error:
                _log.warning("cannot look for changes at %s: %s", self._engine.where, error)

    async def _compare(self) -> None:
        by_tenant: dict[str, list[str]] = {}
        for tenant, id in self._followed:
            by_tenant.setdefault(tenant, []).append(id)
        for tenant, ids in by_tenant.items():
            found = dict(await self._stamps_of(tenant, ids))
            for id in ids:
                key, stamp = (tenant, id), found.get(id)
                if key not in self._stamps or self._stamps[key] != stamp:
                    self._stamps[key] = stamp
                    self._engine.signals.notify(key)

    async def _stamps_of(self, tenant: str, ids: list[str]) -> list[tuple[str, int]]:
        found = await self._engine.read(tenant, lambda link: link.all("stamps", tenant, ids))
        return [(row[0], row[1]) for row in found]
