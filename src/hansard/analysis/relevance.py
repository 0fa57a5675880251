"""Relevance: which messages answer a query best, over everything that matches.

A message scores by the query's words in it and, less, in the messages around it: in a conversation a question is
answered by the next message, which seldom repeats its words. This is BM25 with three differences.

- A word counts once in a message. So an index of messages is enough, without the positions of words. In chats the
  number of times adds nothing: the words of the neighbours are the count.
- The rarity of a word is relative to the commonest word of the query, among the messages that match; and length is
  relative to a paragraph. So a score depends on nothing outside the search, and no backend counts its whole store.
- Rarity is squared, so that common words weigh little without a list for each language.

The backends find, this module decides: `best` takes the postings of each word and phrase, the rarest first, and stops
as soon as no other message can be among the best. The result is that of reading everything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from heapq import nlargest
from math import log
from typing import NamedTuple, Protocol, TypeVar

from hansard.analysis.lookups import Position
from hansard.analysis.queries import Clause, Query
from hansard.analysis.terms import Terms

T = TypeVar("T")

K1 = 0.9
B = 0.4
"""How soon more of a word adds nothing, and how much length counts: the usual values for short passages."""
PARAGRAPH = 60
"""Words of a paragraph. Up to this length a message is read together with its neighbours; a longer one explains itself,
so they count less the longer it is. It is the usual length, too."""
NEAR = (0.5, 0.25, 0.125)
"""What a word counts in a message one, two and three places away: half as much with each. Beyond that, almost
nothing."""
EXPONENT = 2
"""Of the rarity: as in the cosine of two vectors, where it counts once in the query and once in the message."""
NAME = 1.5
"""What names, numbers and quoted phrases weigh more: half as much again, because their writer chose them exactly."""
COMMON = 10_000
"""Messages that are counted for a word: those in more weigh the same, the least. So no search counts a whole store."""
_SMALL = 1000
"""Postings that are read without asking whether they can matter."""
_READ = 2000
"""Messages that are read, at most, instead of the postings of common words."""

_AROUND = 2 * sum(NEAR)
_USUAL = PARAGRAPH * (1 + _AROUND)
_OFFSETS = tuple((step, NEAR[abs(step) - 1]) for step in (-3, -2, -1, 1, 2, 3))

Posting = tuple[int, int]
"""The key of a message and its number of words. Keys of neighbours in a conversation are consecutive."""


class Postings(Protocol):
    """The messages of a search, as a backend finds them. All of it belongs to one moment."""

    async def count(self, clause: Clause, most: int) -> int:
        """Returns how many messages `of` returns, up to a bound."""

    async def of(self, clause: Clause) -> Iterable[Posting]:
        """Returns the messages that match the query and have the clause, each once."""

    async def terms(self, keys: Collection[int]) -> Mapping[int, Terms]:
        """Returns the terms of the messages with these keys, if the search covers them, matching or not."""

    async def newest(self, keys: Sequence[int], count: int) -> Mapping[int, Position]:
        """Returns the positions of so many of the newest of these messages, and maybe those of others.

        The keys are in the order in which `of` returned them.
        """

    async def run(self, work: Callable[[], T]) -> T:
        """Runs a long computation, not on an event loop."""


class ScoredKey(NamedTuple):
    key: int
    score: float
    covered: float
    """The share of the query's weight that the message itself has, from 0 to 1."""


async def best(query: Query, found: Postings, limit: int, *, neighbours: bool = False) -> list[ScoredKey]:
    """Returns the best messages, the best first; of equal ones the newer first.

    With `neighbours`, also messages next to those that match, if they score as high.
    """
    search = _Search(query, found, limit, neighbours=neighbours)
    await search.read()
    return await search.results()


class _Search:
    def __init__(self, query: Query, found: Postings, limit: int, *, neighbours: bool) -> None:
        self.query = query
        self.found = found
        self.limit = limit
        self.neighbours = neighbours
        self.clauses = tuple(dict.fromkeys(query.wanted))
        self.is_any = len(query.groups) == 1
        self.has: dict[int, int] = {}
        """The clauses of each message, as bits."""
        self.words: dict[int, int] = {}
        self.order: list[int] = []
        self.scorer = _Scorer({}, {}, [])
        self.unread: list[int] = []
        """Clauses whose postings cannot change the result. Their bits are set only around the best messages."""
        self.among: set[int] | None = None
        """The messages that can be among the best; None for all that have a clause."""

    async def read(self) -> None:
        if not self.is_any or len(self.clauses) == 1:
            await self._read_all()
            return
        counts = [await self.found.count(clause, COMMON) for clause in self.clauses]
        self._weigh(counts)
        for nth, at in enumerate(self.order):
            if counts[at] > _SMALL and nth and await self._is_decided(self.order[nth:]):
                return
            await self._take(at, await self.found.of(self.clauses[at]))

    async def _read_all(self) -> None:
        """Reads a query whose words must all occur: the messages with one of them are those with all."""
        if len(self.clauses) == 1:
            await self._take(0, await self.found.of(self.clauses[0]))
            self._weigh([min(len(self.has), COMMON)])
            return
        alone = {group[0] for group in self.query.groups if len(group) == 1}
        everything = [*await self.found.of(min(alone, key=self.clauses.index))] if alone else []
        counts = []
        for at, clause in enumerate(self.clauses):
            postings = everything if clause in alone else [*await self.found.of(clause)]
            await self._take(at, postings)
            counts.append(min(len(postings), COMMON))
        self._weigh(counts)

    async def _take(self, at: int, postings: Iterable[Posting]) -> None:
        bit, has, words = 1 << at, self.has, self.words

        def take() -> None:
            if not has:
                words.update(postings)
                has.update(dict.fromkeys(words, bit))
                return
            for key, length in postings:
                has[key] = has.get(key, 0) | bit
                words[key] = length

        await self.found.run(take)

    def _weigh(self, counts: Sequence[int]) -> None:
        most = max(counts, default=0)
        weights = [
            log(1 + (most + 1) / (count + 0.5)) ** EXPONENT * (NAME if clause.is_name else 1)
            for clause, count in zip(self.clauses, counts, strict=True)
        ]
        self.order = sorted(range(len(counts)), key=lambda at: (counts[at], at))
        self.scorer = _Scorer(self.has, self.words, [(1 << at, weights[at]) for at in self.order])

    # What need not be read

    async def _is_decided(self, rest: Sequence[int]) -> bool:
        """Returns whether no message without the clauses read so far can be among the best.

        Then only the messages around the best are read, for the remaining clauses.
        """
        others = sum(1 << at for at in rest)
        read = (1 << len(self.clauses)) - 1 - others
        if len(self.has) < self.limit or self.scorer.most(read) <= self.scorer.most(others):
            return False
        among = await self.found.run(lambda: self._still_possible(others))
        around = {key + step for key in among or () for step in range(-len(NEAR), len(NEAR) + 1)}
        if among is None or len(around) > _READ:
            return False
        terms = await self.found.terms(around)
        for key, one in terms.items():
            self._note(key, one, rest)
        self.among = among & self.words.keys()
        return True

    def _still_possible(self, rest: int) -> set[int] | None:
        """Returns the messages that can be among the best, whatever the other clauses add; None if any can."""
        scores = self.scorer.scores(self.has)
        least, more = _least(scores.values(), self.limit), self.scorer.most(rest)
        if least is None or more >= least:
            return None
        return {key for key, score in scores.items() if score + more >= least} | self._next_to(least - more)

    def _note(self, key: int, terms: Terms, clauses: Sequence[int]) -> None:
        if self._is_excluded(terms):
            return
        self.words[key] = len(terms.words)
        bits = sum(1 << at for at in clauses if self.clauses[at].is_in(terms))
        if bits:
            self.has[key] = self.has.get(key, 0) | bits

    def _is_excluded(self, terms: Terms) -> bool:
        return any(clause.is_in(terms) for clause in self.query.excluded)

    def _next_to(self, least: float) -> set[int]:
        """Returns the keys next to messages that match, as far as their messages could have this score."""
        near: set[int] = set()
        enough = {bits for bits in set(self.has.values()) if self.scorer.most(bits) * 2 * len(NEAR) >= least}
        for key, bits in self.has.items():
            if bits in enough:
                near.update(key + step for step, _ in _OFFSETS)
        near -= self.has.keys()
        return {key for key in near if self.scorer.score(key, 1) >= least}

    # The result

    async def results(self) -> list[ScoredKey]:
        keys = self.has if self.among is None else self.among & self.has.keys()
        scores = await self.found.run(lambda: self.scorer.scores(keys))
        if self.neighbours:
            scores |= await self._neighbours(scores)
        least = _least(scores.values(), self.limit)
        better = [key for key, score in scores.items() if least is None or score > least]
        # Thousands of messages may have the last score: those that are not the newest of them need no position.
        last = [key for key, score in scores.items() if score == least]
        positions = dict(await self.found.newest(better, len(better)))
        if last:
            positions |= await self.found.newest(last, self.limit - len(better))
        chosen = sorted(positions, key=lambda key: (scores[key], positions[key]), reverse=True)
        return [ScoredKey(key, scores[key], self.scorer.share(key)) for key in chosen[: self.limit]]

    async def _neighbours(self, scores: Mapping[int, float]) -> dict[int, float]:
        """Returns the scores of messages that have no clause themselves."""
        if self.among is not None:
            return self.scorer.scores(self.among - self.has.keys())
        near = await self.found.run(lambda: self._next_to(_least(scores.values(), self.limit) or 0.0))
        terms = await self.found.terms(near) if near else {}
        lengths = {key: len(one.words) for key, one in terms.items() if not self._is_excluded(one)}
        return {key: self.scorer.score(key, length) for key, length in lengths.items()}


class _Scorer:
    """The formula."""

    def __init__(self, has: Mapping[int, int], words: Mapping[int, int], weights: Sequence[tuple[int, float]]) -> None:
        self._has = has
        self._words = words
        self._weights = weights
        """Bits and weights of the clauses, in the order in which they are added up: the same on every backend."""
        self._alone: dict[tuple[int, int], float] = {}

    def scores(self, keys: Collection[int]) -> dict[int, float]:
        words = self._words
        if len(self._weights) == 1:
            return self._scores_of_one_word(keys)
        return {key: self.score(key, words[key]) for key in keys}

    def _scores_of_one_word(self, keys: Collection[int]) -> dict[int, float]:
        """The same, several times as fast: among short messages, whose neighbours count in eighths, few differ."""
        has, words = self._has, self._words
        long = {key for key, length in words.items() if length > PARAGRAPH}
        known: dict[int, float] = {}
        scores = {}
        for key in keys:
            length = words[key]
            eighths = (
                4 * ((key - 1 in has) + (key + 1 in has))
                + 2 * ((key - 2 in has) + (key + 2 in has))
                + (key - 3 in has)
                + (key + 3 in has)
            )
            if eighths and long and not long.isdisjoint(range(key - 3, key + 4)):
                scores[key] = self._score(1, length, [(far, key + at) for at, far in _OFFSETS if key + at in has])
                continue
            kind = length << 4 | eighths  # of at most 14 eighths
            if kind not in known:
                known[kind] = self.score(key, length)
            scores[key] = known[kind]
        return scores

    def score(self, key: int, length: int) -> float:
        has = self._has
        own = has.get(key, 0)
        near = [(weight, key + step) for step, weight in _OFFSETS if key + step in has]
        if near:
            return self._score(own, length, near)
        alone = self._alone.get((own, length))
        if alone is None:
            alone = self._alone[own, length] = self._score(own, length, ())
        return alone

    def _score(self, own: int, length: int, near: Sequence[tuple[float, int]]) -> float:
        gate = _gate(length)
        damping = K1 * (1 - B + B * (length + _AROUND * PARAGRAPH * gate) / _USUAL)
        words, has = self._words, self._has
        others = [(weight * gate * _gate(words[key]), has[key]) for weight, key in near]
        score = 0.0
        for bit, weight in self._weights:
            times = 1.0 if own & bit else 0.0
            for other, bits in others:
                if bits & bit:
                    times += other
            if times:
                score += weight * times * (K1 + 1) / (times + damping)
        return round(score, 6)

    def most(self, bits: int) -> float:
        """Returns the most that these clauses can add to a score: for a word alone, between six that have them too."""
        times = 1 + _AROUND
        damping = K1 * (1 - B + B * (1 + _AROUND * PARAGRAPH) / _USUAL)
        return sum(weight for bit, weight in self._weights if bits & bit) * times * (K1 + 1) / (times + damping)

    def share(self, key: int) -> float:
        own = self._has.get(key, 0)
        return sum(weight for bit, weight in self._weights if own & bit) / sum(weight for _, weight in self._weights)


def _gate(length: int) -> float:
    """Returns how much a message of this length is read together with its neighbours."""
    return 1.0 if length <= PARAGRAPH else PARAGRAPH / length


def _least(scores: Collection[float], limit: int) -> float | None:
    """Returns the lowest of the best scores; None if there are fewer."""
    return nlargest(limit, scores)[-1] if len(scores) >= limit else None
