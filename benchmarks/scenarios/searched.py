"""What W6 searches: texts with words of known frequency, in our store and in a plain FTS5 table."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from hansard import Message, Store, sync

BIG = "big"
"""The conversation that is searched."""
WORDS = {"rare": "zanzibar", "1 %": "lighthouse", "common": "river"}
_EVERY = {"zanzibar": 5_000, "lighthouse": 100, "river": 2}
_BATCH = 100


@cache
def _vocabulary() -> tuple[list[str], list[float]]:
    """Ten thousand words, their frequencies falling as those of a language do."""
    chance = random.Random(6)
    words = ["".join(chance.choices("abdefgiklmnoprstuvz", k=chance.randint(3, 9))) for _ in range(10_000)]
    return words, [1 / rank for rank in range(1, len(words) + 1)]


def latin(number: int) -> str:
    words, weights = _vocabulary()
    chance = random.Random(number)
    text = chance.choices(words, weights, k=30)
    for word, every in _EVERY.items():
        if number % every == 0:
            text[chance.randrange(len(text))] = word
    return " ".join(text)


def chinese(number: int) -> str:
    chance = random.Random(number)
    return "".join(chr(0x4E00 + int(chance.paretovariate(0.6)) % 3000) for _ in range(60))


def batches(messages: int) -> Iterator[tuple[str, range]]:
    """A hundredth of all messages lies in one conversation, among the others; those have a thousand each."""
    for start in range(0, messages, _BATCH):
        at = start // _BATCH
        yield (BIG if at % 100 == 0 else f"c{start // 1000}"), range(start, start + _BATCH)


async def fill(store: Store, messages: int, text: Any = latin) -> None:
    for conversation, numbers in batches(messages):
        await store.append(conversation, [Message("user", text(number)) for number in numbers], user_id="ann")
    backend: Any = store.backend
    await backend.catch_up()


class Raw:
    """FTS5 with the same rows under a packed key, so that a conversation is a range of it."""

    def __init__(self, path: Path, messages: int, text: Any = latin) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None)
        run = self.connection.execute
        run("PRAGMA journal_mode = WAL")
        run("CREATE TABLE message (key INTEGER PRIMARY KEY, id TEXT, role TEXT, text TEXT, created_at INTEGER)")
        run("CREATE VIRTUAL TABLE found USING fts5 (text, content = 'message', content_rowid = 'key')")
        places: dict[str, int] = {}
        run("BEGIN")
        for conversation, numbers in batches(messages):
            line = places.setdefault(conversation, len(places) + 1)
            rows = [(line << 30 | at + 1, f"m{at}", "user", text(at), at) for at in numbers]
            self.connection.executemany("INSERT INTO message VALUES (?, ?, ?, ?, ?)", rows)
        run("COMMIT")
        self.rebuild()
        self.big = places[BIG]

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


def text_bytes(path: Path) -> int:
    return _one(path, "SELECT sum(length(CAST(body AS BLOB))) FROM messages")


def index_bytes(path: Path) -> int:
    """The pages of everything that is there for search, without what was reserved beyond."""
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
