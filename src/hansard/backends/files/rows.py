"""The rows of one conversation in the index: where each of its messages stands in the journal."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from heapq import merge
from importlib import resources
from typing import NamedTuple

from hansard.backends.files.line_format import Piece, Spot
from hansard.backends.files.state import State
from hansard.backends.shared.statements import parse
from hansard.contract.storage import Run, Span
from hansard.model import from_micros

QUERIES = parse(resources.files(__package__).joinpath("queries.sql").read_text("utf-8"))

ALL = -1
"""No limit, in SQLite's words."""


class Row(NamedTuple):
    """Where a message stands: its segment and seq in the conversation, its bytes in the journal."""

    segment: int
    seq: int
    created: int
    size: int
    offset: int
    length: int
    crc: int

    @property
    def piece(self) -> Piece:
        return Piece(self.offset, self.length, self.crc)


class Rows:
    """What the index says of one conversation. It is used while its connection is held."""

    def __init__(self, connection: sqlite3.Connection, pk: int) -> None:
        self.connection = connection
        self.pk = pk

    def _run(self, name: str, *values: object) -> sqlite3.Cursor:
        return self.connection.execute(QUERIES[name], (self.pk, *values))

    # Messages

    def find(self, message_id: str) -> Row | None:
        found = self._run("find_message", message_id).fetchone()
        return Row._make(found) if found else None

    def at_number(self, n: int) -> Row | None:
        """The message of that number, if it is still there as it was."""
        found = self._run("place_of_number", n).fetchone()
        return Row._make(found) if found else None

    def numbered(self, message_id: str) -> tuple[Row, int] | None:
        """A message, and its number."""
        found = self._run("number_of", message_id).fetchone()
        return (Row._make(found[:-1]), found[-1]) if found else None

    def run(self, run: Run, limit: int = ALL, *, newest_first: bool = False) -> Iterator[Row]:
        query = "descending" if newest_first else "ascending"
        return map(Row._make, self._run(query, run.segment, run.after, run.upto, limit))

    def pinned(self, run: Run) -> list[Row]:
        return [Row._make(each) for each in self._run("pinned", run.segment, run.after, run.upto)]

    def between(self, runs: Sequence[Run], newest: int | None = None) -> list[Row]:
        """The messages of these runs in order: all, or only so many from the end."""
        if newest is None:
            return [row for run in runs for row in self.run(run)]
        found: list[Row] = []
        for run in reversed(runs):
            if len(found) < newest:
                found += self.run(run, newest - len(found), newest_first=True)
        return found[::-1]

    def span(self, run: Run) -> Span:
        return Span(*self._run("count_run", run.segment, run.after, run.upto).fetchone())

    def ids(self, runs: Iterable[Run]) -> list[str]:
        """The ids of the messages of these runs."""
        return [id for run in runs for (id,) in self._run("ids_of_run", run.segment, run.after, run.upto)]

    def segments(self) -> Iterator[int]:
        """Those that hold messages."""
        segment = -1
        while (found := self._run("next_segment", segment).fetchone()[0]) is not None:
            yield (segment := found)

    def all(self, after: int = 0, limit: int = ALL) -> Iterator[Row]:
        """Of every segment, in the order of seq."""
        parts = [self.run(Run(each, after, 1 << 62), limit) for each in list(self.segments())]
        return merge(*parts, key=lambda row: row.seq)

    def is_place(self, created: int, seq: int) -> bool:
        """Whether a message of that time has that seq."""
        found = (self._run("time_at", each, seq).fetchone() for each in list(self.segments()))
        return any(each == (created,) for each in found)

    def last_time(self, without: set[str]) -> datetime | None:
        """The time of the last message, the ones of these ids aside."""
        last = max(filter(None, (self._last(each, without) for each in list(self.segments()))), default=None)
        return from_micros(last[1]) if last else None

    def _last(self, segment: int, without: set[str]) -> tuple[int, int] | None:
        for seq, created, id in self._run("last_of_segment", segment):
            if id not in without:
                return seq, created
        return None

    # Blobs

    def digests(self, ids: Iterable[str] | None = None) -> set[str]:
        """Blobs that these messages refer to, or all."""
        if ids is None:
            return {digest for (digest,) in self._run("digests")}
        return {digest for id in ids for (digest,) in self._run("digests_of", id)}


# --- the conversation's own row ---------------------------------------------------------------------------------------


class Card(NamedTuple):
    """A row of the index: the journal that it is of, and what that says. Nobody changes one: threads share it."""

    pk: int
    folder: str
    state: State


def load(connection: sqlite3.Connection, name: str) -> Card | None:
    found = connection.execute(QUERIES["find_row"], (name,)).fetchone()
    if found is None:
        return None
    pk, folder, inode, size, mtime, count, tail, id, journal, core, rest, usage = found
    state = State(Spot(inode, size, count, tail, mtime))
    state.id, state.journal = id, journal
    state.set_core(core)
    state.set_rest(rest, usage)
    return Card(pk, folder, state)
