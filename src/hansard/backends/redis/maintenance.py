"""Work over many conversations: sweeps, statistics, checks, deletion of tenants."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from functools import partial

from hansard import rules
from hansard.backends.redis import listing, read, rows, tenant_data
from hansard.backends.redis.batch import Operations
from hansard.backends.redis.index import RedisIndex
from hansard.backends.redis.keys import RedisKeys, list_members, list_roots
from hansard.backends.redis.nodes import Nodes
from hansard.backends.redis.records import RedisRecords
from hansard.backends.redis.rows import StoredState
from hansard.backends.redis.state_cache import RedisStateCache
from hansard.backends.redis.transaction import RedisWriter
from hansard.contract.types import Context, Swept
from hansard.errors import HansardError
from hansard.model import NOT_YET, Message, Problem, Receipt, Stats, to_micros
from hansard.rules import operations


class RedisMaintenance:
    def __init__(
        self, nodes: Nodes, keys: RedisKeys, writer: RedisWriter, records: RedisRecords, index: RedisIndex
    ) -> None:
        self._nodes = nodes
        self._keys = keys
        self._writer = writer
        self._states: RedisStateCache = writer.states
        self._records = records
        self._index = index
        self._settle = writer.settle

    # Tenants

    async def tenants(self) -> list[str]:
        """Returns the tenants that hold anything."""
        return [tenant for tenant in await self._known_tenants() if await self._holds_anything(tenant)]

    async def _known_tenants(self) -> list[str]:
        found = await self._nodes.ask(self._keys.all, ("SMEMBERS", self._keys.tenants), write=False)
        return sorted(each.decode() for each in found)

    async def _holds_anything(self, tenant: str) -> bool:
        await self._settle(tenant)
        return bool(
            await self._count(tenant)
            or await self._records.owners(tenant)
            or await tenant_data.has_any_blob(self._nodes, self._keys, tenant)
        )

    async def _count(self, tenant: str) -> int:
        key = f"{self._keys.tenant(tenant)}:updated_at"
        number: int = await self._nodes.ask(key, ("ZCARD", key), write=False)
        return number

    async def delete_tenant(self, context: Context) -> Receipt:
        tenant = context.tenant
        await self._settle(tenant)
        total = Receipt(at=context.now)
        async for members in listing.everything(self._nodes, self._keys, tenant):
            for member in members:
                total += await self._drop(context, listing.id_of(member))
        records = 0
        for owner in await self._records.owners(tenant):
            records += await self._records.erase(tenant, owner)
        blobs = await tenant_data.erase_blobs(self._nodes, self._keys, tenant)
        usage_rows = await tenant_data.erase_usage(self._nodes, self._keys, tenant, None)
        await self._drop_tombstones(tenant)
        await self._index.forget(tenant)
        if not await self._holds_anything(tenant):
            await self._nodes.ask(self._keys.all, ("SREM", self._keys.tenants, tenant), write=True)
            if await self._holds_anything(tenant):
                # Another process has written since.
                await self._nodes.ask(self._keys.all, ("SADD", self._keys.tenants, tenant), write=True)
        self._states.clear()
        return total + Receipt(records=records, blobs=blobs, usage_rows=usage_rows, at=context.now)

    async def _drop(self, context: Context, id: str, *, if_expired: bool = False) -> Receipt:
        return await self._writer.write(context, id, partial(operations.drop_conversation, if_expired=if_expired))

    # Sweeping

    async def sweep(self, context: Context, limit: int) -> Swept:
        tenants = await self._known_tenants()
        for tenant in tenants:
            await self._settle(tenant)
        expired, total = await self._sweep_conversations(context, limit)
        records = await self._records.sweep(context, limit)
        blobs = 0
        for tenant in tenants:
            blobs += await tenant_data.sweep_blobs(self._nodes, self._keys, Context(tenant, context.now), limit - blobs)
        tombstones = await self._sweep_tombstones(context, limit)
        total += Receipt(records=records, blobs=blobs, at=context.now)
        return Swept(receipt=total, tombstones=tombstones, more=max(expired, records, blobs) >= limit)

    async def _sweep_conversations(self, context: Context, limit: int) -> tuple[int, Receipt]:
        index = self._keys.expiring
        ask = ("ZRANGEBYSCORE", index, "-inf", to_micros(context.now), "WITHSCORES", "LIMIT", 0, limit)
        found = await self._nodes.ask(index, ask, write=True)
        total = Receipt(at=context.now)
        for member, score in zip(found[::2], found[1::2], strict=True):
            tenant, id = rows.pair_of(member)
            gone = await self._drop(Context(tenant, context.now), id, if_expired=True)
            total += gone
            if not gone:
                await self._correct_expiry(member, score)
        return len(found) // 2, total

    async def _correct_expiry(self, member: bytes, score: bytes) -> None:
        """Corrects the index: the conversation does not expire at that time."""
        entry = (await self._states.read(rows.pair_of(member), write=True)).entry
        expires = to_micros(entry.state.conversation.expires_at) if entry else None
        own = Operations()
        own.add("correct", self._keys.expiring, member, score, "" if expires is None else expires)
        await tenant_data.run_operations(self._nodes, own)

    async def _sweep_tombstones(self, context: Context, limit: int) -> int:
        old = to_micros(context.now - rules.TOMBSTONE_LIFE)
        ask = ("ZRANGEBYSCORE", self._keys.deleted, "-inf", old, "LIMIT", 0, limit)
        gone = 0
        for member in await self._nodes.ask(self._keys.all, ask, write=True):
            gone += await self._drop_old_tombstones(context, member, old)
        return gone

    async def _drop_old_tombstones(self, context: Context, member: bytes, old: int) -> int:
        """Removes the tombstones of one conversation that are older, and schedules the next sweep of it."""
        key = f"{self._keys.conversation(*rows.pair_of(member))}:graves"
        fields = await self._nodes.ask(key, ("HGETALL", key), write=True)
        # The `n` of the last deletion is a time as well: after so long, no new conversation can be mistaken for the
        # deleted one.
        tombstones = {name: int(at) for name, at in zip(fields[::2], fields[1::2], strict=True)}
        forgotten = [name for name, at in tombstones.items() if at <= old]
        own = Operations()
        for name in forgotten:
            own.add("forget", key, name, old)
        await tenant_data.run_operations(self._nodes, own)
        left = min((at for at in tombstones.values() if at > old), default=None)
        await self._reschedule(context, member, key, left)
        return len([name for name in forgotten if name != b"n"])

    async def _reschedule(self, context: Context, member: bytes, tombstones: str, time: int | None) -> None:
        """Schedules the next sweep for the oldest tombstone of a conversation; None if no tombstone is left."""
        index = self._keys.deleted
        if time is not None:
            await self._nodes.ask(index, ("ZADD", index, time, member), write=True)
            return
        await self._nodes.ask(index, ("ZREM", index, member), write=True)
        if await self._nodes.ask(tombstones, ("EXISTS", tombstones), write=True):
            # Another message or conversation was deleted since.
            await self._nodes.ask(index, ("ZADD", index, "LT", to_micros(context.now), member), write=True)

    async def _drop_tombstones(self, tenant: str) -> None:
        for member in await self._nodes.ask(self._keys.all, ("ZRANGE", self._keys.deleted, 0, -1), write=True):
            name, id = rows.pair_of(member)
            if name == tenant:
                key = f"{self._keys.conversation(tenant, id)}:graves"
                await self._nodes.ask(key, ("UNLINK", key), write=True)
                await self._nodes.ask(self._keys.all, ("ZREM", self._keys.deleted, member), write=True)

    # Counting

    async def stats(self, tenant: str | None) -> Stats:
        conversations = messages = records = blobs = blob_bytes = unindexed = 0
        active: Counter[str] = Counter()
        chosen = await self.tenants() if tenant is None else [tenant]
        for name in chosen:
            await self._settle(name)
            before = messages
            async for members in listing.everything(self._nodes, self._keys, name):
                ids = [listing.id_of(member) for member in members]
                entries = await listing.states_of(self._nodes, self._keys, name, ids)
                found = [entry.state.conversation for entry in entries if entry]
                conversations += len(found)
                messages += sum(each.message_count for each in found)
                active.update(rules.active_days(found))
            for owner in await self._records.owners(name):
                records += await self._records.count(name, owner)
            number, size = await tenant_data.measure_blobs(self._nodes, self._keys, name)
            blobs, blob_bytes = blobs + number, blob_bytes + size
            waiting = await self._index.waiting(name) if self._index.is_there else 0
            unindexed += messages - before if waiting is None else waiting
        return Stats(
            backend="redis",
            tenants=len([name for name in chosen if tenant is None or await self._holds_anything(name)]),
            conversations=conversations,
            messages=messages,
            records=records,
            blobs=blobs,
            blob_bytes=blob_bytes,
            unindexed=unindexed if self._index.is_there else None,
            active=rules.newest_days(active),
        )

    # Checking

    async def check(self, tenant: str | None) -> AsyncIterator[Problem | int]:
        seen = 0
        for name in await self.tenants() if tenant is None else [tenant]:
            await self._settle(name)
            async for members in listing.everything(self._nodes, self._keys, name):
                for member in members:
                    for problem in await self._check(Context(name, NOT_YET), member):
                        yield problem
                seen += len(members)
                yield seen
            async for sha256 in tenant_data.damaged_blobs(self._nodes, self._keys, name):
                yield Problem(name, f"blob {sha256} is damaged: its bytes have another hash")
        if not seen:
            yield 0

    async def _check(self, context: Context, member: bytes) -> list[Problem]:
        id = listing.id_of(member)
        where = f"{context.tenant}/{id}"
        try:
            entry, messages = await self._read_all(context, id)
        except HansardError as error:
            return [Problem(where, str(error))]
        if entry is None:
            return await self._check_absent(context, where, member)
        digests = sorted({ref.sha256 for _, message in messages for ref in message.blobs})
        there = await tenant_data.has_blobs(self._nodes, self._keys, context.tenant, digests)
        problems = [
            *rules.audit(where, entry.state, messages),
            *(
                Problem(where, f"blob {each} is missing")
                for each, is_there in zip(digests, there, strict=True)
                if not is_there
            ),
            *await self._check_lists(context, where, entry),
        ]
        if missing := await self._index.missing(context.tenant, id, entry.state.conversation.user_id, messages):
            what = f"{missing} messages are not in the search index, or as another user's: run `hansard reindex`"
            problems.append(Problem(where, what))
        # Problems found while another process wrote prove nothing.
        again = await read.find_state(self._states, context, id) if problems else entry
        return problems if again is not None and again.n == entry.n else []

    async def _check_absent(self, context: Context, where: str, member: bytes) -> list[Problem]:
        key = f"{self._keys.tenant(context.tenant)}:updated_at"
        if await self._nodes.ask(key, ("ZSCORE", key, member), write=False) is None:
            return []
        return [Problem(where, "it is in the list of conversations, but does not exist")]

    async def _read_all(self, context: Context, id: str) -> tuple[StoredState | None, list[tuple[int, Message]]]:
        """Reads a conversation with all its messages, at a moment without concurrent writes."""
        while True:
            entry = await read.find_state(self._states, context, id)
            if entry is None:
                return None, []
            messages: list[tuple[int, Message]] = []
            after = 0
            step = rows.piece_of(entry)
            while piece := await read.read_segments(self._states, context, id, entry, after, step):
                messages += [(segment, rows.message_from(row, id)) for segment, row in piece]
                after = piece[-1][1].seq
            again = await read.find_state(self._states, context, id)
            if again is not None and again.n == entry.n:
                return entry, messages

    async def _check_lists(self, context: Context, where: str, entry: StoredState) -> list[Problem]:
        conversation = entry.state.conversation
        problems = []
        (number,) = (await self._states.read((context.tenant, conversation.id), [("HLEN", "ids")])).answers
        if number != conversation.message_count:
            what = f"{number} messages can be found by id, but {conversation.message_count} are counted"
            problems.append(Problem(where, what))
        names = [
            (f"{list_root}:{sort}", member)
            for list_root in list_roots(self._keys, context.tenant, conversation)
            for sort, member in list_members(conversation).items()
        ]
        scores = await self._nodes.ask_many([(key, ("ZSCORE", key, member)) for key, member in names])
        for (key, _), score in zip(names, scores, strict=True):
            if score is None:
                problems.append(Problem(where, f"it is missing from the list {key!r}"))
        return problems
