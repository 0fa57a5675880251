"""The reference: plain sqlite3, WAL, synchronous=FULL, written by hand for these workloads and nothing else.

It stores the same data as the product: the public message id, unique within its conversation; role, format, text, time
and the rest as JSON; counters and times on the conversation row, in the same transaction; an index for listing. It
omits what a library needs: checks, branches, tenants, other writers (the row and counter of a conversation are cached
in memory). So it shows what the engine allows, and is not a usable store.
"""

from __future__ import annotations

import itertools
import os
import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from benchmarks.contenders.base import Reference
from benchmarks.samples import Sample

SCHEMA = """
CREATE TABLE IF NOT EXISTS conversation (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    user_id TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    last_message_at INTEGER NOT NULL,
    message_count INTEGER NOT NULL,
    last_seq INTEGER NOT NULL,
    version INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS newest ON conversation (user_id, last_message_at DESC, id DESC);
CREATE TABLE IF NOT EXISTS message (
    key INTEGER PRIMARY KEY, -- conversation << 24 | seq: the tail of a conversation is one run of pages
    id TEXT NOT NULL,
    role TEXT NOT NULL,
    format TEXT NOT NULL,
    text TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    rest BLOB
);
CREATE UNIQUE INDEX IF NOT EXISTS message_id ON message (key >> 24, id);
"""
ADD_CONVERSATION = "INSERT INTO conversation VALUES (NULL, ?, ?, ?, ?, ?, 0, 0, 0)"
ADD_MESSAGE = "INSERT INTO message VALUES (?, ?, ?, ?, ?, ?, ?)"
COUNT_UP = (
    "UPDATE conversation SET updated_at = ?1, last_message_at = ?1, message_count = message_count + ?2,"
    " last_seq = last_seq + ?2, version = version + 1 WHERE id = ?3"
)
LAST = (
    "SELECT key, id, role, format, text, created_at, rest FROM message"
    " WHERE key BETWEEN ? AND ? ORDER BY key DESC LIMIT ?"
)
NEWEST = (
    "SELECT name, user_id, created_at, updated_at, last_message_at, message_count, version FROM conversation"
    " WHERE user_id = ? ORDER BY last_message_at DESC, id DESC LIMIT ?"
)
CONVERSATION_FIELDS = ("id", "user_id", "created_at", "updated_at", "last_message_at", "message_count", "version")

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_numbers = itertools.count(int.from_bytes(os.urandom(8)))

Row = tuple[int, str, str, str, str, int, bytes]


def _message_id(micros: int) -> str:
    return f"msg_{micros // 1000:012x}{next(_numbers):020x}"


def _as_dict(row: Row) -> dict[str, Any]:
    key, id_, role, format_, text, created_at, rest = row
    return {
        "id": id_,
        "seq": key & 0xFFFFFF,
        "role": role,
        "format": format_,
        "content": text,
        "created_at": created_at,
        **_decode(rest),
    }


class Raw(Reference):
    key: ClassVar[str] = "raw"
    title: ClassVar[str] = "raw sqlite3"
    package: ClassVar[str] = "msgspec"
    blocking: ClassVar[bool] = True

    async def open(self) -> None:
        # Autocommit, so that the transactions are the ones written here.
        self.db = sqlite3.connect(self.path.with_suffix(".raw"), isolation_level=None, timeout=60)
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute("PRAGMA synchronous = FULL")
        self.db.executescript(SCHEMA)
        self._places: dict[str, list[int]] = {}

    async def close(self) -> None:
        self.db.close()

    async def append(self, conversation: str, sample: Sample) -> None:
        await self.append_many(conversation, [sample])

    async def append_many(self, conversation: str, samples: Sequence[Sample]) -> None:
        now = time.time_ns() // 1000
        self.db.execute("BEGIN IMMEDIATE")
        place = self._place(conversation, None, now)
        self.db.executemany(ADD_MESSAGE, [self._row(place, sample, now) for sample in samples])
        self.db.execute(COUNT_UP, (now, len(samples), place[0]))
        self.db.execute("COMMIT")

    async def last(self, conversation: str, count: int) -> list[dict[str, Any]]:
        first = self._place(conversation, None, 0)[0] << 24
        rows = self.db.execute(LAST, (first, first | 0xFFFFFF, count)).fetchall()
        return [_as_dict(row) for row in reversed(rows)]

    def texts(self, messages: Sequence[dict[str, Any]]) -> list[str]:
        return [message["content"] for message in messages]

    async def start(self, owners: Mapping[str, str], sample: Sample) -> None:
        self._group([(name, sample) for name in owners], owners)

    async def newest(self, user_id: str, count: int) -> list[dict[str, Any]]:
        rows = self.db.execute(NEWEST, (user_id, count)).fetchall()
        return [dict(zip(CONVERSATION_FIELDS, row, strict=True)) for row in rows]

    def names(self, conversations: Sequence[dict[str, Any]]) -> list[str]:
        return [conversation["id"] for conversation in conversations]

    async def group(self, appends: Sequence[tuple[str, Sample]]) -> None:
        self._group(appends, {})

    def _group(self, appends: Iterable[tuple[str, Sample]], owners: Mapping[str, str]) -> None:
        now = time.time_ns() // 1000
        self.db.execute("BEGIN IMMEDIATE")
        rows = [self._row(self._place(name, owners.get(name), now), sample, now) for name, sample in appends]
        # Sorted by key, so that pages of one conversation are written together.
        rows.sort()
        self.db.executemany(ADD_MESSAGE, rows)
        self.db.executemany(COUNT_UP, [(now, 1, row[0] >> 24) for row in rows])
        self.db.execute("COMMIT")

    def _place(self, name: str, user_id: str | None, now: int) -> list[int]:
        """Returns the row id and last seq of a conversation, creating it if needed."""
        place = self._places.get(name)
        if place is None:
            row = self.db.execute("SELECT id, last_seq FROM conversation WHERE name = ?", (name,)).fetchone()
            if row is None:
                made = self.db.execute(ADD_CONVERSATION, (name, user_id, now, now, now))
                row = (made.lastrowid, 0)
            place = self._places[name] = list(row)
        return place

    def _row(self, place: list[int], sample: Sample, now: int) -> Row:
        place[1] += 1
        key = place[0] << 24 | place[1]
        rest = _encode({"metadata": sample.metadata})
        return key, _message_id(now), sample.role, "text", sample.text, now, rest


class RawIndexed(Raw):
    """Also builds a full-text index at the end, as our imports do, with FTS5's fastest method."""

    key: ClassVar[str] = "raw-indexed"
    title: ClassVar[str] = "raw sqlite3 + FTS5"

    async def open(self) -> None:
        await super().open()
        self.db.execute(
            "CREATE VIRTUAL TABLE IF NOT EXISTS found USING fts5 (text, content = 'message', content_rowid = 'key')"
        )

    async def close(self) -> None:
        self.db.execute("INSERT INTO found (found) VALUES ('rebuild')")
        await super().close()
