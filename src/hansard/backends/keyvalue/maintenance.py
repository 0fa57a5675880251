"""Operations over tenants: list, measure, check, sweep, delete."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec import structs

from hansard import codec, rules
from hansard.backends.keyvalue.keys import TENANTS, KeyValueKeys, time_key
from hansard.backends.shared import documents
from hansard.contract.storage import Changes, Transaction
from hansard.contract.types import Context, ConversationQuery, Swept
from hansard.errors import HansardError
from hansard.model import NOT_YET, Problem, Receipt, Stats

if TYPE_CHECKING:
    from hansard.backends.keyvalue.storage import KeyValueStorage

_EVERYTHING = ConversationQuery(archived=None, sort="updated_at")
_END = datetime.max.replace(tzinfo=UTC)


async def tenants(storage: KeyValueStorage) -> list[str]:
    """Returns every tenant that has any key."""
    found = [await storage.functions.get(key) async for key in storage.functions.keys(TENANTS)]
    return sorted(each[0].decode() for each in found if each is not None)


async def holds_anything(storage: KeyValueStorage, tenant: str) -> bool:
    keys = KeyValueKeys(tenant)
    if await storage.functions.page(keys.blobs, "", 1) or await storage.records.owners(keys):
        return True
    async with aclosing(storage.walk(Context(tenant, NOT_YET), _EVERYTHING)) as walked:
        async for _ in walked:
            return True
    return False


async def list_tenants(storage: KeyValueStorage) -> list[str]:
    return [tenant for tenant in await tenants(storage) if await holds_anything(storage, tenant)]


async def stats(storage: KeyValueStorage, tenant: str | None) -> Stats:
    total = Stats(backend=storage.capabilities.name)
    active: Counter[str] = Counter()
    for name in await tenants(storage) if tenant is None else [tenant]:
        keys = KeyValueKeys(name)
        found = [state.conversation async for state in storage.walk(Context(name, NOT_YET), _EVERYTHING)]
        active.update(rules.active_days(found))
        records = sum(count for _, count in await storage.records.owners(keys))
        blobs = await storage.tenant_data.blob_keys(keys)
        total = structs.replace(
            total,
            tenants=total.tenants + bool(found or records or blobs),
            conversations=total.conversations + len(found),
            messages=total.messages + sum(each.message_count for each in found),
            records=total.records + records,
            blobs=total.blobs + len(blobs),
            blob_bytes=total.blob_bytes + sum(size for _, size in blobs),
        )
    return structs.replace(total, active=rules.newest_days(active))


async def check(storage: KeyValueStorage, tenant: str | None) -> AsyncIterator[Problem | int]:
    looked = 0
    for name in await tenants(storage) if tenant is None else [tenant]:
        context = Context(name, NOT_YET)
        keys = KeyValueKeys(name)
        await storage.partitions.settle(keys)
        heads = [key async for key in storage.functions.keys(keys.heads)]
        for head in heads:
            found = await _check(storage, context, keys, head)
            for problem in found or ():
                yield problem
            looked += found is not None
    yield looked


async def _check(storage: KeyValueStorage, context: Context, keys: KeyValueKeys, head: str) -> list[Problem] | None:
    """Returns the problems of a conversation; None if there is no such conversation."""
    where = head
    try:
        anchor, token = await storage.partitions.load(head)
        if anchor is None or anchor.state is None:
            return None
        conversation = anchor.state.conversation
        where = f"{context.tenant}/{conversation.id}"
        read = await storage.read_all(context, conversation.id)
        problems = list(rules.audit(where, *read)) if read else []
        digests = sorted({ref.sha256 for _, message in read[1] for ref in message.blobs}) if read else []
        blobs = [(each, await storage.tenant_data.get_blob(keys, each)) for each in digests]
        lost = [each for each, data in blobs if not codec.is_blob(each, data)]
        problems += [Problem(where, f"blob {each} is missing or damaged") for each in lost]
        entries = keys.entries(conversation, anchor.listed)
        entries += [keys.expiry(conversation, anchor.due)] if conversation.expires_at is not None else []
        listed = await storage.functions.all(storage.functions.get(entry) for entry in entries)
        problems += [Problem(where, "it is missing from a listing")] if None in listed else []
        # Problems found while another process wrote prove nothing.
        return problems if not problems or (await storage.partitions.load(head))[1] == token else []
    except HansardError as error:
        return [Problem(where, str(error))]


# Removing


async def drop(storage: KeyValueStorage, context: Context, id: str, *, if_expired: bool) -> Receipt:
    """Removes a conversation without a tombstone."""

    async def operation(tx: Transaction) -> Receipt:
        state = tx.state
        if state is None or (if_expired and rules.is_visible(state.conversation, context)):
            return Receipt(at=context.now)
        gone = await tx.apply(Changes(state=None, wipes="everything"))
        return Receipt(
            conversations=1,
            messages=gone.messages,
            branches=len(state.branches),
            summaries=gone.summaries,
            records=gone.records,
            blobs=gone.blobs,
            at=context.now,
        )

    return await storage.write(context, id, operation)


async def sweep(storage: KeyValueStorage, context: Context, limit: int) -> Swept:
    swept = Swept(receipt=Receipt(at=context.now))
    left = limit
    for tenant in await tenants(storage):
        keys = KeyValueKeys(tenant)
        await storage.partitions.settle(keys)
        page = await storage.functions.page(keys.due, "", left + 1)
        due = [key for key in page if _is_due(keys, key, context)]
        for key in due[:left]:
            swept = await _sweep(storage, Context(tenant, context.now), keys, key, swept)
        if len(due) > left:
            return structs.replace(swept, more=True)
        left -= len(due)
        await _drop_tenant_name(storage, keys)
    return swept


def _is_due(keys: KeyValueKeys, key: str, context: Context) -> bool:
    return key.removeprefix(keys.due).partition("/")[0] <= time_key(context.now)


async def _sweep(storage: KeyValueStorage, context: Context, keys: KeyValueKeys, key: str, swept: Swept) -> Swept:
    """Does what an entry says is due, if it still is, and removes the entry."""
    _, kind, what = key.removeprefix(keys.due).split("/", 2)
    receipt, tombstones = swept.receipt, swept.tombstones
    value = await storage.functions.get(key)
    text = value[0] if value else b""
    if kind == "conversation" and text:
        receipt += await drop(storage, context, text.decode(), if_expired=True)
    elif kind == "record" and text:
        space, record = documents.decode(text, tuple[str, bytes], key)
        receipt += Receipt(records=await storage.records.drop_expired(context, space, record), at=context.now)
    elif kind == "blob":
        receipt += Receipt(blobs=await storage.tenant_data.release_blob(keys, what, context.now), at=context.now)
    elif kind == "grave":
        tombstones += await storage.tenant_data.drop_tombstone(keys, what, context.now)
    elif kind == "head":
        await _drop_head(storage, keys, what.rpartition("/")[0])
    await storage.functions.delete(key)
    return structs.replace(swept, receipt=receipt, tombstones=tombstones)


async def _drop_head(storage: KeyValueStorage, keys: KeyValueKeys, head: str) -> None:
    """Removes a head that has held nothing for a day."""
    anchor, token = await storage.partitions.begin(keys, head)
    if anchor is not None and anchor.state is None and anchor.owner is None and anchor.pending is None:
        await storage.functions.delete(head, token)


async def _drop_tenant_name(storage: KeyValueStorage, keys: KeyValueKeys) -> None:
    """Removes the name of a tenant that has no other key. Writers put the name after their first key."""
    if await storage.functions.page(f"{keys.root}/", "", 1):
        return
    await storage.functions.delete(keys.name)
    if await storage.functions.page(f"{keys.root}/", "", 1):
        await storage.functions.put(keys.name, keys.tenant.encode(), None)


async def delete_tenant(storage: KeyValueStorage, context: Context) -> Receipt:
    keys = KeyValueKeys(context.tenant)
    total = Receipt(at=context.now)
    # Repeat: a walk misses a conversation that another process moves meanwhile.
    while ids := [state.conversation.id async for state in storage.walk(Context(keys.tenant, NOT_YET), _EVERYTHING)]:
        for id in ids:
            total += await drop(storage, context, id, if_expired=False)
    await storage.partitions.settle(keys)
    records = 0
    for owner, _ in await storage.records.owners(keys):
        records += await storage.records.erase(context, owner)
    blobs = 0
    for sha256, _ in await storage.tenant_data.blob_keys(keys):
        blobs += await storage.tenant_data.release_blob(keys, sha256, _END)
    usage_rows = await storage.tenant_data.erase_usage(keys, None)
    async for key in storage.functions.keys(keys.tombstones):
        await storage.functions.delete(key)
    return total + Receipt(records=records, blobs=blobs, usage_rows=usage_rows, at=context.now)
