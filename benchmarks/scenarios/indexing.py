"""The cost of search for a writer: W1 and W2 with and without the index, until the caller returns and until indexed.

The index is filled after the appends. A round of W1 ends when it has caught up, which is not timed, so that no
contender pays for another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from time import perf_counter
from typing import Any

from benchmarks.arena import Arena
from benchmarks.measure import TimedContender, by_turns, check
from benchmarks.report import Comparison, Judge
from benchmarks.scenarios import search_corpus
from hansard import Store, connect

TITLE = "what search costs a writer"
WITH, WITHOUT, CAUGHT_UP = "with search", "without search", "with search, until indexed"
TASKS, EACH = 64, 50
SLICE = 100


def run(arena: Arena) -> Iterator[Comparison]:
    arena.require_files()
    yield one_by_one(arena)
    yield from together(arena)


async def _opened(url: str, *, search: bool) -> Store:
    store = await connect(url)
    backend: Any = store.backend
    # There is no option to disable search: this is only for measurements.
    backend.storage.engine._writer.lists_for_search = search
    return store


def one_by_one(arena: Arena) -> Comparison:
    stores = {name: arena.run_async(_opened(arena.place()[1], search=name == WITH)) for name in (WITH, WITHOUT)}
    texts = [search_corpus.latin(number) for number in range(SLICE)]

    async def portion(store: Store) -> float:
        begin = perf_counter()
        for text in texts:
            await store.append_message("c", "user", text)
        seconds = perf_counter() - begin
        await _catch_up(store)
        return seconds / SLICE * 1e6

    rounds = arena.size(20, quick=5)
    series = by_turns(
        [
            TimedContender(name, lambda _round, store=store: arena.run_async(portion(store)), rounds)  # type: ignore[misc]
            for name, store in stores.items()
        ]
    )
    for store in stores.values():
        arena.run_async(store.close())
    return Judge(arena.roster, f"{TITLE}, W1", series).compare(WITH, WITHOUT, 1.35)


def together(arena: Arena) -> Iterator[Comparison]:
    series: dict[str, list[float]] = {WITH: [], CAUGHT_UP: [], WITHOUT: []}
    for number in range(arena.size(9, quick=3)):
        for search in (True, False) if number % 2 else (False, True):
            waited, whole = asyncio.run(_together(arena.place()[1], search=search))
            series[WITH if search else WITHOUT].append(waited)
            if search:
                series[CAUGHT_UP].append(whole)
    judge = Judge(arena.roster, f"{TITLE}, W2", series)
    yield judge.compare(WITH, WITHOUT, 1.35)
    yield judge.compare(CAUGHT_UP, WITHOUT, 2.5)


async def _together(url: str, *, search: bool) -> tuple[float, float]:
    texts = [search_corpus.latin(number) for number in range(TASKS * EACH)]
    store = await _opened(url, search=search)

    async def task(number: int) -> None:
        for turn in range(EACH):
            await store.append_message(f"c{number}", "user", texts[number * EACH + turn])

    begin = perf_counter()
    await asyncio.gather(*(task(number) for number in range(TASKS)))
    waited = perf_counter() - begin
    await _catch_up(store)
    whole = perf_counter() - begin
    found = await store.search("river", limit=100, token_cap=None)
    check(len(found) == (100 if search else 0), "the appended is not found, or found without an index")
    await store.close()
    return waited / (TASKS * EACH) * 1e6, whole / (TASKS * EACH) * 1e6


async def _catch_up(store: Store) -> None:
    backend: Any = store.backend
    await backend.catch_up()
