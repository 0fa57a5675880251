"""Times single reads, for scenarios about the slowest ones."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from time import perf_counter

from benchmarks.contenders import Contender
from benchmarks.measure import percentile

LAST = 50
PAUSE = 0.0005


async def slowest_percent(contender: Contender, conversation: str, more: Callable[[int], bool]) -> float:
    """Returns the 99th percentile of reading the last 50, in microseconds. Reads while `more(reads so far)`.

    Pauses after each read, so that other tasks and processes can run.
    """
    costs: list[float] = []
    while more(len(costs)):
        begin = perf_counter()
        await contender.last(conversation, LAST)
        costs.append(perf_counter() - begin)
        await _pause(contender)
    return percentile(costs, 99) * 1e6


async def _pause(contender: Contender) -> None:
    if contender.blocking:
        time.sleep(PAUSE)
    else:
        await asyncio.sleep(PAUSE)
