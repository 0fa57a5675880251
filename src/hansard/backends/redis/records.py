"""Records: each user's, and those outside any user's view, in a place of their own, so that a batch is all or nothing.

For each record `data` has its value, `tokens` a mark that changes with every write, `names` its place in the order, and
`links` the conversation that it belongs to. A record whose conversation is gone, or is another of the same id, is dead:
readers pass over it, and it is taken away when they meet it.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Sequence

from msgspec import Struct

from hansard import rules
from hansard.backends.redis import documents
from hansard.backends.redis.batch import Operations
from hansard.backends.redis.coding import Entry
from hansard.backends.redis.heads import Heads
from hansard.backends.redis.keys import Keys, record_member, record_prefix, whom
from hansard.backends.redis.nodes import Nodes
from hansard.backends.redis.saving import link
from hansard.backends.redis.scripts import WRITE
from hansard.backends.redis.writing import linked
from hansard.contract.types import Context, RecordQuery, RecordWrite
from hansard.errors import TimedOut
from hansard.model import Record, to_micros

_PIECE = 200
_PATIENCE = 30.0


class Stored(Struct):
    """A record as it lies there: its token, and the birth of its conversation."""

    token: str
    record: Record
    birth: int | None


class Records:
    def __init__(self, nodes: Nodes, keys: Keys, heads: Heads) -> None:
        self._nodes = nodes
        self._keys = keys
        self._heads = heads

    def _space(self, context: Context) -> str:
        return self._keys.records(context.tenant, context.user or "")

    # Reading

    async def get(self, context: Context, keys: Sequence[tuple[tuple[str, ...], str]]) -> list[Record | None]:
        names = [record_member(*key) for key in keys]
        stored = await self._load(self._space(context), names)
        return [each.record if each else None for each in await self._alive(context, stored)]

    async def _load(self, space: str, names: Sequence[bytes]) -> list[Stored | None]:
        if not names:
            return []
        commands = [(space, ("HMGET", f"{space}:{part}", *names)) for part in ("tokens", "data")]
        tokens, data = await self._nodes.ask_many(commands)
        found = zip(tokens, data, strict=True)
        return [Stored(token.decode(), *documents.record_of(each)) if token and each else None for token, each in found]

    async def _alive(self, context: Context, found: Sequence[Stored | None]) -> list[Stored | None]:
        """None in place of those that this context does not see: expired, or of a conversation that is not there."""
        names = sorted({each.record.conversation_id for each in found if each and each.record.conversation_id})
        homes = {name: (await self._heads.look((context.tenant, name))).entry for name in names}
        for each in found if self._nodes.is_cluster else ():
            if each is not None and _is_orphan(each, homes):
                await self._remove(self._space(context), each)
        return [each if each and _is_alive(context, each, homes) else None for each in found]

    async def _remove(self, space: str, stored: Stored) -> bool:
        """Takes a record away, unless somebody has written it since."""
        name = record_member(stored.record.namespace, stored.record.key)
        own = Operations(f"{space}:tokens")
        _put(own, space, name, None, "", {})
        answer = await WRITE.run(self._nodes, own.keys, ["", 1, 1, name, stored.token, *own.values])
        return bool(answer[0] == 0)

    async def scan(self, context: Context, query: RecordQuery) -> tuple[list[Record], bool]:
        found: list[Record] = []
        async for record in self._walk(context, query):
            found.append(record)
            if len(found) > query.limit:
                break
        return found[: query.limit], len(found) > query.limit

    async def _walk(self, context: Context, query: RecordQuery) -> AsyncIterator[Record]:
        space = self._space(context)
        key = f"{space}:names"
        low, high = _range(query)
        piece = min(query.limit + 1, _PIECE)
        while True:
            ends = ("ZREVRANGEBYLEX", key, high, low) if query.newest_first else ("ZRANGEBYLEX", key, low, high)
            names = await self._nodes.ask(key, (*ends, "LIMIT", 0, piece), write=False)
            for each in await self._alive(context, await self._load(space, names)):
                if each is not None and each.record.key.startswith(query.key_prefix):
                    yield each.record
            if len(names) < piece:
                return
            if query.newest_first:
                high = b"(" + names[-1]
            else:
                low = b"(" + names[-1]
            piece = _PIECE

    # Writing

    async def write(self, context: Context, writes: Sequence[RecordWrite]) -> list[Record | None]:
        give_up = time.monotonic() + _PATIENCE
        while time.monotonic() < give_up:
            written = await self._try(context, writes)
            if written is not None:
                return written
        raise TimedOut(f"others kept changing these records for {_PATIENCE:.0f} seconds", outcome="not_applied")

    async def _try(self, context: Context, writes: Sequence[RecordWrite]) -> list[Record | None] | None:
        """The results, or None when somebody else was faster."""
        homes = await self._homes(context, writes)
        names = list(dict.fromkeys(record_member(write.namespace, write.key) for write in writes))
        space = self._space(context)
        stored = dict(zip(names, await self._load(space, names), strict=True))
        alive = dict(zip(names, await self._alive(context, list(stored.values())), strict=True))
        planned: dict[bytes, Record | None] = {}
        results: list[Record | None] = []
        for write in writes:
            name = record_member(write.namespace, write.key)
            living = alive[name]
            current = planned.get(name, living.record if living else None)
            planned[name] = rules.plan_record(context, write, current)
            results.append(current if write.delete else planned[name])
        if not planned:
            return results
        tokens = {name: each.token if each else "" for name, each in stored.items()}
        return results if await self._store(context, planned, tokens, homes) else None

    async def _homes(self, context: Context, writes: Sequence[RecordWrite]) -> dict[str, Entry]:
        """The conversations that records shall belong to."""
        homes: dict[str, Entry] = {}
        for write in writes:
            id = write.conversation_id
            if id is not None and not write.delete and id not in homes:
                entry = (await self._heads.look((context.tenant, id), write=True)).entry
                if entry is None or not rules.is_visible(entry.head.conversation, context):
                    raise rules.not_found(id)
                homes[id] = entry
        return homes

    async def _store(
        self, context: Context, planned: dict[bytes, Record | None], tokens: dict[bytes, str], homes: dict[str, Entry]
    ) -> bool:
        space = self._space(context)
        own = Operations(f"{space}:tokens")
        checks: list[object] = []
        for name, seen in tokens.items():
            checks += (1, name, seen)
        first = self._announce(context, planned, homes)
        if self._nodes.is_cluster:
            for operations, conditions in first:
                if (await self._run(operations, conditions))[0] != 0:
                    return False
        else:
            for operations, conditions in first:
                for key, field, value in conditions:
                    checks += (own.number(key), field, value)
                operations.into(own)
        token = secrets.token_hex(8)
        for name, record in planned.items():
            _put(own, space, name, record, token, homes)
        answer = await WRITE.run(self._nodes, own.keys, ["", len(checks) // 3, *checks, *own.values])
        return bool(answer[0] == 0)

    def _announce(
        self, context: Context, planned: dict[bytes, Record | None], homes: dict[str, Entry]
    ) -> list[tuple[Operations, list[tuple[str, str, object]]]]:
        """What others will find the records by, for each place, and what must hold there."""
        tenant, owner, keys = context.tenant, context.user or "", self._keys
        kept = {name: record for name, record in planned.items() if record is not None}
        if not kept:
            return []
        known = Operations()
        known.add("SADD", keys.tenants, tenant)
        if any(record.expires_at is not None for record in kept.values()):
            known.add("SADD", keys.expiring_records, whom(tenant, owner))
        owners = Operations()
        owners.add("SADD", f"{keys.tenant(tenant)}:owners", owner)
        announced: list[tuple[Operations, list[tuple[str, str, object]]]] = [(known, []), (owners, [])]
        for id, entry in homes.items():
            root = keys.conversation(tenant, id)
            operations = Operations(f"{root}:head")
            mine = [linked(owner, name) for name, record in kept.items() if record.conversation_id == id]
            operations.add_many("SADD", f"{root}:records", mine)
            announced.append((operations, [(f"{root}:head", "birth", entry.birth)]))
        return announced

    async def _run(self, operations: Operations, conditions: list[tuple[str, str, object]]) -> list[int]:
        checks = [each for key, field, value in conditions for each in (operations.number(key), field, value)]
        answer: list[int] = await WRITE.run(
            self._nodes, operations.keys, ["", len(conditions), *checks, *operations.values]
        )
        return answer

    # Whole spaces

    async def count(self, tenant: str, owner: str) -> int:
        space = self._keys.records(tenant, owner)
        found: int = await self._nodes.ask(space, ("HLEN", f"{space}:data"), write=False)
        return found

    async def owners(self, tenant: str) -> list[str]:
        """Whose records there are; '' for those outside any user's view."""
        key = f"{self._keys.tenant(tenant)}:owners"
        known = sorted(each.decode() for each in await self._nodes.ask(key, ("SMEMBERS", key), write=False))
        return [owner for owner in known if await self.count(tenant, owner)]

    async def erase(self, tenant: str, owner: str) -> int:
        """Removes a whole space; gives how many records that were."""
        space = self._keys.records(tenant, owner)
        number = await self.count(tenant, owner)
        own = Operations()
        for part in ("tokens", "data", "names", "links", "expiring"):
            own.add("UNLINK", f"{space}:{part}")
        await self._run(own, [])
        await self._nodes.ask(self._keys.all, ("SREM", self._keys.expiring_records, whom(tenant, owner)), write=True)
        key = f"{self._keys.tenant(tenant)}:owners"
        await self._nodes.ask(key, ("SREM", key, owner), write=True)
        if await self.count(tenant, owner):
            # Somebody has written one since.
            await self._nodes.ask(key, ("SADD", key, owner), write=True)
        return number

    async def sweep(self, context: Context, limit: int) -> int:
        """Removes records that have expired, over all tenants."""
        spaces = await self._nodes.ask(self._keys.all, ("SMEMBERS", self._keys.expiring_records), write=False)
        gone = 0
        for member in sorted(spaces):
            if gone >= limit:
                break
            tenant, owner = documents.pair_of(member)
            gone += await self._sweep(Context(tenant, context.now), self._keys.records(tenant, owner), limit - gone)
            key = f"{self._keys.records(tenant, owner)}:expiring"
            if not await self._nodes.ask(key, ("EXISTS", key), write=True):
                await self._nodes.ask(self._keys.all, ("SREM", self._keys.expiring_records, member), write=True)
        return gone

    async def _sweep(self, context: Context, space: str, limit: int) -> int:
        key = f"{space}:expiring"
        now = to_micros(context.now)
        names = await self._nodes.ask(key, ("ZRANGEBYSCORE", key, "-inf", now, "LIMIT", 0, limit), write=True)
        gone = 0
        for stored in await self._load(space, names):
            if stored is not None and not rules.is_alive(stored.record, context.now):
                gone += await self._remove(space, stored)
        return gone


def _put(own: Operations, space: str, name: bytes, record: Record | None, token: str, homes: dict[str, Entry]) -> None:
    if record is None:
        for part in ("tokens", "data", "links"):
            own.add("HDEL", f"{space}:{part}", name)
        own.add("ZREM", f"{space}:names", name)
        own.add("ZREM", f"{space}:expiring", name)
        return
    home = homes.get(record.conversation_id) if record.conversation_id is not None else None
    own.add("HSET", f"{space}:tokens", name, token)
    own.add("HSET", f"{space}:data", name, documents.stored_record(record, home.birth if home else None))
    own.add("ZADD", f"{space}:names", 0, name)
    if home is None:
        own.add("HDEL", f"{space}:links", name)
    else:
        own.add("HSET", f"{space}:links", name, link(home.head.conversation.id, home.birth))
    if record.expires_at is None:
        own.add("ZREM", f"{space}:expiring", name)
    else:
        own.add("ZADD", f"{space}:expiring", to_micros(record.expires_at), name)


def _is_orphan(each: Stored, homes: dict[str, Entry | None]) -> bool:
    """Whether its conversation is gone for good: its writer, or the one who deleted it, was cut off in between."""
    id = each.record.conversation_id
    home = homes[id] if id is not None else None
    return id is not None and (home is None or home.birth != each.birth)


def _is_alive(context: Context, each: Stored, homes: dict[str, Entry | None]) -> bool:
    id = each.record.conversation_id
    if id is not None:
        home = homes[id]
        if home is None or home.birth != each.birth or not rules.is_visible(home.head.conversation, context):
            return False
    return rules.is_alive(each.record, context.now)


def _range(query: RecordQuery) -> tuple[bytes, bytes]:
    """The names between which a scan lies."""
    prefix = record_prefix(query.prefix) + (b"\0" + query.key_prefix.encode() if query.exact else b"")
    low, high = b"[" + prefix, b"(" + prefix + b"\xff"
    if query.after is None:
        return low, high
    place = b"(" + record_member(*query.after)
    if query.newest_first:
        return low, min(high, place, key=lambda end: end[1:])
    return max(low, place, key=lambda end: end[1:]), high
