"""The index of a tenant: one SQLite file, built from the journals, which may be deleted at any time.

The journals are the truth. The index may be behind a journal, never ahead of it. A writer only marks its journal as
ahead of the index, and keeps the rows to store in memory; see `journals`. A listing or search first updates the index
from marked journals, and a reader of a conversation compares its row with the file. So the index need not be durable,
and a commit does not wait for the disk.

An index that is damaged, of an older format, or missing is replaced. If it cannot be written (a read-only or full disk,
a newer format), this process uses a private index in memory, which is filled the same way, and tries again later.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from importlib import resources
from pathlib import Path

from hansard.backends.files import disk
from hansard.backends.files.disk import Disk
from hansard.backends.files.layout import Layout
from hansard.backends.files.line_format import inode_of
from hansard.backends.files.locks import Locks
from hansard.errors import TimedOut, Unavailable

FORMAT = 3
"""Format of the index alone. An index with an older number is rebuilt."""

_SCHEMA = resources.files(__package__).joinpath("index.sql").read_text("utf-8")
_IDLE = 8
"""Idle connections that a tenant keeps open."""
_PAGE_SIZE = 2048
"""Small, because every write copies whole pages and changes little in each."""
_LONGEST_LOG = 4000
"""Pages in the write-ahead log before it is copied into the database: the more, the fewer pages are copied twice."""
_RETRY = 30.0
"""Seconds before a process that could not use the index tries again."""
_WAL_TIMEOUT = 10.0
_SCRUB_MILLISECONDS = 1000
_MERGES, _MANY_MERGES = 4, 100_000
_PAGES = 64
"""Pages of the search index that one merge handles."""
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_UNUSABLE = (
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_NOMEM,
)


_DRIVER = (sqlite3.Error, UnicodeDecodeError)
"""What the sqlite3 module raises. It decodes the texts of a file, and its messages about a damaged one."""


class IndexFailure(Exception):
    """The index is unusable. `recover` makes the next attempt use another one, or raises."""

    def __init__(self, index: TenantIndex, inode: int | None, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error
        self._index = index
        self._inode = inode

    @property
    def code(self) -> int:
        return getattr(self.error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF

    def recover(self) -> None:
        if self.code in _BUSY:
            raise TimedOut(
                f"other processes have used the index for too long ({self._index.path}): nothing was written, try again"
            ) from self.error
        self._index.replace(self._inode, private=self.code in _UNUSABLE)


class TenantIndex:
    def __init__(self, layout: Layout, writes: Disk, locks: Locks, timeout: float) -> None:
        self.path = layout.index
        self._layout = layout
        self._disk = writes
        self._locks = locks
        self._timeout = timeout
        self._pool: _Pool | None = None
        self._opening = threading.Lock()
        self._write_lock = threading.RLock()
        self._thread = threading.local()

    # Connections

    def connection(self, *, current: bool = False) -> AbstractContextManager[sqlite3.Connection]:
        """Borrows a connection for this thread. Callers must not wait for a file lock while they hold one.

        With `current`, the connection is to the file that other processes use now. Without it, that file may have been
        removed: only for callers that compare what they find with the journal.
        """
        borrowed: sqlite3.Connection | None = getattr(self._thread, "connection", None)
        if borrowed is not None:
            return contextlib.nullcontext(borrowed)
        pool = self._pool
        if current or pool is None or pool.is_private or pool.pid != os.getpid():
            pool = self._current()
        return _BorrowedConnection(self, self._thread, pool)

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A read transaction: all queries see the same moment."""
        with self.connection() as connection:
            if connection.in_transaction:
                yield connection
                return
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                connection.execute("ROLLBACK")

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A write transaction."""
        # A lock wakes a waiting thread of this process at once; SQLite would let it sleep.
        with self._write_lock, self.connection(current=True) as connection:
            if connection.in_transaction:
                yield connection  # the outermost one commits
                return
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def synchronising(self) -> Iterator[None]:
        """Marks the index as synchronised, unless comparing all journals with it fails."""
        pool = self._current()
        pool.is_synced = True
        try:
            yield
        except BaseException:
            pool.is_synced = False
            raise

    @property
    def is_synced(self) -> bool:
        """Whether every journal was compared with its row since this index was opened. Writers keep it up to date."""
        pool = self._current()
        return pool.is_synced and not pool.is_private

    @property
    def is_private(self) -> bool:
        """Whether this process uses a private index in memory."""
        return self._current().is_private

    @property
    def token(self) -> object:
        """Identifies the database in use."""
        return self._pool

    def mark(self, name: str) -> None:
        """Marks a journal that the index may be behind. Callers must hold the lock of the conversation."""
        marker = self._layout.marker(name)
        try:
            try:
                fd = os.open(marker, disk.MARK, 0o666)
            except FileNotFoundError:
                self._current()  # creates the folder, if possible
                fd = os.open(marker, disk.MARK, 0o666)
            os.close(fd)
        except OSError:
            # Without the mark, the next listing of this process must compare all journals.
            if self._pool is not None:
                self._pool.is_synced = False

    def unmark(self, name: str) -> None:
        """Removes the mark of an up-to-date journal. Callers must hold the lock of the conversation."""
        with contextlib.suppress(OSError):
            self._layout.marker(name).unlink()

    def marked(self) -> list[str]:
        """Returns the names of the journals that the index may be behind."""
        try:
            return os.listdir(self._layout.behind)  # noqa: PTH208  every listing does this
        except OSError:
            return []

    def close(self) -> None:
        with self._opening:
            if self._pool is not None:
                self._pool.close()
            self._pool = None

    def scrub(self, *, whole: bool = False, only_terms: bool = False) -> None:
        """Removes deleted data from the search index and the write-ahead log, as far as that is quick.

        The rest stays until a purge, which asks for the `whole`, or while other processes use the file for longer. With
        `only_terms`, only terms of messages were deleted, which are often not indexed yet.
        """
        with contextlib.suppress(IndexFailure):
            with self.connection(current=True) as connection:
                if only_terms and not _is_unclean(connection):
                    return
            with self.writing() as connection:
                _merge(connection, _MANY_MERGES if whole else _MERGES)
            with self.connection() as connection:
                connection.execute(f"PRAGMA busy_timeout = {_SCRUB_MILLISECONDS}")
                try:
                    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                finally:
                    connection.execute(f"PRAGMA busy_timeout = {int(self._timeout * 1000)}")

    # Opening

    def _current(self) -> _Pool:
        pool = self._pool
        inode = _inode(self.path)
        if pool is not None and self._is_usable(pool, inode):
            return pool
        with self._opening:
            inode = _inode(self.path)
            if self._pool is None or not self._is_usable(self._pool, inode):
                self._set_pool(self._open())
            assert self._pool is not None
            return self._pool

    def _is_usable(self, pool: _Pool, inode: int | None) -> bool:
        if pool.pid != os.getpid():
            return False
        if not pool.is_private:
            return pool.inode == inode
        # The tenant may have been created since.
        return time.monotonic() < pool.retry_at and (not pool.is_empty or not self._layout.home.is_dir())

    def _set_pool(self, pool: _Pool) -> None:
        old, self._pool = self._pool, pool
        if old is not None:
            old.close()

    def replace(self, inode: int | None, *, private: bool) -> None:
        """Replaces the database of that inode, by a private one or by a new file."""
        with self._opening:
            if self._pool is not None and self._pool.inode != inode:
                return  # another thread has replaced it
            if private:
                self._set_pool(self._open_private())
                return
            self._remove(inode)
            self._set_pool(self._open())

    def rebuild(self) -> None:
        """Starts again with an empty file."""
        pool = self._current()
        if not pool.is_empty:
            self.replace(pool.inode, private=False)

    def _open(self) -> _Pool:
        home = self._layout.home
        if not home.is_dir():
            return self._open_private(is_empty=True)
        try:
            self._disk.make_folder(self._layout.locks, within=home)
            self._disk.make_folder(self._layout.cache, within=home)
            self._disk.make_folder(self._layout.behind, within=home)
            for _ in range(2):
                with self._locks.hold(self._layout.lock("_index"), "the index", shared=True):
                    version = self._version()
                    if version == FORMAT:
                        self._remove_older()
                        return _Pool(self._connect, _inode(self.path))
                if version > FORMAT:
                    break  # a newer Hansard also uses this folder
                self._remove(_inode(self.path))
        except FileNotFoundError:
            return self._open_private(is_empty=True)
        except (OSError, sqlite3.Error, Unavailable):
            pass  # the file is unusable: use a private index
        return self._open_private()

    def _remove_older(self) -> None:
        """Removes files that versions without this index kept in its folder."""
        for name in ("changes.log", "catalog.json"):
            (self._layout.cache / name).unlink(missing_ok=True)
        shutil.rmtree(self._layout.cache / "index", ignore_errors=True)

    def _version(self) -> int:
        """Returns the format of the database, which is created if it is missing; 0 if it is damaged."""
        try:
            with contextlib.closing(self._connect()) as connection:
                return _prepare(connection)
        except _DRIVER as error:
            if isinstance(error, sqlite3.Error) and error.sqlite_errorcode & 0xFF in (*_BUSY, *_UNUSABLE):
                raise
            return 0

    def _connect(self, path: str | None = None) -> sqlite3.Connection:
        connection = sqlite3.connect(
            path or str(self.path),
            timeout=self._timeout,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        try:
            connection.execute(f"PRAGMA page_size = {_PAGE_SIZE}")
            connection.execute(f"PRAGMA wal_autocheckpoint = {_LONGEST_LOG}")
            # NORMAL waits for the disk at checkpoints only, so that a crash of the machine leaves an intact file.
            connection.execute(f"PRAGMA synchronous = {'NORMAL' if self._disk.durable else 'OFF'}")
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("PRAGMA trusted_schema = OFF")
        except BaseException:
            connection.close()
            raise
        return connection

    def _open_private(self, *, is_empty: bool = False) -> _Pool:
        def connect() -> sqlite3.Connection:
            connection = self._connect(":memory:")
            _prepare(connection)
            return connection

        return _Pool(connect, None, self._write_lock, is_empty=is_empty)

    def _remove(self, inode: int | None) -> None:
        """Removes the database file of that inode."""
        # The lock keeps others from opening it: SQLite finds the other two files by their names.
        with contextlib.suppress(OSError, TimedOut), self._locks.hold(self._layout.lock("_index"), "the index"):
            if _inode(self.path) == inode:
                for ending in ("-wal", "-shm", ""):
                    self.path.with_name(self.path.name + ending).unlink(missing_ok=True)


class IndexDamage(Exception):
    """A row of the index has content that no journal can produce."""


def number_in(value: object) -> int:
    """Returns a number that was read from the index. In a damaged file its place may hold anything."""
    if not isinstance(value, int):
        raise IndexDamage(f"{value!r} stands where the index has a number")
    return value


class _BorrowedConnection:
    """A connection of a pool while a thread uses it. A class and not a generator, because every call needs one."""

    __slots__ = ("_connection", "_index", "_pool", "_thread")

    def __init__(self, index: TenantIndex, thread: threading.local, pool: _Pool) -> None:
        self._index = index
        self._thread = thread
        self._pool = pool

    def __enter__(self) -> sqlite3.Connection:
        try:
            self._connection = self._thread.connection = self._pool.acquire()
        except _DRIVER as error:
            raise IndexFailure(self._index, self._pool.inode, error) from error
        return self._connection

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._thread.connection = None
        try:
            if self._connection.in_transaction:
                self._connection.rollback()
        except _DRIVER as failure:
            error = error or failure
        finally:
            self._pool.release(self._connection)
        if isinstance(error, (*_DRIVER, IndexDamage)):
            raise IndexFailure(self._index, self._pool.inode, error) from error


class _Pool:
    """Connections to one database file, or the only connection to a private database, which threads use in turn."""

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        inode: int | None,
        lock: threading.RLock | None = None,  # type: ignore[valid-type,unused-ignore]
        *,
        is_empty: bool = False,
    ) -> None:
        self.inode = inode
        self.pid = os.getpid()
        self.is_private = lock is not None
        self.is_empty = is_empty
        """Whether the tenant does not exist."""
        self.is_synced = False
        self.retry_at = time.monotonic() + _RETRY
        """When to try the shared index again instead of a private one."""
        self._connect = connect
        self._idle = [connect()]
        self._lock = lock
        self._is_closed = False

    def acquire(self) -> sqlite3.Connection:
        if self._lock is not None:
            self._lock.acquire()
        try:
            return self._idle.pop()
        except IndexError:
            return self._connect()

    def release(self, connection: sqlite3.Connection) -> None:
        if self._is_closed or len(self._idle) >= _IDLE:
            connection.close()
        else:
            self._idle.append(connection)
        if self._lock is not None:
            self._lock.release()

    def close(self) -> None:
        """Closes idle connections; the others are closed when they are released."""
        self._is_closed = True
        if self.pid != os.getpid():
            _inherited.append(self)  # a forked child must not touch its parent's connections
            return
        while self._idle:
            self._idle.pop().close()


_inherited: list[_Pool] = []


def _inode(path: Path) -> int | None:
    try:
        return inode_of(os.stat(path))  # noqa: PTH116  every write does this
    except OSError:
        return None


def _prepare(connection: sqlite3.Connection) -> int:
    """Creates the tables of a new database. Returns the format of the database."""
    version = _version(connection)
    if version:
        return version
    _enter_wal(connection)
    try:
        connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {FORMAT}; COMMIT;")
    except sqlite3.OperationalError:
        # Another process may have created them.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        if not _version(connection):
            raise
    return _version(connection)


def _merge(connection: sqlite3.Connection, rounds: int) -> None:
    """Merges the parts of the search index, which removes deleted terms from old parts."""
    if not _is_unclean(connection):
        return
    for _ in range(rounds):
        before = connection.total_changes
        connection.execute("INSERT INTO search (search, rank) VALUES ('merge', ?)", (-_PAGES,))
        # As documented, fewer than two changes mean that there was nothing to merge.
        if connection.total_changes - before < 2:
            connection.execute("UPDATE search_state SET unclean = 0")
            return


def _is_unclean(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("SELECT unclean FROM search_state").fetchone()[0])


def _version(connection: sqlite3.Connection) -> int:
    found: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return found


def _enter_wal(connection: sqlite3.Connection) -> None:
    """Switches to WAL. Two processes that create a file at once collide here, and SQLite does not wait, so we retry."""
    deadline = time.monotonic() + _WAL_TIMEOUT
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in _BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.005)
        else:
            return
