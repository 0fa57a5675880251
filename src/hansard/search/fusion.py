"""How a ranking by words and one by meaning become one: by the ranks of each message in both (reciprocal rank fusion).

Scores of the two cannot be compared: by words they depend on how rare the words are, by meaning on the model. Ranks
can, whatever the embedder. Both count the same. Scores only tell which messages of a ranking are as good as equal, and
which are too far behind its best to count.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import chain
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
Scored = Sequence[tuple[float, K]]
"""A ranking, the best first."""

PAGE = 15
"""The first message after so many counts about half as much as the first of all. So both first pages come before what
only one ranking has further down. From 10 to 20, recall on LoCoMo is the same within a point."""
TIE = 0.02
"""Messages share a rank if their scores differ by no more than this part of the range: which of them comes first is
chance. From 0.01 to 0.04, recall on LoCoMo is the same within a point."""
FAR = 0.3
"""By words, a message below this share of the best score does not count: it has the small words of a question, as many
others have, and would take the place of what only meaning finds. From 0.2 to 0.4, recall on LoCoMo is the same within a
point; from 0.5 on, answers are lost."""
_RANGE = 200
"""The similarity of the message after so many nearest ones is that of any message: the range of scores ends there."""


def fused(by_words: Scored[K], by_meaning: Scored[K]) -> list[tuple[float, K]]:
    """Returns everything in one of the rankings with its combined score, from 0 to 1, the best first.

    A ranking that is empty does not count.
    """
    close = sum(score >= FAR * by_words[0][0] for score, _ in by_words) if by_meaning else len(by_words)
    any_similarity = min((score for score, _ in by_meaning[:_RANGE]), default=0.0)
    totals: dict[K, float] = {}
    for key, counts in chain(_counted(by_words[:close], 0.0), _counted(by_meaning, any_similarity)):
        totals[key] = totals.get(key, 0.0) + counts
    for _, key in by_words[close:]:
        totals.setdefault(key, 0.0)
    used = bool(by_words) + bool(by_meaning)
    return sorted(((round(total / used, 6), key) for key, total in totals.items()), key=lambda pair: -pair[0])


def _counted(ranking: Scored[K], lowest: float) -> Iterator[tuple[K, float]]:
    """Yields each message with what its rank counts: 1 for the first. Equal ones have the mean of their ranks."""
    scores = [max(score, lowest) for score, _ in ranking]
    begin = 0
    while begin < len(scores):
        least = scores[begin] - TIE * (scores[0] - lowest)
        end = begin + 1
        while end < len(scores) and scores[end] >= least:
            end += 1
        counts = (PAGE + 1) / (PAGE + 1 + (begin + end - 1) / 2)
        for _, key in ranking[begin:end]:
            yield key, counts
        begin = end
