"""One conversation as an operation sees it, and how its changes are stored.

The state is remembered or read, the operation decides, and one conditional batch stores what it decided if the stamp of
the head is still the same. If another writer was faster, nothing is stored and the operation runs again.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from datetime import datetime

from msgspec import structs

from hansard.backends.cassandra import listing, read, rows
from hansard.backends.cassandra.blobs import BlobTable
from hansard.backends.cassandra.changes import Change, Leaving, is_addition
from hansard.backends.cassandra.connection import Link
from hansard.backends.cassandra.effects import WriteEffects
from hansard.backends.cassandra.heads import Heads
from hansard.backends.cassandra.partitions import CassandraPartitions
from hansard.backends.cassandra.read import ConversationView
from hansard.backends.cassandra.records import RecordTable
from hansard.backends.cassandra.rows import CassandraMessage, Head
from hansard.backends.cassandra.seal import Sealer
from hansard.backends.cassandra.write import Write
from hansard.backends.cassandra.write_queue import LARGEST, Group, Queue, Queues
from hansard.backends.shared import message_walk, optimistic, turns
from hansard.backends.shared.optimistic import Overtaken
from hansard.backends.shared.settling import RemovedCounts, Settling
from hansard.backends.shared.signals import Signals
from hansard.backends.shared.turns import Turn
from hansard.contract.storage import Applied, Changes, Found, Operation, T, Wants
from hansard.contract.types import Context, ConversationState
from hansard.errors import Corrupt, HansardError, Unsupported

_log = logging.getLogger("hansard")

_HOPEFUL = 2000
"""Ids up to which a batch checks each."""
_LARGEST = 30_000
# Not the global generator, which is the application's: it may be seeded alike in all processes.
_random = random.SystemRandom()
"""Rows of a batch: the protocol numbers its statements with 16 bits."""


class WriteRunner:
    """Runs operations, each in its turn."""

    def __init__(
        self, link: Link, heads: Heads, partitions: CassandraPartitions, records: RecordTable, blobs: BlobTable
    ) -> None:
        self.link = link
        self.heads = heads
        self.records = records
        self.blobs = blobs
        self.signals = Signals()
        self.queues = Queues()
        self._turns: turns.Queues = {}
        self.sealer = Sealer(link, heads)
        self._partitions = partitions
        self._settling: Settling[Write, WriteEffects] = Settling(partitions, fence=partitions.fence)

    async def settle(self, tenant: str) -> None:
        """Before something is read that only effects write."""
        await self._settling.settle(tenant)

    async def write(self, context: Context, id: str, operation: Operation[T]) -> T:
        name = (context.tenant, id)
        queue = self.queues.enter(name)
        turn = Turn(self._turns, name)
        tries = 0

        async def begin(certain: bool) -> CassandraTransaction:
            nonlocal tries
            if tries > 1:
                # Writers in other processes: not all at the same time again.
                turn.leave()
                await asyncio.sleep(_random.random() * min(0.5, 0.01 * 2**tries))
            tries += 1
            await turn.take()
            head = None if certain else queue.foreseen or self.heads.get(name)
            if head is not None:
                return CassandraTransaction(self, context, id, head, queue, turn, is_read=False)
            await queue.idle()
            head = await read.load(self.link, name)
            return CassandraTransaction(self, context, id, head, queue, turn, is_read=True, hopes=not certain)

        try:
            return await optimistic.write(operation, begin)
        finally:
            turn.leave()
            queue.leave()

    async def with_rest(self, context: Context, id: str, wants: Wants, found: Found) -> Found:
        """Adds what is not among the messages of a conversation."""
        if not (wants.tombstones or wants.blobs or wants.records):
            return found
        records = await self.records.get(context, wants.records)
        return structs.replace(
            found,
            tombstones=await read.tombstones(self.link, (context.tenant, id), wants.tombstones),
            blobs=await self.blobs.get_many(context, wants.blobs),
            records={key: each for key, each in zip(wants.records, records, strict=True) if each},
        )

    async def commit(self, write: Write) -> RemovedCounts | None:
        """Stores a write. Returns what it removed elsewhere, or None if it was not stored."""
        if len(write.rows) > _LARGEST:
            raise Unsupported(
                f"one write may change {_LARGEST} rows at most: write less at once", capability="atomic_batch"
            )
        self.heads.forget(write.name)
        if write.is_plain:
            gone = RemovedCounts() if await self._partitions.swap(write) else None
        else:
            gone = await self._settling.commit(write)
        if gone is not None:
            self.queues.commits += 1
            self.heads.remember(write.name, write.head)
            self.signals.notify(write.name)
            await self._seal(write)
        return gone

    async def _seal(self, write: Write) -> None:
        """The write has happened, whatever comes of this. The next one tries again."""
        try:
            await self.sealer.seal(write.name, write.head)
        except HansardError as error:
            _log.warning("older messages of conversation %r stay in its first part: %s", write.name[1], error)


class CassandraTransaction:
    def __init__(
        self,
        writer: WriteRunner,
        context: Context,
        id: str,
        head: Head | None,
        queue: Queue,
        turn: Turn,
        *,
        is_read: bool,
        hopes: bool = True,
    ) -> None:
        self.context = context
        self.id = id
        self.has_applied = False
        self._writer = writer
        self._name = (context.tenant, id)
        self._head = head
        self._queue = queue
        self._turn = turn
        self._is_read = is_read
        self._hopes = hopes
        self._assumed = False
        self._segments = head.segments if head else 0
        self._known: dict[tuple[int, int], CassandraMessage] = {}
        """Rows that were read for this run."""
        self._view = ConversationView(writer.link, self._name, head, head.state) if head and head.state else None

    @property
    def state(self) -> ConversationState | None:
        return self._head.state if self._head else None

    @property
    def is_certain(self) -> bool:
        return self._is_read and not self._assumed

    def new_segment(self) -> int:
        self._segments += 1
        return self._segments

    # Asking

    async def get(self, wants: Wants) -> Found:
        is_hopeful = wants.expects_none and self._hopes and len(wants.ids) <= _HOPEFUL and self._needs_no_answer(wants)
        if is_hopeful and not (self._view and wants.ids and await self._view.sealed_ids(wants.ids)):
            self._assumed = self._assumed or bool(wants.ids)
            return Found()
        if not self._is_read:
            # What is under way must be stored before it can be asked for.
            raise Overtaken
        found = await self._answer(wants)
        if self._view is not None and not self._view.is_one_moment:
            await self._check()
        return found

    def _needs_no_answer(self, wants: Wants) -> bool:
        """The batch will check the ids, and there are no tombstones."""
        has_tombstones = self._head is not None and self._head.has_tombstones
        return not (
            (wants.tombstones and has_tombstones)
            or wants.records
            or (wants.ids and self._queue.has_ids(set(wants.ids)))
        )

    async def _answer(self, wants: Wants) -> Found:
        found = Found()
        if self._view is not None:
            try:
                found, known = await self._view.answer(wants)
            except Corrupt:
                await self._check()
                raise
            self._known |= {(row.segment, row.seq): row for row in known}
        return await self._writer.with_rest(self.context, self.id, wants, found)

    async def _check(self) -> None:
        """What was read is of the moment of the state, or does not count."""
        now = await read.load(self._writer.link, self._name)
        if (now.stamp if now else None) != (self._head.stamp if self._head else None):
            raise Overtaken

    # Applying

    async def apply(self, changes: Changes) -> Applied:
        if changes.records:
            raise Unsupported(
                "Cassandra cannot write records and messages in one step: write the records by themselves",
                capability="append_records",
            )
        exact = await self._exact_sorts(changes)
        if is_addition(changes) and not self._changes_owner(changes):
            gone = await self._apply_together(changes, exact)
            return Applied(blobs=gone.blobs, records=gone.records)
        return await self._apply_alone(changes, exact)

    async def _exact_sorts(self, changes: Changes) -> tuple[str, ...]:
        """Several writers at once would move the conversation with each batch, so it takes one place for a while."""
        if self._queue.is_shared:
            return ()
        return await listing.exact_sorts(self._writer.link, self.context.tenant, self._head, changes.state)

    def _changes_owner(self, changes: Changes) -> bool:
        before = self.state.conversation.user_id if self.state else None
        return changes.state is not None and self.state is not None and changes.state.conversation.user_id != before

    async def _apply_together(self, changes: Changes, exact: tuple[str, ...]) -> RemovedCounts:
        queue, group = self._queue, self._queue.open
        if group is not None and len(group.write.rows) > LARGEST:
            # Decided on what the batch before will make, so it must wait for that one.
            await queue.idle()
            group = None
        if group is not None and group.write.head is not self._head:
            raise Overtaken
        change = Change(self.context, self._writer.link.prefix, self._name, self._head, group.write if group else None)
        write = change.make(changes, self._segments, Leaving(), exact, checks_ids=self._assumed)
        group = group or Group(write)
        self._writer.queues.writes += 1
        queue.add(group, self._writer.commit)
        self.has_applied = True
        self._turn.leave()
        return await group.wait()

    async def _apply_alone(self, changes: Changes, exact: tuple[str, ...]) -> Applied:
        await self._queue.idle()
        leaving, applied = await self._leaving(changes)
        change = Change(self.context, self._writer.link.prefix, self._name, self._head, None)
        write = change.make(changes, self._segments, leaving, exact, checks_ids=self._assumed)
        self._writer.queues.writes += 1
        self.has_applied = True
        gone = await self._writer.commit(write)
        if gone is None:
            raise Overtaken
        return structs.replace(applied, blobs=gone.blobs, records=gone.records)

    async def _leaving(self, changes: Changes) -> tuple[Leaving, Applied]:
        """Reads what the changes remove. If it is not of the moment of the state, the batch will be refused."""
        buried = await self._buried(changes.tombstones)
        view = self._view
        if view is None:
            return Leaving(tombstones=buried), Applied()
        try:
            if changes.wipes != "nothing":
                return await self._wiped(view, changes, buried)
            return await self._removed(view, changes, buried)
        except HansardError:
            await self._check()
            raise

    async def _buried(self, digests: Sequence[str]) -> dict[str, datetime]:
        if not digests or self._head is None or not self._head.has_tombstones:
            return {}
        return await read.tombstones(self._writer.link, self._name, digests)

    async def _removed(
        self, view: ConversationView, changes: Changes, buried: dict[str, datetime]
    ) -> tuple[Leaving, Applied]:
        removed = [await self._row(segment, message.seq) for segment, message in changes.remove]
        removed += [row async for row in message_walk.walk_all(view, changes.remove_runs)]
        messages = [row for row in removed if row is not None]
        updated = await self._row(changes.update.segment, changes.update.before.seq) if changes.update else None
        if changes.update is not None and updated is None:
            raise Overtaken
        summaries = await view.summaries() if changes.lost_summaries else []
        lost = [summaries[position][0] for position in changes.lost_summaries]
        leaving = Leaving(messages=messages, updated=updated, summaries=lost, tombstones=buried)
        return leaving, Applied(messages=len(messages), summaries=len(lost))

    async def _row(self, segment: int, seq: int) -> CassandraMessage | None:
        known = self._known.get((segment, seq))
        return known or (await self._view.at(segment, seq) if self._view else None)

    async def _wiped(
        self, view: ConversationView, changes: Changes, buried: dict[str, datetime]
    ) -> tuple[Leaving, Applied]:
        birth = view.head.birth if changes.wipes == "everything" else 0
        place = (self._name, view.head.era, birth, view.head.partitions)
        references, participants, records = await read.referred(self._writer.link, *place)
        summaries = await view.kind(rows.SUMMARY)
        leaving = Leaving(references=references, participants=participants, records=records, tombstones=buried)
        return leaving, Applied(messages=view.state.conversation.message_count, summaries=len(summaries))
