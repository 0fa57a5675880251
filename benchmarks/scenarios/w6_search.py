"""W6: search. Words of known frequency in one conversation and over everything, beside a plain FTS5 table.

No peer is here: none searches its messages. Ours is asked through the blocking API, as FTS5 is. The index is built
behind the appends, so its cost is measured as the caller waits, and until it has caught up. On PostgreSQL, see
`w6_postgres`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.arena import Arena
from benchmarks.measure import Lane, by_turns, check
from benchmarks.report import Comparison, Judge
from benchmarks.scenarios import searched, w6_postgres
from benchmarks.scenarios.searched import Raw
from hansard import connect, sync

TITLE = "W6 search"
OURS, FTS5, BM25 = "hansard.sync", "raw FTS5", "raw FTS5 bm25"
WAITED, CAUGHT_UP = "as the caller waits", "until indexed"
CALLS = 10
TASKS, EACH = 64, 50


def run(arena: Arena) -> Iterator[Comparison]:
    if arena.options.url.startswith(("postgresql:", "postgres:")):
        yield from w6_postgres.run(arena)
        return
    arena.needs_files()
    messages = arena.size(1_000_000, quick=20_000)
    path, url = arena.place()
    asyncio.run(_fill(url, messages))
    raw = Raw(path.with_suffix(".raw"), messages)
    with sync.connect(url) as store:
        for scope, in_big in (("a conversation", True), ("everything", False)):
            yield from searches(arena, store, raw, scope, in_big=in_big)
        yield rebuild(arena, store, raw, messages)
    raw.close()
    yield from appends(arena)
    yield size(arena, "Latin", path.with_suffix(".db"), 1.0)
    path, url = arena.place()
    asyncio.run(_fill(url, arena.size(50_000, quick=5_000), searched.chinese))
    yield size(arena, "Chinese", path.with_suffix(".db"), 2.0)


async def _fill(url: str, messages: int, text: Any = searched.latin) -> None:
    async with connect(url) as store:
        await searched.fill(store, messages, text)


def searches(arena: Arena, store: sync.Store, raw: Raw, scope: str, *, in_big: bool) -> Iterator[Comparison]:
    for name, word in searched.WORDS.items():
        ours = [hit.message.content for hit in searched.search(store, word, in_big=in_big, order="newest")]
        check(bool(ours) and all(word in text for text in ours), f"{word} was not found")
        if in_big:
            check(ours == [row[3] for row in raw.newest(word, in_big=True)], f"{word}: other messages than FTS5's")
        newest = {
            OURS: partial(searched.search, store, word, in_big=in_big, order="newest"),
            FTS5: partial(raw.newest, word, in_big=in_big),
        }
        title = f"{TITLE}, {name} word in {scope}"
        yield Judge(arena.roster, f"{title}, newest", _timed(arena, newest)).compare(OURS, FTS5, 2.0)
        best = {
            OURS: partial(searched.search, store, word, in_big=in_big, order="relevance"),
            BM25: partial(raw.best, word, in_big=in_big),
        }
        yield Judge(arena.roster, f"{title}, best", _timed(arena, best, calls=1)).compare(OURS, BM25)


def _timed(arena: Arena, calls_by_name: dict[str, Any], calls: int = CALLS) -> dict[str, list[float]]:
    def portion(call: Any, _round: int) -> float:
        call()
        begin = perf_counter()
        for _ in range(calls):
            call()
        return (perf_counter() - begin) / calls * 1e6

    rounds = arena.size(20, quick=5)
    return by_turns([Lane(name, partial(portion, call), rounds) for name, call in calls_by_name.items()])


def rebuild(arena: Arena, store: sync.Store, raw: Raw, messages: int) -> Comparison:
    def ours(_round: int) -> float:
        begin = perf_counter()
        for _ in store.admin.reindex():
            pass
        return (perf_counter() - begin) / messages * 1e6

    def theirs(_round: int) -> float:
        begin = perf_counter()
        raw.rebuild()
        return (perf_counter() - begin) / messages * 1e6

    rounds = arena.size(2, quick=2)
    series = by_turns([Lane(OURS, ours, rounds), Lane(FTS5, theirs, rounds)])
    return Judge(arena.roster, f"{TITLE}, rebuild", series).compare(OURS, FTS5, 4.0)


def appends(arena: Arena) -> Iterator[Comparison]:
    """W2 with search, and what is still to do when the last caller has been answered."""
    found = [asyncio.run(_appends(arena.place()[1])) for _ in range(arena.size(7, quick=3))]
    series = {WAITED: [waited for waited, _ in found], CAUGHT_UP: [whole for _, whole in found]}
    yield Judge(arena.roster, f"{TITLE}, {TASKS} tasks append", series).compare(CAUGHT_UP, WAITED, 2.5)


async def _appends(url: str) -> tuple[float, float]:
    async with connect(url) as store:
        texts = [searched.latin(number) for number in range(TASKS * EACH)]

        async def task(number: int) -> None:
            for turn in range(EACH):
                await store.append_message(f"c{number}", "user", texts[number * EACH + turn])

        begin = perf_counter()
        await asyncio.gather(*(task(number) for number in range(TASKS)))
        waited = perf_counter() - begin
        backend: Any = store.backend
        await backend.catch_up()
        whole = perf_counter() - begin
        check(len(await store.search("river", limit=100, token_cap=None)) == 100, "the appended is not found")
    return waited / (TASKS * EACH) * 1e6, whole / (TASKS * EACH) * 1e6


def size(arena: Arena, script: str, path: Path, at_most: float) -> Comparison:
    texts, index = f"{script} text", f"index of {script} text"
    series = {index: [float(searched.index_bytes(path))], texts: [float(searched.text_bytes(path))]}
    return Judge(arena.roster, f"{TITLE}, index size", series, unit="B").compare(index, texts, at_most)
