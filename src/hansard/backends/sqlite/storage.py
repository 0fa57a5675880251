"""One SQLite file: group-committed writes, and reads that never wait.

A write is a job of the engine, which runs an operation to its end on a `SqliteTransaction`. A read runs in the calling
thread, on a connection of its own, because it is bounded and costs less than switching to another thread; only long
reads go to a thread.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

from hansard.analysis import Lookup, Matches, Ranking
from hansard.backends.sqlite import backup, check, index, rank, read, search, tenant_data, transaction
from hansard.backends.sqlite.engine import open_engine
from hansard.backends.sqlite.errors import DRIVER, translate
from hansard.backends.sqlite.queries import QUERIES
from hansard.backends.sqlite.read_cache import ReadConnection
from hansard.backends.sqlite.transaction import SqliteTransaction, answer
from hansard.backends.sqlite.watch import Poll
from hansard.backends.sqlite.writer import SqliteWriter
from hansard.blocking import run_to_end
from hansard.contract.backend import Capabilities
from hansard.contract.storage import Found, Operation, RecordKey, T, Wants
from hansard.contract.types import (
    Append,
    Context,
    ConversationQuery,
    ConversationState,
    MessageQuery,
    Participation,
    RecordQuery,
    RecordWrite,
    Row,
    Slice,
    Swept,
)
from hansard.errors import Closed, Corrupt
from hansard.executor import run_in_thread
from hansard.model import Appended, Conversation, Message, Problem, Receipt, Record, Stats, UsageRow

_LONG_READ = 1_000_000
"""Bytes that a read may touch in the calling thread."""


class SqliteStorage:
    def __init__(self, path: Path, *, durability: str = "full", blocking: bool = False, upgrade: bool = False) -> None:
        self.engine = open_engine(path, durability, upgrade=upgrade)
        self._blocking = blocking
        self._poll = Poll(self.engine)
        self._closed = False
        self.capabilities = Capabilities(
            name="sqlite",
            durability="machine" if durability == "full" else "process",
            shared=True,
            search="index",
            watch="poll",
            backup=True,
            secure_delete=True,
            remnants="in the write-ahead log while others read, or in old pages of the search index. "
            "Run `hansard purge` to remove them.",
            vacuum=True,
            blocking=blocking,
            groups=True,
        )

    @property
    def commits(self) -> tuple[int, int]:
        return self.engine.commits, self.engine.written

    @property
    def path(self) -> Path:
        return self.engine.path

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._poll.close()
            await self._long(self.engine.close)

    # Jobs and reads

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("this store was closed")

    async def _write(self, run: Callable[[SqliteWriter], T]) -> T:
        self._check_open()
        return self.engine.write(run) if self._blocking else await self.engine.submit(run)

    def _read(self, run: Callable[[ReadConnection], T]) -> T:
        self._check_open()
        return self.engine.read(run)

    async def _long(self, run: Callable[[], T]) -> T:
        """Runs long work in a thread, so that it does not block the event loop."""
        return run() if self._blocking else await run_in_thread(run)

    async def _long_read(self, run: Callable[[ReadConnection], T]) -> T:
        return await self._long(partial(self._read, run))

    # One conversation

    async def write(self, context: Context, id: str, operation: Operation[T]) -> T:
        def run(writer: SqliteWriter) -> T:
            return run_to_end(operation(SqliteTransaction(writer, context, id, writer.load(context.tenant, id))))

        self._check_open()
        return self.engine.write(run) if self._blocking else await self.engine.submit(run)

    async def append(self, context: Context, id: str, append: Append) -> Appended:
        self._check_open()

        def run(writer: SqliteWriter) -> Appended:
            return transaction.append(writer, context, id, append)

        return self.engine.write(run) if self._blocking else await self.engine.submit(run)

    async def read(self, context: Context, id: str, wants: Wants) -> tuple[ConversationState, Found] | None:
        def run(connection: sqlite3.Connection) -> tuple[ConversationState, Found] | None:
            entry = read.find_visible(connection, context, id)
            if entry is None:
                return None
            tombstones = read.find_tombstones(connection, context, wants.tombstones)
            return entry.state, answer(connection, context, entry, wants, tombstones)

        return self._read(run)

    async def get_conversation(self, context: Context, id: str) -> Conversation | None:
        return self._read(lambda connection: read.find_conversation(connection, context, id))

    async def find_messages(self, context: Context, id: str, message_ids: Sequence[str]) -> list[Message]:
        return self._read(lambda connection: read.find_messages(connection, context, id, message_ids))

    async def messages(self, context: Context, id: str, query: MessageQuery) -> Slice:
        def run(connection: ReadConnection) -> Slice | None:
            """Returns None if it may take long."""
            place = read.find_place(connection, context, id, query.branch)
            if place is None:
                return Slice([], False)
            if query.sort == "seq" and query.limit and place.most_bytes(query.limit + 1) <= _LONG_READ:
                return read.get_messages(connection, place, id, query, self.engine.tails)
            return None

        found = self._read(run)
        if found is not None:
            return found
        return await self._long_read(lambda connection: read.find_and_get(connection, context, id, query))

    async def rows(self, context: Context, id: str, after_seq: int, limit: int, max_bytes: int) -> list[Row]:
        def run(connection: sqlite3.Connection) -> list[Row]:
            entry = read.find_visible(connection, context, id)
            return read.read_rows(connection, entry.state, after_seq, limit, max_bytes) if entry else []

        return await self._long_read(run)

    async def wait(self, context: Context, id: str, seen: int, timeout: float) -> int:
        return await self._poll.wait((context.tenant, id), seen, timeout)

    # Many conversations

    async def list_conversations(self, context: Context, query: ConversationQuery) -> tuple[list[Conversation], bool]:
        def run(connection: sqlite3.Connection) -> tuple[list[Conversation], bool]:
            return read.list_conversations(connection, context, query)

        return await self._long_read(run) if query.metadata or query.offset > 1000 else self._read(run)

    async def list_own(
        self, context: Context, query: ConversationQuery, namespace: tuple[str, ...]
    ) -> tuple[list[Conversation], bool] | None:
        """See `membership.OwnList`."""

        def run(connection: sqlite3.Connection) -> tuple[list[Conversation], bool] | None:
            if tenant_data.has_shared_records(connection, context, namespace):
                return None
            return read.list_conversations(connection, context, query)

        return await self._long_read(run) if query.metadata or query.offset > 1000 else self._read(run)

    async def participations(self, context: Context, participant_id: str, limit: int) -> list[Participation]:
        return await self._long_read(
            lambda connection: tenant_data.participations(connection, context, participant_id, limit)
        )

    # Search

    async def search(self, context: Context, lookup: Lookup) -> Matches:
        self.engine.expect_searches()
        if self._blocking or search.is_quick(lookup):
            found = self._read(lambda connection: search.search(connection, context, lookup, search.TAIL))
            if found is not None:
                return found

        async def look(tail: int) -> Matches | None:
            return await self._long_read(partial(search.search, context=context, lookup=lookup, tail=tail))

        return await self._indexed(look)

    async def rank(self, context: Context, lookup: Lookup) -> Ranking:
        self.engine.expect_searches()

        async def look(tail: int) -> Ranking | None:
            return await self._long_read(partial(rank.rank, context=context, lookup=lookup, tail=tail))

        return await self._indexed(look)

    async def _indexed(self, look: Callable[[int], Awaitable[T | None]]) -> T:
        """Runs a search; indexes the tail first if it is too long.

        An index pass waits for all writes before it. So if the writing thread will fill the index anyway, a search
        checks ten times as many messages before it asks for a pass.
        """
        tail = search.TAIL
        will_be_filled = self.engine.will_index
        while (found := await look(tail)) is None:
            if not will_be_filled:
                await self._write(index.index_many)
            will_be_filled = False
            tail *= 10
        return found

    async def catch_up(self) -> None:
        much = self._read(partial(index.is_much, loaded=self.engine.loaded))
        while await self._write(index.index_bulk if much else index.index_many):
            pass
        if much:
            await self._merge(index.merge)
        elif self.engine.unmerged >= index.MANY_UNMERGED:
            await self._merge(index.merge_equal)

    async def reindex(self) -> AsyncIterator[int]:
        await self._write(index.empty)
        every = self._read(index.state_of).tail
        while left := await self._write(index.index_bulk):
            yield max(0, every - left)
        yield every
        await self._merge(index.merge)

    async def upgrade_index(self) -> None:
        """Rebuilds an index that an older version built."""
        if self._read(index.state_of).is_older:
            async for _ in self.reindex():
                pass

    async def _merge(self, step: Callable[[SqliteWriter], bool]) -> None:
        """Merges in steps, so that others can write in between."""
        while not await self._write(step):
            pass

    # Outside conversations

    async def get_records(self, context: Context, keys: Sequence[RecordKey]) -> list[Record | None]:
        return self._read(lambda connection: [tenant_data.find_record(connection, context, *key) for key in keys])

    async def write_records(self, context: Context, writes: Sequence[RecordWrite]) -> list[Record | None]:
        return await self._write(lambda writer: tenant_data.write_records(writer, context, writes))

    async def scan_records(self, context: Context, query: RecordQuery) -> tuple[list[Record], bool]:
        return self._read(lambda connection: tenant_data.scan_records(connection, context, query))

    async def record_owners(self, context: Context) -> list[str]:
        return self._read(
            lambda connection: [owner for (owner,) in connection.execute(QUERIES["record_owners"], (context.tenant,))]
        )

    async def put_blob(self, context: Context, sha256: str, data: bytes, keep_until: datetime) -> None:
        await self._write(lambda writer: tenant_data.put_blob(writer, context, sha256, data, keep_until))

    async def get_blobs(self, context: Context, digests: Sequence[str]) -> dict[str, bytes]:
        return await self._long_read(lambda connection: read.get_blobs(connection, context, digests))

    async def usage(self, context: Context, since: str | None, until: str | None) -> list[UsageRow]:
        return await self._long_read(lambda connection: tenant_data.usage(connection, context, since, until))

    # Lifecycle

    async def erase_user_data(self, context: Context, user_id: str) -> Receipt:
        return await self._write(lambda writer: tenant_data.erase_user_data(writer, context, user_id))

    async def sweep(self, context: Context, limit: int) -> Swept:
        return await self._write(lambda writer: tenant_data.sweep(writer, context, limit))

    async def stats(self, tenant: str | None) -> Stats:
        return await self._long_read(lambda connection: tenant_data.stats(connection, tenant))

    async def check(self, tenant: str | None) -> AsyncIterator[Problem | int]:
        self._check_open()
        audit = check.Audit(self.engine.open_reader(), tenant)
        try:
            while (found := await self._long(audit.step)) is not None:
                for problem in found:
                    yield problem
                yield audit.seen
        except DRIVER as error:
            translated = translate(error, str(self.path))
            if not isinstance(translated, Corrupt):
                raise translated from error
            yield Problem("file", str(translated))
        finally:
            await self._long(audit.close)

    async def list_tenants(self) -> list[str]:
        return self._read(tenant_data.list_tenants)

    async def delete_tenant(self, context: Context) -> Receipt:
        return await self._write(lambda writer: tenant_data.delete_tenant(writer, context))

    async def backup(self, target: Path) -> None:
        await self._long_read(partial(backup.backup, target=target))

    async def vacuum(self) -> None:
        self._check_open()
        await self._long(self.engine.vacuum)
