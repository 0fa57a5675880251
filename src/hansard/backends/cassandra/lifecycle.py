"""Over all tenants: measured, checked, swept, deleted."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from msgspec import structs

from hansard import codec, rules
from hansard.backends.cassandra import effects, index, listing, read, rows, tenant_data, uploads
from hansard.backends.cassandra.blobs import BlobTable
from hansard.backends.cassandra.catalog import NameCatalog
from hansard.backends.cassandra.connection import Link, Row, Statement
from hansard.backends.cassandra.heads import Heads
from hansard.backends.cassandra.options import CassandraOptions
from hansard.backends.cassandra.partitions import CassandraPartitions
from hansard.backends.cassandra.read import ConversationView
from hansard.backends.cassandra.records import RecordTable
from hansard.backends.cassandra.rows import Head
from hansard.backends.cassandra.transaction import WriteRunner
from hansard.backends.shared import documents
from hansard.backends.shared.maintenance import TenantMaintenance
from hansard.contract.storage import Operation, T
from hansard.contract.types import Context, ConversationQuery, Swept
from hansard.errors import HansardError
from hansard.model import NOT_YET, Conversation, Message, Problem, Receipt, to_micros

_EVERYTHING = ConversationQuery(archived=None, sort="updated_at", newest_first=False)
_FOREVER = 2**62


class Lifecycle(TenantMaintenance):
    """The parts of the storage, and what it does over tenants."""

    def __init__(self, options: CassandraOptions, prefix: str) -> None:
        self.link = Link(options, prefix)
        self.heads = Heads(self.link)
        self.catalog = NameCatalog(self.link)
        self.blobs = BlobTable(self.link, self.catalog)
        self.records = RecordTable(self.link, self.catalog, self.heads)
        partitions = CassandraPartitions(self.link, self.heads, self.blobs, self.catalog, self.records)
        self.writer = WriteRunner(self.link, self.heads, partitions, self.records, self.blobs)

    async def write(self, context: Context, id: str, operation: Operation[T]) -> T:
        self.link.check_open()
        return await self.writer.write(context, id, operation)

    async def settle(self, tenant: str) -> None:
        await self.writer.settle(tenant)

    async def tenants(self) -> list[str]:
        return await self.catalog.names("tenant", "")

    async def heads_of(self, tenant: str) -> AsyncGenerator[Head, None]:
        """Those of all conversations."""
        async with aclosing(listing.walk(self.link, Context(tenant, NOT_YET), _EVERYTHING)) as walked:
            async for head in walked:
                yield head

    async def conversations(self, tenant: str) -> AsyncGenerator[tuple[Conversation, int], None]:
        async with aclosing(self.heads_of(tenant)) as walked:
            async for head in walked:
                if head.state is not None:
                    conversation = head.state.conversation
                    yield conversation, min(head.state.seq - index.start_of(head), conversation.message_count)

    async def count_records(self, tenant: str) -> int:
        return sum(count for _, count in await self.records.owners(tenant))

    async def measure_blobs(self, tenant: str) -> tuple[int, int]:
        found = await self.blobs.digests(tenant)
        return len(found), sum(size for _, size in found)

    # Checking

    async def check(self, tenant: str | None) -> AsyncIterator[Problem | int]:
        looked = 0
        for name in await self.tenants() if tenant is None else [tenant]:
            await self.settle(name)
            context = Context(name, NOT_YET)
            async for head in self.heads_of(name):
                for problem in await self._check(context, head):
                    yield problem
                looked += 1
        yield looked

    async def _check(self, context: Context, head: Head) -> list[Problem]:
        assert head.state is not None
        conversation = head.state.conversation
        where = f"{context.tenant}/{conversation.id}"

        async def ask(view: ConversationView) -> list[Problem]:
            return [*await self._check_messages(view, where), *await self._check_lists(view, where)]

        try:
            return await read.look(self.link, context, conversation.id, ask, behind_walls=True) or []
        except HansardError as error:
            return [Problem(where, str(error))]

    async def _check_messages(self, view: ConversationView, where: str) -> list[Problem]:
        placed: list[tuple[int, Message]] = []
        after = 0
        while piece := await view.rows(after, 1000, 32 << 20):
            placed += [(row.segment, row.message) for row in piece]
            after = piece[-1].message.seq
        problems = list(rules.audit(where, view.state, placed))
        ids = {row[4] for row in await view.everywhere(rows.ID)}
        lost = [message.id for _, message in placed if message.id not in ids]
        problems += [Problem(where, f"message {id!r} cannot be found by its id") for id in lost]
        for sha256 in sorted({ref.sha256 for _, message in placed for ref in message.blobs}):
            data = await self.blobs.get(view.name[0], sha256)
            if not codec.is_blob(sha256, data):
                problems.append(Problem(where, f"blob {sha256} is missing or damaged"))
        return problems

    async def _check_lists(self, view: ConversationView, where: str) -> list[Problem]:
        for entry in effects.entries(view.head):
            if not await self.link.read("is_listed", view.name[0], *entry):
                now = await read.load(self.link, view.name)
                if now is not None and now.stamp == view.head.stamp:
                    return [Problem(where, f"it is not in the list {entry[0]!r} where it should be")]
        return []

    # Removing

    async def sweep(self, context: Context, limit: int) -> Swept:
        for tenant in await self.tenants():
            await self.settle(tenant)
        swept = Swept(receipt=Receipt(at=context.now))
        now = to_micros(context.now)
        today = effects.day_of(now)
        left = limit
        for day in await self.catalog.names("due", ""):
            if day > today:
                break
            due = await self.link.read("read_due", day, now, left + 1)
            for row in due[:left]:
                swept = await self._sweep(context, row, swept)
            if len(due) > left:
                return structs.replace(swept, more=True)
            left -= len(due)
            await self._forget_day(day, today)
        return swept

    async def _forget_day(self, day: str, today: str) -> None:
        """Removes the name of a past day, unless another entry was added to it."""
        if day < today:
            await self.catalog.remove("due", "", day)
            if await self.link.read("read_due", day, _FOREVER, 1):
                await self.catalog.add("due", "", day)

    async def _sweep(self, context: Context, row: Row, swept: Swept) -> Swept:
        """Does what an entry says is due, if it is, and removes the entry."""
        at, tenant, kind, name = row
        here = Context(tenant, context.now)
        receipt, tombstones = swept.receipt, swept.tombstones
        if kind == "conversation":
            receipt += await self.drop(here, name, if_expired=True)
        elif kind == "record":
            owner, namespace, key = documents.decode(name.encode(), tuple[str, tuple[str, ...], str], "a due")
            gone = await self.records.drop_expired(here, owner, (namespace, key))
            receipt += Receipt(records=gone, at=context.now)
        elif kind == "blob":
            receipt += Receipt(blobs=await self.blobs.release(tenant, name, [], to_micros(context.now), None))
        elif kind == "upload":
            await self._delete_unused(tenant, name)
        elif kind == "tombstone":
            tombstones += await self.forget_tombstones(here, name)
        # Later than the entry: writes number theirs by the time of day, records by that of their Store.
        n = max(time.time_ns() // 1000, to_micros(context.now)) if kind == "record" else time.time_ns() // 1000
        await self.catalog.remove_due(tenant, at, kind, name, n)
        return structs.replace(swept, receipt=receipt, tombstones=tombstones)

    async def _delete_unused(self, tenant: str, upload: str) -> None:
        """Deletes an upload unless what it was made for refers to it."""
        place = await uploads.get_place(self.link, upload)
        if place is None:
            return
        if place.sha256 is not None:
            used = await self.blobs.upload_of(tenant, place.sha256)
        else:
            used = await self.records.upload_of(tenant, place.owner, (place.namespace, place.key))
        if used != upload:
            await uploads.delete(self.link, upload)

    async def forget_tombstones(self, context: Context, id: str) -> int:
        """Removes the old tombstones of a conversation, and the head of a deleted one. Returns how many it removed."""
        name = (context.tenant, id)
        end = to_micros(context.now - rules.TOMBSTONE_LIFE)
        while True:
            head = await read.load(self.link, name, serial=True)
            if head is None:
                return 0
            found = await self.link.read("read_kind", *name, 0, rows.BESIDE, rows.TOMBSTONE, serial=True)
            old = [row[4] for row in found if documents.decode(row[6], int, "a tombstone") <= end]
            has_left = len(old) < len(found)
            if not old and (has_left or head.state is not None):
                return 0
            key = (self.link.prefix, *name)
            gone: list[Statement] = [
                ("delete_row", (*key, rows.BESIDE, rows.TOMBSTONE, 0, 0, digest)) for digest in old
            ]
            if head.state is None and not has_left:
                is_done = await self.link.swap([("delete_head", (*key, head.stamp)), *gone])
            else:
                after = structs.replace(head, has_tombstones=has_left)
                is_done = await self.heads.swap(name, head, after, gone) is not None
            if is_done:
                return len(old)

    async def erase_rest(self, context: Context) -> Receipt:
        tenant = context.tenant
        records = sum([await self.records.erase(tenant, owner) for owner, _ in await self.records.owners(tenant)])
        digests = await self.blobs.digests(tenant)
        blobs = sum([await self.blobs.release(tenant, sha256, [], _FOREVER, None) for sha256, _ in digests])
        usage_rows = await tenant_data.erase_usage(self.link, self.catalog, tenant, None)
        for version in await self.catalog.names("search", tenant):
            await self.catalog.remove("search", tenant, version)
        await self.catalog.remove("tenant", "", tenant)
        if await self.holds_anything(tenant):
            await self.catalog.add("tenant", "", tenant)
        return Receipt(records=records, blobs=blobs, usage_rows=usage_rows, at=context.now)
