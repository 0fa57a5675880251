"""Searches of a large store while 64 tasks append to it, and the event loop while a search ranks.

Writers, searches and what waits for the loop share one loop and one process, as in a server. Idle and busy portions
alternate; the ratio is between neighbours. It is measured by the clock, because waiting is what is counted: from the
call of a search to its result. Searches pause between each other, because a short one does not leave the loop, so that
a row of them would keep the writers waiting.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
from collections.abc import Iterator
from functools import partial
from time import perf_counter
from typing import Any

from benchmarks.arena import Arena
from benchmarks.measure import TimedContender, by_turns, check
from benchmarks.report import Comparison, Judge
from benchmarks.scenarios import search_corpus
from hansard import Store, connect

TITLE = "searches while 64 tasks append"
WRITERS = 64
BUSY, IDLE = "busy", "idle"
LONGEST_WAIT, RANKING = "longest wait of the loop", "the ranking"
_TICK = 0.001
_PAUSE = 0.01
"""Seconds between two searches."""
_WARM_UP = 0.3
"""Seconds before the first search of a portion: then the writers are in full swing, or have ended."""


def run(arena: Arena) -> Iterator[Comparison]:
    arena.require_files()
    path = search_corpus.prepared(arena, "hansard", arena.size(1_000_000, quick=20_000))
    store = arena.run_async(_opened(f"sqlite:///{path}"))
    try:
        yield _waits(arena, store)
        asked: dict[str, tuple[str, dict[str, Any]]] = {
            "newest 1 % word": (search_corpus.WORDS["1 %"], {"order": "newest"}),
            "best 1 % word": (search_corpus.WORDS["1 %"], {}),
            "best of a question of ten words": (search_corpus.question(), {"match": "any"}),
        }
        for name, (query, options) in asked.items():
            yield _searches(arena, store, name, query, options)
    finally:
        arena.run_async(store.close())


async def _opened(url: str) -> Store:
    return await connect(url)


# Searches beside writers


def _searches(arena: Arena, store: Store, name: str, query: str, options: dict[str, Any]) -> Comparison:
    searches, rounds = arena.size(21, quick=5), arena.size(9, quick=3)

    def portion(writers: int, _round: int) -> float:
        return arena.run_async(_median(store, query, options, searches, writers))

    series = by_turns(
        [
            TimedContender(IDLE, partial(portion, 0), rounds),
            TimedContender(BUSY, partial(portion, WRITERS), rounds),
        ]
    )
    return Judge(arena.roster, f"{TITLE}, {name}", series).compare(BUSY, IDLE, 3.0)


async def _median(store: Store, query: str, options: dict[str, Any], searches: int, writers: int) -> float:
    written = [0] * writers
    tasks = [asyncio.create_task(_write(store, nth, written)) for nth in range(writers)]
    await asyncio.sleep(_WARM_UP)
    before = list(written)
    times = []
    for _ in range(searches):
        begin = perf_counter()
        hits = await store.search(query, limit=20, token_cap=None, **options)
        times.append(perf_counter() - begin)
        await asyncio.sleep(_PAUSE)
        check(len(hits) == 20, "a search beside writers found too little")
    check(not writers or written > before, "nothing was written beside the searches")
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    backend: Any = store.backend
    await backend.catch_up()
    return statistics.median(times) * 1e6


async def _write(store: Store, nth: int, written: list[int]) -> None:
    for number in itertools.count():
        await store.append_message(f"writer-{nth}", "user", search_corpus.latin(number))
        written[nth] += 1


# The loop beside a ranking


def _waits(arena: Arena, store: Store) -> Comparison:
    series: dict[str, list[float]] = {LONGEST_WAIT: [], RANKING: []}
    for _ in range(arena.size(5, quick=3)):
        waited, ranked = arena.run_async(_ranked(store))
        series[LONGEST_WAIT].append(waited * 1e6)
        series[RANKING].append(ranked * 1e6)
    return Judge(arena.roster, "the event loop while a common word is ranked", series).compare(
        LONGEST_WAIT, RANKING, 0.1
    )


async def _ranked(store: Store) -> tuple[float, float]:
    """Returns how long another task waited for its turn, at most, and how long the ranking took."""
    begin = last = perf_counter()
    longest = 0.0
    search = asyncio.ensure_future(store.search(search_corpus.WORDS["common"], limit=20, token_cap=None))
    while not search.done():
        await asyncio.sleep(_TICK)
        now = perf_counter()
        longest, last = max(longest, now - last - _TICK), now
    check(len(search.result()) == 20, "the ranking found too little")
    return longest, perf_counter() - begin
