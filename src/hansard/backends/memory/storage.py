"""Process memory: the reference storage.

Every other storage must answer as this one does, so it is written to be read: a conversation is its state and, for each
segment, its messages ordered by seq. One lock makes every call one step. Two caps make it a cache (`max_conversations`
evicts the least recently used, `max_messages` the oldest); `stats` reports how many were evicted.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from itertools import islice

from msgspec import structs

from hansard import rules
from hansard.backends.memory import maintenance
from hansard.backends.memory.conversation import MemoryConversation, select
from hansard.backends.memory.tenant import MemoryTenant, StoredBlob, record_key
from hansard.backends.memory.transaction import MemoryTransaction, answer
from hansard.backends.shared.copies import own_conversation, own_message, own_record
from hansard.backends.shared.lists import take
from hansard.backends.shared.signals import Signals
from hansard.contract.backend import Capabilities
from hansard.contract.storage import Changes, Found, Operation, RecordKey, T, Wants, Without
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
from hansard.errors import Closed
from hansard.model import Conversation, Problem, Receipt, Record, Stats, UsageRow
from hansard.rules.operations.common import places_of, without_summaries


class MemoryStorage:
    def __init__(self, *, max_conversations: int | None = None, max_messages: int | None = None) -> None:
        self._max_conversations = max_conversations
        self._max_messages = max_messages
        self.tenants: dict[str, MemoryTenant] = {}
        self._lock = threading.RLock()
        self._signals = Signals()
        self._evicted_conversations = 0
        self._evicted_messages = 0
        self._closed = False
        self.capabilities = Capabilities(
            name="memory",
            durability="none",
            blocking=True,
            secure_delete=True,
            evicts=max_conversations is not None or max_messages is not None,
        )

    async def close(self) -> None:
        self._closed = True
        self.tenants.clear()
        self._signals.notify_all()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("this store was closed")

    def tenant(self, context: Context) -> MemoryTenant:
        self._check_open()
        tenant = self.tenants.get(context.tenant)
        if tenant is None:
            tenant = self.tenants[context.tenant] = MemoryTenant()
        return tenant

    def _chosen(self, tenant: str | None) -> dict[str, MemoryTenant]:
        self._check_open()
        return maintenance.chosen(self.tenants, tenant)

    # One conversation

    async def write(self, context: Context, id: str, operation: Operation[T]) -> T:
        with self._lock:
            tenant = self.tenant(context)
            tenant.find(context, id)  # marks it as used: the least recently used is evicted first
            value = await operation(MemoryTransaction(tenant, context, id))
            if self.capabilities.evicts:
                await self._evict(tenant, context, id)
            self._signals.notify((context.tenant, id))
            return value

    async def _evict(self, tenant: MemoryTenant, context: Context, id: str) -> None:
        while self._max_conversations is not None and len(tenant.conversations) > self._max_conversations:
            tenant.drop(context, next(iter(tenant.conversations)))
            self._evicted_conversations += 1
        stored = tenant.conversations.get(id)
        excess = len(stored.places) - self._max_messages if stored and self._max_messages is not None else 0
        if stored is not None and excess > 0:
            await MemoryTransaction(tenant, context, id).apply(_eviction(context, stored, excess))
            self._evicted_messages += excess

    async def read(self, context: Context, id: str, wants: Wants) -> tuple[ConversationState, Found] | None:
        with self._lock:
            tenant = self.tenant(context)
            stored = tenant.find(context, id)
            return (stored.state, answer(tenant, context, stored, wants)) if stored else None

    async def messages(self, context: Context, id: str, query: MessageQuery) -> Slice:
        with self._lock:
            stored = self.tenant(context).find(context, id)
            if stored is None:
                return Slice([], False)
            taken, more = take(select(stored, query), query.limit, query.max_bytes, stored.size_of)
            return Slice([own_message(message) for message in taken], more)

    async def rows(self, context: Context, id: str, after_seq: int, limit: int, max_bytes: int) -> list[Row]:
        with self._lock:
            stored = self.tenant(context).find(context, id)
            if stored is None:
                return []
            later = stored.all_messages(after_seq)
            taken, _ = take(later, limit, max_bytes, lambda placed: stored.size_of(placed[1]))
            return [Row(segment, own_message(message)) for segment, message in taken]

    async def wait(self, context: Context, id: str, seen: int, timeout: float) -> int:
        self._check_open()
        return await self._signals.wait((context.tenant, id), seen, timeout)

    # Many conversations

    async def list_conversations(self, context: Context, query: ConversationQuery) -> tuple[list[Conversation], bool]:
        with self._lock:
            tenant = self.tenant(context)
            walked = (tenant.conversations[id].state.conversation for id in tenant.listing.walk(query, context.user))
            matching = (each for each in walked if rules.matches(each, query, context))
            page = list(islice(matching, query.offset, query.offset + query.limit + 1))
        return [own_conversation(each) for each in page[: query.limit]], len(page) > query.limit

    async def participations(self, context: Context, participant_id: str, limit: int) -> list[Participation]:
        with self._lock:
            return self.tenant(context).participations(context, participant_id, limit)

    # Outside conversations

    async def get_records(self, context: Context, keys: Sequence[RecordKey]) -> list[Record | None]:
        with self._lock:
            tenant = self.tenant(context)
            found = [tenant.live_record(context, record_key(context, *key)) for key in keys]
            return [own_record(record) if record else None for record in found]

    async def write_records(self, context: Context, writes: Sequence[RecordWrite]) -> list[Record | None]:
        with self._lock:
            for write in writes:
                id = write.conversation_id
                if id is not None and not write.delete and self.tenant(context).find(context, id) is None:
                    raise rules.not_found(id)
            stored = self.tenant(context).write_records(context, writes)
            return [own_record(record) if record else None for record in stored]

    async def scan_records(self, context: Context, query: RecordQuery) -> tuple[list[Record], bool]:
        with self._lock:
            found = list(islice(self.tenant(context).scan(context, query), query.limit + 1))
            return [own_record(record) for record in found[: query.limit]], len(found) > query.limit

    async def record_owners(self, context: Context) -> list[str]:
        with self._lock:
            return sorted({owner for owner, _, _ in self.tenant(context).records if owner})

    async def put_blob(self, context: Context, sha256: str, data: bytes, keep_until: datetime) -> None:
        with self._lock:
            blob = self.tenant(context).blobs.setdefault(sha256, StoredBlob(data, keep_until))
            blob.keep_until = max(blob.keep_until, keep_until)

    async def get_blobs(self, context: Context, digests: Sequence[str]) -> dict[str, bytes]:
        with self._lock:
            blobs = self.tenant(context).blobs
            return {sha256: blobs[sha256].data for sha256 in digests if sha256 in blobs}

    async def usage(self, context: Context, since: str | None, until: str | None) -> list[UsageRow]:
        with self._lock:
            return self.tenant(context).usage_rows(context, since, until)

    # Lifecycle

    async def erase_user_data(self, context: Context, user_id: str) -> Receipt:
        with self._lock:
            return self.tenant(context).erase(context, user_id)

    async def sweep(self, context: Context, limit: int) -> Swept:
        with self._lock:
            return maintenance.sweep(self._chosen(None), context)

    async def stats(self, tenant: str | None) -> Stats:
        with self._lock:
            return maintenance.stats(self._chosen(tenant), self._evicted_conversations, self._evicted_messages)

    async def check(self, tenant: str | None) -> AsyncIterator[Problem | int]:
        with self._lock:
            stored = maintenance.to_audit(self._chosen(tenant))
        for where, state, messages in stored:
            for problem in rules.audit(where, state, messages):
                yield problem
        yield len(stored)

    async def list_tenants(self) -> list[str]:
        with self._lock:
            return maintenance.list_tenants(self._chosen(None))

    async def delete_tenant(self, context: Context) -> Receipt:
        with self._lock:
            watched = list(self.tenant(context).conversations)
            receipt = maintenance.delete_tenant(self.tenants, context)
            for id in watched:
                self._signals.notify((context.tenant, id))
            return receipt


def _eviction(context: Context, stored: MemoryConversation, excess: int) -> Changes:
    """The removal of the oldest messages. It is part of the write that exceeded the cap: no new version."""
    oldest = list(islice(stored.all_messages(), excess))
    places, newest = places_of(oldest), stored.last_time(Without(ids=[message.id for _, message in oldest]))
    lost = rules.lost_summaries(stored.state, stored.summaries, places)
    state = without_summaries(rules.without(context, stored.state, places, newest), stored.summaries, lost)
    conversation = structs.replace(state.conversation, version=stored.state.conversation.version)
    return Changes(state=structs.replace(state, conversation=conversation), remove=oldest, lost_summaries=lost)
