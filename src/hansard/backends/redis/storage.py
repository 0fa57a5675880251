"""Redis, one server or a cluster: `keys` says where data is stored, `transaction` how it is written."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine, Sequence
from datetime import datetime
from typing import Any

from msgspec import structs

from hansard.analysis import Lookup, Matches, Ranking
from hansard.backends.redis import listing, read, server, tenant_data
from hansard.backends.redis.index import RedisIndex
from hansard.backends.redis.keys import RedisKeys
from hansard.backends.redis.maintenance import RedisMaintenance
from hansard.backends.redis.nodes import open_nodes
from hansard.backends.redis.options import RedisOptions
from hansard.backends.redis.partitions import RedisPartitions
from hansard.backends.redis.records import RedisRecords
from hansard.backends.redis.search import RedisSearch
from hansard.backends.redis.state_cache import RedisStateCache
from hansard.backends.redis.transaction import RedisWriter
from hansard.backends.shared.settling import Settling
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
from hansard.model import Conversation, Problem, Receipt, Record, Stats, UsageRow

_INTERVAL = 0.05
"""Seconds between two polls for other processes' writes."""
_LARGEST_BATCH = 50_000
"""Small enough for one command (see `batch`) whatever ids, participants and usage the messages have."""


class RedisStorage:
    def __init__(self, options: RedisOptions) -> None:
        self.nodes = open_nodes(options)
        self.keys = RedisKeys(options.prefix)
        self._states = RedisStateCache(self.nodes, self.keys)
        self._records = RedisRecords(self.nodes, self.keys, self._states)
        settling = Settling(RedisPartitions(self.nodes, self.keys))
        self._writer = RedisWriter(self.nodes, self.keys, self._states, settling, self._records)
        self._index = RedisIndex(self.nodes, self.keys)
        self._search = RedisSearch(self.nodes, self.keys, self._index)
        self._lifecycle = RedisMaintenance(self.nodes, self.keys, self._writer, self._records, self._index)
        self._capabilities = Capabilities(
            name="redis",
            durability="process",
            shared=True,
            atomic_batch=_LARGEST_BATCH,
            append_records=not self.nodes.is_cluster,
            watch="poll",
            remnants="in Redis' append-only file until it is rewritten (BGREWRITEAOF), and in snapshots until "
            "the next.",
        )

    async def open(self) -> None:
        """Checks the server, or refuses it."""
        servers = await server.prepare(self.nodes, self.keys)
        if all(each.durability == "machine" for each in servers):
            self._capabilities = structs.replace(self._capabilities, durability="machine")
        if all(each.info.get("role") != "slave" for each in servers):  # a replica could not fill its index
            await self._index.open()
        if self._index.is_there:
            self._capabilities = structs.replace(
                self._capabilities,
                search="index",
                pieces=False,
                remnants="in the query engine's index until that is cleaned, as a rule within a minute, "
                + self._capabilities.remnants,
            )

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    async def close(self) -> None:
        await self.nodes.close()
        self._writer.signals.notify_all()

    # One conversation

    def write(self, context: Context, id: str, operation: Operation[T]) -> Coroutine[Any, Any, T]:
        return self._writer.write(context, id, operation)

    async def read(self, context: Context, id: str, wants: Wants) -> tuple[ConversationState, Found] | None:
        seen = await read.read(self._states, context, id, wants)
        if seen is None:
            return None
        found = seen[1].found
        if wants.blobs:
            found = structs.replace(found, blobs=await self.get_blobs(context, wants.blobs))
        if wants.records:
            found = structs.replace(found, records=(await self._records.find(context, wants.records))[0])
        return seen[0], found

    async def messages(self, context: Context, id: str, query: MessageQuery) -> Slice:
        return await read.get_messages(self._states, context, id, query)

    async def rows(self, context: Context, id: str, after_seq: int, limit: int, max_bytes: int) -> list[Row]:
        return await read.read_rows(self._states, context, id, after_seq, limit, max_bytes)

    async def wait(self, context: Context, id: str, seen: int, timeout: float) -> int:
        async def mark() -> int:
            entry = (await self._states.read((context.tenant, id))).entry
            return entry.n if entry else 1

        return await self._writer.signals.poll((context.tenant, id), seen, timeout, _INTERVAL, mark)

    # Many conversations

    async def list_conversations(self, context: Context, query: ConversationQuery) -> tuple[list[Conversation], bool]:
        return await listing.list_conversations(self.nodes, self.keys, context, query, self._writer.settle)

    async def list_own(
        self, context: Context, query: ConversationQuery, namespace: tuple[str, ...]
    ) -> tuple[list[Conversation], bool] | None:
        """See `membership.OwnList`."""
        noted = self._records.ask_for_any(context.tenant, namespace)
        return await listing.list_unless(self.nodes, self.keys, context, query, self._writer.settle, noted)

    async def participations(self, context: Context, participant_id: str, limit: int) -> list[Participation]:
        await self._writer.settle(context.tenant)
        return await tenant_data.participations(self.nodes, self.keys, self._states, context, participant_id, limit)

    # Outside conversations

    async def get_records(self, context: Context, keys: Sequence[RecordKey]) -> list[Record | None]:
        return await self._records.get(context, keys)

    async def write_records(self, context: Context, writes: Sequence[RecordWrite]) -> list[Record | None]:
        return await self._records.write(context, writes)

    async def scan_records(self, context: Context, query: RecordQuery) -> tuple[list[Record], bool]:
        return await self._records.scan(context, query)

    async def record_owners(self, context: Context) -> list[str]:
        return [owner for owner in await self._records.owners(context.tenant) if owner]

    async def put_blob(self, context: Context, sha256: str, data: bytes, keep_until: datetime) -> None:
        await tenant_data.put_blob(self.nodes, self.keys, context.tenant, sha256, data, keep_until)

    async def get_blobs(self, context: Context, digests: Sequence[str]) -> dict[str, bytes]:
        return await tenant_data.get_blobs(self.nodes, self.keys, context.tenant, digests)

    async def usage(self, context: Context, since: str | None, until: str | None) -> list[UsageRow]:
        await self._writer.settle(context.tenant)
        return await tenant_data.usage(self.nodes, self.keys, context, since, until)

    # Lifecycle

    async def erase_user_data(self, context: Context, user_id: str) -> Receipt:
        await self._writer.settle(context.tenant)
        records = await self._records.erase(context.tenant, user_id)
        usage_rows = await tenant_data.erase_usage(self.nodes, self.keys, context.tenant, user_id)
        return Receipt(records=records, usage_rows=usage_rows, at=context.now)

    async def sweep(self, context: Context, limit: int) -> Swept:
        return await self._lifecycle.sweep(context, limit)

    async def stats(self, tenant: str | None) -> Stats:
        return await self._lifecycle.stats(tenant)

    async def check(self, tenant: str | None) -> AsyncIterator[Problem | int]:
        for each in await server.inspect(self.nodes):
            for problem in each.problems():
                yield problem
        async for found in self._lifecycle.check(tenant):
            yield found

    async def list_tenants(self) -> list[str]:
        return await self._lifecycle.tenants()

    async def delete_tenant(self, context: Context) -> Receipt:
        return await self._lifecycle.delete_tenant(context)

    # Search

    async def search(self, context: Context, lookup: Lookup) -> Matches:
        return await self._search.search(context, lookup)

    async def rank(self, context: Context, lookup: Lookup) -> Ranking:
        return await self._search.rank(context, lookup)

    async def catch_up(self) -> None:
        await self._index.catch_up(await self._lifecycle.tenants())

    async def reindex(self) -> AsyncIterator[int]:
        done = 0
        for tenant in await self._lifecycle.tenants():
            done += await self._index.rebuild(tenant)
            yield done
