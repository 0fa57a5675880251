"""The piece of a text that shows why it was found."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from hansard.analysis import Query, Word, spans
from hansard.analysis.queries import Row
from hansard.search.hits import Snippet

Span = tuple[int, int]
_LOOKED_AT = 200_000
"""Characters in which a snippet is looked for."""


def cut(text: str, query: Query, characters: int) -> Snippet:
    """The stretch with the most highlights, the first of those, with a little of what stands before."""
    marks = highlights(text[:_LOOKED_AT], query)
    if not marks:
        return Snippet(text[:characters], 0)
    starts = [start for start, _ in marks]
    best = max(range(len(marks)), key=lambda at: (_within(starts, at, characters), -at))
    start = _word_start(text, max(0, marks[best][0] - characters // 4))
    end = _word_end(text, max(start + characters, marks[best][1]))
    inside = tuple((low - start, high - start) for low, high in marks if start <= low and high <= end)
    return Snippet(text[start:end], start, inside)


def highlights(text: str, query: Query) -> list[Span]:
    """Where the query's words stand in the text, in order; neighbours without a gap are one."""
    found = list(spans(text))
    rows = [row for clause in query.wanted for row in clause.rows]
    hits = sorted({at for row in rows for at in _places(row, [word for _, _, word in found])})
    marks: list[Span] = []
    for at in hits:
        start, end, _ = found[at]
        if marks and marks[-1][1] >= start:
            marks[-1] = (marks[-1][0], max(end, marks[-1][1]))
        else:
            marks.append((start, end))
    return marks


def _places(row: Row, words: list[Word]) -> Iterator[int]:
    """The words that a row is made of, wherever it stands."""
    if len(row.parts) == 1:
        only = row.parts[0]
        for at, word in enumerate(words):
            forms = (*word.parts, *word.raw, *word.others, *word.pieces, *word.raw_pieces)
            if any(form.startswith(only) for form in forms) if row.prefix else only in forms:
                yield at
        return
    readings = [[word.parts for word in words]]
    if any(word.pieces for word in words):
        readings.append([word.finest for word in words])
    for reading in readings:
        owners = [at for at, terms in enumerate(reading) for _ in terms]
        for place in row.places([term for terms in reading for term in terms]):
            yield from owners[place : place + len(row.parts)]


def _within(starts: list[int], at: int, characters: int) -> int:
    """How many marks a stretch shows that begins with this one. They are in order: a text may have thousands."""
    return bisect_right(starts, starts[at] + characters * 3 // 4) - at


def _word_start(text: str, at: int) -> int:
    """No further than a few characters: scripts without spaces are cut where they are."""
    space = text.rfind(" ", max(0, at - 20), at + 1)
    return space + 1 if at and space >= 0 else at


def _word_end(text: str, at: int) -> int:
    space = text.find(" ", at, at + 20)
    return space if space >= 0 else at
