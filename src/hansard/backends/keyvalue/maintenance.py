"""Operations over tenants: check, sweep, erase."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec import structs

from hansard import codec, rules
from hansard.backends.keyvalue.keys import KeyValueKeys, time_key
from hansard.backends.keyvalue.write import Bound
from hansard.backends.shared import documents
from hansard.contract.types import Context, ConversationQuery, Swept
from hansard.errors import HansardError
from hansard.model import NOT_YET, Problem, Receipt

if TYPE_CHECKING:
    from hansard.backends.keyvalue.storage import KeyValueStorage

_EVERYTHING = ConversationQuery(archived=None, sort="updated_at")
_END = datetime.max.replace(tzinfo=UTC)


async def check(storage: KeyValueStorage, tenant: str | None) -> AsyncIterator[Problem | int]:
    looked = 0
    for name in await storage.tenants() if tenant is None else [tenant]:
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


async def sweep(storage: KeyValueStorage, context: Context, limit: int) -> Swept:
    swept = Swept(receipt=Receipt(at=context.now))
    left = limit
    for tenant in await storage.tenants():
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
        receipt += await storage.drop(context, text.decode(), if_expired=True)
    elif kind == "record" and text:
        space, record = documents.decode(text, tuple[str, bytes], key)
        receipt += Receipt(records=await storage.records.drop_expired(context, space, record), at=context.now)
    elif kind == "bound" and text:
        lost = documents.decode(text, list[Bound], key)
        records = await storage.partitions.drop_lost(keys, lost, context.now)
        receipt += Receipt(records=records, at=context.now)
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


async def erase_rest(storage: KeyValueStorage, context: Context) -> Receipt:
    keys = KeyValueKeys(context.tenant)
    records = 0
    for owner, _ in await storage.records.owners(keys):
        records += await storage.records.erase(context, owner)
    blobs = 0
    for sha256, _ in await storage.tenant_data.blob_keys(keys):
        blobs += await storage.tenant_data.release_blob(keys, sha256, _END)
    usage_rows = await storage.tenant_data.erase_usage(keys, None)
    async for key in storage.functions.keys(keys.tombstones):
        await storage.functions.delete(key)
    return Receipt(records=records, blobs=blobs, usage_rows=usage_rows, at=context.now)
