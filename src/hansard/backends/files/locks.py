"""Locks between threads and processes, on files of their own.

A lock lasts as long as its file is open: a process that dies releases it. A lock file is removed only by its holder,
and a process that has waited for a lock checks that its file is still the one at that path.

A thread that holds several locks must take them in this order:

1. the tenant (`Tenant.lock_shared`), shared by writers and exclusive for deleting the tenant
2. conversations, in the order of their names
3. one of these: the records of an owner, the log of the tenant, the blobs
4. mutexes of this process, held briefly: of the index, of the state of a small journal

So a holder of 3 or 4 never waits for a conversation: it tries once, releases everything if the conversation is busy,
and starts again (`Journals.retry_while_moving`). A backup may take long: it shares the lock of the blobs with the
writers that add some, and a process that wants it exclusively, to remove blobs, gives up after a second.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

from hansard.backends.files import disk
from hansard.errors import TimedOut

_FIRST_PAUSE, _LONGEST_PAUSE = 0.0002, 0.02
_WRITER_PRIORITY = 1.0
"""Seconds that a reader waits for a starved writer of its process, which other processes may keep waiting."""

try:
    import fcntl

    def _try_lock(fd: int, *, shared: bool) -> bool:
        try:
            fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _unlock(fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_UN)

except ImportError:  # Windows
    import msvcrt

    _BEYOND = 1 << 30  # this kind of lock is mandatory, and the file must stay readable

    def _try_lock(fd: int, *, shared: bool) -> bool:
        os.lseek(fd, _BEYOND, os.SEEK_SET)
        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        except OSError:
            return False
        return True

    def _unlock(fd: int) -> None:
        os.lseek(fd, _BEYOND, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)  # type: ignore[attr-defined,unused-ignore]


def is_at(fd: int, path: Path) -> bool:
    """Whether an open file is the one at that path."""
    try:
        here = path.stat()
    except FileNotFoundError:
        return False
    return os.path.samestat(here, os.fstat(fd))


class Locks:
    """Exclusive locks pass between threads without looking at the file; shared ones are left to the system."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._guard = threading.Lock()
        self._threads: dict[Path, tuple[threading.Lock, int]] = {}
        self.starved: set[Path] = set()
        """Paths where a writer has waited for long: overlapping readers could keep it waiting forever."""
        self.open: set[int] = set()
        _all_locks.add(self)

    def reset_after_fork(self) -> None:
        """Closes inherited lock files in a forked child, which would otherwise hold its parent's locks after the parent
        dies.
        """
        for fd in self.open:
            with contextlib.suppress(OSError):
                os.close(fd)
        self._guard, self._threads, self.starved, self.open = threading.Lock(), {}, set(), set()

    def hold(
        self, path: Path, what: str, *, shared: bool = False, flags: int = disk.CREATE, timeout: float | None = None
    ) -> contextlib.AbstractContextManager[int]:
        """Holds the lock at `path` and yields the open file. Raises `FileNotFoundError` if its folder is missing."""
        deadline = time.monotonic() + (self._timeout if timeout is None else timeout)
        held = _FileLock(self, path, what, deadline, shared=shared, flags=flags)
        return held if shared else self._exclusive(held, path, what, deadline)

    def yield_to_writer(self, path: Path) -> None:
        until = time.monotonic() + _WRITER_PRIORITY
        while path in self.starved and time.monotonic() < until:
            time.sleep(_FIRST_PAUSE)

    @contextlib.contextmanager
    def _exclusive(self, held: _FileLock, path: Path, what: str, deadline: float) -> Iterator[int]:
        with self._guard:
            lock, users = self._threads.get(path) or (threading.Lock(), 0)
            self._threads[path] = (lock, users + 1)
        try:
            if not lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
                raise _timed_out(path, what)
            try:
                with held as fd:
                    yield fd
            finally:
                lock.release()
        finally:
            with self._guard:
                lock, users = self._threads.pop(path)
                if users > 1:
                    self._threads[path] = (lock, users - 1)

    def wait(self, fd: int, path: Path, what: str, deadline: float, *, shared: bool) -> None:
        pause = _FIRST_PAUSE
        try:
            while not _try_lock(fd, shared=shared):
                if time.monotonic() + pause > deadline:
                    raise _timed_out(path, what)
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
                if pause == _LONGEST_PAUSE and not shared:
                    self.starved.add(path)
        finally:
            if not shared:
                self.starved.discard(path)


class _FileLock:
    """A lock on an open file. A class and not a generator, because every append takes two."""

    __slots__ = ("_deadline", "_fd", "_flags", "_locks", "_path", "_shared", "_what")

    def __init__(self, locks: Locks, path: Path, what: str, deadline: float, *, shared: bool, flags: int) -> None:
        self._locks = locks
        self._path = path
        self._what = what
        self._deadline = deadline
        self._shared = shared
        self._flags = flags
        self._fd = -1

    def __enter__(self) -> int:
        locks, path, shared = self._locks, self._path, self._shared
        if shared and locks.starved:
            locks.yield_to_writer(path)
        while True:
            fd = self._fd = os.open(path, self._flags, 0o666)
            try:
                locks.open.add(fd)
                if not _try_lock(fd, shared=shared):
                    locks.wait(fd, path, self._what, self._deadline, shared=shared)
                if is_at(fd, path):
                    return fd
            except BaseException:
                self.__exit__()
                raise
            self.__exit__()

    def __exit__(self, *_: object) -> None:
        try:
            # Closing would not release it while a process that was forked meanwhile has the same open file.
            _unlock(self._fd)
        finally:
            self._locks.open.discard(self._fd)
            os.close(self._fd)


_all_locks: weakref.WeakSet[Locks] = weakref.WeakSet()


def _reset_after_fork() -> None:
    for each in _all_locks:
        each.reset_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)


def _timed_out(path: Path, what: str) -> TimedOut:
    return TimedOut(f"another writer has held {what} for too long ({path}): nothing was written, try again")
