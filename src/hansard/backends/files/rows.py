"""The rows of one conversation in the index: the position of each of its messages in the journal."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from heapq import merge
from importlib import resources
from itertools import chain
from typing import Any, NamedTuple

from hansard.backends.files.line_format import ReadPosition
from hansard.backends.files.state import JournalState
from hansard.backends.shared.statements import parse
from hansard.contract.storage import Run, Span
from hansard.model import from_micros

QUERIES = parse(resources.files(__package__).joinpath("queries.sql").read_text("utf-8"))

ALL = -1
"""SQLite's value for no limit."""


class MessagePosition(NamedTuple):
    """The position of a message: its segment and seq in the conversation, its bytes in the journal."""

    segment: int
    seq: int
    created: int
    size: int
    offset: int
    length: int
    crc: int


class IndexedMessage(NamedTuple):
    """A message as the index stores it: the fields of a `MessagePosition`, and more."""

    segment: int
    seq: int
    created: int
    size: int
    offset: int
    length: int
    crc: int
    role: str
    participant: str | None
    user_id: str | None
    """The id of a participant of kind user."""
    pinned: int | None
    digests: tuple[str, ...] = ()

    @property
    def row(self) -> MessagePosition:
        return MessagePosition._make(self[:7])


class UnstoredMessages(NamedTuple):
    """Messages that this process has written and the index does not have yet."""

    places: dict[str, IndexedMessage]
    after: IndexRow | None
    """The row in the index, which has all earlier messages. None if there are no earlier ones."""


class MessageRows:
    """The messages of one conversation: those in the index, then the `unstored` ones.

    Use it only while its connection is held. The connection is None if all messages are unstored.
    """

    def __init__(
        self, connection: sqlite3.Connection | None, pk: int, unstored: UnstoredMessages | None = None
    ) -> None:
        self.connection = connection
        self.pk = pk
        self._new = unstored.places if unstored else {}

    def _query(self, name: str, *values: object) -> Iterator[Any]:
        return self.connection.execute(QUERIES[name], (self.pk, *values)) if self.connection else iter(())

    def _query_one(self, name: str, *values: object) -> Any:
        return next(self._query(name, *values), None)

    def _unstored_in(self, run: Run) -> list[tuple[str, IndexedMessage]]:
        if not self._new:
            return []
        segment, after, upto = _bounds(run)
        return [each for each in self._new.items() if each[1].segment == segment and after < each[1].seq <= upto]

    # Messages

    def find(self, message_id: str) -> MessagePosition | None:
        if message_id in self._new:
            return self._new[message_id].row
        found = self._query_one("find_message", message_id)
        return MessagePosition._make(found) if found else None

    def at_number(self, n: int) -> MessagePosition | None:
        """Returns the message of that number, if it is unchanged."""
        found = self._query_one("place_of_number", n)
        return MessagePosition._make(found) if found else None

    def numbered(self, message_id: str) -> tuple[MessagePosition, int] | None:
        """Returns a message and its number."""
        found = self._query_one("number_of", message_id)
        return (MessagePosition._make(found[:-1]), found[-1]) if found else None

    def run(self, run: Run, limit: int = ALL, *, newest_first: bool = False) -> Iterator[MessagePosition]:
        new = [place.row for _, place in self._unstored_in(run)]
        if not newest_first:
            return chain(map(MessagePosition._make, self._query("ascending", *_bounds(run), limit)), new)
        if limit != ALL:
            new = new[max(0, len(new) - limit) :]
            limit -= len(new)
        return chain(reversed(new), map(MessagePosition._make, self._query("descending", *_bounds(run), limit)))

    def pinned(self, run: Run) -> list[MessagePosition]:
        new = [place.row for _, place in self._unstored_in(run) if place.pinned]
        return [*map(MessagePosition._make, self._query("pinned", *_bounds(run))), *new]

    def between(self, runs: Sequence[Run], newest: int | None = None) -> list[MessagePosition]:
        """Returns the messages of these runs in order: all, or only the `newest`."""
        if newest is None:
            return [row for run in runs for row in self.run(run)]
        found: list[MessagePosition] = []
        for run in reversed(runs):
            if len(found) < newest:
                found += self.run(run, newest - len(found), newest_first=True)
        return found[::-1]

    def span(self, run: Run) -> Span:
        count, first, last = self._query_one("count_run", *_bounds(run)) or (0, 0, 0)
        seqs = [place.seq for _, place in self._unstored_in(run)]
        if seqs:
            count, first, last = count + len(seqs), first or seqs[0], seqs[-1]
        return Span(count, first, last)

    def ids(self, runs: Iterable[Run]) -> list[str]:
        """Returns the ids of the messages of these runs."""
        found: list[str] = []
        for run in runs:
            found += (id for (id,) in self._query("ids_of_run", *_bounds(run)))
            found += (id for id, _ in self._unstored_in(run))
        return found

    def segments(self) -> set[int]:
        """Returns the segments that hold messages."""
        found = {place.segment for place in self._new.values()}
        segment: int | None = -1
        while (segment := (self._query_one("next_segment", segment) or (None,))[0]) is not None:
            found.add(segment)
        return found

    def all(self, after: int = 0, limit: int = ALL) -> Iterator[MessagePosition]:
        """Yields the messages of all segments in the order of seq."""
        parts = [self.run(Run(each, after, 1 << 62), limit) for each in self.segments()]
        return merge(*parts, key=lambda row: row.seq)

    def is_message_at(self, created: int, seq: int) -> bool:
        """Whether a message of that time has that seq."""
        if any(place.seq == seq and place.created == created for place in self._new.values()):
            return True
        return any(self._query_one("time_at", each, seq) == (created,) for each in self.segments())

    def last_time(self, without: set[str]) -> datetime | None:
        """Returns the time of the last message, ignoring those `without`."""
        last = max(filter(None, (self._last(each, without) for each in self.segments())), default=None)
        return from_micros(last[1]) if last else None

    def _last(self, segment: int, without: set[str]) -> tuple[int, int] | None:
        new = [(place.seq, place.created, id) for id, place in self._new.items() if place.segment == segment]
        found = chain(reversed(new), self._query("last_of_segment", segment))
        return next(((seq, created) for seq, created, id in found if id not in without), None)

    # Blobs

    def digests(self, ids: Iterable[str] | None = None) -> set[str]:
        """Returns the blobs that these messages, or all, refer to."""
        wanted = list(self._new if ids is None else ids)
        found = {digest for id in wanted if id in self._new for digest in self._new[id].digests}
        if ids is None:
            return found | {digest for (digest,) in self._query("digests")}
        return found | {digest for id in wanted for (digest,) in self._query("digests_of", id)}


def _bounds(run: Run) -> tuple[int, int, int]:
    return run.segment, run.after, run.upto


# --- the conversation's own row ---------------------------------------------------------------------------------------


class IndexRow(NamedTuple):
    """A journal's row in the index. It must not be changed, because threads share it."""

    pk: int
    folder: str
    state: JournalState


def load(connection: sqlite3.Connection, name: str) -> IndexRow | None:
    found = connection.execute(QUERIES["find_row"], (name,)).fetchone()
    if found is None:
        return None
    pk, folder, inode, size, mtime, count, tail, id, journal, core, rest, usage = found
    state = JournalState(ReadPosition(inode, size, count, tail, mtime))
    state.id, state.journal = id, journal
    state.set_core(core)
    state.set_rest(rest, usage)
    return IndexRow(pk, folder, state)
