"""Reads messages: the index selects rows, and only these are read from the journal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice

from hansard import rules
from hansard.backends.files.journals import OpenJournal
from hansard.backends.files.rows import ALL, MessagePosition, MessageRows
from hansard.contract.storage import Run
from hansard.contract.types import MessageQuery, Slice
from hansard.model import Message, to_micros

_FIRST_CHUNK, _LARGEST_CHUNK = 64, 1024


def read_slice(journal: OpenJournal, query: MessageQuery) -> Slice:
    with journal.rows() as rows:
        if any(each is not None for each in (query.roles, query.participant_ids, query.scope, query.pinned)):
            return _filtered(journal, rows, query)
        selected = _select(journal, rows, query, ALL if query.limit is None or _has_times(query) else query.limit + 1)
        taken, more = limit_rows(selected, query.limit, query.max_bytes)
    return Slice(journal.read(taken), more)


def limit_rows(
    rows: Iterable[MessagePosition], limit: int | None, max_bytes: int | None
) -> tuple[list[MessagePosition], bool]:
    """Returns as many rows as the limit and the bound in bytes allow, but at least one, and whether there are more."""
    taken: list[MessagePosition] = []
    total = 0
    for row in rows:
        if len(taken) == limit or (taken and max_bytes is not None and total >= max_bytes):
            return taken, True
        taken.append(row)
        total += row.size
    return taken, False


def _filtered(journal: OpenJournal, rows: MessageRows, query: MessageQuery) -> Slice:
    """Applies filters on the messages themselves, which are read in chunks until there are enough."""
    wanted: list[Message] = []
    total = 0
    for row, message in _read_in_chunks(journal, _select(journal, rows, query, ALL)):
        if not rules.is_wanted(message, query):
            continue
        if len(wanted) == query.limit or (wanted and query.max_bytes is not None and total >= query.max_bytes):
            return Slice(wanted, True)
        wanted.append(message)
        total += row.size
    return Slice(wanted, False)


def _read_in_chunks(journal: OpenJournal, rows: Iterator[MessagePosition]) -> Iterator[tuple[MessagePosition, Message]]:
    size = _FIRST_CHUNK
    while chunk := list(islice(rows, size)):
        yield from zip(chunk, journal.read(chunk), strict=True)
        size = min(2 * size, _LARGEST_CHUNK)


def rows_after(journal: OpenJournal, seq: int, limit: int, max_bytes: int) -> list[MessagePosition]:
    """Returns the rows of all segments after `seq`, in the order of seq."""
    with journal.rows() as rows:
        return limit_rows(rows.all(seq, limit + 1), limit, max_bytes)[0]


# --- which rows -------------------------------------------------------------------------------------------------------


def _select(journal: OpenJournal, rows: MessageRows, query: MessageQuery, limit: int) -> Iterator[MessagePosition]:
    """Yields the rows of a query in its order, without its filters. `limit` is how many each segment must yield."""
    is_by_time = query.sort == "time"
    if is_by_time and not (journal.state.is_time_ordered and _are_message_times(rows, query)):
        found = chain.from_iterable(_run(rows, run, query, ALL) for run in _runs(journal, query, bounded=False))
        between = (row for row in found if _is_between(row, query))
        return _filter_times(iter(sorted(between, key=_position, reverse=query.newest_first)), query)
    runs = _runs(journal, query, bounded=True)
    if query.newest_first:
        runs.reverse()
    return _filter_times(chain.from_iterable(_run(rows, run, query, limit) for run in runs), query)


def _runs(journal: OpenJournal, query: MessageQuery, *, bounded: bool) -> list[Run]:
    """Returns the runs that a branch reads, oldest first; if `bounded`, between the seqs in the query's bounds."""
    low = query.above[1] if bounded and query.above is not None else 0
    high = query.below[1] - 1 if bounded and query.below is not None else rules.NO_END
    parts = rules.segments(journal.conversation_state.branch(query.branch))
    return [Run(segment, low, min(upto, high)) for segment, upto in parts if low < min(upto, high)]


def _run(rows: MessageRows, run: Run, query: MessageQuery, limit: int) -> Iterator[MessagePosition]:
    if query.pinned:
        found = rows.pinned(run)
        return iter(found[::-1] if query.newest_first else found)
    return rows.run(run, limit, newest_first=query.newest_first)


def _are_message_times(rows: MessageRows, query: MessageQuery) -> bool:
    """Whether the query's bounds in time are the times of messages: then their seqs can be used as bounds."""
    return all(rows.is_message_at(*place) for place in (query.above, query.below) if place is not None)


def _has_times(query: MessageQuery) -> bool:
    return query.since is not None or query.until is not None


def _filter_times(rows: Iterator[MessagePosition], query: MessageQuery) -> Iterator[MessagePosition]:
    if not _has_times(query):
        return rows
    since = to_micros(query.since) if query.since is not None else None
    until = to_micros(query.until) if query.until is not None else None
    return (row for row in rows if (since is None or row.created >= since) and (until is None or row.created < until))


def _position(row: MessagePosition) -> tuple[int, int]:
    return row.created, row.seq


def _is_between(row: MessagePosition, query: MessageQuery) -> bool:
    here = _position(row)
    return (query.above is None or here > query.above) and (query.below is None or here < query.below)
