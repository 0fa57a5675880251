"""The piece of a text that shows why it was found."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property

from hansard.analysis import Query, Word, spans
from hansard.analysis.function_words import telling
from hansard.analysis.queries import Phrase
from hansard.search.hits import Snippet

Span = tuple[int, int]
_LOOKED_AT = 200_000
"""The most characters that are searched for a snippet."""


def cut(text: str, query: Query, characters: int) -> Snippet:
    """Returns the first stretch with the most highlights, with a little context before it."""
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
    """Returns the ranges of the query's words in the text, in order; adjacent ones are joined.

    Function words are marked only in phrases, or if the query has no other words.
    """
    found = list(spans(text))
    words = _Words([word for _, _, word in found])
    hits = sorted({at for clause in telling(query) for row in clause.rows for at in words.places(row)})
    marks: list[Span] = []
    for at in hits:
        start, end, _ = found[at]
        if marks and marks[-1][1] >= start:
            marks[-1] = (marks[-1][0], max(end, marks[-1][1]))
        else:
            marks.append((start, end))
    return marks


class _Words:
    """The words of a text, in which many phrases are searched."""

    def __init__(self, words: list[Word]) -> None:
        self._words = words

    @cached_property
    def _readings(self) -> list[tuple[list[str], list[int]]]:
        """Their terms in sequence, each with its word; and again with the parts of `camelCase` words."""
        readings = [[word.parts for word in self._words]]
        if any(word.pieces for word in self._words):
            readings.append([word.finest for word in self._words])
        return [
            ([term for terms in each for term in terms], [at for at, terms in enumerate(each) for _ in terms])
            for each in readings
        ]

    @cached_property
    def _forms(self) -> dict[str, list[int]]:
        """Every spelling of a word, with the words that have it."""
        forms: dict[str, list[int]] = {}
        for at, word in enumerate(self._words):
            for form in (*word.parts, *word.raw, *word.others, *word.pieces, *word.raw_pieces):
                forms.setdefault(form, []).append(at)
        return forms

    def places(self, row: Phrase) -> Iterator[int]:
        """Yields the words that a phrase consists of, wherever it occurs."""
        if len(row.parts) > 1:
            for terms, owners in self._readings:
                for place in row.places(terms):
                    yield from owners[place : place + len(row.parts)]
        elif row.inside:
            for form, places in self._forms.items():
                if row.parts[0] in form:
                    yield from places
        elif row.prefix:
            for form, places in self._forms.items():
                if form.startswith(row.parts[0]):
                    yield from places
        else:
            yield from self._forms.get(row.parts[0], ())


def _within(starts: list[int], at: int, characters: int) -> int:
    """Returns how many of the sorted highlights a stretch contains that begins with this one."""
    return bisect_right(starts, starts[at] + characters * 3 // 4) - at


def _word_start(text: str, at: int) -> int:
    """Moves only a few characters: scripts without spaces are cut anywhere."""
    space = text.rfind(" ", max(0, at - 20), at + 1)
    return space + 1 if at and space >= 0 else at


def _word_end(text: str, at: int) -> int:
    space = text.find(" ", at, at + 20)
    return space if space >= 0 else at
