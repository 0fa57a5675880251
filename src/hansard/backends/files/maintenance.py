"""Operations over all tenants: listing, statistics, sweeping, deleting."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import time
from collections import Counter
from pathlib import Path

from msgspec import structs

from hansard import rules
from hansard.backends.files import disk, names, tenant_data
from hansard.backends.files.layout import ENDING, files_in, folders_in
from hansard.backends.files.tenant import SharedResources, Tenant
from hansard.backends.files.tenant_log import tenant_at
from hansard.contract.types import Context, Swept
from hansard.model import Receipt, Stats

_GONE = "_gone."
_OLD = 3600.0
"""Age in seconds after which a temporary file is known to be left over."""


# --- tenants ----------------------------------------------------------------------------------------------------------


def tenants(common: SharedResources) -> list[Tenant]:
    """Returns all tenants that have a folder, sorted by id."""
    ids = [tenant_at(common.root / name) for name in folders_in(common.root) if not names.is_ours(name)]
    return [common.tenant(id) for id in sorted(id for id in ids if id is not None)]


def list_tenants(common: SharedResources) -> list[str]:
    return [tenant.id for tenant in tenants(common) if _holds_anything(tenant)]


def _holds_anything(tenant: Tenant) -> bool:
    paths = tenant.layout
    if any(True for folder in paths.folders() for _ in files_in(paths.home / folder, ENDING)):
        return True
    return any(space.count() for space in tenant.spaces()) or any(True for _ in tenant.blobs.all())


def selected_tenants(common: SharedResources, tenant: str | None) -> list[Tenant]:
    return [each for each in tenants(common) if tenant in (None, each.id)]


# --- measuring --------------------------------------------------------------------------------------------------------


def stats(common: SharedResources, tenant: str | None) -> Stats:
    total = Stats(backend="files", bytes=0, unindexed=0)
    for each in selected_tenants(common, tenant):
        total = _add(total, _stats(each))
    return total


def _stats(tenant: Tenant) -> Stats:
    conversations = [conversation for conversation, _, _ in tenant.catalog().conversations()]
    sizes = [size for _, size in tenant.blobs.all()]
    return Stats(
        backend="files",
        tenants=int(_holds_anything(tenant)),
        conversations=len(conversations),
        messages=sum(each.message_count for each in conversations),
        records=sum(space.count() for space in tenant.spaces()),
        blobs=len(sizes),
        blob_bytes=sum(sizes),
        bytes=_size(tenant.layout.home),
        unindexed=tenant.catalog().unindexed(),
        active=rules.active_days(conversations),
    )


def _add(one: Stats, other: Stats) -> Stats:
    fields = ("tenants", "conversations", "messages", "records", "blobs", "blob_bytes", "bytes", "unindexed")
    sums = {name: (getattr(one, name) or 0) + (getattr(other, name) or 0) for name in fields}
    active = rules.newest_days(Counter(one.active) + Counter(other.active))
    return structs.replace(one, active=active, **sums)


def _size(folder: Path) -> int:
    """Returns the size of all files in a folder, in bytes."""
    total = 0
    for path, _, files in os.walk(folder):
        for file in files:
            with contextlib.suppress(FileNotFoundError):
                total += (Path(path) / file).stat().st_size
    return total


# --- sweeping and deleting --------------------------------------------------------------------------------------------


def sweep(common: SharedResources, context: Context, limit: int) -> Swept:
    total = Receipt(at=context.now)
    tombstones = 0
    for tenant in tenants(common):
        overdue = tenant.catalog().overdue(context)
        for id in overdue[:limit]:
            total += _sweep_conversation(tenant, context, id)
        limit -= len(overdue)
        if limit < 0:
            return Swept(receipt=total, tombstones=tombstones, more=True)
        with tenant.lock_shared() as exists:
            if exists:
                total += _sweep_rest(tenant, context)
                tombstones += tenant.log.sweep(context.now - rules.TOMBSTONE_LIFE)
    _remove_leftovers(common)
    return Swept(receipt=total, tombstones=tombstones)


def _sweep_conversation(tenant: Tenant, context: Context, id: str) -> Receipt:
    with tenant.writing(id) as writer:
        journal = writer.journal if writer else None
        expires = journal.conversation_state.conversation.expires_at if journal else None
        if writer is None or expires is None or expires > context.now:
            return Receipt(at=context.now)
        return tenant.drop(writer, context.now, tombstone=False)


def _sweep_rest(tenant: Tenant, context: Context) -> Receipt:
    records = sum(space.sweep(context.now) for space in tenant.spaces())
    blobs = tenant.drop_blobs({sha256 for sha256, _ in tenant.blobs.all()}, context.now)
    tenant.index.scrub(whole=True)
    return Receipt(records=records, blobs=blobs, at=context.now)


def _remove_leftovers(common: SharedResources) -> None:
    """Removes temporary files and deleted tenants that dead processes left."""
    for name in folders_in(common.root):
        if name.startswith(_GONE):
            shutil.rmtree(common.root / name, ignore_errors=True)
    oldest = time.time() - _OLD
    # Folders may disappear meanwhile: os.walk skips those.
    for folder, _, files in os.walk(common.root):
        for path in (Path(folder, name) for name in files if name.endswith(disk.TEMPORARY)):
            with contextlib.suppress(OSError):
                # Not the modification time: for a blob that is the end of its retention, set before the rename.
                if path.stat().st_ctime < oldest:
                    path.unlink()


def delete_tenant(common: SharedResources, context: Context) -> Receipt:
    tenant = common.tenant(context.tenant)
    # Update the index first, so that others wait less while the tenant is locked.
    _count_all(tenant, context)
    gone = common.root / f"{_GONE}{secrets.token_hex(8)}"
    with tenant.lock_exclusive() as exists:
        if not exists:
            return Receipt(at=context.now)
        receipt = _count_all(tenant, context)
        common.disk.move(tenant.layout.home, gone)
    common.tenants.discard(context.tenant)
    _remove(gone)
    return receipt


def _remove(folder: Path) -> None:
    """Removes a folder. A sweep may be removing it at the same time."""
    while folder.exists():
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(folder)


def _count_all(tenant: Tenant, context: Context) -> Receipt:
    found = tenant.catalog().conversations()
    return Receipt(
        conversations=len(found),
        messages=sum(conversation.message_count for conversation, _, _ in found),
        branches=sum(branches for _, branches, _ in found),
        summaries=sum(summaries for _, _, summaries in found),
        records=sum(space.count() for space in tenant.spaces()),
        blobs=sum(1 for _ in tenant.blobs.all()),
        usage_rows=tenant_data.count_usage(tenant),
        at=context.now,
    )
