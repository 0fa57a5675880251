"""The newest rows of the branches that were read last.

An agent reads the newest messages turn after turn, and adds a few. Their rows stay here, with the version and seq that
their conversation had. A read takes them only if its own snapshot has the conversation at that very version and seq,
which tell of every change, whoever made it and in whatever process: so what is kept is never wrong, at most of no use.
What this process appends is put to it after the commit.

A message in progress changes without a new version: rows with one are not kept.
"""

from __future__ import annotations

from msgspec import Struct, structs

from hansard.backends.sqlite.errors import decodes
from hansard.backends.sqlite.rows import Row
from hansard.cache import Cache

_MOST_TAILS = 64
_MOST_ROWS = 200
_MOST_BYTES = 250_000
"""Of one tail, if every body were as long as the largest of the conversation, and what is beside it as the longest."""

At = tuple[int, int]
"""The version and seq of a conversation."""


class CachedTail(Struct, frozen=True, gc=False):
    at: At
    rows: list[Row]
    """Of one line, newest first."""
    whole: bool
    """The line has no others."""
    extra: int = 0
    """No row has more beside its body: metadata has no limit of its own."""


class AddedRows(Struct, frozen=True, gc=False):
    """What an append put at the end of a line."""

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
        """The newest rows, as many as wanted or all that there are; None when the file has to be read."""
        tail = self._tails.peek(segment)
        if tail is None or tail.at != at or not (tail.whole or len(tail.rows) >= wanted):
            return None
        return tail.rows[:wanted]

    def keep(self, segment: int, tail: CachedTail, largest: int) -> None:
        """Remembers what was read."""
        extra = _longest_extra(tail.rows)
        if extra is not None:
            self._put(segment, structs.replace(tail, extra=extra), largest)

    def add(self, added: AddedRows) -> None:
        """Remembers what was appended, and as much of what stood before it as readers have asked for."""
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
    """None when a message is in progress."""
    extras = [row[-1] for row in rows if row[-1] is not None]
    return None if any('"in_progress"' in extra for extra in extras) else max(map(len, extras), default=0)
