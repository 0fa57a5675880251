"""One database file in this process: one writing connection, a few reading ones, and group commit.

Every write is a *job*: a function of the `SqliteWriter` that runs inside a transaction. The blocking API runs its job
in the calling thread. The async API gathers the jobs of one turn of the event loop and queues them together; one thread
takes everything that was queued during the last commit, runs it in one transaction, commits once, and wakes each event
loop once. A job that the rules refuse has changed nothing, and the others continue; any other failure rolls the
transaction back and runs its jobs one by one. All stores of a process that open the same file share one engine, and so
one lock.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

from msgspec import structs

from hansard.backends.shared.signals import Signals
from hansard.backends.sqlite import index, schema
from hansard.backends.sqlite.errors import DRIVER, map_errors, translate
from hansard.backends.sqlite.read_cache import ReadConnection
from hansard.backends.sqlite.writer import BULK, SqliteWriter
from hansard.contract.types import Removed, Swept
from hansard.errors import Closed, HansardError, Unavailable
from hansard.model import Receipt

T = TypeVar("T")

_MAX_BATCH = 512
_IDLE_READERS = 4
_IDLE_SECONDS = 0.05
"""Seconds without a write after which the index is filled."""
_BULK_IDLE_SECONDS = 1.0
"""The same after a bulk load: its next batch may still be read from a file."""
_MAX_UNINDEXED = 1_000_000
"""With this many waiting messages, the index is filled although more writes are queued."""
_SEARCHED_SECONDS = 10.0
"""Seconds after a search in which the index is filled beside writes, so that the next search has little to check."""
_SEARCHED_TAIL = 30
"""Messages that may wait for the index then. A search checks each of them, in about 20 microseconds."""
_log = logging.getLogger(__name__)


class WriteJob(Generic[T]):
    """A write in progress, and its result."""

    __slots__ = ("error", "future", "run", "value")

    def __init__(self, run: Callable[[SqliteWriter], T], *, future: asyncio.Future[T] | None = None) -> None:
        self.run = run
        self.future = future
        self.value: T | None = None
        self.error: BaseException | None = None

    def finish(self) -> None:
        """Answers the caller, in the caller's event loop."""
        future = self.future
        if future is None or future.done():
            return
        if self.error is not None:
            future.set_exception(self.error)
        else:
            future.set_result(self.value)  # type: ignore[arg-type]


_engines: dict[str, SqliteEngine] = {}
_engines_lock = threading.Lock()


def open_engine(path: Path, durability: str, *, upgrade: bool) -> SqliteEngine:
    """Returns the engine of a file, shared by all stores that open it with the same durability."""
    key = f"{os.path.realpath(path)}?{durability}"
    with _engines_lock:
        engine = _engines.get(key)
        if engine is None:
            engine = _engines[key] = SqliteEngine(key, path, durability, upgrade=upgrade)
        engine.users += 1
        return engine


def _reset_after_fork() -> None:
    # A forked child must not use its parent's connections; it opens its own.
    global _engines_lock  # noqa: PLW0603
    _engines_lock = threading.Lock()
    for engine in _engines.values():
        engine.is_of_parent = True
    _engines.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)


class SqliteEngine:
    def __init__(self, key: str, path: Path, durability: str, *, upgrade: bool) -> None:
        self.path = path
        self.users = 0
        self.signals = Signals()
        self.commits = 0
        self.written = 0
        """The number of jobs in those commits."""
        self._key = key
        self._durability = durability
        self.is_of_parent = False
        """This process is a fork of the one that opened the engine."""
        self._connection = schema.prepare(path, durability, upgrade=upgrade)
        self._writer = SqliteWriter(self._connection, index.index_inserted)
        self.tails = self._writer.tails
        try:
            with map_errors(str(path)):
                self._writer.unindexed = index.state_of(self._connection).tail
        except BaseException:
            self._connection.close()
            raise
        self._lock = threading.RLock()
        self._readers: list[ReadConnection] = []
        self._searched_until = 0.0
        """Until when the index is filled beside writes."""
        self._gathering: dict[asyncio.AbstractEventLoop, list[WriteJob[Any]]] = {}
        """The jobs of the current turn of each event loop."""
        self._queue: queue.SimpleQueue[list[WriteJob[Any]] | None] = queue.SimpleQueue()
        self._door = threading.Lock()
        """Guards the queue: nothing is added after its end."""
        self._thread: threading.Thread | None = None
        self._closed = False

    def close(self) -> None:
        """Releases the engine; its last user ends it, after all queued jobs."""
        if self.is_of_parent:
            # The locks and connections are its parent's, and may be held forever.
            return
        with _engines_lock:
            self.users -= 1
            if self.users > 0:
                return
            if _engines.get(self._key) is self:
                del _engines[self._key]
        with self._door:
            self._closed = True
            self._queue.put(None)
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            for reader in self._readers:
                reader.close()
            self._readers.clear()
            self._connection.close()

    def _check_alive(self) -> None:
        if self._closed:
            raise Closed("this store was closed")
        if self.is_of_parent:
            raise Unavailable("this store was opened before a fork: open it again in the child", retryable=False)

    # Reading

    def read(self, run: Callable[[ReadConnection], T]) -> T:
        """Runs a function on one snapshot: the newest commit. It never waits for a writer."""
        connection = self._take_reader()
        try:
            connection.begin()
            return run(connection)
        except DRIVER as error:
            # Like `map_errors`, without its generator: only `append` is called as often.
            raise translate(error, str(self.path)) from error
        finally:
            self._give_back(connection)

    def _take_reader(self) -> ReadConnection:
        self._check_alive()
        try:
            return self._readers.pop()
        except IndexError:
            return self.open_reader()

    def open_reader(self) -> ReadConnection:
        self._check_alive()
        with map_errors(str(self.path)):
            return schema.connect(self.path, self._durability, ReadConnection, readonly=True)

    def _give_back(self, connection: ReadConnection) -> None:
        connection.end()
        if len(self._readers) < _IDLE_READERS and not self._closed:
            self._readers.append(connection)
        else:
            connection.close()

    # Writing

    def write(self, run: Callable[[SqliteWriter], T]) -> T:
        """Runs a job in the calling thread and returns when it is committed."""
        self._check_alive()
        with self._lock:
            value = self._run_alone(run)
            waiting = self._writer.unindexed >= index.PASS and self._writer.arrived < BULK
            if waiting and self._thread is None:
                self._index()
            return value

    def submit(self, run: Callable[[SqliteWriter], T]) -> asyncio.Future[T]:
        """Runs a job on the writing thread, together with other queued jobs."""
        self._check_alive()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        job = WriteJob(run, future=future)
        gathered = self._gathering.get(loop)
        if gathered is None:
            # The other tasks of this turn run first: their jobs are submitted together with this one.
            self._gathering[loop] = [job]
            loop.call_soon(self._submit_gathered, loop)
        else:
            gathered.append(job)
        return future

    def _submit_gathered(self, loop: asyncio.AbstractEventLoop) -> None:
        jobs = self._gathering.pop(loop)
        try:
            self._enqueue(jobs)
        except HansardError as error:
            for job in jobs:
                job.error = error
                job.finish()

    def _enqueue(self, jobs: list[WriteJob[Any]]) -> None:
        with self._door:
            if self._closed:
                raise Closed("this store was closed")
            if self._thread is None:
                thread = threading.Thread(target=self._work, name="hansard-writer", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:
                    raise Unavailable(f"{self.path} cannot be written: {error}", outcome="not_applied") from error
                self._thread = thread
            self._queue.put(jobs)

    def expect_searches(self) -> None:
        """Keeps the index filled for a while, also while others write without a pause."""
        self._searched_until = time.monotonic() + _SEARCHED_SECONDS

    @property
    def will_index(self) -> bool:
        """Whether the writing thread fills the index as soon as nobody writes: it knows only of our own messages."""
        return self._thread is not None and self._writer.unindexed > 0

    def _work(self) -> None:
        while (jobs := self._next()) is not None:
            last = False
            # This thread is the only consumer, so `get()` cannot block here.
            while len(jobs) < _MAX_BATCH and not self._queue.empty():
                more = self._queue.get()
                if more is None:
                    last = True
                    break
                jobs += more
            try:
                self._execute(jobs)
            except BaseException as error:
                # Every caller must get an answer, now and later.
                self._give_up(jobs, error)
            _deliver(jobs)
            if last:
                return
            most = _SEARCHED_TAIL if time.monotonic() < self._searched_until else _MAX_UNINDEXED
            if self._writer.unindexed > most:
                self._index()

    def _give_up(self, jobs: list[WriteJob[Any]], error: BaseException) -> None:
        _log.error("a write to %s failed unexpectedly, and may have been stored", self.path, exc_info=error)
        for job in jobs:
            if job.error is None:
                job.error = Unavailable(f"{self.path}: {error!r}", retryable=False, outcome="unknown")
                job.error.__cause__ = error

    def _next(self) -> list[WriteJob[Any]] | None:
        """Returns the next jobs. While there are none, fills the search index and merges it."""
        writer = self._writer
        pause = _IDLE_SECONDS if writer.arrived < BULK else _BULK_IDLE_SECONDS
        while writer.unindexed or writer.unmerged >= index.MANY_UNMERGED:
            try:
                return self._queue.get(timeout=pause)
            except queue.Empty:
                if writer.unindexed:
                    self._index(index.SHORT_PASS)
                else:
                    self._merge()
                pause = _IDLE_SECONDS
        return self._queue.get()

    def _index(self, limit: int = index.PASS) -> None:
        """Runs one pass over the messages that are not indexed.

        A failure is harmless: a search makes up for it, or reports it.
        """
        with self._lock:
            try:
                self._writer.unindexed = self._run_alone(lambda writer: index.index_some(writer, limit))
            except Exception:
                _log.warning(
                    "the search index of %s was not filled; the next write tries again", self.path, exc_info=True
                )
                self._writer.unindexed = 0

    def _merge(self) -> None:
        """Merges a part of the index. A failure is harmless: searches are slower."""
        with self._lock:
            try:
                self._run_alone(index.merge_equal)
            except Exception:
                _log.warning("the search index of %s was not merged", self.path, exc_info=True)
                self._writer.unmerged = 0

    def _execute(self, jobs: list[WriteJob[Any]]) -> None:
        with self._lock:
            if len(jobs) > 1:
                try:
                    erasing, cleaned = self._run_together(jobs)
                except BaseException:
                    self._writer.rollback()
                else:
                    # Errors after the commit can no longer undo it.
                    self._notify(self._writer, len(jobs))
                    self._complete_receipts(erasing, cleaned=cleaned)
                    return
            for job in jobs:
                try:
                    job.value, job.error = self._run_alone(job.run), None
                except BaseException as error:
                    job.error = error

    def _run_alone(self, run: Callable[[SqliteWriter], T]) -> T:
        """Runs one job in a transaction of its own."""
        writer = self._writer
        try:
            writer.begin()
            value = run(writer)
            erases = has_erased(value)
            cleaned = not erases or index.clean(writer)
            writer.commit()
        except BaseException as error:
            writer.rollback()
            translated = translate(error, str(self.path)) if isinstance(error, Exception) else error
            if translated is error:
                raise
            raise translated from error
        self._notify(writer, 1)
        return with_physically_gone(value, physically_gone=self._truncate_wal() and cleaned) if erases else value

    def _run_together(self, jobs: list[WriteJob[Any]]) -> tuple[list[WriteJob[Any]], bool]:
        """Runs many jobs in one transaction.

        A job that the rules refuse has changed nothing; any other failure is raised. Returns the jobs that have deleted
        something, and whether the search index holds nothing of it.
        """
        writer = self._writer
        erasing: list[WriteJob[Any]] = []
        writer.begin()
        for job in jobs:
            before = writer.changes
            try:
                job.value = job.run(writer)
            except HansardError as error:
                if writer.changes != before:
                    raise
                job.error = error
            else:
                if has_erased(job.value):
                    erasing.append(job)
        cleaned = not erasing or index.clean(writer)
        writer.commit()
        return erasing, cleaned

    def _complete_receipts(self, erasing: list[WriteJob[Any]], *, cleaned: bool) -> None:
        if erasing:
            gone = self._truncate_wal() and cleaned
            for job in erasing:
                job.value = with_physically_gone(job.value, physically_gone=gone)

    def _notify(self, writer: SqliteWriter, jobs: int) -> None:
        self.commits += 1
        self.written += jobs
        writer.update_tails()
        for key in writer.touched:
            self.signals.notify(key)

    @property
    def loaded(self) -> int:
        """How many messages bulk loads have indexed since the index was merged."""
        return self._writer.loaded

    @property
    def unmerged(self) -> int:
        """How many messages were indexed otherwise since then, or since segments of the same size were merged."""
        return self._writer.unmerged

    @contextmanager
    def bulk_load(self) -> Iterator[None]:
        """While it is entered, large batches are indexed in their own transactions."""
        with self._lock:
            self._writer.loads += 1
        try:
            yield
        finally:
            with self._lock:
                self._writer.loads -= 1

    def vacuum(self) -> None:
        """Rewrites the file without its free pages. Readers continue; writers wait until it is done."""
        self._check_alive()
        with self._lock, map_errors(str(self.path)):
            self._connection.execute("VACUUM")
            self._truncate_wal()

    def _truncate_wal(self) -> bool:
        """After a deletion: moves the log into the file and truncates it. Returns False if a reader prevents it."""
        self.tails.clear()
        self._connection.execute("PRAGMA busy_timeout = 100")
        try:
            busy, _, _ = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            return not busy
        except sqlite3.Error:
            return False
        finally:
            self._connection.execute(f"PRAGMA busy_timeout = {int(schema.BUSY_SECONDS * 1000)}")


def has_erased(value: Any) -> bool:
    """Returns whether a job has deleted something: then the deleted text must not stay in the write-ahead log."""
    kind = type(value)
    if kind is Receipt:
        return bool(value)
    return kind is Swept or (kind is Removed and bool(value.receipt))


def with_physically_gone(value: Any, *, physically_gone: bool) -> Any:
    """Sets `physically_gone` in a receipt, or in a result that contains one."""
    if isinstance(value, Receipt):
        return structs.replace(value, physically_gone=physically_gone) if value else value
    if isinstance(value, Removed):
        return structs.replace(value, receipt=with_physically_gone(value.receipt, physically_gone=physically_gone))
    if isinstance(value, Swept):
        # Even if nothing was removed: the remains of earlier deletions are overwritten.
        return structs.replace(value, receipt=structs.replace(value.receipt, physically_gone=physically_gone))
    return value


def _deliver(jobs: list[WriteJob[Any]]) -> None:
    """Wakes each event loop once, whatever the number of its jobs."""
    loops: dict[asyncio.AbstractEventLoop, list[WriteJob[Any]]] = {}
    for job in jobs:
        if job.future is not None:
            loops.setdefault(job.future.get_loop(), []).append(job)
    for loop, committed in loops.items():
        try:
            loop.call_soon_threadsafe(_finish_all, committed)
        except RuntimeError:
            # The loop was closed during its write: the write is stored, but no caller waits for it.
            continue


def _finish_all(jobs: list[WriteJob[Any]]) -> None:
    for job in jobs:
        job.finish()
