"""PostgreSQL: for many processes on many machines.

Reads take one statement if possible, else one snapshot. Appends are committed together (`append`). All other writes to
a conversation run in a transaction that holds its lock (`transaction`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from hansard.analysis import Lookup, Matches, Ranking
from hansard.backends.postgres import answers, index, maintenance, rank, read, schema, search, tenant_data
from hansard.backends.postgres.append import Appender
from hansard.backends.postgres.engine import PostgresEngine, Work
from hansard.backends.postgres.errors import DRIVER, translate
from hansard.backends.postgres.hosts import direct_hosts
from hansard.backends.postgres.index_statistics import IndexStatistics, Known
from hansard.backends.postgres.index_task import IndexTask
from hansard.backends.postgres.options import PostgresOptions
from hansard.backends.postgres.replica import Reader
from hansard.backends.postgres.schema import SchemaState
from hansard.backends.postgres.transaction import PostgresTransaction
from hansard.backends.postgres.watch import Watch
from hansard.contract.backend import Capabilities
from hansard.contract.storage import Found, Operation, RecordKey, T, Wants
from hansard.contract.types import (
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
from hansard.errors import Denied
from hansard.model import Conversation, Message, Problem, Receipt, Record, Stats, UsageRow, to_micros

_ATTEMPTS = 3
"""How often a search indexes the tail before it reads it."""


class PostgresStorage:
    def __init__(self, options: PostgresOptions, state: SchemaState) -> None:
        self.engine = PostgresEngine(options, walled=state.walled)
        self._reader = Reader(self.engine, walled=state.walled)
        self._statistics = IndexStatistics(self._reader, options.schema)
        self.filler = IndexTask(self.engine)
        self.appender = Appender(self.engine, self.write, self.filler.note)
        self._watch = Watch(self.engine)
        self._capabilities = Capabilities(
            name="postgres",
            durability=state.durability,
            shared=True,
            search="index",
            remnants="in dead rows until the tables are vacuumed (by PostgreSQL in time, or by `hansard vacuum`), "
            "and in its write-ahead log and archives until those are recycled.",
            vacuum=True,
            watch="push" if options.direct_dsns else "poll",
        )

    @classmethod
    async def open(cls, options: PostgresOptions, *, upgrade: bool = False) -> PostgresStorage:
        try:
            link = await direct_hosts(options).connect({})
            try:
                state = await schema.prepare(link, options, upgrade=upgrade)
            finally:
                await link.close()
        except DRIVER as error:
            raise translate(error, options.where) from error
        storage = cls(options, state)
        if upgrade:
            try:
                await index.upgrade(storage.engine)
            except BaseException:
                await storage.close()
                raise
        return storage

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    async def close(self) -> None:
        if self.engine.is_foreign:
            return
        await self._watch.close()
        await self.appender.close()
        await self.filler.close()
        await self._reader.close()
        await self.engine.close()

    # One conversation

    async def write(self, context: Context, id: str, operation: Operation[T]) -> T:
        async def job(work: Work) -> tuple[T, int]:
            transaction = await PostgresTransaction.begin(work, context, id)
            return await operation(transaction), transaction.unindexed

        value, unindexed = await self.engine.write(context.tenant, job)
        self.filler.note(context.tenant, id, unindexed)
        return value

    async def read(self, context: Context, id: str, wants: Wants) -> tuple[ConversationState, Found] | None:
        return await self._reader.read(context, partial(answers.read, context=context, id=id, wants=wants))

    async def get_conversation(self, context: Context, id: str) -> Conversation | None:
        return await self._reader.read(context, partial(read.find_conversation, context=context, id=id))

    async def find_messages(self, context: Context, id: str, message_ids: Sequence[str]) -> list[Message]:
        run = partial(read.find_messages, context=context, id=id, message_ids=message_ids)
        return await self._reader.read(context, run)

    async def messages(self, context: Context, id: str, query: MessageQuery) -> Slice:
        return await read.get_messages(self._reader, context, id, query)

    async def rows(self, context: Context, id: str, after_seq: int, limit: int, max_bytes: int) -> list[Row]:
        run = partial(read.read_rows, context=context, id=id, after_seq=after_seq, limit=limit, max_bytes=max_bytes)
        return await self._reader.read(context, run, snapshot=True)

    async def wait(self, context: Context, id: str, seen: int, timeout: float) -> int:
        self.engine.check_alive()
        return await self._watch.wait(context.tenant, id, seen, timeout)

    # Many conversations

    async def list_conversations(self, context: Context, query: ConversationQuery) -> tuple[list[Conversation], bool]:
        run = read.list_matching if query.metadata else read.list_conversations
        page = partial(run, context=context, query=query)
        return await self._reader.read(context, page, snapshot=bool(query.metadata))

    async def list_own(
        self, context: Context, query: ConversationQuery, namespace: tuple[str, ...]
    ) -> tuple[list[Conversation], bool] | None:
        """See `membership.OwnList`. A list by metadata takes several statements anyway, and goes the ordinary way."""
        if query.metadata:
            return None
        return await self._reader.read(
            context, partial(read.list_own, context=context, query=query, namespace=namespace)
        )

    async def participations(self, context: Context, participant_id: str, limit: int) -> list[Participation]:
        run = partial(tenant_data.participations, context=context, participant_id=participant_id, limit=limit)
        return await self._reader.read(context, run)

    # Outside conversations

    async def get_records(self, context: Context, keys: Sequence[RecordKey]) -> list[Record | None]:
        return await self._reader.read(context, partial(tenant_data.get_records, context=context, keys=keys))

    async def write_records(self, context: Context, writes: Sequence[RecordWrite]) -> list[Record | None]:
        return await self.engine.write(
            context.tenant, partial(tenant_data.write_records, context=context, writes=writes)
        )

    async def scan_records(self, context: Context, query: RecordQuery) -> tuple[list[Record], bool]:
        return await self._reader.read(context, partial(tenant_data.scan_records, context=context, query=query))

    async def put_blob(self, context: Context, sha256: str, data: bytes, keep_until: datetime) -> None:
        job = partial(tenant_data.keep_blobs, blobs={sha256: data}, keep_until=to_micros(keep_until))
        await self.engine.write(context.tenant, job)

    async def get_blobs(self, context: Context, digests: Sequence[str]) -> dict[str, bytes]:
        return await self._reader.read(context, partial(tenant_data.get_blobs, context=context, digests=digests))

    async def record_owners(self, context: Context) -> list[str]:
        found = await self._reader.read(context, lambda link: link.all("record_owners", context.tenant))
        return [owner for (owner,) in found]

    async def usage(self, context: Context, since: str | None, until: str | None) -> list[UsageRow]:
        read = partial(tenant_data.usage, context=context, since=since, until=until)
        return await self._reader.read(context, read)

    # Lifecycle

    async def erase_user_data(self, context: Context, user_id: str) -> Receipt:
        return await self.engine.write(
            context.tenant, partial(tenant_data.erase_user_data, context=context, user_id=user_id)
        )

    async def sweep(self, context: Context, limit: int) -> Swept:
        return await maintenance.sweep(self.engine, context, limit)

    async def stats(self, tenant: str | None) -> Stats:
        return await self.engine.read(tenant, partial(maintenance.stats, tenant=tenant), snapshot=True)

    def check(self, tenant: str | None) -> AsyncIterator[Problem | int]:
        return maintenance.check(self.engine, tenant)

    async def list_tenants(self) -> list[str]:
        return [name for (name,) in await self.engine.read(None, lambda link: link.all("list_tenants"))]

    async def delete_tenant(self, context: Context) -> Receipt:
        return await maintenance.delete_tenant(self.engine, context)

    async def vacuum(self) -> None:
        self.engine.check_alive()
        await maintenance.vacuum(self.engine.options)

    # Search

    async def search(self, context: Context, lookup: Lookup) -> Matches:
        given = await self._given(context, lookup)
        quick = await self._reader.read(context, partial(search.search_quickly, **given))
        if quick is not None:
            return quick
        return await self._look(context, partial(search.search, **given, note_tail=self.filler.note_left))

    async def rank(self, context: Context, lookup: Lookup) -> Ranking:
        given = await self._given(context, lookup)
        return await self._look(context, partial(rank.rank, **given, note_tail=self.filler.note_left))

    async def _given(self, context: Context, lookup: Lookup) -> dict[str, Any]:
        known = Known() if self.engine.is_walled else await self._statistics.known(context)
        return {"context": context, "lookup": lookup, "scope": search.SearchScope(self.engine.is_walled, known)}

    async def _look(self, context: Context, look: Callable[..., Coroutine[Any, Any, T | None]]) -> T:
        """Runs a search, after indexing a long tail."""
        for _ in range(_ATTEMPTS):
            found = await self._reader.read(context, look, snapshot=True)
            if found is not None:
                return found
            if context.replica:
                self.filler.note_left(context.tenant)
                break  # what is indexed now has yet to arrive there
            try:
                await index.catch_up_tenant(self.engine, context.tenant)
            except Denied:
                break  # a replica: another process has to index
        # Others write faster than we index, or this process may not write: then the whole tail is searched.
        whole = await self._reader.read(context, partial(look, any_tail=True), snapshot=True)
        assert whole is not None
        return whole

    async def catch_up(self) -> None:
        await index.catch_up(self.engine)

    def reindex(self) -> AsyncIterator[int]:
        return index.rebuild(self.engine)
