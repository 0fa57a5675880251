"""Transactions, each for one tenant.

So the second wall (row-level security) can name the tenant, and a sharded server can keep each transaction on one
shard. A *job* is a function of the `Work` that runs inside a transaction. It may run more than once: if another writer
created the same row first, after a deadlock, if the connection was lost before the commit was sent, or if its server is
no longer the primary. Only a commit whose answer was lost leaves the outcome unknown.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from hansard.backends.postgres.connection import PostgresConnection
from hansard.backends.postgres.errors import DRIVER, Raced, is_read_only, may_run_again, translate
from hansard.backends.postgres.hosts import Hosts
from hansard.backends.postgres.options import PostgresOptions
from hansard.backends.postgres.pool import Pool
from hansard.backends.postgres.queries import QUERIES, in_schema, literal
from hansard.backends.postgres.state_cache import PostgresStateCache, StampedState
from hansard.backends.postgres.watch import channel_of, payload_of
from hansard.backends.shared.signals import Signals
from hansard.errors import Closed, HansardError, Outcome, Unavailable

T = TypeVar("T")

_ATTEMPTS = 5
_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_CHANGE = "BEGIN ISOLATION LEVEL READ COMMITTED"
_PATIENCE = "SET LOCAL idle_in_transaction_session_timeout = 5000"
"""For background work: others wait no longer than this for us if our event loop is blocked."""


class Work:
    """A writing transaction: its connection, its tenant, and the conversations that it has changed."""

    __slots__ = ("changed", "link", "tenant")

    def __init__(self, link: PostgresConnection, tenant: str) -> None:
        self.link = link
        self.tenant = tenant
        self.changed: dict[str, StampedState | None] = {}
        """The changed states; None for conversations to remove from the cache."""


class PostgresEngine:
    def __init__(self, options: PostgresOptions, *, walled: bool) -> None:
        self.options = options
        self.signals = Signals()
        self.states = PostgresStateCache()
        self.queries = {name: in_schema(sql, options.schema) for name, sql in QUERIES.items()}
        self.channel = channel_of(options.schema)
        self.filling = asyncio.Lock()
        """One search at a time fills the index: the others find it filled."""
        self._hosts = Hosts(options, options.dsns)
        self._walled = walled
        self._pid = os.getpid()
        self._closed = False
        self._settings = "".join(f"; SET LOCAL {name} = {value}" for name, value in options.settings.items())
        self.pool = Pool(self.connect, options.pool_size, where=options.where, patience=options.connect_timeout)

    @property
    def where(self) -> str:
        return self.options.where

    @property
    def is_walled(self) -> bool:
        """True if the second wall is active."""
        return self._walled

    @property
    def wraps(self) -> bool:
        """True if even a single statement needs a transaction around it, which carries the session's settings."""
        return self._walled or self.options.pooler

    async def connect(self) -> PostgresConnection:
        return await self._hosts.connect(self.queries)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.signals.notify_all()
            await self.pool.close()

    @property
    def is_foreign(self) -> bool:
        """True in a forked child: the connections and the event loop belong to its parent."""
        return os.getpid() != self._pid

    def check_alive(self) -> None:
        if self._closed:
            raise Closed("this store was closed")
        if self.is_foreign:
            raise Unavailable("this store was opened before a fork: open it again in the child", retryable=False)

    # Reading

    async def read(
        self, tenant: str | None, run: Callable[[PostgresConnection], Awaitable[T]], *, snapshot: bool = False
    ) -> T:
        """Runs a read, again if its connection was lost. None reads over all tenants.

        A read of more than one statement needs a `snapshot`, so that all of them see the same data.
        """
        self.check_alive()
        begin = self._begin_sql(_SNAPSHOT, tenant) if snapshot or self.wraps else None
        try:
            return await self._read(run, begin)
        except DRIVER as error:
            if not may_run_again(error):
                raise translate(error, self.where) from error
        try:
            return await self._read(run, begin)
        except DRIVER as error:
            raise translate(error, self.where) from error

    async def _read(self, run: Callable[[PostgresConnection], Awaitable[T]], begin: str | None) -> T:
        async with self.pool.borrow() as link:
            if begin is None:
                return await run(link)
            await link.script(begin)
            value = await run(link)
            await link.script("ROLLBACK")
            return value

    # Writing

    async def write(self, tenant: str | None, job: Callable[[Work], Awaitable[T]]) -> T:
        """Runs a job in a transaction and returns when it is committed. None is for work over all tenants."""
        self.check_alive()
        for attempt in range(_ATTEMPTS - 1):
            try:
                return await self._write(tenant, job)
            except (Raced, *DRIVER) as error:
                if not may_run_again(error) and not (attempt == 0 and is_read_only(error)):
                    raise self._translate(error) from error
        try:
            return await self._write(tenant, job)
        except (Raced, *DRIVER) as error:
            raise self._translate(error) from error

    async def _write(self, tenant: str | None, job: Callable[[Work], Awaitable[T]]) -> T:
        async with self.pool.borrow() as link:
            work = Work(link, tenant or "")
            await link.script(self.begin_sql(tenant))
            value = await job(work)
            await self.commit(link, work.tenant, work.changed)
        self.publish(work.tenant, work.changed)
        return value

    async def write_once(self, tenant: str, run: Callable[[PostgresConnection], Awaitable[T]]) -> T:
        """Runs one idempotent statement as a transaction of its own.

        It holds no lock while it is not running, even if this process stops.
        """
        self.check_alive()
        try:
            return await self._write_once(tenant, run)
        except DRIVER as error:
            if not may_run_again(error) and not is_read_only(error):
                raise translate(error, self.where) from error
        try:
            return await self._write_once(tenant, run)
        except DRIVER as error:
            raise self._translate(error, "unknown") from error

    def _translate(self, error: BaseException, outcome: Outcome = "not_applied") -> HansardError:
        if is_read_only(error) and self.options.needs_primary:
            return Unavailable(f"{self.where} has no primary at the moment: {error}")
        return translate(error, self.where, outcome)

    async def _write_once(self, tenant: str, run: Callable[[PostgresConnection], Awaitable[T]]) -> T:
        async with self.pool.borrow() as link:
            if not self.wraps:
                return await run(link)
            await link.script(f"{self.begin_sql(tenant)}; {_PATIENCE}")
            value = await run(link)
            await link.script("COMMIT")
            return value

    def begin_sql(self, tenant: str | None) -> str:
        return self._begin_sql(_CHANGE, tenant)

    def _begin_sql(self, begin: str, tenant: str | None) -> str:
        """Returns the SQL that opens a transaction, with the settings that a session cannot be trusted to hold."""
        if self.options.pooler:
            begin += self._settings
        if self._walled:
            name, value = ("open", "on") if tenant is None else ("tenant", tenant)
            begin += f"; SET LOCAL hansard_wall.{name} = {literal(value)}"
        return begin

    async def commit(self, link: PostgresConnection, tenant: str, changed: Iterable[str]) -> None:
        """Commits and notifies other processes. After this call it cannot be assumed that nothing was applied."""
        payload = payload_of(tenant, changed)
        notify = f"SELECT pg_notify({literal(self.channel)}, {literal(payload)}); " if payload else ""
        try:
            await link.script(f"{notify}COMMIT")
        except DRIVER as error:
            link.terminate()
            raise translate(error, self.where, "unknown") from error

    def publish(self, tenant: str, changed: dict[str, StampedState | None]) -> None:
        """After a commit: caches the new states, and wakes the waiters in this process."""
        for id, entry in changed.items():
            self.states.put(tenant, id, entry)
            self.signals.notify((tenant, id))
