"""The stored form of checkpoints, and the upgrade of a store to the form of this version.

This module needs no extra: a store without checkpoints is upgraded even if LangGraph is not installed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

from hansard.contract.backend import Backend
from hansard.contract.types import Context
from hansard.model import Record
from hansard.store import Store
from hansard.store.accessors import requiring_extra

CHECKPOINTS = "langgraph"
WRITES = "langgraph-writes"
"""The first elements of the namespaces of checkpoints, and of writes stored next to them."""
WRITTEN_AT = "__hansard_written_at"
"""The key of a configuration that says when the messages of an imported checkpoint were written."""

SIGN = b"\xff"
"""No deflated data begins with this byte, and the first form was nothing but deflated data."""
FORM = 2


def form_of(record: Record) -> int | None:
    """Returns the form of a checkpoint's record; None for a value that is not a checkpoint."""
    value = record.value
    if not isinstance(value, bytes) or not value:
        return None
    return 1 if value[:1] != SIGN else int.from_bytes(value[1:2])


async def upgrade(backend: Backend) -> int:
    """Rewrites the checkpoints of older forms, of all tenants and users; returns the number of records."""
    count = 0
    async for tenant, owner in _spaces(backend):
        for kind in (CHECKPOINTS, WRITES):
            async for records in _outdated(owner, kind):
                with requiring_extra("langgraph"):
                    from hansard.adapters.langgraph.migration import rewrite
                await rewrite(tenant, owner, records)
                count += len(records)
    return count


async def _outdated(owner: Store, kind: str) -> AsyncIterator[list[Record]]:
    """Yields the records of the first form, grouped by thread."""
    found: list[Record] = []
    async for record in owner.records.iter((kind,)):
        if found and found[0].namespace[1] != record.namespace[1]:
            yield found
            found = []
        if form_of(record) == 1:
            found.append(record)
    if found:
        yield found


async def _spaces(backend: Backend) -> AsyncIterator[tuple[Store, Store]]:
    """Yields every tenant with each owner of records in it: the tenant itself, and its users."""
    if not backend.capabilities.records:
        return
    for name in await backend.list_tenants():
        tenant = Store(backend).tenant(name)
        yield tenant, tenant
        for user in await backend.record_owners(Context(name, datetime.now(UTC))):
            yield tenant, tenant.user(user)
