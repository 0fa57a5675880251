"""How a ranking by words and one by meaning become one: a weighted sum of scores, not of ranks.

Scores tell how much better the first is than the tenth, which ranks do not. Each half is brought to the same scale: its
best message has 1, and one that says nothing about the query has 0. By words that is a message without any of them; by
meaning it is the average message, because the vectors of a model all lie in one region, so even unrelated texts are
somewhat similar.

Then each half weighs as much as it distinguishes, for this query: if its tenth message is nearly as good as its best,
it does not know which is meant. So words decide where a query names the very thing, and meaning where every message has
the same words, or where none has those of the query.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from heapq import nlargest
from typing import TypeVar

K = TypeVar("K", bound=Hashable)

PAGE = 10
"""The best is compared with the last of a first page, which people read."""
EXPONENT = 2
"""Of what a half distinguishes: as the weights of measurements that are averaged, whose error counts squared."""
WORDS = 0.5
"""What words weigh if both distinguish as much. Scores by words fall more steeply by nature: on LoCoMo the tenth has
0.54 in the median, by meaning 0.64. The ratio of what is lost, squared, is 1.6; with half of it, both weigh about the
same there. Anything from 0.35 to 1 has the same recall within two points."""
_LEAST = 0.05
"""Of what a half distinguishes, so that messages of the same score keep one above 0."""


def fused(words: Mapping[K, float], meaning: Mapping[K, float], usual: float) -> list[tuple[float, K]]:
    """Returns everything in either ranking with its combined score, from 0 to 1, the best first.

    `usual` is the average score by meaning.
    """
    by_words, by_meaning = _scaled(words, 0.0), _scaled(meaning, usual)
    weights = (WORDS * _weight(by_words.values()), _weight(by_meaning.values()))
    totals = {key: weights[0] * score for key, score in by_words.items()}
    for key, score in by_meaning.items():
        totals[key] = totals.get(key, 0.0) + weights[1] * score
    found = [(round(total / sum(weights), 6), key) for key, total in totals.items()]
    return sorted(found, key=lambda pair: -pair[0])


def _scaled(scores: Mapping[K, float], nothing: float) -> dict[K, float]:
    """Returns the scores with 1 for the best, and 0 for those that say nothing."""
    best = max(scores.values(), default=nothing)
    if best <= nothing:
        return dict.fromkeys(scores, 0.0)
    return {key: max(0.0, score - nothing) / (best - nothing) for key, score in scores.items()}


def _weight(scaled: Collection[float]) -> float:
    if not scaled:
        return 0.0
    page = nlargest(PAGE, scaled)
    last = page[-1] if len(page) == PAGE else 0.0
    return float(max(1 - last, _LEAST) ** EXPONENT)
