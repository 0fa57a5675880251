"""Fills a store in bulk, in a child process: conversation after conversation, in batches of 1,000.

Only the calls are timed, not the creation of the samples. Closing is included, because it may contain postponed work.
"""

from __future__ import annotations

from pathlib import Path
from time import perf_counter

from benchmarks.child import drive
from benchmarks.contenders import Contender, load
from benchmarks.samples import samples
from benchmarks.scenarios.history import BATCH, verify, verify_last

Place = tuple[Path, str]


def name_of(number: int) -> str:
    return f"bulk-{number}"


def fill(key: str, place: Place, messages: int) -> float:
    """Returns the seconds that storing this many messages took."""
    contender = load(key)(*place)
    return drive(contender, _fill(contender, messages // BATCH))


async def _fill(contender: Contender, conversations: int) -> float:
    await contender.open()
    seconds = 0.0
    for number in range(conversations):
        batch = samples(BATCH)
        begin = perf_counter()
        await contender.append_many(name_of(number), batch)
        seconds += perf_counter() - begin
    begin = perf_counter()
    await contender.close()
    return seconds + perf_counter() - begin


def verify_bulk(key: str, place: Place, messages: int) -> None:
    contender = load(key)(*place)
    drive(contender, _verify(contender, messages // BATCH))


async def _verify(contender: Contender, conversations: int) -> None:
    """Verifies some conversations in full, and the end of each."""
    await contender.open()
    for number in range(0, conversations, max(1, conversations // 10)):
        await verify(contender, name_of(number), BATCH)
    for number in range(conversations):
        await verify_last(contender, name_of(number), BATCH, 1)
    await contender.close()
