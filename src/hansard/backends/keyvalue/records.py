"""Records: those of one owner (a user, or none) are one tree under one head, so a batch is one swap."""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime

from msgspec import Raw, Struct, structs

from hansard import rules
from hansard.backends.keyvalue import rows
from hansard.backends.keyvalue.functions import Functions, Token
from hansard.backends.keyvalue.keys import KeyValueKeys, hashed
from hansard.backends.keyvalue.partitions import LINGER, KeyValuePartitions, LoadedHead
from hansard.backends.keyvalue.rows import Anchor, PendingSpace, StoredRecord
from hansard.backends.keyvalue.tree import MissingNode, Root, Tree
from hansard.backends.keyvalue.write import Bound, Effects, KeyValueWrite
from hansard.backends.shared import documents
from hansard.backends.shared.optimistic import PATIENCE, Overtaken
from hansard.contract.storage import RecordChange, RecordKey
from hansard.contract.types import Context, RecordQuery, RecordWrite
from hansard.errors import Corrupt, TimedOut
from hansard.model import Record

Batch = dict[bytes, StoredRecord | None]
"""New rows by their keys in the tree; None for rows to remove."""
Births = Mapping[str, str]
"""The births of the conversations that records belong to, by id."""


class RecordSpace:
    """The records of one owner at one moment."""

    def __init__(self, key: str, tree: Tree, found: LoadedHead) -> None:
        self.key = key
        self.anchor, self.token = found
        self._tree = tree
        self._root = self.anchor.root if self.anchor else Root()

    async def find(self, key: bytes) -> StoredRecord | None:
        value = await self._tree.get(self._root, key)
        return documents.decode(value, StoredRecord, "a record") if value is not None else None

    async def bound(self, birth: str) -> dict[bytes, str]:
        """Returns the records of a conversation: their keys, and the stamps of the writes that stored them."""
        prefix = rows.bound_key(birth, b"")
        found = await self._tree.items(self._root, prefix, prefix + b"\xff")
        return {key.removeprefix(prefix): documents.decode(value, str, "a record") for key, value in found}

    async def count(self) -> int:
        return await self._tree.count(self._root, *rows.RECORDS)

    async def everything(self) -> list[bytes]:
        return [key for key, _ in await self._tree.items(self._root, *rows.RECORDS)]

    async def scan(self, query: RecordQuery, live: Callable[[StoredRecord], Awaitable[Record | None]]) -> list[Record]:
        """Returns one more than the query's limit, if there are that many."""
        found: list[Record] = []
        async with aclosing(self._tree.scan(self._root, *_range(query), newest_first=query.newest_first)) as walked:
            async for _, value in walked:
                row = documents.decode(value, StoredRecord, "a record")
                is_wanted = not query.exact or row.record.namespace == query.prefix
                if is_wanted and row.record.key.startswith(query.key_prefix) and (record := await live(row)):
                    found.append(record)
                    if len(found) > query.limit:
                        break
        return found

    # Changing

    async def change(
        self, keys: KeyValueKeys, stamp: str, owner: str | None, batch: Batch, now: datetime
    ) -> SpaceChange | None:
        """Returns the space after a batch, or None if it does not change. Without an owner, it keeps its own."""
        change = SpaceChange(Root(), owner, {}, Effects(put={}, drop=[]))
        items: dict[bytes, Raw | None] = {}
        births: set[str] = set()
        for key, row in batch.items():
            before = await self.find(key)
            if before is not None:
                change.effects.drop += self._expiry(keys, key, before)
                items |= {key: None} | ({rows.bound_key(before.birth, key): None} if before.birth else {})
                births.add(before.birth)
            if row is not None:
                change.effects.put |= self._expiry(keys, key, row)
                items |= {key: rows.raw(row)} | ({rows.bound_key(row.birth, key): rows.raw(stamp)} if row.birth else {})
                change.objects |= {keys.bound(row.birth, self.key, stamp): b""} if row.birth else {}
        if not items:
            return None
        change.effects.drop += await self._unneeded(keys, batch, births - {""})
        await self._store(keys, stamp, items, change)
        if None in items.values() and await self._tree.is_empty(change.root):
            # The user's id is removed with the last record.
            change.owner = None
            change.effects.put[keys.due_at(now + LINGER, "head", f"{self.key}/{stamp}")] = ""
        elif owner is None and self.anchor is not None:
            change.owner = self.anchor.owner
        return change

    def _expiry(self, keys: KeyValueKeys, key: bytes, row: StoredRecord) -> dict[str, str]:
        """Returns the entry that finds an expiring record."""
        if row.record.expires_at is None:
            return {}
        name = f"{row.stamp}-{hashed(key.hex())}"
        return {keys.due_at(row.record.expires_at, "record", name): documents.encode([self.key, key]).decode()}

    async def _unneeded(self, keys: KeyValueKeys, batch: Batch, births: set[str]) -> list[str]:
        """Returns the keys by which these conversations found only records that are removed or stored again."""
        found: list[str] = []
        for birth in sorted(births):
            stamps = await self.bound(birth)
            left = {stamp for key, stamp in stamps.items() if key not in batch}
            found += [keys.bound(birth, self.key, stamp) for stamp in set(stamps.values()) - left]
        return found

    async def _store(
        self, keys: KeyValueKeys, stamp: str, items: Mapping[bytes, Raw | None], change: SpaceChange
    ) -> None:
        numbers = itertools.count()
        prefix = f"{self.key.rpartition('/')[2]}/{stamp}"
        tree = await self._tree.change(self._root, items, lambda: f"{prefix}-{next(numbers)}")
        change.root = tree.root
        change.objects |= {keys.node(name): data for name, data in tree.made.items()}
        change.effects.drop += [keys.node(name) for name in tree.dropped]

    def pending(self, head: str, anchor: Anchor, change: SpaceChange) -> tuple[Anchor, Token | None]:
        """Returns the space with a root that counts once the write of this head has happened."""
        waiting = PendingSpace(head, anchor.n, anchor.stamp, change.root, change.owner)
        return structs.replace(self.anchor or Anchor(), pending=waiting), self.token


class SpaceChange(Struct):
    root: Root
    owner: str | None
    objects: dict[str, bytes]
    effects: Effects


Choice = Callable[[RecordSpace], Awaitable[list[bytes]]]
Plan = Callable[[RecordSpace, str], Awaitable[tuple[Batch, list[Bound]]]]


class KeyValueRecords:
    def __init__(self, functions: Functions, partitions: KeyValuePartitions) -> None:
        self._functions = functions
        self._partitions = partitions
        partitions.drop_bound = self.drop_bound

    # Reading

    async def _read_one(
        self, keys: KeyValueKeys, key: str, read: Callable[[RecordSpace], Awaitable[documents.S]]
    ) -> documents.S:
        """Reads a space at one moment."""
        while True:
            found = await self._partitions.read_space(key)
            try:
                return await read(RecordSpace(key, self._partitions.tree(keys), found))
            except MissingNode as missing:
                # Nodes are deleted once a later head does not name them, so there must be a later one.
                if (await self._partitions.load(key))[1] == found[1]:
                    raise Corrupt(f"a part of the records is missing: {missing}", where=str(missing)) from missing

    async def get(self, context: Context, wanted: Sequence[RecordKey]) -> list[Record | None]:
        keys = KeyValueKeys(context.tenant)

        async def read(space: RecordSpace) -> list[Record | None]:
            return [await self._live(context, keys, await space.find(rows.record_key(*each))) for each in wanted]

        return await self._read_one(keys, keys.space(context.user or ""), read)

    async def scan(self, context: Context, query: RecordQuery) -> tuple[list[Record], bool]:
        keys = KeyValueKeys(context.tenant)

        async def read(space: RecordSpace) -> list[Record]:
            return await space.scan(query, lambda row: self._live(context, keys, row))

        found = await self._read_one(keys, keys.space(context.user or ""), read)
        return found[: query.limit], len(found) > query.limit

    async def _live(self, context: Context, keys: KeyValueKeys, row: StoredRecord | None) -> Record | None:
        if row is None or not rules.is_alive(row.record, context.now):
            return None
        if row.record.conversation_id is not None:
            birth = await self._birth(context, keys, row.record.conversation_id)
            if birth is None or birth != row.birth:
                return None
        return rows.record_of(row)

    async def _birth(self, context: Context, keys: KeyValueKeys, id: str) -> str | None:
        """Returns the birth of the conversation that the context sees under an id."""
        anchor, _ = await self._partitions.load(keys.head(id))
        if anchor is None or anchor.state is None or not rules.is_visible(anchor.state.conversation, context):
            return None
        return anchor.birth

    async def owners(self, keys: KeyValueKeys) -> list[tuple[str, int]]:
        """Returns every owner of records and their number; the empty name for records outside any user's view."""

        async def read(space: RecordSpace) -> tuple[str | None, int]:
            owner = space.anchor.owner if space.anchor else None
            return owner, 0 if owner is None else await space.count()

        found = [await self._read_one(keys, key, read) async for key in self._functions.keys(keys.spaces)]
        return sorted((owner, count) for owner, count in found if owner is not None and count)

    # Writing

    async def begin(self, context: Context) -> RecordSpace:
        """Returns the space of the context's user, to write to."""
        keys = KeyValueKeys(context.tenant)
        key = keys.space(context.user or "")
        return RecordSpace(key, self._partitions.tree(keys), await self._partitions.load_space(keys, key))

    async def current(
        self, context: Context, space: RecordSpace, wanted: Sequence[RecordKey]
    ) -> dict[RecordKey, Record]:
        """Returns the records among these that the context sees."""
        keys = KeyValueKeys(context.tenant)
        found = {each: await self._live(context, keys, await space.find(rows.record_key(*each))) for each in wanted}
        return {key: record for key, record in found.items() if record}

    async def write(self, context: Context, writes: Sequence[RecordWrite]) -> list[Record | None]:
        keys, key = KeyValueKeys(context.tenant), KeyValueKeys(context.tenant).space(context.user or "")
        results: list[Record | None] = []

        async def plan(space: RecordSpace, stamp: str) -> tuple[Batch, list[Bound]]:
            births = await self._births(context, keys, writes)
            wanted = list(dict.fromkeys((write.namespace, write.key) for write in writes))
            changes, results[:] = rules.plan_records(context, writes, await self.current(context, space, wanted))
            bound = [Bound(key, keys.head(id), birth) for id, birth in births.items()]
            return batch_of(changes, births, stamp), bound

        await self._change(keys, key, context.user or "", context.now, plan)
        return results

    async def _births(self, context: Context, keys: KeyValueKeys, writes: Sequence[RecordWrite]) -> dict[str, str]:
        """Returns the births of the conversations that records will belong to, which must exist."""
        births: dict[str, str] = {}
        for write in writes:
            if write.conversation_id is not None and not write.delete and write.conversation_id not in births:
                birth = await self._birth(context, keys, write.conversation_id)
                if birth is None:
                    raise rules.not_found(write.conversation_id)
                births[write.conversation_id] = birth
        return births

    async def _change(self, keys: KeyValueKeys, key: str, owner: str | None, now: datetime, plan: Plan) -> None:
        give_up = time.monotonic() + PATIENCE
        while True:
            space = RecordSpace(key, self._partitions.tree(keys), await self._partitions.load_space(keys, key))
            stamp = secrets.token_hex(8)
            try:
                batch, bound = await plan(space, stamp)
                change = await space.change(keys, stamp, owner, batch, now)
                if change is not None:
                    change.effects.bound = bound
                    await self._commit(keys, space, stamp, change, now)
            except MissingNode as missing:
                if (await self._partitions.load(key))[1] == space.token:
                    raise Corrupt(f"a part of the records is missing: {missing}", where=str(missing)) from missing
            except Overtaken:
                if time.monotonic() > give_up:
                    what = f"other writers kept changing these records for {PATIENCE:g} seconds"
                    raise TimedOut(what, outcome="not_applied") from None
            else:
                return

    async def _commit(
        self, keys: KeyValueKeys, space: RecordSpace, stamp: str, change: SpaceChange, now: datetime
    ) -> None:
        n, recent = rows.following(space.anchor, stamp)
        anchor = Anchor(n=n, recent=recent, owner=change.owner, root=change.root)
        is_first = space.anchor is None or space.anchor.owner is None
        await self._partitions.write(
            KeyValueWrite(
                keys, space.key, space.token, anchor, now, change.effects, change.objects, names_tenant=is_first
            )
        )

    # Removing

    async def drop_bound(self, keys: KeyValueKeys, space: str, birth: str, now: datetime) -> int:
        """Deletes the records of a space that belong to a conversation."""

        async def choose(each: RecordSpace) -> list[bytes]:
            return list(await each.bound(birth))

        return await self._drop(keys, space, now, choose)

    async def erase(self, context: Context, owner: str) -> int:
        """Deletes all records of an owner."""
        keys = KeyValueKeys(context.tenant)
        return await self._drop(keys, keys.space(owner), context.now, RecordSpace.everything)

    async def drop_expired(self, context: Context, space: str, key: bytes) -> int:
        async def expired(each: RecordSpace) -> list[bytes]:
            row = await each.find(key)
            return [] if row is None or rules.is_alive(row.record, context.now) else [key]

        return await self._drop(KeyValueKeys(context.tenant), space, context.now, expired)

    async def _drop(self, keys: KeyValueKeys, space: str, now: datetime, choose: Choice) -> int:
        gone: list[bytes] = []

        async def plan(each: RecordSpace, _: str) -> tuple[Batch, list[Bound]]:
            gone[:] = await choose(each)
            return dict.fromkeys(gone), []

        await self._change(keys, space, None, now, plan)
        return len(gone)


def batch_of(changes: Sequence[RecordChange], births: Births, stamp: str) -> Batch:
    batch: Batch = {}
    for change in changes:
        record = change.record
        birth = births.get(record.conversation_id, "") if record and record.conversation_id else ""
        batch[rows.record_key(*change.key)] = rows.stored_record(record, birth, stamp) if record else None
    return batch


def _range(query: RecordQuery) -> tuple[bytes, bytes]:
    low = rows.namespace_key(query.prefix)
    high = low + b"\xff"
    if query.after is None:
        return low, high
    place = rows.record_key(*query.after)
    return (low, min(high, place)) if query.newest_first else (max(low, place + b"\0"), high)
