"""Operations over tenants: list, measure, check, sweep, delete. Callers must hold the lock."""

from __future__ import annotations

from hansard import rules
from hansard.backends.memory.tenant import MemoryTenant
from hansard.contract.types import Context, ConversationState, Swept
from hansard.model import Message, Receipt, Stats

Tenants = dict[str, MemoryTenant]


def chosen(tenants: Tenants, tenant: str | None) -> Tenants:
    return {name: each for name, each in tenants.items() if tenant in (None, name)}


def list_tenants(tenants: Tenants) -> list[str]:
    return sorted(name for name, tenant in tenants.items() if tenant.holds_anything)


def stats(tenants: Tenants, evicted_conversations: int, evicted_messages: int) -> Stats:
    stored = [each for tenant in tenants.values() for each in tenant.conversations.values()]
    blobs = [blob for tenant in tenants.values() for blob in tenant.blobs.values()]
    return Stats(
        backend="memory",
        tenants=len(list_tenants(tenants)),
        conversations=len(stored),
        messages=sum(len(each.places) for each in stored),
        records=sum(len(tenant.records) for tenant in tenants.values()),
        blobs=len(blobs),
        blob_bytes=sum(len(blob.data) for blob in blobs),
        active=rules.active_days(each.state.conversation for each in stored),
        evicted_conversations=evicted_conversations,
        evicted_messages=evicted_messages,
    )


def to_audit(tenants: Tenants) -> list[tuple[str, ConversationState, list[tuple[int, Message]]]]:
    """Returns the name, state and messages of each conversation: a copy that can be checked without the lock."""
    return [
        (f"{name}/{id}", stored.state, list(stored.all_messages()))
        for name, tenant in tenants.items()
        for id, stored in tenant.conversations.items()
    ]


def sweep(tenants: Tenants, context: Context) -> Swept:
    total, tombstones = Receipt(at=context.now, physically_gone=True), 0
    for name, tenant in tenants.items():
        total += _sweep(tenant, Context(name, context.now))
        old = [key for key, at in tenant.tombstones.items() if at + rules.TOMBSTONE_LIFE <= context.now]
        for key in old:
            del tenant.tombstones[key]
        tombstones += len(old)
    return Swept(receipt=total, tombstones=tombstones)


def _sweep(tenant: MemoryTenant, context: Context) -> Receipt:
    total = Receipt(at=context.now, physically_gone=True)
    for id, stored in list(tenant.conversations.items()):
        if not rules.is_visible(stored.state.conversation, context):
            total += tenant.drop(context, id)
    dead = [key for key, record in tenant.records.items() if not rules.is_alive(record, context.now)]
    for key in dead:
        tenant.remove_record(key)
    blobs = tenant.drop_blobs(context, set(tenant.blobs))
    return total + Receipt(records=len(dead), blobs=blobs, at=context.now, physically_gone=True)


def delete_tenant(tenants: Tenants, context: Context) -> Receipt:
    tenant = tenants.pop(context.tenant)
    total = Receipt(at=context.now, physically_gone=True)
    for id in list(tenant.conversations):
        total += tenant.drop(context, id)
    return total + Receipt(
        records=len(tenant.records),
        blobs=len(tenant.blobs),
        usage_rows=len(tenant.usage),
        at=context.now,
        physically_gone=True,
    )
