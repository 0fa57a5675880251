"""Updates the index from a journal: with the lines that the index does not have, or with all of them.

Lines are read first and then stored in one short transaction, unless another process has stored them meanwhile.
Messages that a rewritten journal did not change keep their rows, so that they need not be analysed for search again.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import NamedTuple

import msgspec

from hansard.backends.files import entries, line_format, rows
from hansard.backends.files.entries import JournalEntry, MessageFields
from hansard.backends.files.index import TenantIndex, number_in
from hansard.backends.files.line_format import ReadPosition, ValuePosition
from hansard.backends.files.locks import is_at
from hansard.backends.files.rows import QUERIES, IndexedMessage, IndexRow, UnstoredMessages
from hansard.backends.files.state import JournalState
from hansard.cursors import sort_time
from hansard.model import to_micros

_MOST_UNSTORED = 100
"""Most messages of a conversation that are read from memory. With more, the index is updated before they are read."""


class ReplacedMessage(NamedTuple):
    """A message in the index that a line replaced or removed."""

    segment: int
    length: int
    seq: int
    n: int


class JournalReplay:
    """A journal read from the index's position, or from its beginning, and the changes to store in the index."""

    def __init__(self, row: IndexRow | None = None, connection: sqlite3.Connection | None = None) -> None:
        self.row = row
        """The row in the index."""
        self.folder = row.folder if row else ""
        self.state = row.state.copy() if row else JournalState()
        self._connection = connection
        self._is_new = False
        self.is_whole = row is None
        """Whether all messages are in `places`, and those in the index are ignored."""
        self.places: dict[str, IndexedMessage | None] = {}
        """Messages that were added or changed; None for a removed one."""
        self.replaced: dict[str, ReplacedMessage] = {}
        """The versions of these messages in the index."""
        self._only_adds = True
        """Whether no line removed or replaced a message."""

    @property
    def position(self) -> ReadPosition:
        return self.state.position

    def add(self, target: JournalFile, line: bytes, connection: sqlite3.Connection | None = None) -> IndexRow:
        """Applies a line that was just appended to the journal. Returns the row up to this line.

        `connection` is to the index that the replay started from. Without one, the line must only add new messages.
        """
        # Rows that were returned before keep their state.
        self.state = self.state.copy()
        self._connection = connection
        self._is_new = connection is None
        try:
            line_format.apply_line(self, line, target.path)
        finally:
            self._connection, self._is_new = None, False
        self.note_file(target.fd)
        self.folder = target.folder
        return IndexRow(self.row.pk if self.row else 0, target.folder, self.state)

    def unstored(self, row: IndexRow) -> UnstoredMessages | None:
        """Returns the messages of a row that the index does not have. None if there are too many, or if lines removed
        or replaced messages.
        """
        if len(self.places) > _MOST_UNSTORED or not (self.is_whole or self._only_adds):
            return None
        found = [(id, place) for id, place in list(self.places.items()) if place is not None]
        if not self._only_adds:
            found.sort(key=lambda each: each[1].seq)
        # If another thread is adding a line, it has replaced the state before it changed anything.
        return UnstoredMessages(dict(found), None if self.is_whole else self.row) if self.state is row.state else None

    def note_file(self, fd: int) -> None:
        """Sets inode and time of the file, which has been read to its end."""
        file_stat = os.fstat(fd)
        self.position.inode, self.position.mtime = line_format.inode_of(file_stat), file_stat.st_mtime_ns

    def apply(self, line: bytes, at: int) -> None:
        entry = entries.decode_entry(line)
        state = self.state
        if entry.hansard:
            line_format.check_format(entry.hansard, f"the journal of conversation {entry.id!r}")
            state.id, state.journal = entry.id, entry.journal
        grown = state.count
        self._remove(entry)
        if entry.messages:
            found = [
                (entries.decode_fields(raw), piece)
                for raw, piece in line_format.pieces(line, at, entries.MESSAGES, entry.messages)
            ]
            if not self._is_new:
                self._load_replaced([fields.id for fields, _ in found])
            for fields, piece in found:
                self._put(fields, piece)
        if state.count <= grown:
            state.waste += len(line)
        state.change(entry)

    def _remove(self, entry: JournalEntry) -> None:
        state = self.state
        if entry.cleared:
            state.waste += self._length()
            self.is_whole, self.places, self.replaced = True, {}, {}
            state.count = state.top = state.latest = 0
            state.is_time_ordered = True
        self._load_replaced(entry.removed)
        self._only_adds &= not entry.removed and not entry.cleared
        for id in entry.removed:
            if (found := self._find(id)) is None:
                raise KeyError(id)
            state.waste += found.length
            state.count -= 1
            self.places[id] = None

    def _length(self) -> int:
        """Returns the bytes of all messages in the journal."""
        here = sum(place.length for place in self.places.values() if place)
        if self.is_whole or self.row is None:
            return here
        assert self._connection is not None
        found = number_in(self._connection.execute(QUERIES["length_of_messages"], (self.row.pk,)).fetchone()[0])
        return found + here

    def _load_replaced(self, ids: list[str]) -> None:
        """Loads those of these messages that the index has."""
        if ids and not self.is_whole and self.row is not None:
            assert self._connection is not None
            query, given = ("find_one", ids[0]) if len(ids) == 1 else ("find_many", msgspec.json.encode(ids).decode())
            found = self._connection.execute(QUERIES[query], (self.row.pk, given))
            self.replaced |= {id: ReplacedMessage(*old) for id, *old in found}

    def _find(self, id: str) -> IndexedMessage | ReplacedMessage | None:
        """Returns the newest known version of a message."""
        return self.places[id] if id in self.places else self.replaced.get(id)

    def _put(self, fields: MessageFields, piece: ValuePosition) -> None:
        state = self.state
        created = to_micros(fields.created_at)
        if (found := self._find(fields.id)) is not None:
            segment = found.segment
            state.waste += found.length
            self._only_adds = False
        else:
            segment = fields.line
            state.count += 1
            state.top = max(state.top, segment)
            state.is_time_ordered &= created >= state.latest
            state.latest = max(state.latest, created)
        who = fields.participant
        self.places[fields.id] = IndexedMessage(
            segment,
            fields.seq,
            created,
            fields.size,
            *piece,
            fields.role,
            who.id if who is not None else None,
            who.id if who is not None and who.kind == "user" else None,
            1 if fields.pinned else None,
            tuple({ref.sha256 for ref in fields.blobs}) if fields.blobs else (),
        )

    def restart(self) -> None:
        """Starts from the beginning, because the index belongs to another file."""
        self.state, self.is_whole = JournalState(), True

    def load_all_messages(self) -> None:
        """Loads the messages of the index, so that all messages are in `places`."""
        if self.is_whole or self.row is None:
            return
        assert self._connection is not None
        for id, *found, _ in self._connection.execute(QUERIES["known_messages"], (self.row.pk,)):
            self.places.setdefault(id, IndexedMessage(*found))
        self.is_whole = True


class JournalFile(NamedTuple):
    """An open journal."""

    name: str
    folder: str
    fd: int
    path: Path


def is_fresh(target: JournalFile, row: IndexRow) -> bool:
    """Whether a row is up to date with the journal."""
    file_stat = os.fstat(target.fd)
    position = row.state.position
    return (
        file_stat.st_size == position.size
        and file_stat.st_mtime_ns == position.mtime
        and row.folder == target.folder
        and line_format.is_continuation(target.fd, file_stat, position)
    )


class JournalReplaced(Exception):
    """The open file is no longer the journal."""


def catch_up(index: TenantIndex, target: JournalFile, *, is_locked: bool = False) -> IndexRow:
    """Returns the row of a journal, up to its last complete line, after updating the index.

    Unless its lock is held, the journal may be replaced meanwhile. Then `JournalReplaced` is raised and nothing is
    stored.
    """
    with index.connection() as connection:
        row = rows.load(connection, target.name)
        if row is not None and is_fresh(target, row):
            return row
    while True:
        with index.reading() as connection:
            row = rows.load(connection, target.name)
            replay = _read(connection, row, target)
        if (
            row is not None
            and row.folder == target.folder
            and not replay.is_whole
            and replay.position == row.state.position
        ):
            return row
        with index.writing() as connection:
            # A process that replaces the journal from now on updates the index after this transaction.
            if not is_locked and not is_at(target.fd, target.path):
                raise JournalReplaced(target.name)
            stored = store(connection, target.name, target.folder, replay)
        if stored is not None:
            return stored


def confirm(index: TenantIndex, target: JournalFile, row: IndexRow) -> IndexRow:
    """Returns the row of a journal whose lock is held, with its current key in the index."""
    with index.connection() as connection:
        if is_known(connection, target.name, row):
            return row
    return catch_up(index, target, is_locked=True)


def read_without_index(target: JournalFile) -> IndexRow:
    """Returns the row of a journal when the index is unusable. Its key is in no index."""
    return IndexRow(
        0, target.folder, line_format.catch_up(target.fd, JournalReplay(), JournalReplay, target.path).state
    )


RowVersion = tuple[int, int, int, int, bytes]
"""The key of a row in the index, and the inode, size, time and tail of its file."""


def version_of(row: IndexRow) -> RowVersion:
    position = row.state.position
    return row.pk, position.inode, position.size, position.mtime, position.tail


def is_known(connection: sqlite3.Connection, name: str, row: IndexRow) -> bool:
    """Whether the index has this row."""
    found: RowVersion | None = connection.execute(QUERIES["find_version"], (name,)).fetchone()
    return found == version_of(row)


def _read(connection: sqlite3.Connection, row: IndexRow | None, target: JournalFile) -> JournalReplay:
    file_stat = os.fstat(target.fd)
    replay = JournalReplay(row, connection)
    if row is None or not line_format.is_continuation(target.fd, file_stat, row.state.position):
        replay.restart()
        replay.position.inode = line_format.inode_of(file_stat)
    size = replay.position.size
    if file_stat.st_size > size:
        line_format.read_new_lines(target.fd, replay, target.path)
    if replay.is_whole or replay.position.size > size or replay.position.mtime == -1:
        file_stat = os.fstat(target.fd)
        # A file that changed while it was read is compared again.
        replay.position.mtime = file_stat.st_mtime_ns if file_stat.st_size == replay.position.size else -1
    return replay


# --- storing ----------------------------------------------------------------------------------------------------------


def store(connection: sqlite3.Connection, name: str, folder: str, replay: JournalReplay) -> IndexRow | None:
    """Stores a replay inside a transaction. None if the index has changed since the replay started."""
    if replay.row is None:
        pk = _store_new(connection, name, folder, replay)
    else:
        pk = replay.row.pk if _store_row(connection, name, folder, replay, replay.row) else None
    if pk is None:
        return None
    if replay.row is not None:
        _delete_changed(connection, pk, replay)
    _add(connection, pk, replay)
    replay.state.is_rest_changed = False
    return IndexRow(pk, folder, replay.state)


def _store_new(connection: sqlite3.Connection, name: str, folder: str, replay: JournalReplay) -> int | None:
    if connection.execute(QUERIES["find_version"], (name,)).fetchone() is not None:
        return None
    state = replay.state
    file = (name, state.id, state.journal, *state.rest_and_usage())
    return connection.execute(QUERIES["add_row"], (*_columns(state), folder, *_order(state), *file)).lastrowid


def _store_row(connection: sqlite3.Connection, name: str, folder: str, replay: JournalReplay, row: IndexRow) -> bool:
    state = replay.state
    pk, *file = version_of(row)
    order, known = _order(state), (pk, name, *file)
    if row.folder == folder and order == _order(row.state):
        # Its place in listings is unchanged. Naming an indexed column would cost as much as changing it.
        found = connection.execute(QUERIES["set_row_in_place"], (*_columns(state), *known))
    else:
        found = connection.execute(QUERIES["set_row"], (*_columns(state), folder, *order, *known))
    if found.rowcount != 1:
        return False
    if replay.is_whole or state.is_rest_changed:
        connection.execute(QUERIES["set_rest"], (state.id, state.journal, *state.rest_and_usage(), pk))
    return True


def _columns(state: JournalState) -> tuple[object, ...]:
    """The columns that every write may change, except those that order listings."""
    position, head = state.position, state.conversation_state
    updated = to_micros(sort_time(head.conversation, "updated_at")) if head is not None else 0
    return position.inode, position.size, position.mtime, position.lines, position.tail, updated, state.core()


def _order(state: JournalState) -> tuple[object, ...]:
    """The columns that order listings: live, user, agent, time of the last message, expiry."""
    if state.conversation_state is None:
        return 0, None, None, 0, None
    conversation = state.conversation_state.conversation
    active = to_micros(sort_time(conversation, "last_message_at"))
    return int(state.is_live), conversation.user_id, conversation.agent_id, active, to_micros(conversation.expires_at)


def _delete_changed(connection: sqlite3.Connection, pk: int, replay: JournalReplay) -> None:
    """Deletes the rows of messages that were removed or have changed."""
    if replay.is_whole:
        _compare(connection, pk, replay)
    elif replay.replaced:
        gone = [(id, old) for id, old in replay.replaced.items() if id in replay.places]
        # A new version of a message overwrites the row of the old one, if segment and seq are the same.
        left = [(pk, old.segment, old.seq) for id, old in gone if not _is_at(replay.places[id], old)]
        _delete_messages(connection, pk, left, [old.n for _, old in gone])


def _is_at(place: IndexedMessage | None, old: ReplacedMessage) -> bool:
    return place is not None and place.segment == old.segment and place.seq == old.seq


def _compare(connection: sqlite3.Connection, pk: int, replay: JournalReplay) -> None:
    """Keeps the rows of unchanged messages and deletes all others."""
    gone, numbers, moved = [], [], []
    for id, *found, n in connection.execute(QUERIES["known_messages"], (pk,)).fetchall():
        place = replay.places.get(id)
        if place is None or not _is_same(place, found):
            gone.append((pk, found[0], found[1]))
            numbers.append(n)
            continue
        del replay.places[id]
        if place.offset != found[4]:
            moved.append((place.offset, pk, place.segment, place.seq))
    _delete_messages(connection, pk, gone, numbers)
    connection.executemany(QUERIES["move_message"], moved)


def _is_same(place: IndexedMessage, found: list[object]) -> bool:
    """Whether a message has the same bytes, at any offset: then the rest of its row is the same too."""
    return (place.segment, place.seq, place.length, place.crc) == (found[0], found[1], found[5], found[6])


def _add(connection: sqlite3.Connection, pk: int, replay: JournalReplay) -> None:
    new = [(id, place) for id, place in replay.places.items() if place is not None]
    if not new:
        return
    last = number_in(connection.execute(QUERIES["last_number"]).fetchone()[0])
    values = [(pk, *place[:-1], id, n) for n, (id, place) in enumerate(new, last + 1)]
    connection.executemany(QUERIES["add_message"], values)
    holders = [(digest, n, pk) for n, (_, place) in enumerate(new, last + 1) for digest in place.digests]
    if holders:
        connection.executemany(QUERIES["add_holder"], holders)


def _delete_messages(
    connection: sqlite3.Connection, pk: int, gone: list[tuple[int, int, int]], numbers: list[int]
) -> None:
    """Deletes message rows, and the blob references and search terms under these numbers."""
    if not numbers:
        return
    if gone:
        connection.executemany(QUERIES["delete_message"], gone)
    connection.executemany(QUERIES["delete_holder"], [(pk, n) for n in numbers])
    delete_terms(connection, numbers)


def delete_terms(connection: sqlite3.Connection, numbers: list[int]) -> None:
    """Deletes the search terms of messages whose rows were deleted, if they were indexed."""
    indexed = number_in(connection.execute(QUERIES["search_state"]).fetchone()[0])
    if found := [(n,) for n in numbers if number_in(n) <= indexed]:
        connection.executemany(QUERIES["delete_terms"], found)
        connection.execute(QUERIES["set_unclean"], (1,))
        connection.execute(QUERIES["set_indexed"], connection.execute(QUERIES["last_number"]).fetchone())


def drop(index: TenantIndex, name: str, before: RowVersion | None = None) -> None:
    """Deletes everything about a journal from the index; with `before`, only if its row is still that version."""
    with index.writing() as connection:
        found: RowVersion | None = connection.execute(QUERIES["find_version"], (name,)).fetchone()
        if found is None or (before is not None and found != before):
            return
        pk = found[0]
        numbers = [n for (n,) in connection.execute(QUERIES["numbers_of"], (pk,)).fetchall()]
        for query in ("delete_messages", "delete_holders", "delete_row"):
            connection.execute(QUERIES[query], (pk,))
        delete_terms(connection, numbers)
