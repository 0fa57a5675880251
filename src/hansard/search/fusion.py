"""How a ranking by words and one by meaning become one: by the ranks of each message in both (reciprocal rank fusion).

Scores of the two cannot be compared: by words they depend on how rare the words are, by meaning on the model. Ranks
can, whatever the embedder. Both count the same.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)

PAGE = 10
"""The first message after a page of so many counts about half as much as the first of all. So both first pages come
before what only one ranking has further down. From 5 to 20, recall on LoCoMo is the same within a point."""


def fused(*rankings: Collection[K]) -> list[tuple[float, K]]:
    """Returns everything in some of the rankings with its combined score, from 0 to 1, the best first.

    In each ranking the best comes first. One that is empty does not count.
    """
    used = [ranking for ranking in rankings if ranking]
    totals: dict[K, float] = {}
    for ranking in used:
        for rank, key in enumerate(ranking):
            totals[key] = totals.get(key, 0.0) + (PAGE + 1) / (PAGE + 1 + rank)
    found = [(round(total / len(used), 6), key) for key, total in totals.items()]
    return sorted(found, key=lambda pair: -pair[0])
