"""Wakes tasks that wait for a conversation that other processes write to.

Every commit sends one NOTIFY with short hashes of the conversations that it changed. Waiters share a listening
connection, which needs a session of its own. Without one (behind a pooler without `direct_url`, on a replica, during a
reconnect), the stamps of the conversations are polled. After a reconnect all waiters are woken once and read again, so
no notification is lost.
"""

from __future__ import annotations

import asyncio
import logging
import time
import zlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from hansard.backends.postgres.connection import PostgresConnection
from hansard.backends.postgres.errors import DRIVER
from hansard.backends.postgres.hosts import direct_hosts
from hansard.errors import HansardError

if TYPE_CHECKING:
    from hansard.backends.postgres.engine import PostgresEngine

Key = tuple[str, str]

_log = logging.getLogger("hansard")

EVERYTHING = "*"
_LONGEST = 7900
"""Bytes: the server accepts less than 8,000."""
_FORGET_AFTER = 120.0
"""Seconds without a waiter after which a conversation is no longer followed."""


def channel_of(schema: str) -> str:
    """Returns the channel name, which may be shorter than the name of a schema."""
    return f"hansard_{zlib.crc32(schema.encode()):08x}"


def mark_of(tenant: str, id: str) -> str:
    """Returns a short hash that reveals no names. If two collide, a waiter reads once too often."""
    return f"{zlib.crc32(id.encode(), zlib.crc32(tenant.encode())):08x}"


def payload_of(tenant: str, changed: Iterable[str]) -> str | None:
    """Returns the payload of a commit; None if nothing changed."""
    payload = " ".join([mark_of(tenant, id) for id in changed])
    return (payload if len(payload) <= _LONGEST else EVERYTHING) or None


class Watch:
    """Follows the conversations that have waiters, in one task."""

    def __init__(self, engine: PostgresEngine) -> None:
        self._engine = engine
        self._hosts = direct_hosts(engine.options)
        self._followed: dict[Key, float] = {}
        """When a task last waited for each."""
        self._marks: dict[str, set[Key]] = {}
        """The same by their hashes in notifications."""
        self._stamps: dict[Key, int | None] = {}
        """The stamps of the last poll, while there is no listening connection."""
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
            # Notifications may have been missed until now. The next poll treats all as changed.
            self._stamps.clear()
            self._wake_all()
            try:
                await self._until_lost(link)
            finally:
                link.terminate()

    async def _listen(self) -> PostgresConnection | None:
        engine = self._engine
        if not engine.options.direct_dsns:
            return None
        link = None
        try:
            link = await self._hosts.connect(engine.queries)
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
                # An idle connection can fail silently.
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

    # Polling, if listening is not possible

    async def _poll(self) -> None:
        """Polls for a while, then returns so that listening is tried again."""
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
