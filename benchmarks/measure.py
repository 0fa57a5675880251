"""Interleaved timing: every contender runs one portion per round, and ratios are computed within a round.

Noise on a shared machine lasts longer than a portion, so the portions of one round mostly run under the same
conditions. The order changes each round, because the first one after a pause has cold caches. A contender may run fewer
rounds than others; it is compared over the rounds that it ran.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Series = dict[str, list[float]]


class IncorrectResult(AssertionError):
    """A contender lost or changed data, so its times are meaningless."""


def check(condition: bool, complaint: str) -> None:
    # A function instead of `assert`, so that it also works under `python -O`.
    if not condition:
        raise IncorrectResult(complaint)


@dataclass(frozen=True, slots=True)
class Spread:
    """A median and its quartiles."""

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
class TimedContender:
    """A contender at one workload. `portion` runs the given round and returns its cost, in the unit of the workload."""

    name: str
    portion: Callable[[int], float]
    rounds: int


def by_turns(contenders: Sequence[TimedContender]) -> Series:
    """Returns the costs of every contender; values at the same index belong to the same round."""
    series: Series = {contender.name: [] for contender in contenders}
    for number in range(max((contender.rounds for contender in contenders), default=0)):
        for contender in _rotated(contenders, number):
            if number < contender.rounds:
                series[contender.name].append(contender.portion(number))
    return series


def _rotated(contenders: Sequence[TimedContender], by: int) -> list[TimedContender]:
    start = by % len(contenders)
    return [*contenders[start:], *contenders[:start]]


def ratios(subject: Sequence[float], reference: Sequence[float]) -> list[float]:
    return [ours / theirs for ours, theirs in zip(subject, reference, strict=False)]


def percentile(values: Sequence[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]
