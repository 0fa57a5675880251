"""The corpus of W6: texts with words of known frequency, in our store and in a plain FTS5 table.

A million texts take minutes to write, so stores are kept in `build/` and reused by the next run, as long as the schema
and the terms of the index are the same.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

from msgspec import structs

from benchmarks.arena import Arena, stepped
from hansard import Message, Store, connect, sync
from hansard.analysis import VERSION
from hansard.backends.sqlite import index, schema

BIG = "big"
"""The conversation that is searched."""
KEPT = Path("build/w6")
_RECIPE = 1
"""Must be increased when the built stores change."""
WORDS = {"rare": "zanzibar", "1 %": "lighthouse", "common": "river"}
EVERY = {"zanzibar": 5_000, "lighthouse": 100, "river": 2}
"""A word is in one message of so many."""
_BATCH = 100
_FIRST = datetime(2020, 1, 1, tzinfo=UTC)
_SECONDS = 7
"""Between two messages of an archived conversation: several conversations of a thousand overlap."""

Text = Callable[[int], str]
Corpus = Literal["hansard", "archive", "fts5"]


@cache
def _vocabulary() -> tuple[list[str], list[float]]:
    """Returns ten thousand words with frequencies like those of a language."""
    chance = random.Random(6)
    words = ["".join(chance.choices("abdefgiklmnoprstuvz", k=chance.randint(3, 9))) for _ in range(10_000)]
    return words, list(accumulate(1 / rank for rank in range(1, len(words) + 1)))


def latin(number: int) -> str:
    words, weights = _vocabulary()
    chance = random.Random(number)
    text = chance.choices(words, cum_weights=weights, k=30)
    for word, every in EVERY.items():
        if number % every == 0:
            text[chance.randrange(len(text))] = word
    return " ".join(text)


def question() -> str:
    """Returns ten words: nine that are common in the texts, and a rare one."""
    words, _ = _vocabulary()
    return " ".join([*(words[rank] for rank in (0, 1, 2, 3, 5, 8, 13, 21, 34)), "zanzibar"])


def chinese(number: int) -> str:
    chance = random.Random(number)
    return "".join(chr(0x4E00 + int(chance.paretovariate(0.6)) % 3000) for _ in range(60))


def batches(messages: int) -> Iterator[tuple[str, range]]:
    """Yields batches: one percent of all messages in one conversation, the others in conversations of a thousand."""
    for start in range(0, messages, _BATCH):
        at = start // _BATCH
        yield (BIG if at % 100 == 0 else f"c{start // 1000}"), range(start, start + _BATCH)


async def fill(store: Store, messages: int, text: Text = latin, *, archived: bool = False) -> None:
    for conversation, numbers in batches(messages):
        made = [Message("user", text(number)) for number in numbers]
        if archived:
            times = _times(conversation, numbers, messages)
            made = [structs.replace(message, created_at=time) for message, time in zip(made, times, strict=True)]
        await store.append(conversation, made, user_id="ann")
    backend: Any = store.backend
    await backend.catch_up()


def _times(conversation: str, numbers: range, messages: int) -> list[datetime]:
    """Returns times of an archive: its conversations are not stored in their order, except for the big one."""
    if conversation == BIG:
        return [_FIRST + timedelta(seconds=number) for number in numbers]
    start = random.Random(conversation).randrange(messages)
    return [_FIRST + timedelta(seconds=start + number % 1000 * _SECONDS) for number in numbers]


def grown(path: Path, messages: int, text: Text = latin) -> Path:
    """Builds our store, indexed in small steps, as in daily use."""
    batch = index.SHORT_PASS
    with sync.connect(f"sqlite:///{path}?durability=normal") as store:
        backend: Any = store.backend
        for start in range(0, messages, batch):
            numbers = range(start, start + batch)
            store.append(f"c{start // 1000}", [Message("user", text(number)) for number in numbers], user_id="ann")
            stepped(backend.catch_up())
    return path


def built(path: Path, messages: int, text: Text = latin, *, archived: bool = False) -> Path:
    """Builds our store at that path."""

    async def build() -> None:
        async with connect(f"sqlite:///{path}?durability=normal") as store:
            await fill(store, messages, text, archived=archived)

    asyncio.run(build())
    return path


def built_archive(path: Path, messages: int) -> Path:
    return built(path, messages, archived=True)


def prepared(arena: Arena, name: Corpus, messages: int) -> Path:
    """Returns a new file with the corpus: `archive` is ours, with conversations that are not stored in their order."""
    path = arena.place()[0].with_suffix(".db")
    build = _BUILDERS[name]
    if arena.options.quick:
        build(path, messages)
    else:
        copied(stored_copy(name, messages, build), path)
    return path


def stored_copy(name: str, messages: int, build: Callable[[Path, int], object]) -> Path:
    """Returns a store that an earlier run has built, or builds it."""
    made_by = [str(_RECIPE), str(VERSION), *(each.checksum for each in schema.migrations())]
    digest = hashlib.sha256(" ".join(made_by).encode()).hexdigest()[:12]
    path = KEPT / f"{name}-{messages}-{digest}.db"
    if not path.exists():
        KEPT.mkdir(parents=True, exist_ok=True)
        half = path.with_suffix(f".{os.getpid()}")
        build(half, messages)
        checkpoint(half)
        half.rename(path)
    return path


def checkpoint(path: Path) -> None:
    """Moves everything from the write-ahead log to the file."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def copied(path: Path, target: Path) -> Path:
    checkpoint(path)
    return Path(shutil.copyfile(path, target))


class Raw:
    """FTS5 with the same rows and packed keys, so that a conversation is a range of keys."""

    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.big: int = self.connection.execute("SELECT line FROM conversation WHERE id = ?", (BIG,)).fetchone()[0]

    @classmethod
    def build(cls, path: Path, messages: int, text: Text = latin) -> None:
        connection = sqlite3.connect(path, isolation_level=None)
        run = connection.execute
        run("PRAGMA journal_mode = WAL")
        run("CREATE TABLE message (key INTEGER PRIMARY KEY, id TEXT, role TEXT, text TEXT, created_at INTEGER)")
        run("CREATE VIRTUAL TABLE found USING fts5 (text, content = 'message', content_rowid = 'key')")
        run("CREATE TABLE conversation (line INTEGER PRIMARY KEY, id TEXT)")
        places: dict[str, int] = {}
        run("BEGIN")
        for conversation, numbers in batches(messages):
            line = places.setdefault(conversation, len(places) + 1)
            rows = [(line << 30 | at + 1, f"m{at}", "user", text(at), at) for at in numbers]
            connection.executemany("INSERT INTO message VALUES (?, ?, ?, ?, ?)", rows)
        connection.executemany("INSERT INTO conversation VALUES (?, ?)", [(n, id) for id, n in places.items()])
        run("INSERT INTO found (found) VALUES ('rebuild')")
        run("COMMIT")
        connection.close()

    def rebuild(self) -> None:
        self.connection.execute("INSERT INTO found (found) VALUES ('rebuild')")

    def newest(self, word: str, *, in_big: bool, order: str = "f.rowid DESC") -> list[Any]:
        low, high = (self.big << 30, (self.big + 1) << 30) if in_big else (0, 1 << 62)
        sql = (
            "SELECT m.key, m.id, m.role, m.text, m.created_at FROM found f JOIN message m ON m.key = f.rowid "
            f"WHERE found MATCH ? AND f.rowid BETWEEN ? AND ? ORDER BY {order} LIMIT 20"
        )
        return self.connection.execute(sql, (word, low, high)).fetchall()

    def best(self, word: str, *, in_big: bool) -> list[Any]:
        return self.newest(word, in_big=in_big, order="rank")

    def close(self) -> None:
        self.connection.close()


_BUILDERS: dict[Corpus, Callable[[Path, int], object]] = {
    "hansard": built,
    "archive": built_archive,
    "fts5": Raw.build,
}


def text_bytes(path: Path) -> int:
    return _one(path, "SELECT sum(length(CAST(body AS BLOB))) FROM messages")


def index_bytes(path: Path) -> int:
    """Returns the bytes of the search tables and indexes, without reserved space."""
    return _one(
        path, "SELECT sum(pgsize) FROM dbstat WHERE name LIKE 'search%' OR name LIKE 'sqlite_autoindex_search%'"
    )


def _one(path: Path, sql: str) -> int:
    connection = sqlite3.connect(path)
    try:
        found: int = connection.execute(sql).fetchone()[0]
        return found
    finally:
        connection.close()


def search(store: sync.Store, word: str, *, in_big: bool, order: Any) -> list[Any]:
    return store.search(word, conversation_id=BIG if in_big else None, order=order, limit=20, token_cap=None)
