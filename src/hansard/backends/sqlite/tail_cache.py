"""A cache of the newest rows of the branches that were read last.

An agent reads the newest messages turn after turn, and adds a few. Their rows stay here, with the version and seq of
their conversation. A read uses them only if its own snapshot has the conversation at exactly that version and seq,
which change with every write of any process: so a cached tail is never wrong, at most useless. Appends of this process
are added to it after the commit.

A message in progress changes without a new version: rows with one are not cached.
"""

from __future__ import annotations

from msgspec import Struct, structs

from hansard.backends.sqlite.errors import decodes
from hansard.backends.sqlite.rows import Row
from hansard.cache import Cache

_MOST_TAILS = 64
_MOST_ROWS = 200
_MOST_BYTES = 250_000
"""The limit of one tail in bytes, if every body and every extra were as long as the longest."""

At = tuple[int, int]
"""The version and seq of a conversation."""


class CachedTail(Struct, frozen=True, gc=False):
    at: At
    rows: list[Row]
    """Of one segment, newest first."""
    whole: bool
    """True if the segment has no other rows."""
    extra: int = 0
    """The longest extra of a row: metadata has no limit of its own."""


class AddedRows(Struct, frozen=True, gc=False):
    """The rows that an append added at the end of a segment."""

    segment: int
    before: At
    at: At
    rows: list[Row]
    """Newest first."""
    largest: int


class TailCache:
    """Every tail is replaced as a whole, so that readers need no lock."""

    def __init__(self) -> None:
        self._tails: Cache[int, CachedTail] = Cache(_MOST_TAILS)
        self.clear = self._tails.clear

    def __contains__(self, segment: int) -> bool:
        return segment in self._tails

    def find(self, segment: int, at: At, wanted: int) -> list[Row] | None:
        """Returns the newest rows, up to `wanted`; None if the file must be read."""
        tail = self._tails.peek(segment)
        if tail is None or tail.at != at or not (tail.whole or len(tail.rows) >= wanted):
            return None
        return tail.rows[:wanted]

    def keep(self, segment: int, tail: CachedTail, largest: int) -> None:
        """Caches rows that were read."""
        extra = _longest_extra(tail.rows)
        if extra is not None:
            self._put(segment, structs.replace(tail, extra=extra), largest)

    def add(self, added: AddedRows) -> None:
        """Adds appended rows to a cached tail, which keeps as many rows as readers have asked for."""
        tail = self._tails.peek(added.segment)
        if tail is None:
            return
        extra = _longest_extra(added.rows)
        if tail.at != added.before or extra is None:
            self._tails.pop(added.segment)
            return
        rows = [*added.rows, *tail.rows]
        whole = tail.whole and len(rows) <= _MOST_ROWS
        if not whole:
            del rows[len(tail.rows) :]
        self._put(added.segment, CachedTail(added.at, rows, whole, max(extra, tail.extra)), added.largest)

    def _put(self, segment: int, tail: CachedTail, largest: int) -> None:
        if len(tail.rows) > _MOST_ROWS or (largest + tail.extra) * len(tail.rows) > _MOST_BYTES:
            self._tails.pop(segment)
        else:
            self._tails.put(segment, tail)


@decodes
def _longest_extra(rows: list[Row]) -> int | None:
    """Returns None if a message is in progress."""
    extras = [row[-1] for row in rows if row[-1] is not None]
    return None if any('"in_progress"' in extra for extra in extras) else max(map(len, extras), default=0)
