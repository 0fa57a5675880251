"""W6 on PostgreSQL: the same words, compared with a plain table with a tsvector under GIN and an index of times.

The reference has statistics (ANALYZE), so that its planner can choose an index by how common a word is. It has one
tenant, no owners and no branches, and splits words at spaces only. Both run on one event loop.
"""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from time import perf_counter
from typing import Any

from benchmarks.arena import Arena
from benchmarks.measure import TimedContender, by_turns, check
from benchmarks.report import Comparison, Judge
from benchmarks.scenarios import search_corpus
from hansard import Store, connect

# By name, so that types are the same whether or not the package is installed.
asyncpg = importlib.import_module("asyncpg")

TITLE = "W6 search"
OURS, GIN = "hansard", "raw GIN(tsvector)"
WAITED, CAUGHT_UP = "as the caller waits", "until indexed"
CALLS = 10
TASKS, EACH = 64, 50
LIMIT = 20

_TABLE = """
CREATE SCHEMA {0};
CREATE TABLE {0}.message (
    conversation text NOT NULL, seq bigint NOT NULL, id text NOT NULL, role text NOT NULL, text text NOT NULL,
    created_at bigint NOT NULL, terms tsvector, PRIMARY KEY (conversation, seq)
);
CREATE INDEX ON {0}.message (created_at);
"""
_ADD = (
    "INSERT INTO {0}.message SELECT $1, seq, 'm' || seq, 'user', text, seq "
    "FROM unnest($2::bigint[], $3::text[]) AS given (seq, text)"
)
_NEWEST = (
    "SELECT id, role, text, created_at FROM {0}.message WHERE terms @@ to_tsquery('simple', $1){1} "
    "ORDER BY created_at DESC LIMIT {2}"
)
_BEST = (
    "SELECT id, role, text, created_at FROM {0}.message WHERE terms @@ to_tsquery('simple', $1){1} "
    "ORDER BY ts_rank(terms, to_tsquery('simple', $1)) DESC LIMIT {2}"
)


class Raw:
    def __init__(self, connection: Any, schema: str) -> None:
        self.connection = connection
        self.schema = schema

    async def fill(self, messages: int) -> None:
        await self.connection.execute(_TABLE.format(self.schema))
        for conversation, numbers in search_corpus.batches(messages):
            texts = [search_corpus.latin(number) for number in numbers]
            await self.connection.execute(_ADD.format(self.schema), conversation, list(numbers), texts)
        await self.rebuild()

    async def rebuild(self) -> None:
        await self.connection.execute(
            f"DROP INDEX IF EXISTS {self.schema}.terms; "
            f"UPDATE {self.schema}.message SET terms = to_tsvector('simple', text); "
            f"CREATE INDEX terms ON {self.schema}.message USING gin (terms); ANALYZE {self.schema}.message",
            timeout=3600,
        )

    async def find(self, sql: str, word: str, *, in_big: bool) -> list[Any]:
        where = f" AND conversation = '{search_corpus.BIG}'" if in_big else ""
        found: list[Any] = await self.connection.fetch(sql.format(self.schema, where, LIMIT), word)
        return found

    async def size(self) -> int:
        found: int = await self.connection.fetchval(
            f"SELECT sum(pg_column_size(terms)) + pg_relation_size('{self.schema}.terms') FROM {self.schema}.message"
        )
        return found


def run(arena: Arena) -> Iterator[Comparison]:
    messages = arena.size(200_000, quick=20_000)
    name = f"w6_{os.getpid()}"
    url = arena.options.url
    connection = arena.run_async(asyncpg.connect(url))
    store = arena.run_async(_opened(_in_schema(url, name)))
    raw = Raw(connection, f"{name}_raw")
    try:
        arena.run_async(search_corpus.fill(store, messages))
        arena.run_async(raw.fill(messages))
        arena.run_async(_vacuumed(connection, name, raw))
        for scope, in_big in (("a conversation", True), ("everything", False)):
            yield from searches(arena, store, raw, scope, in_big=in_big)
        yield arena.run_async(_sizes(arena, connection, name, raw))
        yield rebuild(arena, store, raw, messages)
        yield appends(arena, _in_schema(url, f"{name}_more"))
    finally:
        arena.run_async(store.close())
        for schema in (name, raw.schema, f"{name}_more"):
            arena.run_async(connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE"))
        arena.run_async(connection.close())


def _in_schema(url: str, name: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}schema={name}"


async def _opened(url: str) -> Store:
    return await connect(url)


async def _vacuumed(connection: Any, name: str, raw: Raw) -> None:
    """Vacuums both, as autovacuum would after a while."""
    for table in (f"{name}.messages", f"{name}.search", f"{name}.search_queue", f"{raw.schema}.message"):
        await connection.execute(f"VACUUM ANALYZE {table}", timeout=600)


def searches(arena: Arena, store: Store, raw: Raw, scope: str, *, in_big: bool) -> Iterator[Comparison]:
    conversation = search_corpus.BIG if in_big else None

    async def ours(word: str, order: Any) -> list[str]:
        options = {"conversation_id": conversation, "order": order, "limit": LIMIT, "token_cap": None}
        return [hit.message.content for hit in await store.search(word, **options)]

    async def theirs(word: str, sql: str) -> list[str]:
        return [row["text"] for row in await raw.find(sql, word, in_big=in_big)]

    for name, word in search_corpus.WORDS.items():
        found = arena.run_async(ours(word, "newest"))
        check(found == arena.run_async(theirs(word, _NEWEST)), f"{word}: other messages than GIN's")
        title = f"{TITLE}, {name} word in {scope}"
        newest = {OURS: partial(ours, word, "newest"), GIN: partial(theirs, word, _NEWEST)}
        yield Judge(arena.roster, f"{title}, newest", _timed(arena, newest)).compare(OURS, GIN)
        best = {OURS: partial(ours, word, "relevance"), GIN: partial(theirs, word, _BEST)}
        yield Judge(arena.roster, f"{title}, best", _timed(arena, best, calls=2)).compare(OURS, GIN)


def _timed(
    arena: Arena, calls_by_name: Mapping[str, Callable[[], Awaitable[Any]]], calls: int = CALLS
) -> dict[str, list[float]]:
    async def portion(call: Callable[[], Awaitable[Any]]) -> float:
        await call()
        begin = perf_counter()
        for _ in range(calls):
            await call()
        return (perf_counter() - begin) / calls * 1e6

    def turn(call: Callable[[], Awaitable[Any]], _round: int) -> float:
        return arena.run_async(portion(call))

    rounds = arena.size(20, quick=5)
    return by_turns([TimedContender(name, partial(turn, call), rounds) for name, call in calls_by_name.items()])


def rebuild(arena: Arena, store: Store, raw: Raw, messages: int) -> Comparison:
    async def anew() -> float:
        begin = perf_counter()
        async for _ in store.admin.reindex():
            pass
        return (perf_counter() - begin) / messages * 1e6

    async def raw_anew() -> float:
        begin = perf_counter()
        await raw.rebuild()
        return (perf_counter() - begin) / messages * 1e6

    def turn(work: Callable[[], Any], _round: int) -> float:
        return float(arena.run_async(work()))

    rounds = arena.size(2, quick=2)
    series = by_turns(
        [TimedContender(OURS, partial(turn, anew), rounds), TimedContender(GIN, partial(turn, raw_anew), rounds)]
    )
    return Judge(arena.roster, f"{TITLE}, rebuild", series).compare(OURS, GIN, 4.0)


def appends(arena: Arena, url: str) -> Comparison:
    """W2 with search, and the remaining indexing after the last caller has returned."""
    found = [arena.run_async(_appends(url, number)) for number in range(arena.size(7, quick=3))]
    series = {WAITED: [waited for waited, _ in found], CAUGHT_UP: [whole for _, whole in found]}
    return Judge(arena.roster, f"{TITLE}, {TASKS} tasks append", series).compare(CAUGHT_UP, WAITED, 2.5)


async def _appends(url: str, round_: int) -> tuple[float, float]:
    async with connect(url) as store:
        texts = [search_corpus.latin(number) for number in range(TASKS * EACH)]

        async def task(number: int) -> None:
            for turn in range(EACH):
                await store.append_message(f"c{round_}-{number}", "user", texts[number * EACH + turn])

        begin = perf_counter()
        await asyncio.gather(*(task(number) for number in range(TASKS)))
        waited = perf_counter() - begin
        backend: Any = store.backend
        await backend.catch_up()
        whole = perf_counter() - begin
        check(len(await store.search("river", limit=100, token_cap=None)) == 100, "the appended is not found")
    return waited / (TASKS * EACH) * 1e6, whole / (TASKS * EACH) * 1e6


async def _sizes(arena: Arena, connection: Any, name: str, raw: Raw) -> Comparison:
    ours = await connection.fetchval(
        f"SELECT pg_total_relation_size('{name}.search') + pg_total_relation_size('{name}.search_queue')"
    )
    series = {OURS: [float(ours)], GIN: [float(await raw.size())]}
    return Judge(arena.roster, f"{TITLE}, index size", series, unit="B").compare(OURS, GIN)
