"""A Storage over four user functions: begin with `functions.py`, then `partitions.py`.

A conversation is one head, which is swapped, and a tree of immutable objects that the head names (`tree.py`). The
records of one owner are stored in the same way. Everything else (listings, usage, references to blobs, tombstones) is
stored under keys of its own and belongs to the writes of heads: `partitions.py` ensures that it follows them.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from datetime import datetime

from msgspec import structs

from hansard import rules
from hansard.backends.keyvalue import keys as names
from hansard.backends.keyvalue import maintenance
from hansard.backends.keyvalue.functions import PAGE, Functions, KeyValue
from hansard.backends.keyvalue.keys import TENANTS, KeyValueKeys
from hansard.backends.keyvalue.partitions import KeyValuePartitions
from hansard.backends.keyvalue.read import StoredConversation
from hansard.backends.keyvalue.records import KeyValueRecords, RecordSpace
from hansard.backends.keyvalue.tenant_data import TenantData
from hansard.backends.keyvalue.transaction import KeyValueTransaction
from hansard.backends.keyvalue.tree import MissingNode
from hansard.backends.shared import documents, optimistic
from hansard.backends.shared.lists import page_of_walk, select_usage
from hansard.backends.shared.maintenance import TenantMaintenance
from hansard.contract.backend import Capabilities, Durability
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
from hansard.errors import Corrupt
from hansard.model import NOT_YET, Conversation, Message, Problem, Receipt, Record, UsageRow

_PAGE_SIZE = 100
"""The largest number of listing entries read at once."""
_POLL = 0.1
_EVERYTHING = ConversationQuery(archived=None, sort="updated_at")


class KeyValueStorage(TenantMaintenance):
    """`store` has the four functions of `KeyValue`; `durability` says what its `put` survives.

    `shared` says that several processes may use it. `in_threads` calls blocking functions in threads, so that they do
    not block the event loop; the blocking API then uses a loop of its own.
    """

    def __init__(
        self,
        store: KeyValue,
        *,
        durability: Durability,
        name: str = "keyvalue",
        shared: bool = True,
        in_threads: bool = False,
    ) -> None:
        self.functions = Functions(store, in_threads=in_threads)
        self.tenant_data = TenantData(self.functions)
        self.partitions = KeyValuePartitions(self.functions, self.tenant_data)
        self.records = KeyValueRecords(self.functions, self.partitions)
        self._capabilities = Capabilities(
            name=name,
            durability=durability,
            shared=shared,
            watch="poll",
            blocking=self.functions.never_suspends,
        )

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    async def close(self) -> None:
        self.functions.is_closed = True

    # One conversation

    async def write(self, context: Context, id: str, operation: Operation[T]) -> T:
        keys, partitions = KeyValueKeys(context.tenant), self.partitions

        async def begin(certain: bool) -> KeyValueTransaction:
            self.functions.check_open()
            known = None if certain else partitions.remembered(keys.head(id))
            found = known or await partitions.begin(keys, keys.head(id))
            return KeyValueTransaction(self, context, id, found, is_certain=known is None)

        return await optimistic.write(operation, begin)

    async def _read_one(
        self,
        context: Context,
        id: str,
        read: Callable[[StoredConversation], Awaitable[T]],
        *,
        behind_walls: bool = False,
    ) -> T | None:
        """Reads a conversation at one moment; None if the context sees no such conversation."""
        keys = KeyValueKeys(context.tenant)
        while True:
            anchor, token = await self.partitions.load(keys.head(id))
            state = anchor.state if anchor else None
            if anchor is None or state is None:
                return None
            if not behind_walls and not rules.is_visible(state.conversation, context):
                return None
            try:
                return await read(StoredConversation(self.partitions.tree(keys), anchor, state))
            except MissingNode as missing:
                # Nodes are deleted once a later head does not name them, so there must be a later one.
                if (await self.partitions.load(keys.head(id)))[1] == token:
                    where = f"{context.tenant}/{id}"
                    raise Corrupt(f"{where} lacks a part of its messages: {missing}", where=where) from missing

    async def read(self, context: Context, id: str, wants: Wants) -> tuple[ConversationState, Found] | None:
        async def read(stored: StoredConversation) -> tuple[ConversationState, Found]:
            return stored.state, await self.answer(context, stored, wants)

        return await self._read_one(context, id, read)

    async def answer(
        self, context: Context, stored: StoredConversation | None, wants: Wants, space: RecordSpace | None = None
    ) -> Found:
        found = await stored.answer(wants) if stored else Found()
        if not (wants.tombstones or wants.blobs or wants.records):
            return found
        keys = KeyValueKeys(context.tenant)
        if wants.records and space is None:
            answers = await self.records.get(context, wants.records)
            records = {key: each for key, each in zip(wants.records, answers, strict=True) if each}
        else:
            records = await self.records.current(context, space, wants.records) if space else {}
        return structs.replace(
            found,
            tombstones=await self.tenant_data.find_tombstones(keys, list(wants.tombstones)),
            blobs=await self.get_blobs(context, wants.blobs) if wants.blobs else {},
            records=records,
        )

    async def read_all(self, context: Context, id: str) -> tuple[ConversationState, list[tuple[int, Message]]] | None:
        """Returns a conversation with all its messages, regardless of who may see it."""

        async def read(stored: StoredConversation) -> tuple[ConversationState, list[tuple[int, Message]]]:
            found = await stored.rows(0, rules.NO_END, rules.NO_END)
            return stored.state, [(row.segment, row.message) for row in found]

        return await self._read_one(context, id, read, behind_walls=True)

    async def messages(self, context: Context, id: str, query: MessageQuery) -> Slice:
        return await self._read_one(context, id, lambda stored: stored.messages(query)) or Slice([], False)

    async def rows(self, context: Context, id: str, after_seq: int, limit: int, max_bytes: int) -> list[Row]:
        return await self._read_one(context, id, lambda stored: stored.rows(after_seq, limit, max_bytes)) or []

    async def wait(self, context: Context, id: str, seen: int, timeout: float) -> int:
        head = KeyValueKeys(context.tenant).head(id)
        end = time.monotonic() + timeout
        while True:
            anchor, _ = await self.partitions.load(head)
            mark = 1 + zlib.crc32(f"{anchor.stamp}{anchor.n}".encode()) if anchor else 1
            if mark != seen or time.monotonic() >= end:
                return mark
            await asyncio.sleep(min(_POLL, max(0.0, end - time.monotonic())))

    # Many conversations

    async def walk(
        self, context: Context, query: ConversationQuery, page_size: int = _PAGE_SIZE
    ) -> AsyncGenerator[ConversationState, None]:
        """Yields the conversations of a listing between the query's positions, in its order, regardless of who may see
        them."""
        keys = KeyValueKeys(context.tenant)
        found: list[str] = []
        async with aclosing(self._entries(keys.listing_of(query, context.user), query, page_size)) as entries:
            async for entry in entries:
                found.append(entry)
                if len(found) == page_size:
                    for state in await self._listed(keys, found):
                        yield state
                    found = []
        for state in await self._listed(keys, found):
            yield state

    async def _entries(self, listing: str, query: ConversationQuery, page_size: int) -> AsyncGenerator[str, None]:
        """Keys are sorted from the newest to the oldest. The other order first reads all keys between the positions."""
        after = f"{listing}{names.newest_first(*query.below)}/z" if query.below else ""
        oldest_first: list[str] = []
        async with aclosing(self.functions.keys(listing, after, page_size if query.newest_first else PAGE)) as found:
            async for key in found:
                if query.above is not None and names.place_of(key) <= query.above:
                    break
                if query.newest_first:
                    yield key
                else:
                    oldest_first.append(key)
        for key in reversed(oldest_first):
            yield key

    async def _listed(self, keys: KeyValueKeys, entries: Sequence[str]) -> list[ConversationState]:
        found = await self.functions.all(self._listed_one(keys, entry) for entry in entries)
        return [state for state in found if state is not None]

    async def _listed_one(self, keys: KeyValueKeys, entry: str) -> ConversationState | None:
        """Returns None for an entry of a write that is outdated or has not happened: its head names others."""
        anchor, _ = await self.partitions.load(keys.head(names.place_of(entry)[1]))
        return anchor.state if anchor is not None and entry.endswith(f"/{anchor.listed}") else None

    async def list_conversations(self, context: Context, query: ConversationQuery) -> tuple[list[Conversation], bool]:
        piece = min(_PAGE_SIZE, query.offset + query.limit + 1)
        walk = self.walk(context, query, piece)
        return await page_of_walk(walk, lambda state: state.conversation, context, query)

    async def participations(self, context: Context, participant_id: str, limit: int) -> list[Participation]:
        keys = KeyValueKeys(context.tenant)
        found: dict[str, list[str]] = {}
        async with aclosing(self.functions.keys(keys.authors(participant_id))) as entries:
            async for entry in entries:
                if sum(len(ids) for ids in found.values()) >= limit:
                    break
                value = await self.functions.get(entry)
                if value is not None:
                    id, message_id = documents.decode(value[0], tuple[str, str], entry)
                    if await self._has(context, id, message_id, entry):
                        found.setdefault(id, []).append(message_id)
        return [Participation(id, ids) for id, ids in found.items()]

    async def _has(self, context: Context, id: str, message_id: str, entry: str) -> bool:
        """Returns whether the message that an entry names still exists."""

        async def read(stored: StoredConversation) -> bool:
            row = await stored.find(message_id)
            return row is not None and entry.endswith(f"/{row.stamp}-{row.seq}")

        return bool(await self._read_one(context, id, read))

    # Outside conversations

    async def get_records(self, context: Context, keys: Sequence[RecordKey]) -> list[Record | None]:
        return await self.records.get(context, keys)

    async def write_records(self, context: Context, writes: Sequence[RecordWrite]) -> list[Record | None]:
        return await self.records.write(context, writes)

    async def scan_records(self, context: Context, query: RecordQuery) -> tuple[list[Record], bool]:
        return await self.records.scan(context, query)

    async def record_owners(self, context: Context) -> list[str]:
        return [owner for owner, _ in await self.records.owners(KeyValueKeys(context.tenant)) if owner]

    async def put_blob(self, context: Context, sha256: str, data: bytes, keep_until: datetime) -> None:
        keys = KeyValueKeys(context.tenant)
        await self.functions.put(keys.due_at(keep_until, "blob", sha256), b"", None)
        await self.functions.put(keys.name, context.tenant.encode(), None)
        await self.tenant_data.keep_blob(keys, sha256, data, keep_until)

    async def get_blobs(self, context: Context, digests: Sequence[str]) -> dict[str, bytes]:
        keys = KeyValueKeys(context.tenant)
        self.functions.check_open()
        found = await self.functions.all(self.tenant_data.get_blob(keys, each) for each in digests)
        return {sha256: data for sha256, data in zip(digests, found, strict=True) if data is not None}

    async def usage(self, context: Context, since: str | None, until: str | None) -> list[UsageRow]:
        keys = KeyValueKeys(context.tenant)
        await self.partitions.settle(keys)
        return select_usage(await self.tenant_data.usage(keys, since, until), context)

    # Lifecycle

    async def erase_user_data(self, context: Context, user_id: str) -> Receipt:
        keys = KeyValueKeys(context.tenant)
        await self.partitions.settle(keys)
        records = await self.records.erase(context, user_id)
        usage_rows = await self.tenant_data.erase_usage(keys, user_id)
        return Receipt(records=records, usage_rows=usage_rows, at=context.now)

    async def sweep(self, context: Context, limit: int) -> Swept:
        return await maintenance.sweep(self, context, limit)

    def check(self, tenant: str | None) -> AsyncIterator[Problem | int]:
        return maintenance.check(self, tenant)

    async def tenants(self) -> list[str]:
        found = [await self.functions.get(key) async for key in self.functions.keys(TENANTS)]
        return sorted(each[0].decode() for each in found if each is not None)

    async def settle(self, tenant: str) -> None:
        await self.partitions.settle(KeyValueKeys(tenant))

    async def conversations(self, tenant: str) -> AsyncGenerator[tuple[Conversation, int], None]:
        async with aclosing(self.walk(Context(tenant, NOT_YET), _EVERYTHING)) as walked:
            async for state in walked:
                yield state.conversation, 0

    async def count_records(self, tenant: str) -> int:
        return sum(count for _, count in await self.records.owners(KeyValueKeys(tenant)))

    async def measure_blobs(self, tenant: str) -> tuple[int, int]:
        found = await self.tenant_data.blob_keys(KeyValueKeys(tenant))
        return len(found), sum(size for _, size in found)

    async def erase_rest(self, context: Context) -> Receipt:
        return await maintenance.erase_rest(self, context)
