"""Over all tenants: listed, measured, checked, swept, deleted."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs

from hansard import codec, rules
from hansard.backends.cassandra import effects, index, listing, read, rows, tenant_data
from hansard.backends.cassandra.connection import Row, Statement
from hansard.backends.cassandra.read import ConversationView
from hansard.backends.cassandra.rows import Head
from hansard.backends.shared import documents
from hansard.contract.types import Context, ConversationQuery, Swept
from hansard.errors import HansardError
from hansard.model import NOT_YET, Message, Problem, Receipt, Stats, to_micros
from hansard.rules.operations.conversations import drop_conversation

if TYPE_CHECKING:
    from hansard.backends.cassandra.storage import CassandraStorage

_EVERYTHING = ConversationQuery(archived=None, sort="updated_at", newest_first=False)
_FOREVER = 2**62


async def tenants(storage: CassandraStorage) -> list[str]:
    """Every tenant that has held anything."""
    return await storage.catalog.names("tenant", "")


async def _holds_anything(storage: CassandraStorage, tenant: str) -> bool:
    if await storage.records.owners(tenant) or await storage.blobs.digests(tenant):
        return True
    async with aclosing(listing.walk(storage.link, Context(tenant, NOT_YET), _EVERYTHING, 1)) as walked:
        async for _ in walked:
            return True
    return False


async def list_tenants(storage: CassandraStorage) -> list[str]:
    found = []
    for tenant in await tenants(storage):
        await storage.writer.settle(tenant)
        found += [tenant] if await _holds_anything(storage, tenant) else []
    return found


async def stats(storage: CassandraStorage, tenant: str | None) -> Stats:
    total = Stats(backend=storage.capabilities.name, unindexed=0)
    active: Counter[str] = Counter()
    for name in await tenants(storage) if tenant is None else [tenant]:
        await storage.writer.settle(name)
        conversations = messages = unindexed = 0
        async for head in listing.walk(storage.link, Context(name, NOT_YET), _EVERYTHING):
            assert head.state is not None
            conversations += 1
            messages += head.state.conversation.message_count
            unindexed += min(head.state.seq - index.start_of(head), head.state.conversation.message_count)
            active.update(rules.active_days([head.state.conversation]))
        records = sum(count for _, count in await storage.records.owners(name))
        blobs = await storage.blobs.digests(name)
        total = structs.replace(
            total,
            tenants=total.tenants + bool(conversations or records or blobs),
            conversations=total.conversations + conversations,
            messages=total.messages + messages,
            unindexed=(total.unindexed or 0) + unindexed,
            records=total.records + records,
            blobs=total.blobs + len(blobs),
            blob_bytes=total.blob_bytes + sum(size for _, size in blobs),
        )
    return structs.replace(total, active=rules.newest_days(active))


# Checking


async def check(storage: CassandraStorage, tenant: str | None) -> AsyncIterator[Problem | int]:
    looked = 0
    for name in await tenants(storage) if tenant is None else [tenant]:
        await storage.writer.settle(name)
        context = Context(name, NOT_YET)
        async for head in listing.walk(storage.link, context, _EVERYTHING):
            for problem in await _check(storage, context, head):
                yield problem
            looked += 1
    yield looked


async def _check(storage: CassandraStorage, context: Context, head: Head) -> list[Problem]:
    assert head.state is not None
    conversation = head.state.conversation
    where = f"{context.tenant}/{conversation.id}"

    async def ask(view: ConversationView) -> list[Problem]:
        return [*await _check_messages(storage, view, where), *await _check_lists(storage, view, where)]

    try:
        return await read.look(storage.link, context, conversation.id, ask, behind_walls=True) or []
    except HansardError as error:
        return [Problem(where, str(error))]


async def _check_messages(storage: CassandraStorage, view: ConversationView, where: str) -> list[Problem]:
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
        data = await storage.blobs.get(view.name[0], sha256)
        if not codec.is_blob(sha256, data):
            problems.append(Problem(where, f"blob {sha256} is missing or damaged"))
    return problems


async def _check_lists(storage: CassandraStorage, view: ConversationView, where: str) -> list[Problem]:
    for entry in effects.entries(view.state.conversation):
        if not await storage.link.read("is_listed", view.name[0], *entry, view.id):
            now = await read.load(storage.link, view.name)
            if now is not None and now.stamp == view.head.stamp:
                return [Problem(where, f"it is not in the list {entry[0]!r} where it should be")]
    return []


# Removing


async def sweep(storage: CassandraStorage, context: Context, limit: int) -> Swept:
    for tenant in await tenants(storage):
        await storage.writer.settle(tenant)
    swept = Swept(receipt=Receipt(at=context.now))
    now, today = to_micros(context.now), rows.day_of(context.now)
    left = limit
    for day in await storage.catalog.names("due", ""):
        if day > today:
            break
        due = await storage.link.read("read_due", day, now, left + 1)
        for row in due[:left]:
            swept = await _sweep(storage, context, row, swept)
        if len(due) > left:
            return structs.replace(swept, more=True)
        left -= len(due)
        await _forget_day(storage, day, today)
    return swept


async def _forget_day(storage: CassandraStorage, day: str, today: str) -> None:
    """Removes the name of a past day, unless another entry was added to it."""
    if day < today:
        await storage.catalog.remove("due", "", day)
        if await storage.link.read("read_due", day, _FOREVER, 1):
            await storage.catalog.add("due", "", day)


async def _sweep(storage: CassandraStorage, context: Context, row: Row, swept: Swept) -> Swept:
    """Does what an entry says is due, if it is, and removes the entry."""
    at, tenant, kind, name = row
    here = Context(tenant, context.now)
    receipt, tombstones = swept.receipt, swept.tombstones
    if kind == "conversation":
        receipt += await storage.write(here, name, partial(drop_conversation, if_expired=True))
    elif kind == "record":
        owner, namespace, key = documents.decode(name.encode(), tuple[str, tuple[str, ...], str], "a due")
        gone = await storage.records.drop_expired(here, owner, (namespace, key))
        receipt += Receipt(records=gone, at=context.now)
    elif kind == "blob":
        receipt += Receipt(blobs=await storage.blobs.release(tenant, name, [], to_micros(context.now), None))
    elif kind == "tombstone":
        tombstones += await forget_tombstones(storage, here, name)
    # Later than the entry: writes number theirs by the time of day, records by that of their Store.
    n = max(time.time_ns() // 1000, to_micros(context.now)) if kind == "record" else time.time_ns() // 1000
    await storage.catalog.remove_due(tenant, at, kind, name, n)
    return structs.replace(swept, receipt=receipt, tombstones=tombstones)


async def forget_tombstones(storage: CassandraStorage, context: Context, id: str, *, all: bool = False) -> int:
    """Removes the old tombstones of a conversation, and the head of a deleted one. Returns how many it removed."""
    name = (context.tenant, id)
    end = to_micros(context.now - rules.TOMBSTONE_LIFE)
    while True:
        head = await read.load(storage.link, name, serial=True)
        if head is None:
            return 0
        found = await storage.link.read("read_kind", *name, 0, rows.BESIDE, rows.TOMBSTONE, serial=True)
        old = [row[4] for row in found if all or documents.decode(row[6], int, "a tombstone") <= end]
        has_left = len(old) < len(found)
        if not old and (has_left or head.state is not None):
            return 0
        key = (storage.link.prefix, *name)
        gone: list[Statement] = [("delete_row", (*key, rows.BESIDE, rows.TOMBSTONE, 0, 0, digest)) for digest in old]
        if head.state is None and not has_left:
            swap: Statement = ("delete_head", (*key, head.stamp))
        else:
            n, recent = rows.following(head)
            after = structs.replace(head, n=n, recent=recent, has_tombstones=has_left)
            swap = ("swap_head", (after.stamp, rows.encode_head(after), *key, head.stamp))
        if await storage.link.swap([swap, *gone]):
            return len(old)


async def delete_tenant(storage: CassandraStorage, context: Context) -> Receipt:
    tenant = context.tenant
    total = Receipt(at=context.now)
    everything = Context(tenant, NOT_YET)
    await storage.writer.settle(tenant)
    # Repeated: a walk can miss a conversation that another writer moves at the same time.
    while ids := [
        head.state.conversation.id async for head in listing.walk(storage.link, everything, _EVERYTHING) if head.state
    ]:
        for id in ids:
            total += await storage.write(context, id, partial(drop_conversation, if_expired=False))
        await storage.writer.settle(tenant)
    records = sum([await storage.records.erase(tenant, owner) for owner, _ in await storage.records.owners(tenant)])
    digests = await storage.blobs.digests(tenant)
    blobs = sum([await storage.blobs.release(tenant, sha256, [], _FOREVER, None) for sha256, _ in digests])
    usage_rows = await tenant_data.erase_usage(storage.link, storage.catalog, tenant, None)
    for version in await storage.catalog.names("search", tenant):
        await storage.catalog.remove("search", tenant, version)
    await storage.catalog.remove("tenant", "", tenant)
    if await _holds_anything(storage, tenant):
        await storage.catalog.add("tenant", "", tenant)
    return total + Receipt(records=records, blobs=blobs, usage_rows=usage_rows, at=context.now)
