"""Records: those of one owner (a user, or nobody) are one tree under one head, so a batch is one swap."""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime

from msgspec import Raw

from hansard import rules
from hansard.backends.keyvalue import rows
from hansard.backends.keyvalue.functions import Functions, Token
from hansard.backends.keyvalue.keys import Keys, hashed
from hansard.backends.keyvalue.outbox import LINGER, Bound, Effects, Outbox, Write, node_loader
from hansard.backends.keyvalue.rows import Anchor, StoredRecord
from hansard.backends.keyvalue.tree import Missing, Root, Tree
from hansard.backends.optimistic import PATIENCE, Overtaken
from hansard.contract.storage import RecordChange, RecordKey
from hansard.contract.types import Context, RecordQuery, RecordWrite
from hansard.errors import Corrupt, TimedOut
from hansard.model import Record

_PIECE = 100
Batch = dict[bytes, Raw | None]


class Space:
    """The records of one owner at one moment."""

    def __init__(self, tree: Tree, anchor: Anchor | None) -> None:
        self._tree = tree
        self.anchor = anchor
        self.root = anchor.root if anchor else Root()

    async def find(self, key: bytes) -> StoredRecord | None:
        value = await self._tree.get(self.root, key)
        return rows.decode(value, StoredRecord, "a record") if value is not None else None

    async def bound(self, birth: str) -> list[bytes]:
        """The keys of the records that belong to a conversation."""
        prefix = rows.bound_key(birth, b"")
        found = await self._tree.take(self.root, prefix, prefix + b"\xff")
        return [key.removeprefix(prefix) for key, _ in found]

    async def count(self) -> int:
        return await self._tree.count(self.root, *rows.RECORDS)

    async def walk(self, low: bytes, high: bytes, *, newest_first: bool = False) -> AsyncGenerator[StoredRecord, None]:
        while items := await self._tree.take(self.root, low, high, limit=_PIECE, newest_first=newest_first):
            for _, value in items:
                yield rows.decode(value, StoredRecord, "a record")
            low, high = (low, items[-1][0]) if newest_first else (items[-1][0] + b"\0", high)


Choice = Callable[[Space], Awaitable[list[bytes]]]
Plan = Callable[[Space], Awaitable[tuple[Batch, Effects]]]


class Records:
    def __init__(self, functions: Functions, outbox: Outbox) -> None:
        self._functions = functions
        self._outbox = outbox
        outbox.drop_bound = self.drop_bound

    def _tree(self, keys: Keys) -> Tree:
        return Tree(node_loader(self._functions, keys))

    async def _load(self, keys: Keys, owner: str) -> tuple[Space, Token | None]:
        anchor, token = await self._outbox.load(keys.space(owner))
        return Space(self._tree(keys), anchor), token

    # Reading

    async def get(self, context: Context, wanted: Sequence[RecordKey]) -> list[Record | None]:
        keys = Keys(context.tenant)
        while True:
            space, token = await self._load(keys, context.user or "")
            try:
                return [await self._live(context, keys, await space.find(rows.record_key(*each))) for each in wanted]
            except Missing as missing:
                await self._check_moved(keys.space(context.user or ""), token, missing)

    async def scan(self, context: Context, query: RecordQuery) -> tuple[list[Record], bool]:
        keys = Keys(context.tenant)
        while True:
            space, token = await self._load(keys, context.user or "")
            try:
                found = await self._scan(context, keys, space, query)
                return found[: query.limit], len(found) > query.limit
            except Missing as missing:
                await self._check_moved(keys.space(context.user or ""), token, missing)

    async def _scan(self, context: Context, keys: Keys, space: Space, query: RecordQuery) -> list[Record]:
        low, high = _range(query)
        found: list[Record] = []
        async with aclosing(space.walk(low, high, newest_first=query.newest_first)) as walked:
            async for row in walked:
                if len(found) > query.limit:
                    break
                if query.exact and row.record.namespace != query.prefix:
                    continue
                if row.record.key.startswith(query.key_prefix):
                    record = await self._live(context, keys, row)
                    found += [record] if record else []
        return found

    async def _check_moved(self, head: str, token: Token | None, missing: Missing) -> None:
        """Returns if somebody has written since: then what was read is of the past."""
        if (await self._outbox.load(head))[1] == token:
            raise Corrupt(f"a part of the records is missing: {missing}", where=str(missing)) from missing

    async def _live(self, context: Context, keys: Keys, row: StoredRecord | None) -> Record | None:
        if row is None or not rules.is_alive(row.record, context.now):
            return None
        if row.record.conversation_id is not None:
            birth = await self._birth(context, keys, row.record.conversation_id)
            if birth is None or birth != row.birth:
                return None
        return rows.record_of(row)

    async def _birth(self, context: Context, keys: Keys, id: str) -> str | None:
        """Which conversation the context sees under an id."""
        anchor, _ = await self._outbox.load(keys.head(id))
        if anchor is None or anchor.state is None or not rules.is_visible(anchor.state.conversation, context):
            return None
        return anchor.birth

    async def owners(self, keys: Keys) -> list[tuple[str, int]]:
        """Everybody who has records, the empty name for nobody, and how many."""
        found = []
        async for key in self._functions.keys(keys.spaces):
            anchor, _ = await self._outbox.load(key)
            if anchor is not None and anchor.owner is not None:
                count = await Space(self._tree(keys), anchor).count()
                found += [(anchor.owner, count)] if count else []
        return sorted(found)

    # Writing

    async def write(self, context: Context, writes: Sequence[RecordWrite]) -> list[Record | None]:
        keys, owner = Keys(context.tenant), context.user or ""
        results: list[Record | None] = []

        async def plan(space: Space) -> tuple[Batch, Effects]:
            births = await self._births(context, keys, writes)
            wanted = list(dict.fromkeys((write.namespace, write.key) for write in writes))
            stored = {each: await space.find(rows.record_key(*each)) for each in wanted}
            current = {key: await self._live(context, keys, row) for key, row in stored.items()}
            alive = {key: record for key, record in current.items() if record}
            changes, results[:] = rules.plan_records(context, writes, alive)
            return _batch(changes, stored, births), _effects(keys, owner, changes, births)

        await self._change(keys, keys.space(owner), owner, context, plan)
        return results

    async def _births(self, context: Context, keys: Keys, writes: Sequence[RecordWrite]) -> dict[str, str]:
        """The conversations that records will belong to, which must be there."""
        births: dict[str, str] = {}
        for write in writes:
            if write.conversation_id is not None and not write.delete:
                birth = await self._birth(context, keys, write.conversation_id)
                if birth is None:
                    raise rules.not_found(write.conversation_id)
                births[write.conversation_id] = birth
        for birth in births.values():
            await self._functions.put(f"{keys.bound(birth)}{hashed(context.user or '')}", b"", None)
        return births

    async def _change(self, keys: Keys, head: str, owner: str | None, context: Context, plan: Plan) -> None:
        give_up = time.monotonic() + PATIENCE
        while True:
            anchor, token = await self._outbox.begin(keys, head)
            try:
                batch, effects = await plan(Space(self._tree(keys), anchor))
                if not batch:
                    return
                await self._commit(
                    keys, head, (anchor, token), owner=owner, now=context.now, batch=batch, effects=effects
                )
            except Missing as missing:
                await self._check_moved(head, token, missing)
            except Overtaken:
                if time.monotonic() > give_up:
                    what = f"others kept changing these records for {PATIENCE:g} seconds"
                    raise TimedOut(what, outcome="not_applied") from None
            else:
                return

    async def _commit(
        self,
        keys: Keys,
        head: str,
        found: tuple[Anchor | None, Token | None],
        *,
        owner: str | None,
        now: datetime,
        batch: Batch,
        effects: Effects,
    ) -> None:
        before, token = found
        stamp, numbers = secrets.token_hex(12), itertools.count()
        name = owner if owner is not None or before is None else before.owner
        prefix = f"{head.rpartition('/')[2]}/{stamp}"
        changed = await self._tree(keys).change(
            before.root if before else Root(), batch, lambda: f"{prefix}-{next(numbers)}"
        )
        effects.drop = [*effects.drop, *(keys.node(each) for each in changed.dropped)]
        if not changed.root.children:
            # The user's name goes with the last record.
            name = None
            effects.put = effects.put | {keys.due_at(now + LINGER, "head", f"{head}/{stamp}"): ""}
        anchor = Anchor(stamp=stamp, n=before.n + 1 if before else 1, owner=name, root=changed.root)
        objects = {keys.node(each): data for each, data in changed.made.items()}
        is_first = before is None or before.owner is None
        await self._outbox.commit(keys, Write(head, token, anchor, now, effects, objects, names_tenant=is_first))

    # Removing

    async def drop_bound(self, keys: Keys, head: str, birth: str, now: datetime) -> int:
        """Deletes the records under an owner's head that belong to a conversation."""
        return await self._drop(keys, head, lambda space: space.bound(birth), Context(keys.tenant, now))

    async def erase(self, context: Context, owner: str) -> int:
        """Deletes all records of an owner."""

        async def everything(space: Space) -> list[bytes]:
            return [key for key, _ in await self._tree(keys).take(space.root, *rows.RECORDS)]

        keys = Keys(context.tenant)
        return await self._drop(keys, keys.space(owner), everything, context)

    async def drop_expired(self, context: Context, owner: str, key: bytes) -> int:
        async def expired(space: Space) -> list[bytes]:
            row = await space.find(key)
            return [] if row is None or rules.is_alive(row.record, context.now) else [key]

        keys = Keys(context.tenant)
        return await self._drop(keys, f"{keys.spaces}{owner}", expired, context)

    async def _drop(self, keys: Keys, head: str, choose: Choice, context: Context) -> int:
        gone: list[bytes] = []

        async def plan(space: Space) -> tuple[Batch, Effects]:
            gone[:] = await choose(space)
            batch: Batch = {}
            for key in gone:
                row = await space.find(key)
                batch[key] = None
                if row is not None and row.birth:
                    batch[rows.bound_key(row.birth, key)] = None
            return batch, Effects()

        await self._change(keys, head, None, context, plan)
        return len(gone)


def _range(query: RecordQuery) -> tuple[bytes, bytes]:
    low = rows.namespace_key(query.prefix)
    high = low + b"\xff"
    if query.after is None:
        return low, high
    place = rows.record_key(*query.after)
    return (low, min(high, place)) if query.newest_first else (max(low, place + b"\0"), high)


def _batch(
    changes: Sequence[RecordChange], stored: Mapping[RecordKey, StoredRecord | None], births: Mapping[str, str]
) -> Batch:
    batch: Batch = {}
    for change in changes:
        key, before, record = rows.record_key(*change.key), stored[change.key], change.record
        if before is not None and before.birth:
            batch[rows.bound_key(before.birth, key)] = None
        birth = births.get(record.conversation_id, "") if record and record.conversation_id else ""
        if birth:
            batch[rows.bound_key(birth, key)] = rows.raw(True)
        if record is not None:
            batch[key] = rows.raw(rows.stored_record(record, birth))
        elif before is not None:
            batch[key] = None
    return batch


def _effects(keys: Keys, owner: str, changes: Sequence[RecordChange], births: Mapping[str, str]) -> Effects:
    expiring = [change for change in changes if change.record is not None and change.record.expires_at is not None]
    put = {}
    for change in expiring:
        if change.record is not None and change.record.expires_at is not None:
            what = rows.encode([hashed(owner), rows.record_key(*change.key)]).decode()
            due = keys.due_at(change.record.expires_at, "record", secrets.token_hex(12))
            put[due] = what
    return Effects(put=put, bound=[Bound(owner, id, birth) for id, birth in births.items()])
