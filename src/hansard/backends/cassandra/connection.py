"""The cluster, as coroutines: the driver works in a thread of its own, and calls back.

Stores with the same options share one `Session`: connecting costs as much as hundreds of writes.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Iterable, Sequence
from itertools import islice
from typing import Any, TypeVar

from cassandra import ConsistencyLevel
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import DCAwareRoundRobinPolicy, FallthroughRetryPolicy, TokenAwarePolicy
from cassandra.query import BatchStatement, BatchType, PreparedStatement, tuple_factory

from hansard.backends.cassandra.errors import translate
from hansard.backends.cassandra.options import CassandraOptions
from hansard.backends.cassandra.queries import QUERIES, in_keyspace
from hansard.errors import Closed, HansardError, Outcome, Unavailable
from hansard.executor import run_in_thread

T = TypeVar("T")
Row = tuple[Any, ...]
Statement = tuple[str, tuple[Any, ...]]
"""The name of a query, and its arguments after the prefix."""
_AT_ONCE = 64
_REPEATS = 3
"""How often what may be repeated is tried."""
_NEVER = FallthroughRetryPolicy()
_BATCH_ROWS = 100
_BATCH_SIZE = 256 * 1024
"""Characters and bytes after which a batch ends."""


class Session:
    """A connected cluster, with the statements prepared that were used."""

    def __init__(self, options: CassandraOptions) -> None:
        self.options = options
        self.users = 0
        self.pid = os.getpid()
        self._lock = threading.Lock()
        self.prepared: dict[str, PreparedStatement] = {}
        profile = ExecutionProfile(
            load_balancing_policy=TokenAwarePolicy(DCAwareRoundRobinPolicy(options.datacenter or "")),
            consistency_level=ConsistencyLevel.LOCAL_QUORUM,
            serial_consistency_level=ConsistencyLevel.LOCAL_SERIAL,
            request_timeout=options.timeout,
            row_factory=tuple_factory,
        )
        self.cluster = Cluster(
            list(options.hosts),
            port=options.port,
            protocol_version=5,
            auth_provider=_auth(options),
            ssl_context=_tls(options),
            connect_timeout=min(10.0, options.timeout),
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        )
        self.driver: Any = None

    def connect(self) -> None:
        self.driver = self.cluster.connect()

    def prepare(self, name: str) -> PreparedStatement:
        with self._lock:
            found = self.prepared.get(name)
            if found is None:
                found = self.prepared[name] = self.driver.prepare(in_keyspace(QUERIES[name], self.options.keyspace))
            return found


_sessions: dict[CassandraOptions, Session] = {}
_lock = threading.Lock()


def _opened(options: CassandraOptions) -> Session:
    with _lock:
        session = _sessions.get(options)
        if session is None or session.pid != os.getpid():
            session = Session(options)
            try:
                session.connect()
            except BaseException:
                session.cluster.shutdown()
                raise
            _sessions[options] = session
        session.users += 1
        return session


def _let_go(session: Session) -> None:
    with _lock:
        session.users -= 1
        if session.users or session.pid != os.getpid():
            return
        _sessions.pop(session.options, None)
    session.cluster.shutdown()


def _auth(options: CassandraOptions) -> PlainTextAuthProvider | None:
    if options.username is None:
        return None
    return PlainTextAuthProvider(options.username, options.password or "")


def _tls(options: CassandraOptions) -> Any:
    if options.tls_ca is None:
        return None
    import ssl

    return ssl.create_default_context(cafile=options.tls_ca)


class Link:
    """What one store asks of the cluster. All its keys begin with `prefix`."""

    def __init__(self, options: CassandraOptions, prefix: str) -> None:
        self.options = options
        self.prefix = prefix
        self.where = options.where
        self._session: Session | None = None

    async def open(self) -> None:
        try:
            self._session = await run_in_thread(_opened, self.options)
        except Exception as error:
            raise translate(error, self.where) from error

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await run_in_thread(_let_go, session)

    @property
    def session(self) -> Session:
        if self._session is None:
            raise Closed("this store was closed")
        if self._session.pid != os.getpid():
            raise Unavailable("this store was opened before a fork: open it again in the child", retryable=False)
        return self._session

    def check_open(self) -> None:
        _ = self.session

    # Statements

    async def execute(self, cql: str, arguments: Sequence[Any] = ()) -> list[Row]:
        """A statement that is used rarely."""
        try:
            return await _answer(self.session.driver.execute_async(cql, tuple(arguments)))
        except Exception as error:
            raise translate(error, self.where, outcome="unknown") from error

    async def read(self, name: str, *arguments: Any, serial: bool = False) -> list[Row]:
        """All rows. A read that fails is repeated."""
        bound = (await self._prepare(name)).bind((self.prefix, *arguments))
        bound.fetch_size = 1000
        if serial:
            bound.consistency_level = ConsistencyLevel.LOCAL_SERIAL
        return await self._repeat(bound, "not_applied")

    async def find(self, name: str, *arguments: Any) -> list[Row]:
        """The same over all partitions."""
        bound = (await self._prepare(name)).bind(arguments)
        bound.fetch_size = 1000
        return await self._repeat(bound, "not_applied")

    async def put(self, name: str, *arguments: Any) -> None:
        """A write without a condition, which may be repeated."""
        bound = (await self._prepare(name)).bind(arguments)
        await self._repeat(bound, "unknown")

    async def put_together(self, statements: Sequence[Statement]) -> None:
        """The same for several of one partition: others see all or none."""
        await self._repeat(await self._batch(statements), "unknown")

    async def put_many(self, statements: Iterable[Statement]) -> None:
        """The same for any number of them, in several batches: one request for each would cost much more."""
        batch: list[Statement] = []
        size = 0
        for statement in statements:
            batch.append(statement)
            size += sum(_size(each) for each in statement[1])
            if len(batch) == _BATCH_ROWS or size > _BATCH_SIZE:
                await self.put_together(batch)
                batch, size = [], 0
        if batch:
            await self.put_together(batch)

    async def swap(self, statements: Sequence[Statement]) -> bool:
        """A conditional batch in one partition. False when a condition does not hold; then nothing was changed.

        It is never repeated, not by the driver either: what became of one that fails is unknown, and the condition of
        the same batch does not hold a second time.
        """
        batch = await self._batch(statements)
        batch.retry_policy = _NEVER
        try:
            rows = await _answer(self.session.driver.execute_async(batch))
        except Exception as error:
            raise translate(error, self.where, outcome="unknown") from error
        return bool(rows[0][0])

    async def _batch(self, statements: Sequence[Statement]) -> BatchStatement:
        prepared = self.session.prepared
        for name, _ in statements:
            if name not in prepared:
                await self._prepare(name)
        batch = BatchStatement(batch_type=BatchType.UNLOGGED)
        for name, arguments in statements:
            batch.add(prepared[name], arguments)
        return batch

    async def _repeat(self, statement: Any, outcome: Outcome) -> list[Row]:
        for left in reversed(range(_REPEATS)):
            try:
                return await _answer(self.session.driver.execute_async(statement))
            except Exception as error:
                translated = translate(error, self.where, outcome=outcome)
                if not left or not (isinstance(translated, Unavailable) and translated.retryable):
                    raise translated from error
                await asyncio.sleep(0.05)
        raise AssertionError

    async def _prepare(self, name: str) -> PreparedStatement:
        session = self.session
        found = session.prepared.get(name)
        if found is not None:
            return found
        try:
            return await run_in_thread(session.prepare, name)
        except Exception as error:
            raise translate(error, self.where) from error


async def some_at_once(calls: Iterable[Awaitable[T]], most: int = _AT_ONCE) -> list[T]:
    """The results of any number of calls, in their order. A cluster answers time-outs to thousands at the same time."""
    found: list[T] = []
    waiting = iter(calls)
    while some := list(islice(waiting, most)):
        found += await asyncio.gather(*some)
    return found


async def _answer(future: Any) -> list[Row]:
    """The rows of all pages."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[list[Row]] = loop.create_future()
    rows: list[Row] = []

    def done(error: Exception | None) -> None:
        if answer.done():
            return
        if error is None:
            answer.set_result(rows)
        else:
            answer.set_exception(error)

    def tell(error: Exception | None) -> None:
        try:
            loop.call_soon_threadsafe(done, error)
        except RuntimeError:
            # The loop was closed, so there is no waiter any longer.
            return

    def page(found: Sequence[Row] | None) -> None:
        rows.extend(found or ())
        if future.has_more_pages:
            future.start_fetching_next_page()
        else:
            tell(None)

    future.add_callbacks(page, tell)
    return await answer


def _size(argument: Any) -> int:
    if isinstance(argument, str | bytes):
        return len(argument)
    return sum(map(len, argument)) if isinstance(argument, set) else 0


def is_unknown(error: HansardError) -> bool:
    return isinstance(error, Unavailable) and error.outcome == "unknown"
