"""A journal outside the conversations: it has a fixed path, its own lock, and a state that is small enough for memory.

Records and the tenant's log are stored in such journals.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Generic

from hansard.backends.files import disk, line_format
from hansard.backends.files.disk import Disk
from hansard.backends.files.line_format import R
from hansard.backends.files.locks import Locks


class SmallJournal(Generic[R]):
    def __init__(
        self, path: Path, fresh: Callable[[], R], writes: Disk, locks: Locks, *, lock: Path, what: str
    ) -> None:
        self.path = path
        self.disk = writes
        self.state = fresh()
        """The state up to the last line that this process has read."""
        self.mutex = threading.Lock()
        """Held while the state is read or changed; never while a write waits for the disk."""
        self._fresh = fresh
        self._lock = lock
        self._what = what
        self._locks = locks

    @contextlib.contextmanager
    def reading(self) -> Iterator[tuple[int, R] | None]:
        """Yields the open file and its state, or None if the file does not exist."""
        try:
            fd = os.open(self.path, disk.READ)
        except FileNotFoundError:
            yield None
            return
        try:
            yield fd, self.read_new_lines(fd)
        finally:
            os.close(fd)

    def read_new_lines(self, fd: int) -> R:
        with self.mutex:
            try:
                self.state = line_format.catch_up(fd, self.state, self._fresh, self.path)
            except BaseException:
                # Half a line may have been applied.
                self.state = self._fresh()
                raise
            return self.state

    def reset(self) -> R:
        """Clears the state, because the file does not exist."""
        with self.mutex:
            self.state = self._fresh()
            return self.state

    def copy_to(self, path: Path, writes: Disk) -> None:
        with self.reading() as found:
            if found is not None:
                fd, state = found
                writes.make_folder(path.parent)
                writes.replace(path, disk.prefix(fd, state.position.size))

    @contextlib.contextmanager
    def writing(self) -> Iterator[SmallJournalWriter[R]]:
        """Holds the journal's lock. The first line that is appended creates the file."""
        self.disk.make_folder(self._lock.parent)
        with self._locks.hold(self._lock, self._what):
            writer = SmallJournalWriter(self)
            try:
                yield writer
            finally:
                writer.close()


class SmallJournalWriter(Generic[R]):
    """A small journal whose lock is held.

    `state` always belongs to the open file. `SmallJournal.state` may not: a reader that still has an older file open
    can replace it.
    """

    def __init__(self, journal: SmallJournal[R]) -> None:
        self._journal = journal
        self._path = journal.path
        self._disk = journal.disk
        self._fd: int | None = None
        try:
            self._fd = os.open(self._path, disk.UPDATE)
            self.state = self._repair(self._fd)
        except FileNotFoundError:
            self.state = journal.reset()
        except BaseException:
            self.close()
            raise

    def _repair(self, fd: int) -> R:
        """Reads the journal and cuts off a torn tail, which was never acknowledged."""
        state = self._journal.read_new_lines(fd)
        if os.fstat(fd).st_size > state.position.size:
            self._disk.cut(fd, state.position.size)
        return state

    @property
    def fd(self) -> int:
        """The open file, which is created if it is missing."""
        if self._fd is None:
            self._disk.make_folder(self._path.parent)
            self._fd = os.open(self._path, disk.CREATE, 0o666)
            self._disk.sync_folder(self._path.parent)
        return self._fd

    def append(self, body: bytes) -> None:
        """Appends a JSON object as a line."""
        state, at = self.state, self.state.position.size
        line = line_format.make_line(body, state.position.lines + 1)
        self._disk.append(self.fd, at, line)
        with self._journal.mutex:
            if self._journal.state is state and state.position.size == at and state.position.inode:
                line_format.apply_line(state, line, self._path)
                return
        # A reader has applied the line already, or the file is new.
        self.state = self._journal.read_new_lines(self.fd)

    def replace(self, bodies: Iterable[bytes]) -> None:
        """Replaces the file by one with these JSON objects as lines."""
        lines = (line_format.make_line(body, number) for number, body in enumerate(bodies, 1))
        fd = self._disk.replace_open(self._path, lines)
        self.close()
        self._fd = fd
        self.state = self._journal.read_new_lines(fd)

    def remove(self) -> None:
        self.close()
        self._disk.remove(self._path)
        self.state = self._journal.reset()

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
