"""Writes a conversation under its lock: one line for each write, or the whole journal again.

A write is planned against the index, becomes an entry, and is stored by `commit`: as one more line, or, in snapshot
mode, after a deletion and when much of the journal is waste, by writing the whole journal under another name and
renaming it. Only then does the index change.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator, Mapping
from datetime import datetime

from msgspec import UNSET

from hansard.backends.files import disk, entries, line_format, names, replay
from hansard.backends.files.blobs import BlobFiles
from hansard.backends.files.entries import JournalEntry
from hansard.backends.files.index import IndexFailure
from hansard.backends.files.journals import Journals, OpenJournal, holds_conversation
from hansard.backends.files.line_format import ReadPosition
from hansard.backends.files.replay import JournalFile, JournalReplay
from hansard.backends.files.rows import IndexedMessage, IndexRow, MessageRows
from hansard.backends.files.state import JournalState

_LEAST_WASTE = 1 << 18
_IN_NEW_LINE = -(1 << 60)
"""The offset of a line that is not in the file yet."""
_CHUNK = 256


class ConversationWriter:
    """A conversation whose lock is held. It need not exist."""

    def __init__(self, journals: Journals, blobs: BlobFiles, id: str, *, snapshots: bool) -> None:
        self.id = id
        self._name = names.escape(id)
        self._journals = journals
        self._layout = journals.layout
        self._disk = journals.disk
        self._index = journals.index
        self._blobs = blobs
        self._snapshots = snapshots
        self._target: JournalFile | None = None
        """The open journal; None if there is none."""
        self.row: IndexRow | None = None
        """The row of the journal."""
        self._unsaved: JournalReplay | None = None
        """The lines that the index does not have, if known."""
        self._confirmed: object = None
        """The token of the index that is known to have this row."""
        try:
            self._open()
        except BaseException:
            self._close_file()
            raise

    # Reading

    @property
    def state(self) -> JournalState:
        return self.row.state if self.row else JournalState()

    @property
    def journal(self) -> OpenJournal | None:
        """The conversation; None if it does not exist."""
        target, row = self._target, self.row
        if target is None or row is None or not holds_conversation(row.state, target.path, self.id):
            return None
        return OpenJournal(
            self._index, target, row, self._unsaved.unstored(row) if self._unsaved else None, self._confirm
        )

    def _confirm(self) -> IndexRow | None:
        """Returns the row, after making sure that the index has it."""
        if self._target is not None and self.row is not None and self._confirmed is not self._index.token:
            self.row = self._save(self._target) or replay.confirm(self._index, self._target, self.row)
            self._confirmed = self._index.token
        return self.row

    def _save(self, target: JournalFile) -> IndexRow | None:
        """Updates the index with the unsaved lines. None if there are none, or another process did it."""
        unsaved, self._unsaved = self._unsaved, None
        if unsaved is None:
            return None
        with self._index.writing() as connection:
            return replay.store(connection, target.name, target.folder, unsaved)

    def digests(self) -> set[str]:
        """Returns the blobs that the conversation refers to."""
        row = self._confirm()
        if row is None:
            return set()
        with self._index.connection() as connection:
            return MessageRows(connection, row.pk).digests()

    # Opening and closing

    def _open(self) -> None:
        for folder in self._journals.folders(self._name):
            path = self._layout.journal(folder, self._name)
            with contextlib.suppress(FileNotFoundError):
                target = self._target = JournalFile(self._name, folder, os.open(path, disk.UPDATE), path)
                self._journals.remember_folder(self._name, folder)
                unsaved = self._journals.take_unsaved(self._name)
                self.row = self._journals.cached_row(target)
                if self.row is None:
                    self.row = self._read(target)
                elif unsaved is not None and unsaved.state is self.row.state:
                    self._unsaved = unsaved
                return
        self._journals.remember_folder(self._name, None)

    def _read(self, target: JournalFile) -> IndexRow:
        """Reads the journal and cuts off a torn tail, which was never acknowledged."""
        row = replay.catch_up(self._index, target, is_locked=True)
        if os.fstat(target.fd).st_size > row.state.position.size:
            self._disk.cut(target.fd, row.state.position.size)
            self._unsaved = JournalReplay(row)
            self._unsaved.note_file(target.fd)
            row = row._replace(state=self._unsaved.state)
        return row

    def close(self) -> None:
        if not self.state.position.lines:
            # Remove an empty journal, and a lock without a conversation.
            with contextlib.suppress(OSError):
                if self._target is not None and not os.fstat(self._target.fd).st_size:
                    self._remove(self._target)
                self._layout.lock(self._name).unlink()
            self._journals.remember_folder(self._name, None)
        elif self.row is not None:
            self._journals.cache_row(self._name, self.row)
            if self._unsaved is not None:
                self._journals.add_unsaved(self._name, self._unsaved)
        self._close_file()

    def _close_file(self) -> None:
        if self._target is not None:
            os.close(self._target.fd)
            self._target = None

    def unlink(self) -> None:
        """Removes the journal of a deleted conversation, and its rows in the index."""
        if self._target is not None:
            self._remove(self._target)
        self._index.scrub()

    def _remove(self, target: JournalFile) -> None:
        self._disk.remove(target.path)
        with contextlib.suppress(OSError):
            target.path.parent.rmdir()
        self._close_file()
        self.row = self._unsaved = None
        self._journals.remember_folder(self._name, None)
        with self._indexing():
            replay.drop(self._index, self._name)
            self._index.unmark(self._name)

    @contextlib.contextmanager
    def _indexing(self) -> Iterator[None]:
        """A write in the journal is complete, even if the index fails."""
        try:
            yield
        except IndexFailure:
            self._index.mark(self._name)
            if self._target is not None:
                self.row = replay.read_without_index(self._target)

    # Committing

    def commit(
        self,
        entry: JournalEntry,
        *,
        blobs: Mapping[str, bytes] | None = None,
        refers: bool = False,
        whole: bool = False,
        is_new: bool = False,
    ) -> None:
        """Stores an entry. With `whole`, the content that the entry removes does not stay in the journal.

        With `is_new`, none of its messages replaces another.
        """
        with contextlib.ExitStack() as stack:
            if blobs or refers:
                # Until the index has the references, which it is asked for before blobs are removed.
                stack.enter_context(self._blobs.adding(blobs or {}))
            is_first = self._target is None
            target = self._target = self._target or self._create(entry)
            if not self.state.position.lines:
                entry.hansard, entry.kind, entry.tenant = line_format.FORMAT, "conversation", self._layout.tenant
                entry.id, entry.journal = self.id, secrets.token_hex(8)
            if not entry.deleted and (whole or self._snapshots or self._is_wasteful()):
                self._rewrite(target, entry)
            else:
                self._append(target, entry, is_new=is_new and not entry.removed and not entry.cleared)
                if is_first:
                    self._disk.sync_folder(target.path.parent)
            self._move_to_agent_folder()
        if whole:
            self._index.scrub(only_terms=bool(entry.removed) and entry.summaries is UNSET)

    def _append(self, target: JournalFile, entry: JournalEntry, *, is_new: bool) -> None:
        position = self.state.position
        line = line_format.make_line(entries.encode(entry), position.lines + 1)
        self._disk.append(target.fd, position.size, line)
        self._index.mark(self._name)
        self._confirmed = None
        with self._indexing():
            self.row = self._advance(target, line, is_new=is_new)

    def _advance(self, target: JournalFile, line: bytes, *, is_new: bool) -> IndexRow:
        """Returns the row with a line that was just written. The index is updated later.

        With `is_new`, the line only adds new messages.
        """
        unsaved = self._unsaved = self._unsaved or JournalReplay(self.row)
        if is_new or unsaved.is_whole:
            return unsaved.add(target, line)
        with self._index.reading() as connection:
            # A reader may have stored the line already. Then the index must not be asked for the state before it.
            if unsaved.row is not None and replay.is_known(connection, target.name, unsaved.row):
                return unsaved.add(target, line, connection)
        self._unsaved = None
        return replay.catch_up(self._index, target, is_locked=True)

    def _is_wasteful(self) -> bool:
        return self.state.waste > max(_LEAST_WASTE, self.state.position.size // 2)

    def _create(self, entry: JournalEntry) -> JournalFile:
        """Creates an empty journal, which is not a conversation yet."""
        fields = entry.conversation
        folder = names.folder_of((fields.agent_id or None) if fields else None)
        path = self._layout.journal(folder, self._name)
        while True:
            self._disk.make_folder(path.parent)
            # The folder may disappear: it is removed with its last journal.
            with contextlib.suppress(FileNotFoundError):
                return JournalFile(self._name, folder, os.open(path, disk.CREATE, 0o666), path)

    # Rewriting

    def _rewrite(self, target: JournalFile, entry: JournalEntry) -> None:
        self._confirm()
        with self._index.reading() as connection:
            rewrite = JournalReplay(self.row, connection)
            line = line_format.make_line(entries.encode(entry), rewrite.position.lines + 1)
            rewrite.apply(line, _IN_NEW_LINE)
            rewrite.load_all_messages()
        fd = self._disk.replace_open(target.path, self._lines(target, rewrite, line, entry.at))
        os.close(target.fd)
        target = self._target = target._replace(fd=fd)
        rewrite.note_file(fd)
        with self._indexing():
            with self._index.writing() as connection:
                stored = replay.store(connection, target.name, target.folder, rewrite)
            self.row = stored or replay.catch_up(self._index, target, is_locked=True)

    def _lines(self, target: JournalFile, rewrite: JournalReplay, line: bytes, at: datetime) -> Iterator[bytes]:
        """Yields the lines of the rewritten journal, and updates the replay to the positions in the new file."""
        state = rewrite.state
        state.position, state.waste = ReadPosition(), 0
        first = JournalEntry(
            hansard=line_format.FORMAT,
            kind="conversation",
            tenant=self._layout.tenant,
            id=self.id,
            journal=state.journal,
        )
        yield _next_line(state, entries.encode(first))
        found = sorted(((id, place) for id, place in rewrite.places.items() if place), key=lambda each: each[1].seq)
        for start in range(0, len(found), _CHUNK):
            chunk = found[start : start + _CHUNK]
            for (id, place), raw in zip(
                chunk, self._message_bytes(target, [each for _, each in chunk], line), strict=True
            ):
                rewrite.places[id] = place._replace(offset=state.position.size + 1 + len(entries.MESSAGES))
                yield _next_line(state, b"{%b%b]}" % (entries.MESSAGES, raw))
        yield _next_line(state, entries.encode(state.whole(at)))

    def _message_bytes(self, target: JournalFile, places: list[IndexedMessage], line: bytes) -> list[bytes]:
        """Returns messages from the old file, or from the new line."""
        old = [place for place in places if place.offset >= 0]
        found = iter(line_format.read_pieces(target.fd, old, target.path))
        return [next(found) if place.offset >= 0 else _part(line, place) for place in places]

    # Moving

    def _move_to_agent_folder(self) -> None:
        """Moves the journal to its agent's folder.

        The write is complete: if this fails, the next writer tries again.
        """
        state, target = self.state.conversation_state, self._target
        if state is None or target is None:
            return
        folder = names.folder_of(state.conversation.agent_id)
        with contextlib.suppress(OSError):
            if target.folder != folder:
                target = self._target = self._move(target, folder)
        self._journals.remember_folder(self._name, target.folder)

    def _move(self, target: JournalFile, folder: str) -> JournalFile:
        new = target._replace(folder=folder, path=self._layout.journal(folder, self._name))
        # A file that a person put there stays: `check` reports it.
        while not new.path.exists():
            self._disk.make_folder(new.path.parent)
            try:
                self._disk.move(target.path, new.path)
            except FileNotFoundError:
                if not target.path.exists():
                    raise
            else:
                with contextlib.suppress(OSError):
                    target.path.parent.rmdir()
                self._index.mark(self._name)
                return new
        return target


def _part(line: bytes, place: IndexedMessage) -> bytes:
    start = place.offset - _IN_NEW_LINE
    return line[start : start + place.length]


def _next_line(state: JournalState, body: bytes) -> bytes:
    line = line_format.make_line(body, state.position.lines + 1)
    state.position.advance(line)
    return line
