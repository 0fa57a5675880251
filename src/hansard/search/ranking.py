"""Relevance: BM25 over what was found, rarer words counting for more, long messages for less."""

from __future__ import annotations

from math import log

from hansard.analysis import Clause, Match, Matches, Query, Terms, analyse, searchable

K1 = 1.2
B = 0.75


def ranked(query: Query, matches: Matches) -> list[tuple[float, Match]]:
    """The matches with their scores, the best first, the newer first where they are equal."""
    documents = [analyse(searchable(match.message)) for match in matches.found]
    average = sum(len(each.words) for each in documents) / max(1, len(documents))
    weights = [_weight(matches.total, count) for count in matches.counts]
    scored = [
        (_score(query, terms, weights, len(terms.words) / average if average else 1.0), match)
        for terms, match in zip(documents, matches.found, strict=True)
    ]
    return sorted(scored, key=lambda pair: (pair[0], pair[1].position), reverse=True)


def telling(query: Query, matches: Matches, share: float) -> list[Match]:
    """The matches by rank, without those that have only common words of the query: less than a share of its weight."""
    weights = [_weight(matches.total, count) for count in matches.counts]
    least = share * sum(weights)
    return [
        match
        for _, match in ranked(query, matches)
        if _covered(query, analyse(searchable(match.message)), weights) >= least
    ]


def _covered(query: Query, terms: Terms, weights: list[float]) -> float:
    return sum(weight for clause, weight in zip(query.wanted, weights, strict=True) if clause.is_in(terms))


def _weight(total: int, count: int) -> float:
    """The inverse document frequency: never below zero, however common the word."""
    return log(1 + (max(total, count) - count + 0.5) / (count + 0.5))


def _score(query: Query, terms: Terms, weights: list[float], length: float) -> float:
    score = 0.0
    for clause, weight in zip(query.wanted, weights, strict=True):
        times = _times(clause, terms)
        score += weight * times * (K1 + 1) / (times + K1 * (1 - B + B * length))
    return round(score, 6)


def _times(clause: Clause, terms: Terms) -> int:
    """How often the text has the clause."""
    times = 0
    for row in clause.rows:
        if len(row.parts) > 1:
            times += sum(1 for _ in row.places(terms.words))
        elif row.prefix:
            times += sum(term.startswith(row.parts[0]) for term in terms.words)
        else:
            times += terms.words.count(row.parts[0])
    return times or int(clause.is_in(terms))
