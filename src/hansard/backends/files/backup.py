"""Copies the whole store while others write: each journal as of one moment, with everything that it refers to."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import time
from pathlib import Path

from hansard.backends.files import disk, maintenance
from hansard.backends.files.disk import Disk
from hansard.backends.files.layout import ROOT, Layout
from hansard.backends.files.tenant import SharedResources, Tenant
from hansard.errors import ValidationError

_OLD = 3600.0
"""A temporary folder without writes for this many seconds belongs to a backup that was killed."""


def backup(common: SharedResources, target: Path) -> None:
    if target.exists():
        raise ValidationError(f"{str(target)!r} exists already: a backup never overwrites")
    _remove_leftovers(target)
    partial = target.with_name(f"{target.name}.{secrets.token_hex(4)}{disk.TEMPORARY}")
    try:
        common.disk.make_folder(partial)
        for tenant in maintenance.tenants(common):
            _copy_tenant(tenant, Layout(partial, tenant.id), common.disk)
        common.disk.replace(partial / ROOT, [(common.root / ROOT).read_bytes()])
        common.disk.move(partial, target)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _remove_leftovers(target: Path) -> None:
    oldest = time.time() - _OLD
    with contextlib.suppress(OSError):
        for path in target.parent.iterdir():
            token = path.name.removeprefix(f"{target.name}.").removesuffix(disk.TEMPORARY)
            is_ours = path.name == f"{target.name}.{token}{disk.TEMPORARY}" and len(token) == 8
            if is_ours and path.is_dir() and _newest(path) < oldest:
                shutil.rmtree(path, ignore_errors=True)


def _newest(folder: Path) -> float:
    """When something was last created in a folder or below it. Blobs have the times of their originals."""
    return max(Path(each).stat().st_mtime for each, _, _ in os.walk(folder))


def _copy_tenant(tenant: Tenant, target: Layout, writes: Disk) -> None:
    with tenant.lock_shared() as exists:
        if exists:
            _copy(tenant, target, writes)


def _copy(tenant: Tenant, target: Layout, writes: Disk) -> None:
    writes.make_folder(target.locks)
    # No blob is removed while this lock is held.
    with tenant.blobs.lock_shared():
        names = tenant.catalog().names()
        tenant.log.copy_to(target.log, writes)
        for space in tenant.spaces():
            space.copy_to(target.space(space.owner), writes)
        for name in names:
            _copy_journal(tenant, name, target, writes)
        for sha256, _ in tenant.blobs.all():
            _copy_blob(tenant.layout.blob(sha256), target.blob(sha256), writes)


def _copy_journal(tenant: Tenant, name: str, target: Layout, writes: Disk) -> None:
    with tenant.journals.opened(name) as found:
        if found is None:
            return
        source, row, _ = found
        copy = target.journal(source.folder, name)
        writes.make_folder(copy.parent)
        writes.replace(copy, disk.prefix(source.fd, row.state.position.size))


def _copy_blob(path: Path, copy: Path, writes: Disk) -> None:
    with disk.opened(path, disk.READ) as fd:
        facts = os.fstat(fd)
        writes.make_folder(copy.parent)
        writes.replace(copy, disk.prefix(fd, facts.st_size), modified=facts.st_mtime_ns)
