"""Records: each user's, and those outside any user's view, in a place of their own, so that a batch is atomic.

For each record `data` has its value, `tokens` a token that changes with every write, `names` its position in the order,
and `links` the conversation that it belongs to. A record whose conversation is gone, or is another of the same id, is
dead: readers skip it and remove it.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Mapping, Sequence

from msgspec import Struct

from hansard import rules
from hansard.backends.redis import rows
from hansard.backends.redis.batch import Operations, merged
from hansard.backends.redis.changes import birth_link, linked
from hansard.backends.redis.connection import Command
from hansard.backends.redis.keys import RedisKeys, pair_member, record_member, record_prefix
from hansard.backends.redis.nodes import Nodes
from hansard.backends.redis.rows import StoredState
from hansard.backends.redis.state_cache import RedisStateCache
from hansard.contract.storage import RecordChange, RecordKey
from hansard.contract.types import Context, RecordQuery, RecordWrite
from hansard.errors import TimedOut
from hansard.model import Record, to_micros

_PIECE = 200
_PATIENCE = 30.0


class LoadedRecord(Struct):
    """A record as stored: its token, and the birth of its conversation."""

    token: str
    record: Record
    birth: int | None


class RedisRecords:
    def __init__(self, nodes: Nodes, keys: RedisKeys, states: RedisStateCache) -> None:
        self._nodes = nodes
        self._keys = keys
        self._states = states

    def _space(self, context: Context) -> str:
        return self._keys.records(context.tenant, context.user or "")

    # Reading

    async def get(self, context: Context, keys: Sequence[tuple[tuple[str, ...], str]]) -> list[Record | None]:
        names = [record_member(*key) for key in keys]
        stored = await self._load(self._space(context), names)
        return [each.record if each else None for each in await self._alive(context, stored)]

    async def _load(self, space: str, names: Sequence[bytes]) -> list[LoadedRecord | None]:
        if not names:
            return []
        commands = [(space, ("HMGET", f"{space}:{part}", *names)) for part in ("tokens", "data")]
        tokens, data = await self._nodes.ask_many(commands)
        found = zip(tokens, data, strict=True)
        return [
            LoadedRecord(token.decode(), *rows.record_of(each)) if token and each else None for token, each in found
        ]

    async def _alive(self, context: Context, found: Sequence[LoadedRecord | None]) -> list[LoadedRecord | None]:
        """Replaces records that this context does not see by None: expired, or of an invisible conversation."""
        names = sorted({each.record.conversation_id for each in found if each and each.record.conversation_id})
        homes = {name: (await self._states.read((context.tenant, name))).entry for name in names}
        for each in found:
            if each is not None and _is_orphan(each, homes):
                await self._remove(self._space(context), each.record, each.token)
        return [each if each and _is_alive(context, each, homes) else None for each in found]

    async def _remove(self, space: str, record: Record, token: str) -> bool:
        """Removes a record, unless another process has written it since."""
        name = record_member(record.namespace, record.key)
        own = Operations()
        own.check(f"{space}:tokens", name, token)
        _put(own, space, name, None, "", {})
        return (await own.run(self._nodes))[0] == 0

    def ask_for_any(self, tenant: str, namespace: tuple[str, ...]) -> tuple[str, Command]:
        """Returns the key and the command that find one record of exactly this namespace, outside users' views."""
        key = f"{self._keys.records(tenant, '')}:names"
        low, high = _range(RecordQuery(prefix=namespace, exact=True, limit=1))
        return key, ("ZRANGEBYLEX", key, low, high, "LIMIT", 0, 1)

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
        raise TimedOut(f"other writers kept changing these records for {_PATIENCE:.0f} seconds", outcome="not_applied")

    async def _try(self, context: Context, writes: Sequence[RecordWrite]) -> list[Record | None] | None:
        """Returns the results, or None if another writer was faster."""
        homes = await self._homes(context, writes)
        current, tokens = await self.find(context, [(write.namespace, write.key) for write in writes])
        changes, results = rules.plan_records(context, writes, current)
        return results if not changes or await self._store(context, changes, tokens, homes) else None

    async def find(
        self, context: Context, keys: Sequence[RecordKey]
    ) -> tuple[dict[RecordKey, Record], dict[bytes, str]]:
        """Returns the records that the context sees; and for each requested name the stored token, '' for none."""
        named = {key: record_member(*key) for key in keys}
        stored = await self._load(self._space(context), list(named.values()))
        alive = await self._alive(context, stored)
        tokens = {name: each.token if each else "" for name, each in zip(named.values(), stored, strict=True)}
        return {key: each.record for key, each in zip(named, alive, strict=True) if each}, tokens

    async def _homes(self, context: Context, writes: Sequence[RecordWrite]) -> dict[str, StoredState]:
        """Returns the conversations that records will belong to."""
        homes: dict[str, StoredState] = {}
        for write in writes:
            id = write.conversation_id
            if id is not None and not write.delete and id not in homes:
                entry = (await self._states.read((context.tenant, id), write=True)).entry
                if entry is None or not rules.is_visible(entry.state.conversation, context):
                    raise rules.not_found(id)
                homes[id] = entry
        return homes

    async def _store(
        self,
        context: Context,
        changes: Sequence[RecordChange],
        tokens: Mapping[bytes, str],
        homes: Mapping[str, StoredState],
    ) -> bool:
        token = secrets.token_hex(8)
        steps = self.steps(context, changes, tokens, homes, token)
        if not self._nodes.is_cluster:
            return (await merged(steps).run(self._nodes))[0] == 0
        for step in steps:
            if (await step.run(self._nodes))[0] != 0:
                return False
        # Again, in case they were removed meanwhile.
        await asyncio.gather(*(each.run(self._nodes) for each in self._announce(context, changes)))
        await self._remove_lost(context, changes, homes, token)
        return True

    async def _remove_lost(
        self, context: Context, changes: Sequence[RecordChange], homes: Mapping[str, StoredState], token: str
    ) -> None:
        """Removes records again whose conversation was deleted, without finding them, before they were stored."""
        for id, entry in homes.items():
            head = f"{self._keys.conversation(context.tenant, id)}:head"
            birth = await self._nodes.ask(head, ("HGET", head, "birth"), write=True)
            if birth is None or int(birth) != entry.birth:
                lost = [each.record for each in changes if each.record and each.record.conversation_id == id]
                await asyncio.gather(*(self._remove(self._space(context), record, token) for record in lost))

    def steps(
        self,
        context: Context,
        changes: Sequence[RecordChange],
        tokens: Mapping[bytes, str],
        homes: Mapping[str, StoredState],
        token: str,
        *,
        check_homes: bool = True,
    ) -> list[Operations]:
        """Returns the operations for each place, in order. With one server, one script may do all of them."""
        space = self._space(context)
        own = Operations()
        for change in changes:
            name = record_member(*change.key)
            own.check(f"{space}:tokens", name, tokens[name])
            _put(own, space, name, change.record, token, homes)
        return [*self._announce(context, changes), *self._bind(context, changes, homes, token, check=check_homes), own]

    def _announce(self, context: Context, changes: Sequence[RecordChange]) -> list[Operations]:
        """Returns the operations that make the records findable, for each place."""
        tenant, owner, keys = context.tenant, context.user or "", self._keys
        kept = [change.record for change in changes if change.record is not None]
        if not kept:
            return []
        known = Operations()
        known.add("SADD", keys.tenants, tenant)
        if any(record.expires_at is not None for record in kept):
            known.add("SADD", keys.expiring_records, pair_member(tenant, owner))
        owners = Operations()
        owners.add("SADD", f"{keys.tenant(tenant)}:owners", owner)
        return [known, owners]

    def _bind(
        self,
        context: Context,
        changes: Sequence[RecordChange],
        homes: Mapping[str, StoredState],
        token: str,
        *,
        check: bool,
    ) -> list[Operations]:
        """Adds to the conversations which records belong to them."""
        ties: list[Operations] = []
        for id, entry in homes.items():
            root = self._keys.conversation(context.tenant, id)
            mine = [record_member(*each.key) for each in changes if each.record and each.record.conversation_id == id]
            operations = Operations()
            if check:
                operations.check(f"{root}:head", "birth", entry.birth)
            operations.add_many("SADD", f"{root}:records", (linked(context.user or "", name) for name in mine))
            if mine:
                # A writer that is about to delete the conversation must look again which records go with it.
                operations.add("HSET", f"{root}:head", "bound", token)
                ties.append(operations)
        return ties

    # Whole spaces

    async def count(self, tenant: str, owner: str) -> int:
        space = self._keys.records(tenant, owner)
        found: int = await self._nodes.ask(space, ("HLEN", f"{space}:data"), write=False)
        return found

    async def owners(self, tenant: str) -> list[str]:
        """Returns the owners of records; '' for those outside any user's view."""
        key = f"{self._keys.tenant(tenant)}:owners"
        known = sorted(each.decode() for each in await self._nodes.ask(key, ("SMEMBERS", key), write=False))
        return [owner for owner in known if await self.count(tenant, owner)]

    async def erase(self, tenant: str, owner: str) -> int:
        """Removes a whole space; returns how many records it had."""
        space = self._keys.records(tenant, owner)
        number = await self.count(tenant, owner)
        own = Operations()
        for part in ("tokens", "data", "names", "links", "expiring"):
            own.add("UNLINK", f"{space}:{part}")
        await own.run(self._nodes)
        await self._drop_expiring(tenant, owner)
        key = f"{self._keys.tenant(tenant)}:owners"
        await self._nodes.ask(key, ("SREM", key, owner), write=True)
        if await self.count(tenant, owner):
            # Another writer has added a record since.
            await self._nodes.ask(key, ("SADD", key, owner), write=True)
        return number

    async def _drop_expiring(self, tenant: str, owner: str) -> None:
        """Removes a space from the sweep list, unless a record of it expires."""
        spaces, key = self._keys.expiring_records, f"{self._keys.records(tenant, owner)}:expiring"
        await self._nodes.ask(spaces, ("SREM", spaces, pair_member(tenant, owner)), write=True)
        if await self._nodes.ask(key, ("EXISTS", key), write=True):
            # Another writer has added a record since.
            await self._nodes.ask(spaces, ("SADD", spaces, pair_member(tenant, owner)), write=True)

    async def sweep(self, context: Context, limit: int) -> int:
        """Removes expired records, over all tenants."""
        spaces = await self._nodes.ask(self._keys.all, ("SMEMBERS", self._keys.expiring_records), write=False)
        gone = 0
        for member in sorted(spaces):
            if gone >= limit:
                break
            tenant, owner = rows.pair_of(member)
            gone += await self._sweep(Context(tenant, context.now), self._keys.records(tenant, owner), limit - gone)
            key = f"{self._keys.records(tenant, owner)}:expiring"
            if not await self._nodes.ask(key, ("EXISTS", key), write=True):
                await self._drop_expiring(tenant, owner)
        return gone

    async def _sweep(self, context: Context, space: str, limit: int) -> int:
        key = f"{space}:expiring"
        now = to_micros(context.now)
        names = await self._nodes.ask(key, ("ZRANGEBYSCORE", key, "-inf", now, "LIMIT", 0, limit), write=True)
        gone = 0
        for stored in await self._load(space, names):
            if stored is not None and not rules.is_alive(stored.record, context.now):
                gone += await self._remove(space, stored.record, stored.token)
        return gone


def _put(
    own: Operations, space: str, name: bytes, record: Record | None, token: str, homes: Mapping[str, StoredState]
) -> None:
    if record is None:
        for part in ("tokens", "data", "links"):
            own.add("HDEL", f"{space}:{part}", name)
        own.add("ZREM", f"{space}:names", name)
        own.add("ZREM", f"{space}:expiring", name)
        return
    home = homes.get(record.conversation_id) if record.conversation_id is not None else None
    own.add("HSET", f"{space}:tokens", name, token)
    own.add("HSET", f"{space}:data", name, rows.stored_record(record, home.birth if home else None))
    own.add("ZADD", f"{space}:names", 0, name)
    if home is None:
        own.add("HDEL", f"{space}:links", name)
    else:
        own.add("HSET", f"{space}:links", name, birth_link(home.state.conversation.id, home.birth))
    if record.expires_at is None:
        own.add("ZREM", f"{space}:expiring", name)
    else:
        own.add("ZADD", f"{space}:expiring", to_micros(record.expires_at), name)


def _is_orphan(each: LoadedRecord, homes: dict[str, StoredState | None]) -> bool:
    """Returns whether its conversation is gone for good: its writer, or the one that deleted it, was interrupted."""
    id = each.record.conversation_id
    home = homes[id] if id is not None else None
    return id is not None and (home is None or home.birth != each.birth)


def _is_alive(context: Context, each: LoadedRecord, homes: dict[str, StoredState | None]) -> bool:
    id = each.record.conversation_id
    if id is not None:
        home = homes[id]
        if home is None or home.birth != each.birth or not rules.is_visible(home.state.conversation, context):
            return False
    return rules.is_alive(each.record, context.now)


def _range(query: RecordQuery) -> tuple[bytes, bytes]:
    """Returns the names between which a scan reads."""
    prefix = record_prefix(query.prefix) + (b"\0" + query.key_prefix.encode() if query.exact else b"")
    low, high = b"[" + prefix, b"(" + prefix + b"\xff"
    if query.after is None:
        return low, high
    place = b"(" + record_member(*query.after)
    if query.newest_first:
        return low, min(high, place, key=lambda end: end[1:])
    return max(low, place, key=lambda end: end[1:]), high
