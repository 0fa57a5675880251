"""What settling asks of Cassandra: see `backends/shared/settling.py`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from itertools import chain

from hansard.backends.cassandra import effects as places
from hansard.backends.cassandra import index, read, rows, uploads
from hansard.backends.cassandra.blobs import BlobTable
from hansard.backends.cassandra.catalog import NameCatalog
from hansard.backends.cassandra.connection import Link, Statement, is_unknown, some_at_once
from hansard.backends.cassandra.effects import WriteEffects
from hansard.backends.cassandra.heads import Heads
from hansard.backends.cassandra.mark_rows import MarkRows
from hansard.backends.cassandra.read import ConversationView, Name
from hansard.backends.cassandra.records import RecordTable
from hansard.backends.cassandra.rows import Head
from hansard.backends.cassandra.write import FoundIntent, Write, WriteIntent
from hansard.backends.shared import documents
from hansard.backends.shared.settling import Outgoing, RemovedCounts, WriteMark
from hansard.errors import HansardError, Unavailable

_LOOKS = 3
_AT_ONCE = 16
"""Blobs that are released at once."""


class CassandraPartitions:
    def __init__(self, link: Link, heads: Heads, blobs: BlobTable, catalog: NameCatalog, records: RecordTable) -> None:
        self._link = link
        self._heads = heads
        self._blobs = blobs
        self._catalog = catalog
        self._records = records
        self._mark_rows = MarkRows()

    # Before the commit

    async def put_mark(self, tenant: str, mark: WriteMark, seconds: int) -> int:
        deadline = int(time.time()) + seconds
        said: WriteIntent = mark.carried
        said.deadline = deadline
        said.row, said.at = self._mark_rows.take()
        await self._link.put("put_mark", self._link.prefix, tenant, said.row, documents.encode(said), said.at)
        return deadline

    async def prepare(self, write: Write, deadline: int) -> bool:
        if write.follows.is_first:
            await self._catalog.add("tenant", "", write.tenant)
        await uploads.put_many(self._link, {upload: data for upload, (data, _, _) in write.uploads.items()})
        by_digest: dict[str, list[str]] = {}
        for sha256, segment, seq in write.references:
            by_digest.setdefault(sha256, []).append(rows.reference(write.name[1], write.head.stamp, segment, seq))
        for sha256, references in by_digest.items():
            await self._blobs.refer(write.tenant, sha256, references, write.blobs.get(sha256))
        if time.time() <= deadline:
            return True
        await self.undo(write.tenant, write.mark)
        return False

    # The commit

    async def commit(self, write: Write, deadline: int) -> Sequence[Outgoing[WriteEffects]] | None:
        if not await self.swap(write):
            # The names of prepared rows are unique to this write, so they can be removed at once.
            await self.undo(write.tenant, write.mark)
            return None
        return [Outgoing(write.head.n, write.effects, write.head.n)] if write.is_outgoing else []

    async def swap(self, write: Write) -> bool:
        """Whether the write has happened. If it has not, it never will."""
        try:
            return await self._link.swap(write.statements(self._link.prefix))
        except HansardError as error:
            if not is_unknown(error):
                raise
            return await self._has_happened(write, error)

    async def _has_happened(self, write: Write, failed: HansardError) -> bool:
        try:
            happened = await self._fence(write.name, write.head.stamp, write.before.stamp if write.before else None)
        except Unavailable:
            happened = None
        if happened is None:
            raise failed
        return happened

    async def _fence(self, name: Name, stamp: str, after: str | None) -> bool | None:
        """Makes sure that a write cannot happen any longer, unless it has. Returns which; None if that is unknown.

        Reading is not enough, not even serially: a coordinator that is late may still run the batch, as long as the
        head has the stamp that the batch compares. So the head gets another one.
        """
        failures = 0
        while True:
            try:
                head = await read.load(self._link, name, serial=True)
                if (head.stamp if head else None) != after:
                    return head.has(stamp, after) if head else None
                if await self._restamp(name, head):
                    return False
            except Unavailable:
                # Of another stamp whose answer is lost, the next look tells.
                failures += 1
                if failures == _LOOKS:
                    raise
                await asyncio.sleep(0.1)

    async def _restamp(self, name: Name, head: Head | None) -> bool:
        """Gives a head another stamp, unless another writer has. Where there is none, makes one of no conversation."""
        if head is None:
            now = time.time_ns() // 1000
            # A sweep removes this head, long after the writer has given up.
            await self._catalog.put_due(name[0], now + uploads.LINGER, "tombstone", name[1], now)
        return await self._heads.swap(name, head, head or Head(0)) is not None

    # After the commit

    async def outbox(self, tenant: str, mark: WriteMark) -> Sequence[Outgoing[WriteEffects]]:
        found = await self._link.read("read_kind", tenant, mark.id, 0, rows.BESIDE, rows.OUTGOING, serial=True)
        stored = [documents.decode(row[6], list[WriteEffects], f"the outbox of {mark.id!r}") for row in reversed(found)]
        numbers = [row[3] for row in reversed(found)]
        return [
            Outgoing(n, [*effects, *[await self._wiped(mark.id, n, each) for each in effects if each.ended]], n)
            for n, effects in zip(numbers, stored, strict=True)
        ]

    async def _wiped(self, id: str, n: int, effect: WriteEffects) -> WriteEffects:
        """The effects of the rows of an ended era, which are there until `remove_outgoing`."""
        assert effect.ended is not None
        era, birth, parts = effect.ended
        found = await read.referred(self._link, (effect.tenant, id), era, birth, parts)
        wiped = WriteEffects(effect.tenant, effect.at, birth=birth)
        return places.wipe(wiped, (self._link.prefix, effect.tenant, id), n, *found)

    async def remove_outgoing(self, tenant: str, id: str, outgoing: Outgoing[WriteEffects]) -> None:
        key = (self._link.prefix, tenant, id)
        for era, birth, parts in (each.ended for each in outgoing.effects if each.ended):
            for part in parts:
                await self._link.put("delete_part", outgoing.n, *key, part)
            ended: list[Statement] = [
                ("delete_era", (*key, era)),
                ("delete_rows", (*key, rows.BESIDE, rows.TIE, birth)),
            ]
            while head := await read.load(self._link, (tenant, id), serial=True):
                if await self._heads.swap((tenant, id), head, head, ended):
                    break
        await self._link.put("remove_outgoing", *key, outgoing.entry)

    async def clear_mark(self, tenant: str, mark: WriteMark) -> None:
        said: WriteIntent = mark.carried
        if not said.row:
            # Of an earlier version.
            await self._link.put("delete_old_mark", self._link.prefix, tenant, mark.id, mark.n)
            return
        await self._link.put("delete_mark", said.at + 1, self._link.prefix, tenant, said.row)
        if not isinstance(said, FoundIntent):
            self._mark_rows.give_back(said.row)

    async def marks(self, tenant: str) -> Sequence[tuple[WriteMark, int]]:
        found = [
            documents.decode(doc, FoundIntent, f"a mark of {tenant!r}")
            for (doc,) in await self._link.read("read_marks", tenant)
        ]
        return [(WriteMark(each.id, each.n, each.after_n, (), each), each.deadline) for each in found]

    async def now(self, tenant: str) -> int:
        return int(time.time())

    async def fence(self, tenant: str, mark: WriteMark) -> None:
        said: WriteIntent = mark.carried
        await self._fence((tenant, mark.id), said.stamp, said.after)

    async def undo(self, tenant: str, mark: WriteMark) -> None:
        said: WriteIntent = mark.carried
        for upload, segment, seq in said.uploads:
            if not await self._is_stored(tenant, said, segment, seq):
                await uploads.delete(self._link, upload)
        for sha256, segment, seq in said.references:
            if not await self._is_stored(tenant, said, segment, seq):
                reference = rows.reference(said.id, said.stamp, segment, seq)
                await self._blobs.release(tenant, sha256, [reference], int(time.time() * 1e6), None)

    async def _is_stored(self, tenant: str, said: WriteIntent, segment: int, seq: int) -> bool:
        """Whether the message is there with the content of this write."""
        head = await read.load(self._link, (tenant, said.id), serial=True)
        if head is None or head.state is None or head.era != said.era:
            return False
        row = await ConversationView(self._link, (tenant, said.id), head, head.state).at(segment, seq, serial=True)
        return row is not None and row.stored.stamp == said.stamp

    # Effects

    async def apply(self, id: str, n: int, effect: WriteEffects) -> RemovedCounts:
        link, name = self._link, (effect.tenant, id)
        steps = chain(
            (link.put(query, *arguments) for query, arguments in effect.steps),
            map(link.put_together, effect.moves),
            (self._catalog.remove_due(effect.tenant, *each, n) for each in effect.not_due),
            (self._catalog.put_due(effect.tenant, *each, n) for each in effect.due),
            (self._add_usage(id, n, effect.tenant, each) for each in effect.sums),
            (index.delete_all_terms(link, name, owner, months, n) for owner, months in effect.unindexed),
            (index.replace_terms(link, name, each[0], each[1:], n) for each in effect.reindexed),
            # Once more: a concurrent removal may have deleted the name.
            (self._catalog.add("tenant", "", effect.tenant) for _ in range(effect.is_first)),
        )
        await some_at_once(steps)
        releases = (
            self._blobs.release(effect.tenant, sha256, references, effect.at, (id, n))
            for sha256, references in effect.releases.items()
        )
        blobs = await some_at_once(releases, _AT_ONCE)
        dropped = [await self._records.drop_bound(effect.tenant, place, effect.birth) for place in effect.records]
        return RemovedCounts(sum(blobs), sum(dropped))

    async def _add_usage(self, id: str, n: int, tenant: str, sum: rows.Sum) -> None:
        row = sum.row
        month, bucket = row.day[:7], places.bucket_of(id)
        await self._catalog.add("month", tenant, month)
        name = documents.encode([row.user_id, row.agent_id, row.model, id, sum.since]).decode()
        key = (self._link.prefix, tenant, month, bucket, row.day, name)
        await self._link.put("put_usage", *key, documents.encode(row), n, n)
        if row.user_id is not None:
            of_user = (self._link.prefix, tenant, row.user_id, month, row.day, name)
            await self._link.put("put_usage_of_user", *of_user, documents.encode(row), n, n)
