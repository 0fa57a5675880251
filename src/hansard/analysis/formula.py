"""The formula of relevance: what the words of a message, and of those around it, are worth. See `relevance`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import nlargest
from math import log, sqrt

from hansard.analysis.queries import Clause

K1 = 0.9
B = 0.4
"""How soon more of a word adds nothing, and how much length counts: the usual values for short passages."""
PARAGRAPH = 60
"""Words of a paragraph. Up to this length a message is read together with its neighbours; of a longer one, only one of
its paragraphs is next to them, so they count less the longer it is (`_gate`). It is the usual length, too."""
NEAR = (0.5, 0.25, 0.125)
"""What a word counts in a message one, two and three places away: half as much with each. Beyond that, almost
nothing."""
EXPONENT = 2
"""Of the rarity: as in the cosine of two vectors, where it counts once in the query and once in the message."""
NAME = 1.5
"""What names, numbers and quoted phrases weigh more: half as much again, because their writer chose them exactly."""
COMMON = 10_000
"""Messages that are counted for a word: those in more weigh the same, the least. So no search counts a whole store."""

Posting = tuple[int, int]
"""The key of a message and its number of words. Keys of neighbours in a conversation are consecutive."""

_AROUND = 2 * sum(NEAR)
SIDES = tuple(tuple((side * step, weight) for step, weight in enumerate(NEAR, 1)) for side in (-1, 1))
"""The offsets and weights of the messages before and after one, the nearest first."""


class Scorer:
    """The scores of messages that are known by their words."""

    def __init__(self, has: Mapping[int, int], words: Mapping[int, int], weights: Sequence[tuple[int, float]]) -> None:
        self._has = has
        self._words = words
        self._weights = weights
        """Bits and weights of the clauses, in the order in which they are added up: the same on every backend."""
        self._alone: dict[tuple[int, int], float] = {}

    def scores(self, keys: Iterable[int]) -> dict[int, float]:
        words = self._words
        return {key: self.score(key, words[key]) for key in keys}

    def score(self, key: int, length: int) -> float:
        own = self._has.get(key, 0)
        if near := self._near(key):
            return self._score(own, length, near)
        alone = self._alone.get((own, length))
        if alone is None:
            alone = self._alone[own, length] = self._score(own, length, ())
        return alone

    def least(self, key: int) -> float:
        """Returns the least that a message scores, whatever clauses are found around it."""
        return self._score(self._has[key], self._words[key], self._near(key, only_sure=True))

    def _near(self, key: int, *, only_sure: bool = False) -> list[tuple[float, int]]:
        """Returns what a word counts in each neighbour, and the clauses of that neighbour.

        Nothing is near behind a long message. Its length is known only if it has a clause; otherwise it passes for a
        short one. With `only_sure`, nothing counts behind such a message.
        """
        has, words = self._has, self._words
        near = []
        for side in SIDES:
            reach = 1.0
            for step, weight in side:
                bits = has.get(key + step)
                if bits is not None:
                    reach *= _gate(words[key + step])
                    near.append((weight * reach, bits))
                elif only_sure:
                    break
        return near

    def _score(self, own: int, length: int, near: Sequence[tuple[float, int]]) -> float:
        gate, damping = _gate(length), damping_of(length)
        score = 0.0
        for bit, weight in self._weights:
            times = 1.0 if own & bit else 0.0
            for other, bits in near:
                if bits & bit:
                    times += other * gate
            if times:
                score += weight * times * (K1 + 1) / (times + damping)
        return round(score, 6)

    def most(self, bits: int) -> float:
        """Returns the most that these clauses can add to a score: for a word alone, between six that have them too."""
        times = 1 + _AROUND
        return sum(weight for bit, weight in self._weights if bits & bit) * times * (K1 + 1) / (times + damping_of(1))


def damping_of(length: int) -> float:
    """Returns how much the length of a message and of its neighbours lowers its score; the least for a single word.

    Each word counts once, so length is that of a list of different words. This grows with the root of the text's
    length, about (Heaps' law).
    """
    return K1 * (1 - B + B * (sqrt(max(length, 1) / PARAGRAPH) + _AROUND * _gate(length)) / (1 + _AROUND))


def _gate(length: int) -> float:
    """Returns how much a message of this length is read together with its neighbours: by the share of a paragraph."""
    return 1.0 if length <= PARAGRAPH else PARAGRAPH / length


def weight_of(clause: Clause, count: int, most: int) -> float:
    """Returns how much a clause weighs that so many messages have, if so many have the commonest of the query."""
    return log(1 + (most + 1) / (count + 0.5)) ** EXPONENT * (NAME if clause.is_name else 1)


def lowest(scores: Collection[float], limit: int) -> float:
    """Returns the lowest of so many of the best scores; 0 if there are fewer."""
    return nlargest(limit, scores)[-1] if len(scores) >= limit else 0.0
