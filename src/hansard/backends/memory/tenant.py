"""One tenant in memory: its conversations, records, blobs, usage and tombstones."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from msgspec import Struct

from hansard import codec, rules
from hansard.backends.memory.conversation import MemoryConversation, is_by
from hansard.backends.memory.listing import Listing
from hansard.backends.shared.lists import digests, select_usage
from hansard.contract.types import Context, ConversationState, Participation, RecordQuery, RecordWrite
from hansard.model import Receipt, Record, UsageRow

RecordKey = tuple[str, bytes, str]
"""Owner, packed namespace, key."""


def record_key(context: Context, namespace: tuple[str, ...], key: str) -> RecordKey:
    return context.user or "", codec.pack_namespace(namespace), key


class StoredBlob(Struct):
    data: bytes
    keep_until: datetime


class MemoryTenant:
    def __init__(self) -> None:
        self.conversations: dict[str, MemoryConversation] = {}
        """In the order of their last use."""
        self.listing = Listing()
        self.records: dict[RecordKey, Record] = {}
        self._record_order: list[RecordKey] = []
        self.blobs: dict[str, StoredBlob] = {}
        self.usage: dict[rules.UsageKey, UsageRow] = {}
        self.tombstones: dict[str, datetime] = {}

    @property
    def holds_anything(self) -> bool:
        return bool(self.conversations or self.records or self.blobs)

    def find(self, context: Context, id: str) -> MemoryConversation | None:
        """Returns a conversation that the context may see, and counts this as a use."""
        stored = self.conversations.get(id)
        if stored is None or not rules.is_visible(stored.state.conversation, context):
            return None
        self.conversations[id] = self.conversations.pop(id)
        return stored

    def add(self, state: ConversationState) -> MemoryConversation:
        """Adds a new, empty conversation."""
        stored = self.conversations[state.conversation.id] = MemoryConversation(state)
        stored.enlist(self.listing)
        return stored

    def add_tombstones(self, digests: Iterable[str], at: datetime) -> None:
        self.tombstones |= {each: max(at, self.tombstones.get(each, at)) for each in digests}

    def drop(self, context: Context, id: str) -> Receipt:
        """Removes a conversation and everything that belongs to it."""
        stored = self.conversations.pop(id)
        stored.delist()
        records = [key for key, record in self.records.items() if record.conversation_id == id]
        for key in records:
            self.remove_record(key)
        blobs = self.drop_blobs(context, digests(message for _, message in stored.all_messages()))
        return Receipt(
            conversations=1,
            messages=len(stored.places),
            branches=len(stored.state.branches),
            summaries=len(stored.summaries),
            records=len(records),
            blobs=blobs,
            at=context.now,
            physically_gone=True,
        )

    # Records

    def live_record(self, context: Context, key: RecordKey) -> Record | None:
        record = self.records.get(key)
        return record if record and self._is_live(context, record) else None

    def _is_live(self, context: Context, record: Record) -> bool:
        if record.conversation_id is not None:
            stored = self.conversations.get(record.conversation_id)
            if stored is None or not rules.is_visible(stored.state.conversation, context):
                return False
        return rules.is_alive(record, context.now)

    def write_records(self, context: Context, writes: Sequence[RecordWrite]) -> list[Record | None]:
        keys = {(write.namespace, write.key) for write in writes}
        found = {key: self.live_record(context, record_key(context, *key)) for key in keys}
        changes, results = rules.plan_records(context, writes, {key: each for key, each in found.items() if each})
        for change in changes:
            self.set_record(record_key(context, *change.key), change.record)
        return results

    def set_record(self, key: RecordKey, record: Record | None) -> None:
        self.remove_record(key)
        if record is not None:
            self.records[key] = record
            insort(self._record_order, key)

    def remove_record(self, key: RecordKey) -> None:
        if self.records.pop(key, None) is not None:
            del self._record_order[bisect_left(self._record_order, key)]

    def scan(self, context: Context, query: RecordQuery) -> Iterator[Record]:
        packed = codec.pack_namespace(query.prefix)
        low, high = self._range(context.user or "", packed, query)
        for index in range(high - 1, low - 1, -1) if query.newest_first else range(low, high):
            _, namespace, key = place = self._record_order[index]
            record = self.records[place]
            if (
                (not query.exact or namespace == packed)
                and key.startswith(query.key_prefix)
                and self._is_live(context, record)
            ):
                yield record

    def _range(self, owner: str, packed: bytes, query: RecordQuery) -> tuple[int, int]:
        order = self._record_order
        low, high = bisect_left(order, (owner, packed, "")), bisect_left(order, (owner, packed + b"\xff", ""))
        if query.after is None:
            return low, high
        place = (owner, codec.pack_namespace(query.after[0]), query.after[1])
        if query.newest_first:
            return low, min(high, bisect_left(order, place))
        return max(low, bisect_right(order, place)), high

    # Blobs and usage

    def drop_blobs(self, context: Context, candidates: set[str]) -> int:
        """Drops the blobs among these that no message refers to and that need not be kept."""
        if not candidates:
            return 0
        used = digests(message for stored in self.conversations.values() for _, message in stored.all_messages())
        unused = candidates - used
        lost = [each for each in unused if each in self.blobs and self.blobs[each].keep_until <= context.now]
        for sha256 in lost:
            del self.blobs[sha256]
        return len(lost)

    def add_usage(self, rows: Iterable[UsageRow]) -> None:
        for row in rows:
            key = (row.day, row.user_id, row.agent_id, row.model)
            self.usage[key] = rules.add_usage(self.usage[key], row) if key in self.usage else row

    def usage_rows(self, context: Context, since: str | None, until: str | None) -> list[UsageRow]:
        return select_usage(self.usage.values(), context, since, until)

    # Users

    def participations(self, context: Context, participant_id: str, limit: int) -> list[Participation]:
        found = []
        for id, stored in self.conversations.items():
            if limit <= 0 or not rules.is_visible(stored.state.conversation, context):
                continue
            ids = [message.id for _, message in stored.all_messages() if is_by(message, participant_id)][:limit]
            limit -= len(ids)
            if ids:
                found.append(Participation(id, ids))
        return found

    def erase(self, context: Context, user_id: str) -> Receipt:
        """Removes the records in the user's own space, and the user's usage."""
        records = [key for key in self.records if key[0] == user_id]
        rows = [key for key in self.usage if key[1] == user_id]
        for key in records:
            self.remove_record(key)
        for row in rows:
            del self.usage[row]
        return Receipt(records=len(records), usage_rows=len(rows), at=context.now, physically_gone=True)
