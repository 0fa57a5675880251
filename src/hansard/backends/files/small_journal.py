"""A journal beside the conversations: a fixed path, a lock of its own, and a state that is small enough to keep."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Generic

from hansard.backends.files import disk
from hansard.backends.files.disk import Disk
from hansard.backends.files.journal import JournalReader, sealed
from hansard.backends.files.line_format import R
from hansard.backends.files.locks import Locks


class SmallJournal(Generic[R]):
    def __init__(
        self, path: Path, fresh: Callable[[], R], writes: Disk, locks: Locks, *, lock: Path, what: str
    ) -> None:
        self.path = path
        self.disk = writes
        self.known = JournalReader(fresh)
        self._lock = lock
        self._what = what
        self._locks = locks

    @contextlib.contextmanager
    def reading(self) -> Iterator[tuple[int, R] | None]:
        """The open file and its state; None when there is no such file."""
        try:
            fd = os.open(self.path, disk.READ)
        except FileNotFoundError:
            yield None
            return
        try:
            yield fd, self.known.read_on(fd, self.path)
        finally:
            os.close(fd)

    def copy_to(self, path: Path, writes: Disk) -> None:
        with self.reading() as found:
            if found is not None:
                fd, state = found
                writes.make_folder(path.parent)
                writes.replace(path, disk.prefix(fd, state.position.size))

    @contextlib.contextmanager
    def writing(self) -> Iterator[SmallJournalWriter[R]]:
        """Under its lock. The file is made by the first line."""
        self.disk.make_folder(self._lock.parent)
        with self._locks.hold(self._lock, self._what):
            journal = SmallJournalWriter(self)
            try:
                yield journal
            finally:
                journal.close()


class SmallJournalWriter(Generic[R]):
    """A small journal whose lock is held."""

    def __init__(self, small_journal: SmallJournal[R]) -> None:
        self._path = small_journal.path
        self._disk = small_journal.disk
        self._known = small_journal.known
        self._fd: int | None = None
        try:
            self._fd = os.open(self._path, disk.UPDATE)
            self.state = self._known.mend(self._fd, self._path, self._disk)
        except FileNotFoundError:
            self.state = self._known.reset()
        except BaseException:
            self.close()
            raise

    @property
    def fd(self) -> int:
        """The open file, made if it is missing."""
        if self._fd is None:
            self._disk.make_folder(self._path.parent)
            self._fd = os.open(self._path, disk.CREATE, 0o666)
            self._disk.sync_folder(self._path.parent)
        return self._fd

    def append(self, body: bytes) -> None:
        self.state = self._known.append(self.fd, self._path, self._disk, body, self.state)

    def replace(self, bodies: Iterable[bytes]) -> None:
        fd, self.state = self._known.replace(self._path, self._disk, sealed(bodies))
        self.close()
        self._fd = fd

    def remove(self) -> None:
        self.close()
        self._disk.remove(self._path)
        self.state = self._known.reset()

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
