"""Apache Cassandra: see `rows` for the layout, `transaction` for how writes work."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator

from msgspec import structs

from hansard.analysis import VERSION, Lookup, Matches, Ranking
from hansard.backends.cassandra import listing, rank, read, schema, search, tenant_data
from hansard.backends.cassandra.index import Indexer
from hansard.backends.cassandra.lifecycle import Lifecycle
from hansard.backends.cassandra.options import CassandraOptions
from hansard.backends.cassandra.read import ConversationView
from hansard.contract.backend import Capabilities
from hansard.contract.storage import Found, Wants
from hansard.contract.types import (
    Context,
    ConversationQuery,
    ConversationState,
    MessageQuery,
    Participation,
    Row,
    Slice,
)
from hansard.model import Conversation, Receipt, UsageRow

_INTERVAL = 0.1
"""Seconds between two polls for the writes of other processes."""
_LARGEST_BATCH = 10_000
"""So that one conditional batch can carry it."""
_TAIL = 200
"""Messages that may come with the head."""


class CassandraStorage(Lifecycle):
    def __init__(self, options: CassandraOptions, prefix: str) -> None:
        super().__init__(options, prefix)
        self.indexer = Indexer(self.link, self.heads)
        self.get_records = self.records.get
        self.write_records = self.records.write
        self.scan_records = self.records.scan
        self.put_blob = self.blobs.put
        self.get_blobs = self.blobs.get_many
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

    async def read(self, context: Context, id: str, wants: Wants) -> tuple[ConversationState, Found] | None:
        async def ask(view: ConversationView) -> tuple[ConversationState, Found]:
            return view.state, (await view.answer(wants))[0]

        seen = await read.look(self.link, context, id, ask)
        if seen is None:
            return None
        return seen[0], await self.writer.with_rest(context, id, wants, seen[1])

    async def messages(self, context: Context, id: str, query: MessageQuery) -> Slice:
        # The newest messages are read together with the head.
        is_tail = query.newest_first and query.sort == "seq" and not query.pinned and query.below is None
        tail = min((query.limit or _TAIL) + 1, _TAIL) if is_tail else 0
        found = await read.look(self.link, context, id, lambda view: view.messages(query), tail=tail)
        return found or Slice([], False)

    async def rows(self, context: Context, id: str, after_seq: int, limit: int, max_bytes: int) -> list[Row]:
        return await read.look(self.link, context, id, lambda view: view.rows(after_seq, limit, max_bytes)) or []

    async def wait(self, context: Context, id: str, seen: int, timeout: float) -> int:
        async def mark() -> int:
            head = await read.load(self.link, (context.tenant, id))
            return 1 + zlib.crc32(head.stamp.encode()) if head else 1

        return await self.writer.signals.poll((context.tenant, id), seen, timeout, _INTERVAL, mark)

    # Many conversations

    async def list_conversations(self, context: Context, query: ConversationQuery) -> tuple[list[Conversation], bool]:
        await self.settle(context.tenant)
        return await listing.list_conversations(self.link, context, query)

    async def participations(self, context: Context, participant_id: str, limit: int) -> list[Participation]:
        await self.settle(context.tenant)
        return await tenant_data.participations(self.link, context, participant_id, limit)

    # Search

    async def search(self, context: Context, lookup: Lookup) -> Matches:
        return await search.search(self, context, lookup)

    async def rank(self, context: Context, lookup: Lookup) -> Ranking:
        return await rank.rank(self, context, lookup)

    async def catch_up(self) -> None:
        for tenant in await self.tenants():
            await self.settle(tenant)
            await search.prepare(self, tenant)
            await self.indexer.catch_up(tenant)

    async def reindex(self) -> AsyncIterator[int]:
        done = 0
        for tenant in await self.tenants():
            await self.settle(tenant)
            async for head in self.heads_of(tenant):
                if head.state is not None:
                    done += await self.indexer.index((tenant, head.state.conversation.id), again=True)
                    yield done
            await self.catalog.add("search", tenant, str(VERSION))

    # Beside conversations

    async def record_owners(self, context: Context) -> list[str]:
        return [owner for owner, _ in await self.records.owners(context.tenant) if owner]

    async def usage(self, context: Context, since: str | None, until: str | None) -> list[UsageRow]:
        await self.settle(context.tenant)
        return await tenant_data.usage(self.link, self.catalog, context, since, until)

    async def erase_user_data(self, context: Context, user_id: str) -> Receipt:
        await self.settle(context.tenant)
        records = await self.records.erase(context.tenant, user_id)
        usage_rows = await tenant_data.erase_usage(self.link, self.catalog, context.tenant, user_id)
        return Receipt(records=records, usage_rows=usage_rows, at=context.now)
