"""Reading messages: rows are chosen by the index, and only those are read from the journal."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice, pairwise

from hansard import rules
from hansard.backends.files.index import Index
from hansard.backends.files.shelf import Book
from hansard.backends.files.tables import Row, Table
from hansard.contract.types import MessageQuery, Slice
from hansard.model import Message, to_micros

Span = tuple[Table, int, int]
"""A run of rows in a table."""

_FIRST_CHUNK, _LARGEST_CHUNK = 64, 1024


def read_slice(book: Book, query: MessageQuery) -> Slice:
    if any(each is not None for each in (query.roles, query.participant_ids, query.scope, query.pinned)):
        return _filtered(book, query)
    with book.mutex:
        rows, more = take(_rows(_spans(book.index, query), query), query.limit, query.max_bytes)
    return Slice(book.read(rows), more)


def take(rows: Iterator[Row], limit: int | None, max_bytes: int | None) -> tuple[list[Row], bool]:
    """As many as the limit and the bound in bytes allow, but always one; and whether there are more."""
    taken: list[Row] = []
    total = 0
    for row in rows:
        if len(taken) == limit or (taken and max_bytes is not None and total >= max_bytes):
            return taken, True
        taken.append(row)
        total += row.size
    return taken, False


def _filtered(book: Book, query: MessageQuery) -> Slice:
    """Filters look at messages: they are read in chunks, until there are enough."""
    with book.mutex:
        spans = _spans(book.index, query)
        if query.pinned:
            spans = [_pinned(span, book.index.pinned) for span in spans]
        else:
            spans = [(table.copy(start, end), 0, end - start) for table, start, end in spans]
    wanted: list[Message] = []
    total = 0
    for row, message in _each(book, _rows(spans, query)):
        if not rules.is_wanted(message, query):
            continue
        if len(wanted) == query.limit or (wanted and query.max_bytes is not None and total >= query.max_bytes):
            return Slice(wanted, True)
        wanted.append(message)
        total += row.size
    return Slice(wanted, False)


def _each(book: Book, rows: Iterator[Row]) -> Iterator[tuple[Row, Message]]:
    size = _FIRST_CHUNK
    while chunk := list(islice(rows, size)):
        yield from zip(chunk, book.read(chunk), strict=True)
        size = min(2 * size, _LARGEST_CHUNK)


def each_message(book: Book) -> Iterator[tuple[Row, Message]]:
    """Every message of every line, in the order of seq."""
    with book.mutex:
        rows = list(book.index.all_rows())
    return _each(book, iter(rows))


def rows_after(book: Book, seq: int, limit: int, max_bytes: int) -> list[Row]:
    """Of every line, in the order of seq."""
    with book.mutex:
        return take(book.index.all_rows(seq), limit, max_bytes)[0]


# --- which rows -------------------------------------------------------------------------------------------------------


def _spans(index: Index, query: MessageQuery) -> list[Span]:
    spans = [(table, 0, end) for table, end in index.spans(query.branch)]
    if query.sort == "time":
        return [_in_time(span, query) for span in spans] if _is_in_time(spans) else spans
    low = query.above[1] if query.above is not None else 0
    high = query.below[1] - 1 if query.below is not None else rules.NO_END
    return [(table, table.upto(low), min(end, table.upto(high))) for table, _, end in spans]


def _pinned(span: Span, pinned: set[int]) -> Span:
    """Only the pinned messages of a span: the cost follows their number."""
    table, start, end = span
    few = Table(table.line)
    for seq in sorted(pinned):
        at = table.find(seq)
        if start <= at < end and table.seq[at] == seq:
            few.add(*table.row(at)[1:])
    return few, 0, len(few)


def _rows(spans: list[Span], query: MessageQuery) -> Iterator[Row]:
    rows: Iterator[Row] = chain.from_iterable(_walk(span, query) for span in _directed(spans, query))
    if query.sort == "time" and not _is_in_time(spans):
        between = (row for row in rows if _is_between(row, query))
        rows = iter(sorted(between, key=_position, reverse=query.newest_first))
    if query.since is None and query.until is None:
        return rows
    since = to_micros(query.since) if query.since is not None else None
    until = to_micros(query.until) if query.until is not None else None
    return (row for row in rows if (since is None or row.created >= since) and (until is None or row.created < until))


def _is_in_time(spans: list[Span]) -> bool:
    """Whether the order of seq is the order of time: it is, unless older messages were added later."""
    ends = [(table.created[start], table.created[end - 1]) for table, start, end in spans if end > start]
    follow = all(one[1] <= other[0] for one, other in pairwise(ends))
    return follow and all(table.is_in_time for table, _, _ in spans)


def _in_time(span: Span, query: MessageQuery) -> Span:
    """The part of a span that lies between the query's places in time."""
    table, start, end = span
    if query.above is not None:
        start = table.before(query.above[0], query.above[1] + 1)
    if query.below is not None:
        end = min(end, table.before(*query.below))
    return table, start, end


def _directed(spans: list[Span], query: MessageQuery) -> list[Span]:
    return spans[::-1] if query.newest_first else spans


def _walk(span: Span, query: MessageQuery) -> Iterator[Row]:
    table, start, end = span
    return map(table.row, range(end - 1, start - 1, -1) if query.newest_first else range(start, end))


def _position(row: Row) -> tuple[int, int]:
    return row.created, row.seq


def _is_between(row: Row, query: MessageQuery) -> bool:
    here = _position(row)
    return (query.above is None or here > query.above) and (query.below is None or here < query.below)
