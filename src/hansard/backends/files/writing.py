"""Writing a conversation: under its lock, one line for each write, or the whole journal anew.

A write is planned against the index, becomes an entry, and is stored by `commit`: as one more line, or, in snapshot
mode, after a deletion and when much of the journal is waste, by writing the journal whole under another name and
renaming it into place. Only then does the index change.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path

from msgspec import Raw

from hansard.backends.files import disk, entries, lines, names
from hansard.backends.files.blobs import Blobs
from hansard.backends.files.entries import Entry
from hansard.backends.files.index import Index
from hansard.backends.files.shelf import Book, Shelf, is_there
from hansard.backends.files.tables import Row

_LEAST_WASTE = 1 << 18
_HERE = -(1 << 60)
"""Where a line stands that is not in the file yet."""
_CHUNK = 256


class Writer:
    """A conversation whose lock is held, as far as it exists."""

    def __init__(self, shelf: Shelf, blobs: Blobs, id: str, lock: int, *, snapshots: bool) -> None:
        self.id = id
        self._name = names.escape(id)
        self._shelf = shelf
        self._layout = shelf.layout
        self._disk = shelf.disk
        self._blobs = blobs
        self._lock = lock
        self._snapshots = snapshots
        self._journal = shelf.journal(self._name)
        self._folder = ""
        self.path = Path()
        """Where the journal lies, or will lie; nowhere, where there is none."""
        self.index: Index
        self._fd: int | None = None
        try:
            self._open()
        except BaseException:
            self._let_go()
            raise

    # What there is

    def _lies_in(self, folder: str) -> Path:
        self._folder, self.path = folder, self._layout.journal(folder, self._name)
        return self.path

    @property
    def book(self) -> Book | None:
        """The conversation, or None when it does not exist."""
        if self._fd is None or not is_there(self.index, self.path, self.id):
            return None
        return Book(self._fd, self.path, self._journal.mutex, self.index)

    # Opening and closing

    def _open(self) -> None:
        for folder in self._folders():
            with contextlib.suppress(FileNotFoundError):
                self._fd = os.open(self._lies_in(folder), disk.UPDATE)
                self._journal.folder = folder
                self._shelf.recall(self._journal, self._fd)
                self.index = self._journal.mend(self._fd, self.path, self._disk)
                return
        self._forget()

    def _folders(self) -> Iterator[str]:
        """Where the journal may lie, most likely first."""
        if known := self._journal.folder:
            yield known
        hint = self._journal.hint = self._shelf.hint(self._name)
        if hint:
            yield hint
        if found := self._shelf.search(self._name):
            yield found

    def close(self) -> None:
        if self.index.spot.lines:
            self._shelf.weigh(self._journal)
        else:
            # An empty journal or a lock without a conversation is of no use to anybody.
            with contextlib.suppress(OSError):
                if self._fd is not None and not os.fstat(self._fd).st_size:
                    self._remove()
                self._layout.lock(self._name).unlink()
            self._shelf.forget(self._name)
        self._let_go()

    def _let_go(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def unlink(self) -> None:
        """Removes the journal of a deleted conversation, and what lies beside it."""
        with self._shelf.changes.announced(self._name):
            self._remove()
            # Last: a reader that writes it down now finds the journal gone, and takes it away itself.
            self._layout.index(self._name).unlink(missing_ok=True)

    def _remove(self) -> None:
        self._disk.remove(self.path)
        with contextlib.suppress(OSError):
            self.path.parent.rmdir()
        self._let_go()
        self._forget()

    def _forget(self) -> None:
        self._folder = ""
        self._journal.folder = self._journal.hint = None
        self.index = self._journal.reset()

    # Committing

    def commit(
        self, entry: Entry, *, blobs: Mapping[str, bytes] | None = None, refers: bool = False, whole: bool = False
    ) -> None:
        """Stores an entry. `whole` leaves out of the journal what the entry removes."""
        with contextlib.ExitStack() as stack:
            if blobs or refers:
                stack.enter_context(self._blobs.adding(blobs or {}))
            stack.enter_context(self._shelf.changes.announced(self._name))
            is_new = self._fd is None
            fd = self._fd = self._create(entry) if self._fd is None else self._fd
            if not self.index.spot.lines:
                entry.hansard, entry.kind, entry.tenant = lines.FORMAT, "conversation", self._layout.tenant
                entry.id, entry.journal = self.id, secrets.token_hex(8)
            if not entry.deleted and (whole or self._snapshots or self._is_wasteful()):
                self._rewrite(fd, entry)
            else:
                self.index = self._journal.append(fd, self.path, self._disk, entries.encode(entry), self.index)
                if is_new:
                    self._disk.sync_folder(self.path.parent)
            self._settle()

    def _is_wasteful(self) -> bool:
        return self.index.waste > max(_LEAST_WASTE, self.index.spot.size // 2)

    def _create(self, entry: Entry) -> int:
        """An empty journal, which is no conversation yet."""
        facts = entry.conversation
        self._lies_in(names.folder_of((facts.agent_id or None) if facts else None))
        # Whoever deleted an earlier one of this name may not have lived to remove it.
        self._layout.index(self._name).unlink(missing_ok=True)
        while True:
            self._disk.make_folder(self.path.parent)
            # Whoever takes the last journal out of a folder removes the folder.
            with contextlib.suppress(FileNotFoundError):
                return os.open(self.path, disk.CREATE, 0o666)

    # Writing anew

    def _rewrite(self, fd: int, entry: Entry) -> None:
        index = self.index.copy()
        line = lines.seal(entries.encode(entry), index.spot.lines + 1)
        index.apply(line, _HERE)
        content = self._lines(fd, index, line, entry.at)
        self._fd, self.index = self._journal.replace(self.path, self._disk, content, index)
        os.close(fd)
        # What was written down of the old file is of no use any longer, and may tell what was deleted.
        with contextlib.suppress(OSError):
            self._layout.index(self._name).unlink(missing_ok=True)

    def _lines(self, fd: int, index: Index, line: bytes, at: datetime) -> Iterator[bytes]:
        """The journal anew. The index is led along, so that in the end it fits the new file."""
        rows = list(index.all_rows())
        index.begin()
        first = Entry(
            hansard=lines.FORMAT, kind="conversation", tenant=self._layout.tenant, id=self.id, journal=index.journal
        )
        yield _stepped(index, entries.encode(first))
        for start in range(0, len(rows), _CHUNK):
            chunk = rows[start : start + _CHUNK]
            for row, raw in zip(chunk, self._raw(fd, chunk, line), strict=True):
                index.moved(row, index.spot.size + 1 + len(entries.MESSAGES), entries.decode_stub(Raw(raw)))
                yield _stepped(index, b"{%b%b]}" % (entries.MESSAGES, raw))
        yield _stepped(index, entries.encode(index.whole(at)))

    def _raw(self, fd: int, rows: list[Row], line: bytes) -> list[bytes]:
        """Messages as they stand in the old file, or in the line that is to come."""
        old = [row.piece for row in rows if row.piece.offset >= 0]
        found = dict(zip(old, lines.read_pieces(fd, old, self.path), strict=True))
        for row in rows:
            if row.piece.offset < 0:
                start = row.piece.offset - _HERE
                found[row.piece] = line[start : start + row.piece.length]
        return [found[row.piece] for row in rows]

    # Where it lies

    def _settle(self) -> None:
        """Moves the journal to its agent's folder, and notes where it lies.

        The write is done: should this fail, the next writer tries again.
        """
        head = self.index.head
        with contextlib.suppress(OSError):
            if head is not None and self._folder != names.folder_of(head.conversation.agent_id):
                self._move(names.folder_of(head.conversation.agent_id))
            self._journal.folder = self._folder
            if self._folder != self._journal.hint:
                os.ftruncate(self._lock, 0)
                os.lseek(self._lock, 0, os.SEEK_SET)
                os.write(self._lock, self._folder.encode("ascii"))
                self._journal.hint = self._folder

    def _move(self, folder: str) -> None:
        old, new = self.path, self._layout.journal(folder, self._name)
        # One that was put there by hand stays: `check` tells of it.
        while not new.exists():
            self._disk.make_folder(new.parent)
            try:
                self._disk.move(old, new)
            except FileNotFoundError:
                if not old.exists():
                    raise
            else:
                self._lies_in(folder)
        with contextlib.suppress(OSError):
            old.parent.rmdir()


def _stepped(index: Index, body: bytes) -> bytes:
    line = lines.seal(body, index.spot.lines + 1)
    index.spot.step(line)
    return line
