"""W6: search for words of known frequency in one conversation and over everything, compared with a plain FTS5 table.

There are no peers: none can search messages. Ours is measured through the blocking API, like FTS5, and through the
async one. `indexing` measures the cost of search for writers. For PostgreSQL, see `w6_postgres`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from benchmarks.arena import Arena
from benchmarks.measure import TimedContender, by_turns, check
from benchmarks.report import Comparison, Judge
from benchmarks.scenarios import search_corpus, w6_postgres
from benchmarks.scenarios.search_corpus import Raw, Text
from hansard import Store, connect, sync

TITLE = "W6 search"
OURS, ASYNC, FTS5, BM25 = "hansard.sync", "hansard", "raw FTS5", "raw FTS5 bm25"
CALLS = 10


def run(arena: Arena) -> Iterator[Comparison]:
    if arena.options.url.startswith(("postgresql:", "postgres:")):
        yield from w6_postgres.run(arena)
        return
    arena.require_files()
    messages = arena.size(1_000_000, quick=20_000)
    ours = search_corpus.prepared(arena, "hansard", messages)
    archive = search_corpus.prepared(arena, "archive", messages)
    raw = Raw(search_corpus.prepared(arena, "fts5", messages))
    with sync.connect(f"sqlite:///{archive}") as store:
        yield from searches(arena, f"sqlite:///{archive}", store, raw, "everything of an archive")
    with sync.connect(f"sqlite:///{ours}") as store:
        yield from searches(arena, f"sqlite:///{ours}", store, raw, "everything")
        yield rebuild(arena, store, raw, messages)
    raw.close()
    yield size(arena, "Latin", ours, 1.0)
    yield from sizes(arena)


# Searching


def searches(arena: Arena, url: str, blocking: sync.Store, raw: Raw, everything: str) -> Iterator[Comparison]:
    store = arena.run_async(_opened(url))
    try:
        for scope, in_big in (("a conversation", True), (everything, False)):
            for name, word in search_corpus.WORDS.items():
                _check(blocking, raw, word, in_big=in_big)
                title = f"{TITLE}, {name} word in {scope}"
                calls_by_name = {
                    OURS: partial(_slice, partial(search_corpus.search, blocking, word, in_big=in_big, order="newest")),
                    ASYNC: lambda calls, word=word, in_big=in_big: arena.run_async(
                        _awaited(store, word, calls, in_big=in_big)
                    ),
                    FTS5: partial(_slice, partial(raw.newest, word, in_big=in_big)),
                }
                judge = Judge(arena.roster, f"{title}, newest", _timed(arena, calls_by_name))
                yield judge.compare(OURS, FTS5, 2.0)
                yield judge.compare(ASYNC, FTS5, 2.0)
                calls_by_name = {
                    OURS: partial(
                        _slice, partial(search_corpus.search, blocking, word, in_big=in_big, order="relevance")
                    ),
                    BM25: partial(_slice, partial(raw.best, word, in_big=in_big)),
                }
                series = _timed(arena, calls_by_name, calls=1, rounds=arena.size(7, quick=3))
                yield Judge(arena.roster, f"{title}, best", series).compare(OURS, BM25, 2.0)
        yield _asked(arena, blocking, raw, everything)
    finally:
        arena.run_async(store.close())


def _asked(arena: Arena, store: sync.Store, raw: Raw, everything: str) -> Comparison:
    """A question of ten plain words."""
    asked = search_corpus.question()
    calls_by_name = {
        OURS: partial(_slice, partial(store.search, asked, match="any", limit=20, token_cap=None)),
        BM25: partial(_slice, partial(raw.best, " OR ".join(asked.split()), in_big=False)),
    }
    series = _timed(arena, calls_by_name, calls=1, rounds=arena.size(7, quick=3))
    return Judge(arena.roster, f"{TITLE}, a question of ten words in {everything}, best", series).compare(
        OURS, BM25, 3.0
    )


async def _opened(url: str) -> Store:
    return await connect(url)


def _check(store: sync.Store, raw: Raw, word: str, *, in_big: bool) -> None:
    found = [hit.message.content for hit in search_corpus.search(store, word, in_big=in_big, order="newest")]
    check(bool(found) and all(word in text for text in found), f"{word} was not found")
    if in_big:
        check(found == [row[3] for row in raw.newest(word, in_big=True)], f"{word}: other messages than FTS5's")


def _timed(
    arena: Arena, calls_by_name: dict[str, Any], calls: int = CALLS, rounds: int | None = None
) -> dict[str, list[float]]:
    def portion(timed: Any, _round: int) -> float:
        timed(1)
        seconds: float = timed(calls)
        return seconds / calls * 1e6

    times = arena.size(100, quick=5) if rounds is None else rounds
    return by_turns([TimedContender(name, partial(portion, timed), times) for name, timed in calls_by_name.items()])


def _slice(call: Any, calls: int) -> float:
    begin = process_time()
    for _ in range(calls):
        call()
    return process_time() - begin


async def _awaited(store: Store, word: str, calls: int, *, in_big: bool) -> float:
    id = search_corpus.BIG if in_big else None
    begin = process_time()
    for _ in range(calls):
        await store.search(word, conversation_id=id, order="newest", limit=20, token_cap=None)
    return process_time() - begin


# Rebuilding


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

    series = by_turns([TimedContender(OURS, ours, 2), TimedContender(FTS5, theirs, 2)])
    return Judge(arena.roster, f"{TITLE}, rebuild", series).compare(OURS, FTS5, 4.0)


# The size of the index: built in one go, and grown a little at a time


def sizes(arena: Arena) -> Iterator[Comparison]:
    messages = arena.size(50_000, quick=5_000)
    texts: list[tuple[str, Text, float]] = [
        ("Latin", search_corpus.latin, 1.0),
        ("Chinese", search_corpus.chinese, 2.0),
    ]
    for script, text, at_most in texts:
        path = arena.place()[0].with_suffix(".db")
        search_corpus.grown(path, messages, text)
        yield size(arena, f"{script}, grown", path, at_most)
    path = arena.place()[0].with_suffix(".db")
    yield size(arena, "Chinese", search_corpus.built(path, messages, search_corpus.chinese), 2.0)


def size(arena: Arena, script: str, path: Path, at_most: float) -> Comparison:
    texts, index = f"{script} text", f"index of {script} text"
    series = {index: [float(search_corpus.index_bytes(path))], texts: [float(search_corpus.text_bytes(path))]}
    return Judge(arena.roster, f"{TITLE}, index size", series, unit="B").compare(index, texts, at_most)
