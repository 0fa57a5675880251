"""Backups on a schedule, into a folder or a bucket of S3-compatible storage, each verified by restoring it.

A copy is made while the server runs, sent to its target, fetched from there into a temporary folder, opened and
checked. Only then older ones are removed. A failure is logged; the server continues, and tries again. The name of a
backup is its time, and the newest one at the target says when the next is due: restarts make no additional ones.

Until a backup is verified, an empty file `NAME.unverified` is beside it. A process that dies leaves that file, and the
backup then neither delays the next one nor counts among those to keep. (A new name after the verification would not do:
S3 copies objects of up to 5 GB only.)

Every backup is a SQLite store. Other storages are copied into one by `copy_to`, which reads everything back: each
conversation is copied as it is at one moment, but not all of them at the same moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from hansard.backends.bucket import Bucket
from hansard.connection import connect
from hansard.errors import Corrupt, HansardError, Unavailable, Unsupported, ValidationError
from hansard.model import Problem
from hansard.server.schedule import repeating
from hansard.store import Store

_LOG = logging.getLogger("hansard.server")
BACKUPS = ("hansard", "backups")
"""The namespace of the record of the last backup."""
_NAME = "hansard-%Y%m%dT%H%M%S%fZ.db"
_UNVERIFIED = ".unverified"
_ABANDONED = timedelta(days=1)


class BackupTarget(Protocol):
    """Where backups are kept. Its methods block."""

    def put(self, name: str, data: bytes | Path) -> None: ...

    def get(self, name: str, file: Path) -> None: ...

    def names(self) -> list[str]:
        """Returns the names of all files, also of those that are not ours."""
        ...

    def remove(self, name: str) -> None: ...


class FolderTarget:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        if not folder.is_dir():
            raise ValidationError(f"there is no folder {folder} for backups: create it")

    def put(self, name: str, data: bytes | Path) -> None:
        file = self._folder / name
        try:
            if isinstance(data, bytes):
                file.write_bytes(data)
            else:
                shutil.copyfile(data, file)
            for each in (file, self._folder):
                _sync(each)
        except OSError:
            file.unlink(missing_ok=True)
            raise

    def get(self, name: str, file: Path) -> None:
        shutil.copyfile(self._folder / name, file)

    def names(self) -> list[str]:
        return [path.name for path in self._folder.iterdir()]

    def remove(self, name: str) -> None:
        (self._folder / name).unlink(missing_ok=True)


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


class BucketTarget:
    def __init__(self, url: str) -> None:
        self._bucket = Bucket(url)

    def put(self, name: str, data: bytes | Path) -> None:
        self._bucket.put(name, data)

    def get(self, name: str, file: Path) -> None:
        self._bucket.download(name, file)

    def names(self) -> list[str]:
        return [name for name, _ in self._bucket.list()]

    def remove(self, name: str) -> None:
        self._bucket.remove(name)


def _time_of(name: str) -> datetime | None:
    """Returns when a backup was made; None if the file is no backup of ours."""
    try:
        return datetime.strptime(name, _NAME).replace(tzinfo=UTC)
    except ValueError:
        return None


def target_of(where: str) -> BackupTarget:
    return BucketTarget(where) if where.startswith("s3://") else FolderTarget(Path(where))


class _Found(NamedTuple):
    """The backups at a target, oldest first."""

    verified: list[str]
    unverified: list[str]

    @classmethod
    def at(cls, target: BackupTarget) -> _Found:
        names = set(target.names())
        unverified = {name.removesuffix(_UNVERIFIED) for name in names if name.endswith(_UNVERIFIED)}
        return cls(
            sorted(name for name in names - unverified if _time_of(name)),
            sorted(name for name in unverified if _time_of(name)),
        )

    @property
    def abandoned(self) -> list[str]:
        """Those of processes that died. The newest one may be in progress, by another machine."""
        before = f"{datetime.now(UTC) - _ABANDONED:{_NAME}}"
        return [name for name in self.unverified if name != self.unverified[-1] or name < before]


def _remove(target: BackupTarget, names: list[str]) -> None:
    for name in names:
        target.remove(name)
        target.remove(name + _UNVERIFIED)


class Backups:
    """Makes backups of a store."""

    def __init__(self, store: Store, where: str, *, every: float, keep: int) -> None:
        if not store.capabilities.keeps:
            raise Unsupported(f"{store.capabilities.name} keeps nothing that could be backed up", capability="backup")
        self._store = store
        self._where = where
        self._every = every
        self._keep = keep

    def running(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Makes backups until the server stops."""
        return repeating(f"backup to {self._where}", self._make_when_due, self._every)

    async def _make_when_due(self) -> dict[str, Any]:
        await asyncio.sleep(await self._seconds_until_due())
        name = await self.make()
        await self._store.records.put(BACKUPS, "last", {"name": name})
        return {"backup": name}

    async def _seconds_until_due(self) -> float:
        with self._target_errors():
            found = await asyncio.to_thread(lambda: _Found.at(target_of(self._where)))
        now = datetime.now(UTC)
        # After a clock was set back, times in the future say nothing.
        ages = [(now - at).total_seconds() for name in found.verified if (at := _time_of(name)) and at <= now]
        return max(self._every - min(ages), 0.0) if ages else 0.0

    async def make(self) -> str:
        """Makes one backup, verifies it and removes those above the number to keep. Returns its name."""
        name = f"{datetime.now(UTC):{_NAME}}"
        with self._target_errors():
            target = await asyncio.to_thread(target_of, self._where)
            await asyncio.to_thread(lambda: _remove(target, _Found.at(target).abandoned))
            with tempfile.TemporaryDirectory(prefix="hansard-backup-") as scratch:
                copy, restored = Path(scratch, "copy.db"), Path(scratch, "restored.db")
                await self._copy_to(copy)
                await asyncio.to_thread(target.put, name + _UNVERIFIED, b"")
                try:
                    await asyncio.to_thread(target.put, name, copy)
                    await self._verify(target, name, restored)
                except Exception:
                    await asyncio.to_thread(_remove, target, [name])
                    raise
            await asyncio.to_thread(target.remove, name + _UNVERIFIED)
            found = await asyncio.to_thread(_Found.at, target)
            # Not the new one, also where others have a time in the future.
            await asyncio.to_thread(_remove, target, [old for old in found.verified[: -self._keep] if old != name])
        return name

    @contextlib.contextmanager
    def _target_errors(self) -> Iterator[None]:
        try:
            yield
        except HansardError:
            raise
        except Exception as error:  # of the file system, or of obstore, whose errors have no common base
            raise Unavailable(f"{self._where} did not take the backup: {error}") from error

    async def _copy_to(self, file: Path) -> None:
        if self._store.capabilities.name == "sqlite":
            await self._store.backup(file)
            return
        async with connect(f"sqlite:///{file}") as copy:
            report = await self._store.admin.copy_to(copy)
        if report.losses:
            _LOG.warning("%d conversations changed while they were backed up", len(report.losses))

    async def _verify(self, target: BackupTarget, name: str, restored: Path) -> None:
        """Restores the backup from its target, and checks it."""
        await asyncio.to_thread(target.get, name, restored)
        try:
            async with connect(f"sqlite:///{restored}") as store:
                found = [each async for each in store.admin.check() if isinstance(each, Problem)]
        except HansardError as error:
            found = [Problem(name, str(error))]
        if found:
            raise Corrupt(f"the backup {name} could not be restored: {found[0].what}", where=name)
