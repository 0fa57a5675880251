"""Redis, one server or a cluster: see `keys` for what lies where, `writer` for how it is written."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from pathlib import Path

from msgspec import structs

from hansard import rules
from hansard.backends.redis import beside, changing, listing, reading, server, writing
from hansard.backends.redis.heads import Heads
from hansard.backends.redis.keys import Keys
from hansard.backends.redis.lifecycle import Lifecycle
from hansard.backends.redis.nodes import open_nodes
from hansard.backends.redis.options import Options
from hansard.backends.redis.records import Records
from hansard.backends.redis.settling import Settling
from hansard.backends.redis.writer import Writer
from hansard.backends.values import own_conversation
from hansard.contract.backend import Capabilities
from hansard.contract.types import (
    Append,
    Context,
    ConversationChange,
    ConversationQuery,
    Image,
    MessageChange,
    MessageQuery,
    NewBranch,
    Participation,
    RecordQuery,
    RecordWrite,
    Remove,
    Removed,
    Replace,
    Restore,
    Row,
    Slice,
    Swept,
)
from hansard.errors import Unsupported
from hansard.model import (
    Appended,
    Branch,
    Conversation,
    Message,
    Problem,
    Receipt,
    Record,
    Stats,
    Summary,
    UsageRow,
)

_INTERVAL = 0.05
"""Seconds between two looks of somebody who waits for others' writes."""
_LARGEST_BATCH = 50_000
"""So that a command can carry it (see `batch`) whatever ids, participants and usage the messages have."""


class RedisBackend:
    def __init__(self, options: Options) -> None:
        self._nodes = open_nodes(options)
        self._keys = Keys(options.prefix)
        self._heads = Heads(self._nodes, self._keys)
        self._settling = Settling(self._nodes, self._keys)
        self._writer = Writer(self._nodes, self._keys, self._heads, self._settling)
        self._records = Records(self._nodes, self._keys, self._heads)
        self._lifecycle = Lifecycle(self._nodes, self._keys, self._writer, self._records, self._settling)
        self._capabilities = Capabilities(
            name="redis",
            durability="process",
            shared=True,
            atomic_batch=_LARGEST_BATCH,
            watch="poll",
            remnants="in Redis' append-only file until it is rewritten (BGREWRITEAOF), and in snapshots until "
            "the next.",
        )

    async def open(self) -> None:
        """Looks at the server, or refuses it."""
        servers = await server.prepare(self._nodes, self._keys)
        if all(each.durability == "machine" for each in servers):
            self._capabilities = structs.replace(self._capabilities, durability="machine")

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    async def close(self) -> None:
        await self._nodes.close()
        self._writer.signals.notify_all()

    # Conversations

    async def create_conversation(self, context: Context, conversation: Conversation) -> Conversation:
        return await writing.create_conversation(self._writer, context, conversation)

    async def get_conversation(self, context: Context, id: str) -> Conversation | None:
        found = await reading.find_conversation(self._heads, context, id)
        return own_conversation(found) if found else None

    async def list_conversations(self, context: Context, query: ConversationQuery) -> tuple[list[Conversation], bool]:
        await self._settling.settle(context.tenant)
        return await listing.list_conversations(self._nodes, self._keys, context, query)

    async def update_conversation(self, context: Context, id: str, change: ConversationChange) -> Conversation:
        return await writing.update_conversation(self._writer, context, id, change)

    async def delete_conversation(self, context: Context, id: str, expected_version: int | None = None) -> Receipt:
        return await writing.delete_conversation(self._writer, context, id, expected_version)

    # Messages

    async def append(self, context: Context, id: str, append: Append) -> Appended:
        return await writing.append(self._writer, context, id, append)

    async def replace_messages(self, context: Context, id: str, replace: Replace) -> Appended:
        return await changing.replace_messages(self._writer, context, id, replace)

    async def get_messages(self, context: Context, id: str, query: MessageQuery) -> Slice:
        return await reading.get_messages(self._heads, context, id, query)

    async def find_messages(self, context: Context, id: str, message_ids: Sequence[str]) -> list[Message]:
        return await reading.find_messages(self._heads, context, id, message_ids)

    async def update_message(self, context: Context, id: str, message_id: str, change: MessageChange) -> Message:
        return await changing.update_message(self._writer, context, id, message_id, change)

    async def remove_messages(self, context: Context, id: str, remove: Remove) -> Removed:
        return await changing.remove_messages(self._writer, context, id, remove)

    # Branches and summaries

    async def create_branch(self, context: Context, id: str, new: NewBranch) -> Branch:
        return await changing.create_branch(self._writer, context, id, new)

    async def list_branches(self, context: Context, id: str) -> list[Branch]:
        entry = await reading.find_entry(self._heads, context, id)
        return rules.branches_of(entry.head) if entry else []

    async def delete_branch(self, context: Context, id: str, branch: str, expected_version: int | None) -> Receipt:
        return await changing.delete_branch(self._writer, context, id, branch, expected_version)

    async def put_summary(self, context: Context, summary: Summary) -> None:
        await changing.put_summary(self._writer, context, summary)

    async def list_summaries(self, context: Context, id: str, branch: str | None) -> list[Summary]:
        return await reading.list_summaries(self._heads, context, id, branch)

    # Records

    async def get_records(self, context: Context, keys: Sequence[tuple[tuple[str, ...], str]]) -> list[Record | None]:
        return await self._records.get(context, keys)

    async def write_records(self, context: Context, writes: Sequence[RecordWrite]) -> list[Record | None]:
        return await self._records.write(context, writes)

    async def scan_records(self, context: Context, query: RecordQuery) -> tuple[list[Record], bool]:
        return await self._records.scan(context, query)

    # Blobs

    async def put_blob(self, context: Context, sha256: str, data: bytes, keep_until: datetime) -> None:
        await beside.put_blob(self._nodes, self._keys, context.tenant, sha256, data, keep_until)

    async def get_blobs(self, context: Context, digests: Sequence[str]) -> dict[str, bytes]:
        return await beside.get_blobs(self._nodes, self._keys, context.tenant, digests)

    # Copying

    async def read_image(self, context: Context, id: str) -> Image | None:
        return await reading.read_image(self._heads, context, id)

    async def read_rows(self, context: Context, id: str, after_seq: int, limit: int, max_bytes: int) -> list[Row]:
        return await reading.read_rows(self._heads, context, id, after_seq, limit, max_bytes)

    async def restore(self, context: Context, restore: Restore) -> int:
        return await writing.restore(self._writer, context, restore)

    async def record_owners(self, context: Context) -> list[str]:
        return [owner for owner in await self._records.owners(context.tenant) if owner]

    # Lifecycle

    async def participations(self, context: Context, participant_id: str, limit: int) -> list[Participation]:
        return await beside.participations(self._nodes, self._keys, self._heads, context, participant_id, limit)

    async def erase_user_data(self, context: Context, user_id: str) -> Receipt:
        await self._settling.settle(context.tenant)
        records = await self._records.erase(context.tenant, user_id)
        usage_rows = await beside.erase_usage(self._nodes, self._keys, context.tenant, user_id)
        return Receipt(records=records, usage_rows=usage_rows, at=context.now)

    async def sweep(self, context: Context, limit: int) -> Swept:
        return await self._lifecycle.sweep(context, limit)

    async def usage(self, context: Context, since: str | None, until: str | None) -> list[UsageRow]:
        await self._settling.settle(context.tenant)
        return await beside.usage(self._nodes, self._keys, context, since, until)

    async def stats(self, tenant: str | None) -> Stats:
        return await self._lifecycle.stats(tenant)

    async def check(self, tenant: str | None) -> AsyncIterator[Problem | int]:
        for each in await server.look(self._nodes):
            for problem in each.problems():
                yield problem
        async for found in self._lifecycle.check(tenant):
            yield found

    async def list_tenants(self) -> list[str]:
        return await self._lifecycle.tenants()

    async def delete_tenant(self, context: Context) -> Receipt:
        return await self._lifecycle.delete_tenant(context)

    async def backup(self, target: Path) -> None:
        raise Unsupported(
            "a Redis server is backed up by its own means (BGSAVE, its append-only file); copy_to() copies a store",
            capability="backup",
        )

    async def wait(self, context: Context, id: str, seen: int, timeout: float) -> int:
        """Own writes are heard of at once, others' at the next look."""
        name = (context.tenant, id)
        signals = self._writer.signals
        deadline = time.monotonic() + timeout
        heard = await signals.wait(name, 0, 0)
        while True:
            entry = (await self._heads.look(name)).entry
            mark = entry.n if entry else 1
            left = deadline - time.monotonic()
            if mark != seen or left <= 0:
                return mark
            heard = await signals.wait(name, heard, min(_INTERVAL, left))
