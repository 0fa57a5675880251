"""Timing by turns: every lane runs one portion per round, and ratios are taken inside a round.

Noise on a shared machine comes in waves longer than a portion, so the portions of one round mostly meet the
same weather. Lanes start in another order each round, because who comes first after a pause pays for cold
caches. A lane may run fewer rounds than others; it is compared over the rounds that it ran.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Series = dict[str, list[float]]


class Wrong(AssertionError):
    """A contender did not keep what it was given: no time of it means anything."""


def check(condition: bool, complaint: str) -> None:
    # A function and not `assert`, so that it also holds under `python -O`.
    if not condition:
        raise Wrong(complaint)


@dataclass(frozen=True, slots=True)
class Spread:
    """A median, with the quartiles around it."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        if len(values) < 4:
            return cls(statistics.median(values), min(values), max(values), len(values))
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, low, high, len(values))


@dataclass(frozen=True, slots=True)
class StoredBranch:
    """A contender at one workload. `portion` runs the given round and returns its cost, in the unit of the workload."""

    name: str
    portion: Callable[[int], float]
    rounds: int


def by_turns(branches: Sequence[StoredBranch]) -> Series:
    """The cost of every lane in every round; values at the same index belong to the same round."""
    series: Series = {branch.name: [] for branch in branches}
    for number in range(max((branch.rounds for branch in branches), default=0)):
        for branch in _rotated(branches, number):
            if number < branch.rounds:
                series[branch.name].append(branch.portion(number))
    return series


def _rotated(branches: Sequence[StoredBranch], by: int) -> list[StoredBranch]:
    start = by % len(branches)
    return [*branches[start:], *branches[:start]]


def ratios(subject: Sequence[float], reference: Sequence[float]) -> list[float]:
    return [ours / theirs for ours, theirs in zip(subject, reference, strict=False)]


def percentile(values: Sequence[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]
