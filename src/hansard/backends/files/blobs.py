"""Blobs: files named by their hash. A blob that nothing refers to is kept until its file's modification time.

A blob is on disk before any line that refers to it. A writer that adds a reference holds the lock shared, from before
it looks for the file until its line is written; removing blobs needs the lock exclusively. So no blob is removed while
a writer is about to refer to it.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path

from hansard import codec
from hansard.backends.files.disk import Disk
from hansard.backends.files.layout import Layout, files_in, folders_in
from hansard.backends.files.locks import Locks
from hansard.errors import Corrupt
from hansard.model import EPOCH, to_micros

_LATEST = 4_102_444_800_000_000
"""The year 2100, in microseconds: file systems differ in the later times that they support."""

_REMOVAL_TIMEOUT = 1.0
"""How long to wait for the lock, in seconds, before removal is left to the next sweep: a backup may hold it."""


class BlobFiles:
    def __init__(self, layout: Layout, writes: Disk, locks: Locks) -> None:
        self._layout = layout
        self._disk = writes
        self._locks = locks

    def lock_shared(self) -> contextlib.AbstractContextManager[int]:
        """Holds the lock shared: no blob is removed meanwhile."""
        return self._hold(shared=True)

    def _hold(self, *, shared: bool = False, timeout: float | None = None) -> contextlib.AbstractContextManager[int]:
        self._disk.make_folder(self._layout.locks)
        return self._locks.hold(self._layout.lock("_blobs"), "the blobs", shared=shared, timeout=timeout)

    @contextlib.contextmanager
    def adding(self, blobs: Mapping[str, bytes]) -> Iterator[None]:
        """Stores these blobs, and holds the lock while a write that refers to them is in progress."""
        with self.lock_shared():
            for sha256, data in blobs.items():
                self._store(sha256, data, EPOCH)
            yield

    def put(self, sha256: str, data: bytes, keep_until: datetime) -> None:
        with self.lock_shared():
            path = self._store(sha256, data, keep_until)
            if path.stat().st_mtime_ns < _nanos(keep_until):
                os.utime(path, ns=(_nanos(keep_until), _nanos(keep_until)))

    def _store(self, sha256: str, data: bytes, keep_until: datetime) -> Path:
        path = self._layout.blob(sha256)
        if path.exists():
            # The process that wrote the file may not have made its name durable yet.
            self._disk.sync_folder(path.parent)
        else:
            self._disk.make_folder(path.parent)
            self._disk.replace(path, [data], modified=_nanos(keep_until))
        return path

    def get(self, digests: Iterable[str]) -> dict[str, bytes]:
        found = {}
        for sha256 in filter(_is_digest, digests):
            path = self._layout.blob(sha256)
            with contextlib.suppress(FileNotFoundError):
                data = path.read_bytes()
                if not codec.is_blob(sha256, data):
                    raise Corrupt(f"{path} is damaged: its content does not have the hash in its name", where=str(path))
                found[sha256] = data
        return found

    def drop(self, candidates: Collection[str], now: datetime, used: Callable[[], Collection[str]]) -> int:
        """Removes the unused ones of these blobs. `used` is called while no writer can add a reference."""
        existing = [path for sha256 in filter(_is_digest, candidates) if (path := self._layout.blob(sha256)).exists()]
        if not existing:
            return 0
        with self._hold(timeout=_REMOVAL_TIMEOUT):
            needed = used()
            removable = [path for path in existing if path.name not in needed and _is_over(path, now)]
            for path in removable:
                self._disk.remove(path)
                with contextlib.suppress(OSError):
                    path.parent.rmdir()
        return len(removable)

    def all(self) -> Iterator[tuple[str, int]]:
        """Yields the digest and size of every blob."""
        for folder in folders_in(self._layout.blobs):
            for file in files_in(self._layout.blobs / folder):
                if _is_digest(file.name):
                    with contextlib.suppress(FileNotFoundError):
                        yield file.name, file.stat().st_size


_DIGEST = re.compile("[0-9a-f]{64}")


def _is_digest(text: str) -> bool:
    """Whether this is a digest. Callers may pass any text, which must not choose a path."""
    return bool(_DIGEST.fullmatch(text))


def _nanos(time: datetime) -> int:
    return min(max(to_micros(time), 0), _LATEST) * 1000


def _is_over(path: Path, now: datetime) -> bool:
    try:
        return path.stat().st_mtime_ns <= _nanos(now)
    except FileNotFoundError:
        return False
