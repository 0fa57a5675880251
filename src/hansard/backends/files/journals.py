"""Finds and opens the journals of one tenant.

A journal is stored in the folder of its agent. The index has the folder's name; if that is missing or wrong, all
folders are searched. Readers take no lock: they compare the journal with its row in the index, read the lines that the
index does not have, and then use the rows.

A reader waits for a writer only while a journal is moved between folders. That writer may need a lock that the reader
holds. So callers that hold a lock must ask without waiting, release everything on `ConversationMoving`, and ask again.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from hansard import rules
from hansard.backends.files import disk, entries, line_format, names, replay
from hansard.backends.files.disk import Disk
from hansard.backends.files.index import IndexFailure, TenantIndex
from hansard.backends.files.layout import Layout
from hansard.backends.files.locks import Locks
from hansard.backends.files.replay import JournalFile, JournalReplay
from hansard.backends.files.rows import IndexRow, MessagePosition, MessageRows, UnstoredMessages, load
from hansard.backends.files.state import JournalState
from hansard.contract.types import Context, ConversationState
from hansard.errors import Corrupt, TimedOut
from hansard.model import Message

T = TypeVar("T")

_MOST_REMEMBERED = 10_000
"""Journals whose folders a process remembers."""
_ROWS = 1000
"""Journals whose rows a process remembers."""
_UNSAVED = 500
"""Lines that a process writes before it updates the index with them."""


class OpenJournal:
    """An existing conversation: its open journal and its row in the index."""

    def __init__(
        self,
        index: TenantIndex,
        target: JournalFile,
        row: IndexRow,
        unstored: UnstoredMessages | None = None,
        confirm: Callable[[], IndexRow | None] | None = None,
    ) -> None:
        assert row.state.conversation_state is not None
        self.index = index
        self.target = target
        self.state = row.state
        self.conversation_state: ConversationState = row.state.conversation_state
        self._row = row
        self._unstored = unstored
        self._confirm = confirm
        """Brings the index up to date with the row; None if it is up to date."""

    @contextlib.contextmanager
    def rows(self) -> Iterator[MessageRows]:
        if self._unstored is not None and self._unstored.after is None:
            yield MessageRows(None, 0, self._unstored)
            return
        with self.index.connection() as connection:
            if self._confirm is None:
                yield MessageRows(connection, self._row.pk, self._unstored)
            else:
                row = self._confirm()
                assert row is not None
                yield MessageRows(connection, row.pk)

    def read(self, wanted: Sequence[MessagePosition]) -> list[Message]:
        """Returns the messages of these rows."""
        try:
            data = line_format.read_pieces(self.target.fd, wanted, self.target.path)
        except Corrupt as error:
            raise SuspectIndex(self.index, self.target.path, error) from error
        id = self.conversation_state.conversation.id
        return [entries.decode_message(each, id) for each in data]


Opened = tuple[JournalFile, IndexRow, UnstoredMessages | None]
"""An open journal, its row, and the messages that the index does not have."""


class SuspectIndex(IndexFailure):
    """A journal does not match its rows. If the whole journal can be read, the index is damaged."""

    def __init__(self, index: TenantIndex, path: Path, error: Corrupt) -> None:
        super().__init__(index, None, error)
        self._path = path

    def recover(self) -> None:
        with disk.opened(self._path, disk.READ) as fd:
            line_format.catch_up(fd, JournalReplay(), JournalReplay, self._path)
        self._index.rebuild()


class ConversationMoving(Exception):
    """A conversation cannot be found at the moment: it may be being moved between folders."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class Journals:
    def __init__(self, layout: Layout, writes: Disk, locks: Locks, index: TenantIndex) -> None:
        self.layout = layout
        self.disk = writes
        self.locks = locks
        self.index = index
        self._folders: dict[str, str] = {}
        self._cached_rows: dict[str, IndexRow] = {}
        self._unsaved: dict[str, JournalReplay] = {}
        """Lines that this process has written and the index does not have. A writer takes its entry out while it works.
        """
        self._lines_unsaved = 0

    # Finding

    def remember_folder(self, name: str, folder: str | None) -> None:
        """Remembers the folder of a journal; None removes it."""
        if folder is None:
            self._folders.pop(name, None)
            return
        if len(self._folders) > _MOST_REMEMBERED:
            self._folders.clear()
        self._folders[name] = folder

    # A cached row is valid as long as the file is the same. Whether the index has the same row, with the same key, is
    # checked when its message rows are needed.

    def cache_row(self, name: str, row: IndexRow) -> None:
        if len(self._cached_rows) > _ROWS:
            self._cached_rows.clear()
        self._cached_rows[name] = row

    def cached_row(self, target: JournalFile) -> IndexRow | None:
        row = self._cached_rows.get(target.name)
        return row if row is not None and replay.is_fresh(target, row) else None

    # Lines that are not in the index yet

    def add_unsaved(self, name: str, unsaved: JournalReplay) -> None:
        self._unsaved[name] = unsaved
        self._lines_unsaved += 1
        if self._lines_unsaved >= _UNSAVED:
            # The journal has these lines. If the index cannot be updated now, the marks remain.
            with contextlib.suppress(IndexFailure):
                self.save_all()

    def take_unsaved(self, name: str) -> JournalReplay | None:
        return self._unsaved.pop(name, None)

    def save(self, name: str) -> IndexRow | None:
        """Updates the index with the unsaved lines of a journal. None if there are none, or another process did it."""
        unsaved = self.take_unsaved(name)
        if unsaved is None:
            return None
        with self.index.writing() as connection:
            # A process that replaces or removes the journal from now on changes the index after this transaction.
            if not line_format.is_file(self.layout.journal(unsaved.folder, name), unsaved.position):
                return None
            return replay.store(connection, name, unsaved.folder, unsaved)

    def save_all(self) -> None:
        self._lines_unsaved = 0
        if self._unsaved:
            with self.index.writing():
                for name in list(self._unsaved):
                    self.save(name)

    def folders(self, name: str) -> Iterator[str]:
        """Yields the folders that may hold the journal, most likely first."""
        if (known := self._folders.get(name)) is not None:
            yield known
        row = self._load_row(name)
        if row is not None and names.is_name(row.folder):
            yield row.folder
        if found := self.search(name):
            yield found

    def _load_row(self, name: str) -> IndexRow | None:
        with self.index.connection() as connection:
            return load(connection, name)

    def locate(self, name: str, *, wait: bool = True) -> str | None:
        """Returns the folder that holds a journal. Without `wait`, raises `ConversationMoving` if it may be moving."""
        row = self._load_row(name)
        if row is not None and names.is_name(row.folder) and self.layout.journal(row.folder, name).exists():
            return row.folder
        found = self.search(name)
        if found is None and self.layout.lock(name).exists():
            # While a journal moves, a search may miss it in both folders. A locked journal does not move.
            try:
                found = self._search_locked(name, timeout=None if wait else 0.0)
            except TimedOut:
                if wait:
                    raise
                raise ConversationMoving(name) from None
        if found is None and row is not None:
            replay.drop(self.index, name, replay.version_of(row))
        return found

    def _search_locked(self, name: str, timeout: float | None = None) -> str | None:
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(FileNotFoundError):
                lock = self.layout.lock(name)
                stack.enter_context(self.locks.hold(lock, "a conversation", flags=disk.READ, timeout=timeout))
            return self.search(name)

    def retry_while_moving(self, attempt: Callable[[], T]) -> T:
        """Repeats an attempt that holds locks, and so must not wait. The waiting is done between two attempts."""
        while True:
            try:
                return attempt()
            except ConversationMoving as moving:
                self._search_locked(moving.name)

    def search(self, name: str) -> str | None:
        return next((each for each in self.layout.folders() if self.layout.journal(each, name).exists()), None)

    def fingerprint(self, name: str) -> tuple[int, bytes] | None:
        """Returns a value that differs after each write; None if there is no such journal."""
        target = self.open(name, wait=False)
        if target is None:
            return None
        try:
            return line_format.size_and_tail(target.fd)
        finally:
            os.close(target.fd)

    # Reading

    @contextlib.contextmanager
    def reading(
        self, context: Context, id: str, *, wait: bool = True, rows: bool = True
    ) -> Iterator[OpenJournal | None]:
        """Yields the conversation, if the context may see it, else None. Without `rows`, only its state can be read."""
        with self.opened(names.escape(id), wait=wait, rows=rows) as found:
            journal = None
            if found is not None and holds_conversation(found[1].state, found[0].path, id):
                journal = OpenJournal(self.index, *found)
            yield journal if journal and rules.is_visible(journal.conversation_state.conversation, context) else None

    @contextlib.contextmanager
    def opened(
        self, name: str, *, wait: bool = True, rows: bool = True, indexed: bool = False
    ) -> Iterator[Opened | None]:
        """Yields an open journal and its row, both of one moment, even if the conversation was deleted.

        With `indexed`, the row and all its messages are in the index, with their numbers.
        """
        while True:
            target = self.open(name, wait=wait)
            if target is None:
                yield None
                return
            try:
                row = self.cached_row(target)
                unstored = self._unstored(row, name) if row is not None and rows and not indexed else None
                if row is not None and (not rows or (unstored is not None and unstored.after is None)):
                    yield target, row, unstored
                    return
                with self.index.connection() as connection:
                    found = self._fresh(connection, target, row, unstored)
                    if found is not None:
                        yield found
                        return
            finally:
                os.close(target.fd)

    def _unstored(self, row: IndexRow, name: str) -> UnstoredMessages | None:
        unsaved = self._unsaved.get(name)
        return unsaved.unstored(row) if unsaved is not None else None

    def _fresh(
        self,
        connection: sqlite3.Connection,
        target: JournalFile,
        row: IndexRow | None,
        unstored: UnstoredMessages | None,
    ) -> Opened | None:
        """Begins a transaction in which the index and the open file agree; None if the file was replaced.

        `row` is the cached row of the file, and `unstored` the messages that the index does not have.
        """
        if row is not None and unstored is not None and unstored.after is not None:
            connection.execute("BEGIN")
            if replay.is_known(connection, target.name, unstored.after):
                return target, row, unstored
            connection.execute("ROLLBACK")
        if (saved := self.save(target.name)) is not None:
            row = saved if replay.is_fresh(target, saved) else None
        connection.execute("BEGIN")
        if row is not None and replay.is_known(connection, target.name, row):
            return target, row, None
        connection.execute("ROLLBACK")
        try:
            row = replay.catch_up(self.index, target)
        except replay.JournalReplaced:
            return None
        self.cache_row(target.name, row)
        connection.execute("BEGIN")
        if replay.is_known(connection, target.name, row):
            return target, row, None
        connection.execute("ROLLBACK")
        return None

    def open(self, name: str, *, wait: bool) -> JournalFile | None:
        """Opens a journal for reading. Callers must close it."""
        while True:
            folder = self._folders.get(name) or self.locate(name, wait=wait)
            if folder is None:
                return None
            path = self.layout.journal(folder, name)
            try:
                fd = os.open(path, disk.READ)
            except FileNotFoundError:
                self.remember_folder(name, None)
            else:
                self.remember_folder(name, folder)
                return JournalFile(name, folder, fd, path)


def holds_conversation(state: JournalState, path: Path, id: str) -> bool:
    """Whether a journal holds an existing conversation: not if it was deleted or its first line was cut off."""
    if not state.position.lines or state.deleted_at is not None:
        return False
    if state.id != id:
        raise Corrupt(f"{path} holds another conversation, {state.id!r}", where=str(path))
    if state.conversation_state is None:
        raise Corrupt(f"{path} ends before the line that describes its conversation", where=str(path))
    return True
