"""The conversations of one tenant: where their journals lie, and what is known of them.

A journal lies in the folder of its agent. Its lock file names that folder, as a hint; where the hint is missing or
wrong, the folders are searched. What was read of a journal is kept, as long as it is used, and read on when the file
has grown. Readers take no lock: they see the lines that are whole.

Only a journal on its way from one folder to another makes a reader wait for its writer, who may need whatever the
reader holds by then. So whoever holds anything asks without waiting, lets go when it is `Busy`, and asks again.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Container, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from hansard import rules
from hansard.backends.files import checkpoint, disk, entries, lines, names
from hansard.backends.files.cache import Lru
from hansard.backends.files.changes import Changes
from hansard.backends.files.disk import Disk
from hansard.backends.files.index import Index
from hansard.backends.files.journal import Known
from hansard.backends.files.layout import INDEX, Layout, files_in
from hansard.backends.files.locks import Locks, is_at
from hansard.backends.files.tables import Row
from hansard.contract.types import Context, Head
from hansard.errors import Corrupt, FormatMismatch, TimedOut
from hansard.model import Message

T = TypeVar("T")

_ROWS_EACH = 50
"""What a conversation weighs beside its messages, in messages."""


class Journal(Known[Index]):
    """A conversation's journal, and where it lies."""

    def __init__(self, name: str) -> None:
        super().__init__(Index)
        self.name = name
        self.folder: str | None = None
        self.hint: str | None = None
        """What its lock file says, when that is known."""
        self.saved = 0
        """How many of its bytes the last checkpoint covers."""

    def is_worth_saving(self) -> bool:
        index = self.state
        covered = self.saved if self.saved <= index.spot.size else 0
        return index.spot.size - covered > checkpoint.WORTH and index.head is not None and index.deleted is None

    def load(self, path: Path) -> None:
        """Begins with what an earlier process knew, if it did."""
        index = checkpoint.load(path)
        with self.mutex:
            if index is not None and not self.state.spot.size:
                self.state, self.saved = index, index.spot.size

    def save(self, path: Path, home: Path, inode: int) -> None:
        """Writes down what is known, if it is of that file."""
        with self.mutex:
            if self.state.spot.inode == inode:
                self.saved = self.state.spot.size
                checkpoint.save(self.state, path, home)


class Book:
    """A journal that is open, and a state of it that fits the open file."""

    def __init__(self, fd: int, path: Path, mutex: threading.Lock, index: Index) -> None:
        assert index.head is not None
        self.fd = fd
        self.path = path
        self.mutex = mutex
        self.index = index
        self.head: Head = index.head

    def read(self, rows: Sequence[Row]) -> list[Message]:
        """The messages of these rows."""
        data = lines.read_pieces(self.fd, [row.piece for row in rows], self.path)
        id = self.head.conversation.id
        return [entries.decode_message(each, id) for each in data]


class Busy(Exception):
    """A conversation cannot be found just now: it may be on its way from one folder to another."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class Shelf:
    def __init__(self, layout: Layout, writes: Disk, locks: Locks, cache: Lru[Journal]) -> None:
        self.layout = layout
        self.disk = writes
        self.locks = locks
        self.changes = Changes(layout.changes, writes)
        self._cache = cache

    # Known journals

    def journal(self, name: str) -> Journal:
        return self._cache.get((self.layout.home, name), lambda: Journal(name))

    def known(self, name: str) -> Journal | None:
        return self._cache.peek((self.layout.home, name))

    def forget(self, name: str) -> None:
        self._cache.forget((self.layout.home, name))

    def weigh(self, journal: Journal) -> None:
        self._cache.weigh((self.layout.home, journal.name), len(journal.state.places) + _ROWS_EACH)

    def recall(self, journal: Journal, fd: int) -> bool:
        """Begins a long journal with what an earlier process wrote down of it. False when there was no need."""
        if journal.state.spot.size or os.fstat(fd).st_size <= checkpoint.WORTH:
            return False
        journal.load(self.layout.index(journal.name))
        return True

    def save(self, journal: Journal, fd: int, path: Path) -> None:
        """Writes down what is known of an open journal, where that spares the next process much."""
        if not journal.is_worth_saving():
            return
        index = self.layout.index(journal.name)
        with contextlib.suppress(OSError):
            journal.save(index, self.layout.home, os.fstat(fd).st_ino)
            # Whoever deletes first removes or replaces the journal, then what was written down of it. If this came
            # later still, it would bring back what was deleted.
            if not is_at(fd, path):
                index.unlink(missing_ok=True)

    def save_all(self) -> None:
        for key, journal in self._cache.items():
            if isinstance(key, tuple) and key[0] == self.layout.home and journal.is_worth_saving():
                # Others may have deleted what this one still remembers.
                with (
                    contextlib.suppress(Busy, Corrupt, FormatMismatch, OSError),
                    self.opened(journal, wait=False) as found,
                ):
                    if found is not None:
                        self.save(journal, *found[:2])

    def forget_gone(self, names: Container[str]) -> None:
        """Takes away what was written down of journals that are not among these."""
        for file in files_in(self.layout.indexes, INDEX):
            if file.name.removesuffix(INDEX) not in names:
                with contextlib.suppress(OSError):
                    Path(file).unlink()

    # Finding

    def locate(self, name: str, *, wait: bool = True) -> str | None:
        """The folder that holds a journal. Without `wait`, `Busy` when only its writer could tell."""
        folder = self.hint(name)
        if folder and self.layout.journal(folder, name).exists():
            return folder
        found = self.search(name)
        if found is not None or not self.layout.lock(name).exists():
            return found
        # While it moves, a search may miss it in both folders. Nobody moves what is locked.
        try:
            return self._search_locked(name, patience=None if wait else 0.0)
        except TimedOut:
            if wait:
                raise
            raise Busy(name) from None

    def _search_locked(self, name: str, patience: float | None = None) -> str | None:
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(FileNotFoundError):
                lock = self.layout.lock(name)
                stack.enter_context(self.locks.hold(lock, "a conversation", flags=disk.READ, patience=patience))
            return self.search(name)

    def patiently(self, step: Callable[[], T]) -> T:
        """What a step gives that holds something and so must not wait: that is done between two attempts."""
        while True:
            try:
                return step()
            except Busy as busy:
                self._search_locked(busy.name)

    def hint(self, name: str) -> str | None:
        try:
            hint = self.layout.lock(name).read_text("ascii")
        except (FileNotFoundError, UnicodeDecodeError):
            return None
        return hint if names.is_name(hint) else None

    def search(self, name: str) -> str | None:
        return next((each for each in self.layout.folders() if self.layout.journal(each, name).exists()), None)

    def stamp(self, name: str) -> tuple[int, bytes] | None:
        """Something that is different after each write; None when there is no such journal."""
        known = self.known(name)
        folder = known.folder if known else None
        for each in (folder, None):
            where = each or self.locate(name, wait=False)
            if where is None:
                return None
            path = self.layout.journal(where, name)
            with contextlib.suppress(FileNotFoundError), disk.opened(path, disk.READ) as fd:
                return lines.end_of(fd)
        return None

    # Reading

    @contextlib.contextmanager
    def reading(self, context: Context, id: str, *, wait: bool = True) -> Iterator[Book | None]:
        """The conversation, if it exists and the context may see it."""
        journal = self.journal(names.escape(id))
        with self.opened(journal, wait=wait) as found:
            book = None
            if found is None:
                self.forget(journal.name)
            else:
                fd, path, index = found
                self.weigh(journal)
                if is_there(index, path, id):
                    book = Book(fd, path, journal.mutex, index)
            yield book if book and rules.is_visible(book.head.conversation, context) else None

    @contextlib.contextmanager
    def opened(self, journal: Journal, *, wait: bool = True) -> Iterator[tuple[int, Path, Index] | None]:
        """The open file of a journal and what it says, whether or not the conversation still exists."""
        fd = self._open(journal, wait=wait)
        if fd is None:
            yield None
            return
        try:
            path = self.layout.journal(journal.folder or "", journal.name)
            is_long = self.recall(journal, fd)
            index = journal.read_on(fd, path)
            if is_long:
                self.save(journal, fd, path)
            yield fd, path, index
        finally:
            os.close(fd)

    def _open(self, journal: Journal, *, wait: bool) -> int | None:
        while True:
            folder = journal.folder or self.locate(journal.name, wait=wait)
            if folder is None:
                return None
            try:
                fd = os.open(self.layout.journal(folder, journal.name), disk.READ)
            except FileNotFoundError:
                journal.folder = journal.hint = None
            else:
                journal.folder = folder
                return fd


def is_there(index: Index, path: Path, id: str) -> bool:
    """Whether a journal holds a conversation: one that was cut off in its first line, or was deleted, does not."""
    if index.deleted is not None or not index.spot.lines:
        return False
    if index.id != id:
        raise Corrupt(f"{path} holds another conversation, {index.id!r}", where=str(path))
    if index.head is None:
        raise Corrupt(f"{path} ends before it says what it holds", where=str(path))
    return True
