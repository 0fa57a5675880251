"""Relevance: which messages answer a query best, over everything that matches.

A message scores by the query's words in it and, less, in the messages around it: in a conversation a question is
answered by the next message, which seldom repeats its words. This is BM25 with three differences.

- A word counts once in a message. So an index of messages is enough, without the positions of words. In chats the
  number of times adds nothing: the words of the neighbours are the count.
- The rarity of a word is relative to the commonest word of the query, among the messages that match; and length is
  relative to a paragraph. So a score depends on nothing outside the search, and no backend counts its whole store.
- Rarity is squared, so that common words weigh little without a list for each language. A word that a question is
  asked with (`function_words`) weighs as little as the commonest, because its rarity misleads: people who write about
  themselves rarely use "did" and "does".

The backends find, this module decides: `best` takes the postings of each word and phrase, the rarest first, and stops
as soon as no other message can be among the best. The result is that of reading everything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from heapq import nlargest
from typing import Protocol, TypeVar

from msgspec import Struct

from hansard.analysis import function_words, one_word
from hansard.analysis.formula import COMMON, NEAR, SIDES, Posting, Scorer, lowest, weight_of
from hansard.analysis.lookups import Position
from hansard.analysis.one_word import Best
from hansard.analysis.queries import Clause, Query
from hansard.analysis.terms import Terms

T = TypeVar("T")

_SMALL = 1000
"""Postings that are read without asking whether they can matter."""
_READ = 2000
"""Messages that are read, at most, instead of the postings of common words."""


class Postings(Protocol):
    """The messages of a search, as a backend finds them. All of it belongs to one moment."""

    async def count(self, clause: Clause, most: int) -> int:
        """Returns how many messages `of` returns, up to a bound."""

    async def of(self, clause: Clause) -> Iterable[Posting]:
        """Returns the messages that match the query and have the clause, each once."""

    async def terms(self, keys: Collection[int]) -> Mapping[int, Terms]:
        """Returns the terms of the messages with these keys, if the search covers them, matching or not."""

    async def positions(self, all_of: Collection[int], newest_of: Iterable[int], count: int) -> Mapping[int, Position]:
        """Returns the positions of some messages, and of so many of the newest of others; maybe of more of those.

        If the query is of one word, the others are in the reverse order in which `of` returned them.
        """

    async def run(self, work: Callable[[], T]) -> T:
        """Runs a long computation, not on an event loop."""


class ScoredKey(Struct, frozen=True, gc=False):
    key: int
    score: float


async def best(query: Query, found: Postings, limit: int, *, neighbours: bool = False) -> list[ScoredKey]:
    """Returns the best messages, the best first; of equal ones the newer first.

    With `neighbours`, also messages next to those that match, if they score as high.
    """
    if len(set(query.wanted)) == 1 and not neighbours:
        return await _best_of_one(query.wanted[0], found, limit)
    search = _Search(query, found, limit, neighbours=neighbours)
    await search.read()
    return await search.results()


async def _best_of_one(clause: Clause, found: Postings, limit: int) -> list[ScoredKey]:
    postings = await found.of(clause)
    best = await found.run(lambda: one_word.best(clause, [*postings], limit))
    return await _in_order(found, best, limit)


async def _in_order(found: Postings, best: Best, limit: int) -> list[ScoredKey]:
    """Returns the best with their scores; of equal ones the newer first."""
    scores, least, last = best
    positions = await found.positions(scores, last, limit - len(scores))
    scored = sorted([(scores.get(key, least), position, key) for key, position in positions.items()], reverse=True)
    return [ScoredKey(key, score) for score, _, key in scored[:limit]]


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
        self.scorer = Scorer({}, {}, [])
        self.unread: list[int] = []
        """Clauses whose postings cannot change the result. Their bits are set only around the best messages."""
        self.among: set[int] | None = None
        """The messages that can be among the best; None for all that have a clause."""

    async def read(self) -> None:
        if not self.is_any:
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
        asking = function_words.asking(self.clauses)
        counts = [most if clause in asking else count for clause, count in zip(self.clauses, counts, strict=True)]
        weights = [weight_of(clause, count, most) for clause, count in zip(self.clauses, counts, strict=True)]
        self.order = sorted(range(len(counts)), key=lambda at: (counts[at], at))
        self.scorer = Scorer(self.has, self.words, [(1 << at, weights[at]) for at in self.order])

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
        # A clause that is not read yet can show that a long message is in between, and so lower a score.
        least = min(map(self.scorer.least, nlargest(self.limit, scores, key=scores.__getitem__)))
        more = self.scorer.most(rest)
        if more >= least:
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
                near.update(key + step for side in SIDES for step, _ in side)
        near -= self.has.keys()
        return {key for key in near if self.scorer.score(key, 1) >= least}

    # The result

    async def results(self) -> list[ScoredKey]:
        keys = self.has if self.among is None else self.among & self.has.keys()
        scores = await self.found.run(lambda: self.scorer.scores(keys))
        if self.neighbours:
            scores |= await self._neighbours(scores)
        least = lowest(scores.values(), self.limit)
        better = {key: score for key, score in scores.items() if score > least}
        last = reversed([key for key, score in scores.items() if score == least])
        return await _in_order(self.found, Best(better, least, last), self.limit)

    async def _neighbours(self, scores: Mapping[int, float]) -> dict[int, float]:
        """Returns the scores of messages that have no clause themselves."""
        if self.among is not None:
            return self.scorer.scores(self.among - self.has.keys())
        near = await self.found.run(lambda: self._next_to(lowest(scores.values(), self.limit)))
        terms = await self.found.terms(near) if near else {}
        lengths = {key: len(one.words) for key, one in terms.items() if not self._is_excluded(one)}
        return {key: self.scorer.score(key, length) for key, length in lengths.items()}
