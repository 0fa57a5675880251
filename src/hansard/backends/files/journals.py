"""The conversations of one tenant: where their journals lie, and how they are read.

A journal lies in the folder of its agent. The index says which; where that is missing or wrong, the folders are
searched. Readers take no lock: they compare the journal with its row in the index, read on what the index has not seen,
and then use the rows.

Only a journal on its way from one folder to another makes a reader wait for its writer, who may need whatever the
reader holds by then. So whoever holds anything asks without waiting, lets go when it is `Busy`, and asks again.
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
from hansard.backends.files.index import Index, IndexFailure
from hansard.backends.files.layout import Layout
from hansard.backends.files.locks import Locks
from hansard.backends.files.replay import Replay, Target
from hansard.backends.files.rows import Card, Row, Rows, Unstored, load
from hansard.backends.files.state import State
from hansard.contract.types import Context, ConversationState
from hansard.errors import Corrupt, TimedOut
from hansard.model import Message

T = TypeVar("T")

_REMEMBERED = 10_000
"""Journals whose folders a process keeps in mind."""
_CARDS = 1000
"""The same for what their last writer knew."""
_UNSAVED = 500
"""Lines that a process writes before it stores in the index what they say."""


class Book:
    """A conversation that exists: its open journal, and what the index says of it."""

    def __init__(
        self,
        index: Index,
        target: Target,
        card: Card,
        unstored: Unstored | None = None,
        confirm: Callable[[], Card | None] | None = None,
    ) -> None:
        assert card.state.head is not None
        self.index = index
        self.target = target
        self.state = card.state
        self.head: ConversationState = card.state.head
        self._card = card
        self._unstored = unstored
        self._confirm = confirm
        """Has the index say what the card says; where that is not known yet."""

    @contextlib.contextmanager
    def rows(self) -> Iterator[Rows]:
        if self._unstored is not None and self._unstored.after is None:
            yield Rows(None, 0, self._unstored)
            return
        with self.index.connection() as connection:
            if self._confirm is None:
                yield Rows(connection, self._card.pk, self._unstored)
            else:
                card = self._confirm()
                assert card is not None
                yield Rows(connection, card.pk)

    def read(self, wanted: Sequence[Row]) -> list[Message]:
        """The messages of these rows."""
        try:
            data = line_format.read_pieces(self.target.fd, wanted, self.target.path)
        except Corrupt as error:
            raise Suspect(self.index, self.target.path, error) from error
        id = self.head.conversation.id
        return [entries.decode_message(each, id) for each in data]


Opened = tuple[Target, Card, Unstored | None]
"""An open journal, what it says, and what of that the index does not have."""


class Suspect(IndexFailure):
    """A journal does not say what its rows promise. If reading all of it does not fail, the index is damaged."""

    def __init__(self, index: Index, path: Path, error: Corrupt) -> None:
        super().__init__(index, None, error)
        self._suspect = index
        self._path = path

    def recover(self) -> None:
        with disk.opened(self._path, disk.READ) as fd:
            line_format.catch_up(fd, Replay(), Replay, self._path)
        self._suspect.rebuild()


class Busy(Exception):
    """A conversation cannot be found just now: it may be on its way from one folder to another."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class Shelf:
    def __init__(self, layout: Layout, writes: Disk, locks: Locks, index: Index) -> None:
        self.layout = layout
        self.disk = writes
        self.locks = locks
        self.index = index
        self._folders: dict[str, str] = {}
        self._cards: dict[str, Card] = {}
        self._unsaved: dict[str, Replay] = {}
        """What this process has written and the index does not have. Who works with one takes it out."""
        self._lines_unsaved = 0

    # Finding

    def lies_in(self, name: str, folder: str | None) -> None:
        """Keeps in mind where a journal lies."""
        if folder is None:
            self._folders.pop(name, None)
            return
        if len(self._folders) > _REMEMBERED:
            self._folders.clear()
        self._folders[name] = folder

    # What a journal says is kept in mind. It holds as long as the file is the same; whether the index says the same,
    # under the same number, is asked when its rows are needed.

    def keep_card(self, name: str, card: Card) -> None:
        if len(self._cards) > _CARDS:
            self._cards.clear()
        self._cards[name] = card

    def known_card(self, target: Target) -> Card | None:
        card = self._cards.get(target.name)
        return card if card is not None and replay.is_fresh(target, card) else None

    # What the index is to be told

    def keep_unsaved(self, name: str, unsaved: Replay) -> None:
        self._unsaved[name] = unsaved
        self._lines_unsaved += 1
        if self._lines_unsaved >= _UNSAVED:
            # Its journal has it. What cannot be stored now is found by its mark.
            with contextlib.suppress(IndexFailure):
                self.save_all()

    def take_unsaved(self, name: str) -> Replay | None:
        return self._unsaved.pop(name, None)

    def save(self, name: str) -> Card | None:
        """Stores what is known of a journal and not in the index. None when there is nothing, or others did so."""
        unsaved = self.take_unsaved(name)
        if unsaved is None:
            return None
        with self.index.writing() as connection:
            # Whoever replaces or removes the journal from here on changes the index after this.
            if not line_format.is_file(self.layout.journal(unsaved.folder, name), unsaved.spot):
                return None
            return replay.store(connection, name, unsaved.folder, unsaved)

    def save_all(self) -> None:
        self._lines_unsaved = 0
        if self._unsaved:
            with self.index.writing():
                for name in list(self._unsaved):
                    self.save(name)

    def folders(self, name: str) -> Iterator[str]:
        """Where the journal may lie, most likely first."""
        if (known := self._folders.get(name)) is not None:
            yield known
        card = self._card(name)
        if card is not None and names.is_name(card.folder):
            yield card.folder
        if found := self.search(name):
            yield found

    def _card(self, name: str) -> Card | None:
        with self.index.connection() as connection:
            return load(connection, name)

    def locate(self, name: str, *, wait: bool = True) -> str | None:
        """The folder that holds a journal. Without `wait`, `Busy` when only its writer could tell."""
        card = self._card(name)
        if card is not None and names.is_name(card.folder) and self.layout.journal(card.folder, name).exists():
            return card.folder
        found = self.search(name)
        if found is None and self.layout.lock(name).exists():
            # While it moves, a search may miss it in both folders. Nobody moves what is locked.
            try:
                found = self._search_locked(name, patience=None if wait else 0.0)
            except TimedOut:
                if wait:
                    raise
                raise Busy(name) from None
        if found is None and card is not None:
            replay.drop(self.index, name, replay.facts_of(card))
        return found

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

    def search(self, name: str) -> str | None:
        return next((each for each in self.layout.folders() if self.layout.journal(each, name).exists()), None)

    def stamp(self, name: str) -> tuple[int, bytes] | None:
        """Something that is different after each write; None when there is no such journal."""
        target = self.open(name, wait=False)
        if target is None:
            return None
        try:
            return line_format.end_of(target.fd)
        finally:
            os.close(target.fd)

    # Reading

    @contextlib.contextmanager
    def reading(self, context: Context, id: str, *, wait: bool = True, rows: bool = True) -> Iterator[Book | None]:
        """The conversation, if it exists and the context may see it. Without `rows`, only its head is looked at."""
        with self.opened(names.escape(id), wait=wait, rows=rows) as found:
            book = None
            if found is not None and is_there(found[1].state, found[0].path, id):
                book = Book(self.index, *found)
            yield book if book and rules.is_visible(book.head.conversation, context) else None

    @contextlib.contextmanager
    def opened(self, name: str, *, wait: bool = True, rows: bool = True) -> Iterator[Opened | None]:
        """An open journal and its row, of one moment, whether or not the conversation still exists."""
        while True:
            target = self.open(name, wait=wait)
            if target is None:
                yield None
                return
            try:
                card = self.known_card(target)
                unstored = self._unstored(card, name) if card is not None and rows else None
                if card is not None and (not rows or (unstored is not None and unstored.after is None)):
                    yield target, card, unstored
                    return
                with self.index.connection() as connection:
                    found = self._fresh(connection, target, card, unstored)
                    if found is not None:
                        yield found
                        return
            finally:
                os.close(target.fd)

    def _unstored(self, card: Card, name: str) -> Unstored | None:
        unsaved = self._unsaved.get(name)
        return unsaved.unstored(card) if unsaved is not None else None

    def _fresh(
        self, connection: sqlite3.Connection, target: Target, card: Card | None, unstored: Unstored | None
    ) -> Opened | None:
        """Begins a transaction in which the index and the open file agree; None when the file was replaced.

        `card` is what is known of the file, and `unstored` what of it the index does not have.
        """
        if card is not None and unstored is not None and unstored.after is not None:
            connection.execute("BEGIN")
            if replay.is_known(connection, target.name, unstored.after):
                return target, card, unstored
            connection.execute("ROLLBACK")
        if (saved := self.save(target.name)) is not None:
            card = saved if replay.is_fresh(target, saved) else None
        connection.execute("BEGIN")
        if card is not None and replay.is_known(connection, target.name, card):
            return target, card, None
        connection.execute("ROLLBACK")
        try:
            card = replay.catch_up(self.index, target)
        except replay.Replaced:
            return None
        self.keep_card(target.name, card)
        connection.execute("BEGIN")
        if replay.is_known(connection, target.name, card):
            return target, card, None
        connection.execute("ROLLBACK")
        return None

    def open(self, name: str, *, wait: bool) -> Target | None:
        """The journal, open for reading. Callers must close it."""
        while True:
            folder = self._folders.get(name) or self.locate(name, wait=wait)
            if folder is None:
                return None
            path = self.layout.journal(folder, name)
            try:
                fd = os.open(path, disk.READ)
            except FileNotFoundError:
                self.lies_in(name, None)
            else:
                self.lies_in(name, folder)
                return Target(name, folder, fd, path)


def is_there(state: State, path: Path, id: str) -> bool:
    """Whether a journal holds a conversation: one that was cut off in its first line, or was deleted, does not."""
    if not state.spot.lines or state.deleted_at is not None:
        return False
    if state.id != id:
        raise Corrupt(f"{path} holds another conversation, {state.id!r}", where=str(path))
    if state.head is None:
        raise Corrupt(f"{path} ends before it says what it holds", where=str(path))
    return True
