"""One conversation in Redis, as an operation sees it.

The rules are Python, and Redis runs Lua. So a write remembers the conversation, or reads it, decides, and sends one
script that compares the last write and applies everything at once. If another writer was faster, nothing has happened,
and the operation runs again (`backends.shared.optimistic`). On one server a write ends its turn as soon as it is sent,
and the next one builds on the expected state: so many writes to one conversation share a round trip.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from itertools import count

from msgspec import structs

from hansard.backends.redis import tenant_data
from hansard.backends.redis.answers import NO_ANSWERS, ReadAnswers, answer
from hansard.backends.redis.batch import PlaceEffect, WriteBatch, merged
from hansard.backends.redis.changes import (
    NOTHING_LEAVES,
    Removals,
    fill,
    owner_and_name,
    released,
    removes_anything,
)
from hansard.backends.redis.keys import RedisKeys
from hansard.backends.redis.nodes import Nodes
from hansard.backends.redis.records import RedisRecords
from hansard.backends.redis.rows import StoredState
from hansard.backends.redis.state_cache import Ask, Moment, RedisStateCache
from hansard.backends.shared import optimistic
from hansard.backends.shared.optimistic import Overtaken
from hansard.backends.shared.settling import RemovedCounts, Settling
from hansard.backends.shared.signals import Signals
from hansard.backends.shared.turns import Queues, Turn
from hansard.contract.storage import Applied, Changes, Found, Operation, Placed, Run, T, Wants
from hansard.contract.types import Context, ConversationState
from hansard.errors import Unsupported

_HOPEFUL = 10_000
"""Up to this number of ids and tombstones the script checks each. More would leave no room for the messages."""
_MANY = 1000


class RedisWriter:
    """Runs operations, one at a time for each conversation."""

    def __init__(
        self,
        nodes: Nodes,
        keys: RedisKeys,
        states: RedisStateCache,
        settling: Settling[WriteBatch, PlaceEffect],
        records: RedisRecords,
    ) -> None:
        self.nodes = nodes
        self.keys = keys
        self.states = states
        self._settling = settling
        self.records = records
        self.signals = Signals()
        self._queues: Queues = {}
        self._own_name = secrets.token_hex(6)
        self._writes = count()

    def new_name(self) -> str:
        """Returns a name for a write that no other write has, of this store or another."""
        return f"{self._own_name}{next(self._writes):x}"

    async def write(self, context: Context, id: str, operation: Operation[T]) -> T:
        turn = Turn(self._queues, (context.tenant, id))
        last: RedisTransaction | None = None

        async def begin(certain: bool) -> RedisTransaction:
            nonlocal last
            await turn.take()
            moment = self._remembered(context, id) if not certain else None
            prefetched = None
            if moment is None:
                moment = Moment(self.states, (context.tenant, id), write=True)
                if last is not None and last.assumed is not None:
                    # It will ask the same again: read the answer together with the state.
                    prefetched = last.assumed, await answer(moment, id, last.assumed)
                if not moment.was_read:
                    await moment.read()
            last = RedisTransaction(self, context, id, moment, turn, prefetched, is_optimistic=not certain)
            return last

        try:
            return await optimistic.write(operation, begin)
        finally:
            turn.leave()

    async def commit(self, batch: WriteBatch) -> RemovedCounts | None:
        """Returns what a write removed elsewhere; None if the write has not happened."""
        if batch.crosses:
            return await self._settling.commit(batch)
        failed, *gone = await batch.own.run(self.nodes)
        return None if failed else RemovedCounts(*gone)

    async def settle(self, tenant: str) -> None:
        """Settles writes before a place is read that writes to other places change."""
        if self.nodes.is_cluster:
            await self._settling.settle(tenant)

    def _remembered(self, context: Context, id: str) -> Moment | None:
        name = (context.tenant, id)
        entry = self.states.latest(name)
        return Moment(self.states, name, entry, write=True) if entry else None


class RedisTransaction:
    has_applied = False
    assumed: Wants | None = None
    """The questions that were answered without reading; the script checks the answers."""
    _segments = 0
    """How many new segments the operation has requested."""
    _runs: Sequence[Run] = ()
    """Runs that were read completely: `apply` need not read them again."""
    _messages: Sequence[Placed] = ()
    _summaries: Sequence[bytes] = ()
    _tokens: Mapping[bytes, str] = {}

    def __init__(
        self,
        writer: RedisWriter,
        context: Context,
        id: str,
        moment: Moment,
        turn: Turn,
        prefetched: tuple[Wants, ReadAnswers] | None = None,
        *,
        is_optimistic: bool,
    ) -> None:
        self.context = context
        self.id = id
        self._writer = writer
        self._moment = moment
        self._turn = turn
        self._foreseen = prefetched
        self._hopes = is_optimistic

    @property
    def state(self) -> ConversationState | None:
        return self._moment.entry.state if self._moment.entry else None

    @property
    def is_certain(self) -> bool:
        return self._moment.was_read and self.assumed is None

    def new_segment(self) -> int:
        self._segments += 1
        return self._segments + (self._moment.entry.segments if self._moment.entry else 0)

    async def get(self, wants: Wants) -> Found:
        answers = await self._answers(wants)
        found = answers.found
        if wants.summaries:
            self._summaries = answers.summaries
        if wants.runs and wants.newest is None:
            self._runs, self._messages = wants.runs, found.messages
        if wants.blobs:
            nodes, keys, tenant = self._writer.nodes, self._writer.keys, self.context.tenant
            found = structs.replace(found, blobs=await tenant_data.get_blobs(nodes, keys, tenant, wants.blobs))
        if wants.records:
            records, self._tokens = await self._writer.records.find(self.context, wants.records)
            found = structs.replace(found, records=records)
        return found

    async def _answers(self, wants: Wants) -> ReadAnswers:
        is_optimistic = self._hopes and self.assumed is None
        if is_optimistic and wants.expects_none and len(wants.ids) + len(wants.tombstones) <= _HOPEFUL:
            self.assumed = wants
            return NO_ANSWERS
        if self._foreseen is not None and self._foreseen[0] == wants:
            return self._foreseen[1]
        return await answer(self._moment, self.id, wants)

    # Applying

    async def apply(self, changes: Changes) -> Applied:
        self.has_applied = True
        batch, before = self._new_batch(), self._moment.entry
        leaving = await self._removals(changes) if removes_anything(changes) else NOTHING_LEAVES
        if changes.wipes == "everything":
            batch.check("head", "bound", leaving.bound)
        after = fill(batch, self.context, before, changes, leaving)
        if changes.records:
            self._add_records(batch, after, changes)
        gone = await self._commit(batch, after)
        wiped = before.state.conversation.message_count if before and changes.wipes != "nothing" else 0
        return Applied(
            messages=wiped + len(leaving.messages),
            summaries=leaving.summaries + len(changes.lost_summaries),
            records=gone.records,
            blobs=gone.blobs,
        )

    def _new_batch(self) -> WriteBatch:
        """Returns a batch that applies only if the conversation, or its absence, is unchanged."""
        moment, writer = self._moment, self._writer
        # It grows, also across deletions: from the clock, or else one more than the last.
        n = max(moment.last_n + 1, time.time_ns() // 1000)
        batch = WriteBatch(
            writer.keys, self.context.tenant, self.id, n, writer.new_name(), cluster=writer.nodes.is_cluster
        )
        if moment.entry is not None:
            batch.check("head", "n", moment.entry.n)
            # The write that this one builds on may be refused, and another one be stored with the same `n`.
            batch.check("head", "write", moment.entry.write)
        else:
            batch.check("head", "n", "")
            batch.check("graves", "n", moment.last_n or "")
        if self.assumed is not None:
            for id in self.assumed.ids:
                batch.check("ids", id, "")
            for digest in self.assumed.tombstones:
                batch.check("graves", digest, "")
        return batch

    async def _removals(self, changes: Changes) -> Removals:
        leaving = Removals(messages=changes.remove or await self._messages_of(changes.remove_runs))
        if changes.wipes != "nothing" and self._moment.entry is not None:
            await self._add_all(leaving)
        lost = sorted(released(changes, leaving.messages))
        if lost:
            leaving.counts = await self._counts(lost)
        if changes.lost_summaries:
            kept = set(range(len(self._summaries))).difference(changes.lost_summaries)
            leaving.left_summaries = [self._summaries[position] for position in sorted(kept)]
        return leaving

    async def _messages_of(self, runs: Sequence[Run]) -> Sequence[Placed]:
        found: list[Placed] = []
        for run in runs:
            if any(_holds(each, run) for each in self._runs):
                found += [placed for placed in self._messages if _is_in(run, placed)]
            else:
                found += (await answer(self._moment, self.id, Wants(runs=[run]))).found.messages
        return found

    async def _add_all(self, leaving: Removals) -> None:
        asks: list[Ask] = [
            ("HKEYS", "blobs"),
            ("SMEMBERS", "records"),
            ("HGET", "head", "bound"),
            ("SMEMBERS", "participants"),
            ("LLEN", "summaries"),
        ]
        blobs, links, bound, users, leaving.summaries = await self._moment.read(asks)
        leaving.bound = (bound or b"").decode()
        leaving.blobs = [each.decode() for each in blobs]
        leaving.records = [owner_and_name(each) for each in links]
        leaving.participants = [each.decode() for each in users]

    async def _counts(self, digests: Sequence[str]) -> dict[str, int]:
        """Returns how many messages refer to each of these blobs."""
        pieces = [digests[at : at + _MANY] for at in range(0, len(digests), _MANY)]
        answers = await self._moment.read([("HMGET", "blobs", *piece) for piece in pieces])
        counts = [count for piece in answers for count in piece]
        return {sha256: int(count or 0) for sha256, count in zip(digests, counts, strict=True)}

    def _add_records(self, batch: WriteBatch, after: StoredState | None, changes: Changes) -> None:
        if self._writer.nodes.is_cluster:
            raise Unsupported(
                "a Redis Cluster cannot write records and messages in one step: write the records by themselves",
                capability="atomic_batch",
            )
        homes = {self.id: after} if after else {}
        records, token = self._writer.records, secrets.token_hex(8)
        # The batch itself checks that the conversation is unchanged.
        steps = records.steps(self.context, changes.records, self._tokens, homes, token, check_homes=False)
        merged(steps).add_to(batch.own)

    async def _commit(self, batch: WriteBatch, after: StoredState | None) -> RemovedCounts:
        states, name = self._writer.states, (self.context.tenant, self.id)
        try:
            # In a cluster a write takes several steps, so the next one could overtake it.
            if after is not None and not self._writer.nodes.is_cluster:
                states.expect(name, after)
                self._turn.leave()
            gone = await self._writer.commit(batch)
        except BaseException:
            states.discard(name)
            raise
        if gone is None or after is None:
            states.discard(name)
        else:
            states.put(name, after)
        if gone is None:
            raise Overtaken
        self._writer.signals.notify(name)
        return gone


def _holds(outer: Run, inner: Run) -> bool:
    return outer.segment == inner.segment and outer.after <= inner.after and inner.upto <= outer.upto


def _is_in(run: Run, placed: Placed) -> bool:
    return placed[0] == run.segment and run.after < placed[1].seq <= run.upto
