"""How similar the messages of a conversation are to a query, each together with its neighbours.

A short message such as "Yes, in May" means little without the one before it. So a score is the weighted mean of a
message's own similarity and that of its neighbours. Vectors are of single messages, so a neighbour that was deleted or
that the search leaves out adds nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

PARAGRAPH = 360
"""Bytes of a paragraph of some sixty words. Up to this length neighbours count fully; of a longer message only one of
its paragraphs is next to them, so they count less the longer it is, as they do by words (`analysis.formula`)."""
NEAR = (0.25, 0.125)
"""What a neighbour counts at a distance of one and of two: a quarter, and half of that. Half as much as for words,
because a vector already tells the topic that neighbours share, so that more of them blurs which message it was."""


class Similar(NamedTuple):
    """A message whose vector was compared."""

    seq: int
    id: str
    digest: bytes
    size: int
    """Bytes of the text."""
    own: float
    """The similarity of its own vector."""


def score(each: Similar, around: Mapping[int, Similar], present: Collection[int] | None = None) -> float:
    """Returns the score of a message; `around` has it and its neighbours by seq.

    Only neighbours whose seq is `present` count; None for all.
    """
    total, weights, gate = each.own, 1.0, _gate(each)
    for side in (-1, 1):
        reach = gate
        for distance, near in enumerate(NEAR, 1):
            seq = each.seq + side * distance
            other = around.get(seq)
            if other is not None and (present is None or seq in present):
                reach *= _gate(other)  # of this one and of all in between: nothing is near behind a long message
                total += near * reach * other.own
                weights += near * reach
    return total / weights


def neighbours(seq: int) -> range:
    """Returns the seqs of a message and its neighbours."""
    return range(seq - len(NEAR), seq + len(NEAR) + 1)


def _gate(each: Similar) -> float:
    return PARAGRAPH / each.size if each.size > PARAGRAPH else 1.0
