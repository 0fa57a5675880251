"""The best messages for one word, which may be in half of them: sorted, not looked up.

A score depends on the length of a message and on what its neighbours count. Short neighbours count in eighths, so among
a million messages there are a few hundred kinds. The eighths come from the gaps between sorted keys.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter, sub
from typing import NamedTuple

from hansard.analysis.formula import (
    COMMON,
    K1,
    NEAR,
    PARAGRAPH,
    Posting,
    Scorer,
    damping_of,
    lowest,
    weight_of,
)
from hansard.analysis.queries import Clause

_EIGHTHS = [round(8 * sum(weight for at, weight in enumerate(NEAR) if bits >> at & 2)) for bits in range(16)]
"""What the messages up to three places before one count, by bits. The lowest bit is for the message itself."""
_BITS, _MASK = 4, 15
"""Of a kind, for at most 14 eighths. The higher bits are the length."""
_FAR = len(NEAR) + 1
"""The distance from which on messages do not count."""
_OTHER = -1
"""The kind of messages next to a long one, or long themselves: their neighbours do not count in eighths."""


class Best(NamedTuple):
    """The best messages for a query."""

    scores: Mapping[int, float]
    """Of those above the last."""
    lowest: float
    """The last score. A million messages may have it, so only the newest of them are looked up."""
    last: Iterator[int]
    """The messages that have the last score, from the last of the postings to the first."""


def best(clause: Clause, postings: Sequence[Posting], limit: int) -> Best:
    """Returns so many of the best, and all that score like the last of them."""
    if not postings:
        return Best({}, 0.0, iter(()))
    count = min(len(postings), COMMON)
    weight = weight_of(clause, count, count)
    found = sorted(postings, key=itemgetter(0))
    keys = [key for key, _ in found]
    kinds = _kinds(keys, [length for _, length in found])
    counts = Counter(kinds)
    known = {kind: _score(kind, weight) for kind in counts if kind != _OTHER}
    others = _scores_of_others(postings, keys, kinds, weight) if _OTHER in counts else {}
    least = lowest([*others.values(), *(known[kind] for kind in known for _ in range(min(counts[kind], limit)))], limit)
    better = {kind for kind, score in known.items() if score > least}
    scores = {key: score for key, score in others.items() if score > least}
    if better:
        scores.update((key, known[kind]) for key, kind in zip(keys, kinds, strict=True) if kind in better)
    last = {kind for kind, score in known.items() if score == least}
    return Best(
        scores,
        least,
        (
            key
            for key, _ in reversed(postings)
            if (kind := kinds[bisect_left(keys, key)]) in last or (kind == _OTHER and others[key] == least)
        ),
    )


def _kinds(keys: Sequence[int], lengths: Sequence[int]) -> list[int]:
    """Returns the kind of each message."""
    gaps = [*map(sub, keys[1:], keys)]
    if min(gaps, default=_FAR) >= _FAR:
        return [length << _BITS for length in lengths]
    before, after = _eighths_before(gaps), _eighths_before(reversed(gaps))
    kinds = [
        length << _BITS | back + forth for length, back, forth in zip(lengths, before, reversed(after), strict=True)
    ]
    if max(lengths) > PARAGRAPH:
        long = {key for key, length in zip(keys, lengths, strict=True) if length > PARAGRAPH}
        for at, key in enumerate(keys):
            if kinds[at] & _MASK and not long.isdisjoint(range(key - len(NEAR), key + len(NEAR) + 1)):
                kinds[at] = _OTHER
    return kinds


def _eighths_before(gaps: Iterable[int]) -> list[int]:
    """Returns what the messages before each message count, from the gaps between their keys."""
    last, eighths = 1, [0]
    for gap in gaps:
        last = (last << gap | 1) & _MASK if gap < _FAR else 1
        eighths.append(_EIGHTHS[last])
    return eighths


def _score(kind: int, weight: float) -> float:
    length = kind >> _BITS
    times = 1 + (kind & _MASK) / 8
    return round(weight * times * (K1 + 1) / (times + damping_of(length)), 6)


def _scores_of_others(
    postings: Sequence[Posting], keys: Sequence[int], kinds: Sequence[int], weight: float
) -> dict[int, float]:
    scorer = Scorer(dict.fromkeys(keys, 1), dict(postings), [(1, weight)])
    return scorer.scores(key for key, kind in zip(keys, kinds, strict=True) if kind == _OTHER)
