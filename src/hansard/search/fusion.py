"""How a ranking by words and one by meaning become one: a weighted sum of scores, not of ranks.

Scores tell how much better the first is than the tenth, which ranks do not. Each half is brought to the same scale: its
best message has 1, and one that says nothing about the query has 0. By words that is a message without any of them; by
meaning it is the average message, because the vectors of a model all lie in one region, so even unrelated texts are
somewhat similar.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

K = TypeVar("K", bound=Hashable)

EVEN = 4 / 9
"""The share of the query's weight in the best message by words at which both halves weigh the same.

Chosen among ten formulas on the development sets, near the median on LoCoMo (0.47; it is 0.25 and 0.14 on two others).
Words weigh in proportion to it: if they match more, they name the very thing; if less, they are small words.
"""


def fused(words: Mapping[K, float], covered: float, meaning: Mapping[K, float], usual: float) -> list[tuple[float, K]]:
    """Returns everything in either ranking with its combined score, from 0 to 1, the best first.

    `covered` is the largest share of the query's weight that a message has; `usual` the average score by meaning.
    """
    weight = covered / EVEN
    highest, nearest = max(words.values(), default=0.0), max(meaning.values(), default=usual)
    totals = {key: weight * score / highest for key, score in words.items()} if highest > 0 else {}
    for key, score in meaning.items():
        above = (score - usual) / (nearest - usual) if nearest > usual else 0.0
        totals[key] = totals.get(key, 0.0) + max(0.0, above)
    found = [(round(total / (1 + weight), 6), key) for key, total in totals.items()]
    return sorted(found, key=lambda pair: -pair[0])
