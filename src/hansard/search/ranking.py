"""Relevance: BM25 over the matches; rarer words count more, long messages less.

The rarity of a word is counted among the matches, not among all stored messages. So a ranking depends on nothing else:
backends that find the same messages rank them alike, whatever filters narrow the search and whether an index or a scan
found them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from math import log
from typing import NamedTuple

from hansard.analysis import Clause, Match, Query, Terms, analyse, searchable
from hansard.analysis.queries import Phrase

K1 = 1.2
B = 0.75


class RankedMatch(NamedTuple):
    """A match and its score."""

    score: float
    match: Match
    covered: float
    """The share of the query's weight that the message has, from 0 to 1."""


def ranked(query: Query, found: Sequence[Match]) -> list[RankedMatch]:
    """Returns the matches with their scores, the best first; of equal ones the newer first."""
    clauses = query.wanted
    texts = [_TextStats(analyse(searchable(match.message)), clauses) for match in found]
    weights = _weights(texts, len(clauses))
    average = sum(text.length for text in texts) / max(1, len(texts))
    made = [_ranked(match, text, weights, average) for match, text in zip(found, texts, strict=True)]
    return sorted(made, key=lambda each: (each.score, each.match.position), reverse=True)


def _weights(texts: Sequence[_TextStats], clauses: int) -> list[float]:
    """Returns the inverse document frequency of each clause: above zero even for one that every text has."""
    counts = [sum(text.times[at] > 0 for text in texts) for at in range(clauses)]
    return [log(1 + (len(texts) + 1) / (count + 0.5)) for count in counts]


def _ranked(match: Match, text: _TextStats, weights: list[float], average: float) -> RankedMatch:
    length = text.length / average if average else 1.0
    damping = K1 * (1 - B + B * length)
    score = covered = 0.0
    for weight, times in zip(weights, text.times, strict=True):
        score += weight * times * (K1 + 1) / (times + damping)
        covered += weight if times else 0.0
    return RankedMatch(round(score, 6), match, covered / sum(weights))


class _TextStats:
    """The length of one message and how often each clause occurs; its words are not kept."""

    __slots__ = ("length", "times")

    def __init__(self, terms: Terms, clauses: Sequence[Clause]) -> None:
        self.length = len(terms.words)
        words = _TermCounts(terms)
        self.times = [words.times(clause) for clause in clauses]


class _TermCounts:
    """The terms of one text, counted once for all clauses, so that a clause costs about the same in a long text."""

    def __init__(self, terms: Terms) -> None:
        self._row = terms.words
        self._counts = Counter(terms.words)
        self._more = terms.more

    def times(self, clause: Clause) -> int:
        """Returns how often the clause occurs in the text; once, if only another spelling of it does."""
        return sum(map(self._times, clause.rows)) or int(any(map(self._has_otherwise, clause.rows)))

    def _times(self, row: Phrase) -> int:
        first = row.parts[0]
        if len(row.parts) > 1:
            return sum(1 for _ in row.places(self._row)) if first in self._counts else 0
        if row.prefix:
            return sum(self._counts[word] for word in _beginning(self._words, first))
        return self._counts[first]

    def _has_otherwise(self, row: Phrase) -> bool:
        if len(row.parts) > 1:
            return False
        found = next(_beginning(self._others, row.parts[0]), None)
        return found is not None and (row.prefix or found == row.parts[0])

    @cached_property
    def _words(self) -> list[str]:
        return sorted(self._counts)

    @cached_property
    def _others(self) -> list[str]:
        return sorted(self._more)


def _beginning(words: list[str], start: str) -> Iterator[str]:
    """Yields the sorted words that begin so; the shortest first."""
    for at in range(bisect_left(words, start), len(words)):
        if not words[at].startswith(start):
            return
        yield words[at]
