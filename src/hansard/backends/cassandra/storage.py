"""Apache Cassandra: see `rows` for the layout, `transaction` for how writes work."""

from __future__ import annotations

import time
import zlib
from collections.abc import AsyncIterator, Sequence
from datetime import datetime

from msgspec import structs

from hansard.analysis import VERSION, Lookup, Matches, Ranking
from hansard.backends.cassandra import lifecycle, listing, rank, read, schema, search, tenant_data
from hansard.backends.cassandra.blobs import BlobTable
from hansard.backends.cassandra.catalog import NameCatalog
from hansard.backends.cassandra.connection import Link
from hansard.backends.cassandra.index import Indexer
from hansard.backends.cassandra.options import CassandraOptions
from hansard.backends.cassandra.partitions import CassandraPartitions
from hansard.backends.cassandra.read import ConversationView
from hansard.backends.cassandra.records import RecordTable
from hansard.backends.cassandra.transaction import WriteRunner
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
from hansard.model import Conversation, Problem, Receipt, Record, Stats, UsageRow, to_micros

_INTERVAL = 0.1
"""Seconds between two polls for the writes of other processes."""
_LARGEST_BATCH = 10_000
"""So that one conditional batch can carry it."""
_TAIL = 200
"""Messages that may come with the head."""


class CassandraStorage:
    def __init__(self, options: CassandraOptions, prefix: str) -> None:
        self.link = Link(options, prefix)
        self.catalog = NameCatalog(self.link)
        self.blobs = BlobTable(self.link, self.catalog)
        self.records = RecordTable(self.link, self.catalog)
        partitions = CassandraPartitions(self.link, self.blobs, self.catalog)
        partitions.drop_record = self.records.drop_bound
        self.writer = WriteRunner(self.link, partitions, self.records, self.blobs)
        self.indexer = Indexer(self.link, self.writer.heads)
        self._capabilities = Capabilities(
            name="cassandra",
            durability="process",
            shared=True,
            atomic_batch=_LARGEST_BATCH,
            append_records=False,
            search="index",
            pieces=False,
            watch="poll",
            groups=True,
            remnants="in Cassandra's files until they are compacted after gc_grace_seconds, in its commit log, and in "
            "snapshots.",
        )

    async def open(self, *, upgrade: bool) -> None:
        await self.link.open()
        durability = await schema.prepare(self.link, upgrade=upgrade)
        self._capabilities = structs.replace(self._capabilities, durability=durability)

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    @property
    def commits(self) -> tuple[int, int]:
        return self.writer.queues.commits, self.writer.queues.writes

    async def close(self) -> None:
        await self.writer.queues.idle()
        await self.link.close()
        self.writer.signals.notify_all()

    # One conversation

    async def write(self, context: Context, id: str, operation: Operation[T]) -> T:
        self.link.check_open()
        return await self.writer.write(context, id, operation)

    async def read(self, context: Context, id: str, wants: Wants) -> tuple[ConversationState, Found] | None:
        async def ask(view: ConversationView) -> tuple[ConversationState, Found]:
            return view.state, (await view.answer(wants))[0]

        seen = await read.look(self.link, context, id, ask)
        if seen is None:
            return None
        state, found = seen
        if wants.tombstones:
            buried = await read.tombstones(self.link, (context.tenant, id), wants.tombstones)
            found = structs.replace(found, tombstones=buried)
        if wants.blobs:
            found = structs.replace(found, blobs=await self.get_blobs(context, wants.blobs))
        if wants.records:
            records = await self.records.get(context, wants.records)
            live = {key: each for key, each in zip(wants.records, records, strict=True) if each}
            found = structs.replace(found, records=live)
        return state, found

    async def messages(self, context: Context, id: str, query: MessageQuery) -> Slice:
        # The newest messages are read together with the head.
        is_tail = query.newest_first and query.sort == "seq" and not query.pinned and query.below is None
        tail = min((query.limit or _TAIL) + 1, _TAIL) if is_tail else 0
        found = await read.look(self.link, context, id, lambda view: view.messages(query), tail=tail)
        return found or Slice([], False)

    async def rows(self, context: Context, id: str, after_seq: int, limit: int, max_bytes: int) -> list[Row]:
        return await read.look(self.link, context, id, lambda view: view.rows(after_seq, limit, max_bytes)) or []

    async def wait(self, context: Context, id: str, seen: int, timeout: float) -> int:
        """Writes of this process are noticed at once, those of others at the next poll."""
        name = (context.tenant, id)
        deadline = time.monotonic() + timeout
        signals = self.writer.signals
        heard = await signals.wait(name, 0, 0)
        while True:
            head = await read.load(self.link, name)
            mark = 1 + zlib.crc32(head.stamp.encode()) if head else 1
            left = deadline - time.monotonic()
            if mark != seen or left <= 0:
                return mark
            heard = await signals.wait(name, heard, min(_INTERVAL, left))

    # Many conversations

    async def list_conversations(self, context: Context, query: ConversationQuery) -> tuple[list[Conversation], bool]:
        await self.writer.settle(context.tenant)
        return await listing.list_conversations(self.link, context, query)

    async def participations(self, context: Context, participant_id: str, limit: int) -> list[Participation]:
        await self.writer.settle(context.tenant)
        return await tenant_data.participations(self.link, context, participant_id, limit)

    # Search

    async def search(self, context: Context, lookup: Lookup) -> Matches:
        return await search.search(self, context, lookup)

    async def rank(self, context: Context, lookup: Lookup) -> Ranking:
        return await rank.rank(self, context, lookup)

    async def catch_up(self) -> None:
        for tenant in await lifecycle.tenants(self):
            await self.writer.settle(tenant)
            await search.prepare(self, tenant)
            await self.indexer.catch_up(tenant)

    async def reindex(self) -> AsyncIterator[int]:
        done = 0
        for tenant in await lifecycle.tenants(self):
            await self.writer.settle(tenant)
            async for head in search.conversations(self, tenant):
                if head.state is not None:
                    done += await self.indexer.index((tenant, head.state.conversation.id), again=True)
                    yield done
            await self.catalog.add("search", tenant, str(VERSION))

    # Beside conversations

    async def get_records(self, context: Context, keys: Sequence[RecordKey]) -> list[Record | None]:
        return await self.records.get(context, keys)

    async def write_records(self, context: Context, writes: Sequence[RecordWrite]) -> list[Record | None]:
        return await self.records.write(context, writes)

    async def scan_records(self, context: Context, query: RecordQuery) -> tuple[list[Record], bool]:
        return await self.records.scan(context, query)

    async def record_owners(self, context: Context) -> list[str]:
        return [owner for owner, _ in await self.records.owners(context.tenant) if owner]

    async def put_blob(self, context: Context, sha256: str, data: bytes, keep_until: datetime) -> None:
        until = to_micros(keep_until)
        await self.catalog.add("tenant", "", context.tenant)
        await self.catalog.put_due(context.tenant, until, "blob", sha256, time.time_ns() // 1000)
        await self.blobs.keep(context.tenant, sha256, data, until)

    async def get_blobs(self, context: Context, digests: Sequence[str]) -> dict[str, bytes]:
        """One after another: each may be large."""
        found = {each: await self.blobs.get(context.tenant, each) for each in dict.fromkeys(digests)}
        return {sha256: data for sha256, data in found.items() if data is not None}

    async def usage(self, context: Context, since: str | None, until: str | None) -> list[UsageRow]:
        await self.writer.settle(context.tenant)
        return await tenant_data.usage(self.link, self.catalog, context, since, until)

    # Lifecycle

    async def erase_user_data(self, context: Context, user_id: str) -> Receipt:
        await self.writer.settle(context.tenant)
        records = await self.records.erase(context.tenant, user_id)
        usage_rows = await tenant_data.erase_usage(self.link, self.catalog, context.tenant, user_id)
        return Receipt(records=records, usage_rows=usage_rows, at=context.now)

    async def sweep(self, context: Context, limit: int) -> Swept:
        return await lifecycle.sweep(self, context, limit)

    async def stats(self, tenant: str | None) -> Stats:
        return await lifecycle.stats(self, tenant)

    def check(self, tenant: str | None) -> AsyncIterator[Problem | int]:
        return lifecycle.check(self, tenant)

    async def list_tenants(self) -> list[str]:
        return await lifecycle.list_tenants(self)

    async def delete_tenant(self, context: Context) -> Receipt:
        return await lifecycle.delete_tenant(self, context)
