"""Key-value stores for tests: in a dict, in both modes, and in a file that several processes share.

The folder `keyvalue_package` beside this file is a package as an installer leaves it: its entry points give these
stores URLs, so that other processes can open them too.
"""

from __future__ import annotations

import asyncio
import fcntl
import itertools
import os
import sqlite3
import threading
from bisect import bisect_right
from contextlib import closing
from pathlib import Path

from hansard.backends.keyvalue import KeyValueBackend
from hansard.urls import Url


class DictStore:
    """The four functions, blocking, over a dict."""

    def __init__(self) -> None:
        self.values: dict[str, tuple[bytes, int]] = {}
        self._tokens = itertools.count(1)
        self._lock = threading.Lock()

    def get(self, key: str) -> tuple[bytes, int] | None:
        return self.values.get(key)

    def put(self, key: str, value: bytes, expected_token: int | None) -> int | None:
        with self._lock:
            if self.values.get(key, (b"", None))[1] != expected_token:
                return None
            self.values[key] = (value, next(self._tokens))
            return self.values[key][1]

    def delete(self, key: str, expected_token: int | None) -> bool:
        with self._lock:
            if key not in self.values or expected_token not in (None, self.values[key][1]):
                return False
            del self.values[key]
            return True

    def list(self, prefix: str, after: str, limit: int) -> list[str]:
        with self._lock:
            keys = sorted(key for key in self.values if key.startswith(prefix))
        return keys[bisect_right(keys, after) :][:limit]


class AsyncDictStore:
    """The same, async: every call yields to other tasks."""

    def __init__(self) -> None:
        self.inner = DictStore()

    async def get(self, key: str) -> tuple[bytes, int] | None:
        await asyncio.sleep(0)
        return self.inner.get(key)

    async def put(self, key: str, value: bytes, expected_token: int | None) -> int | None:
        await asyncio.sleep(0)
        return self.inner.put(key, value, expected_token)

    async def delete(self, key: str, expected_token: int | None) -> bool:
        await asyncio.sleep(0)
        return self.inner.delete(key, expected_token)

    async def list(self, prefix: str, after: str, limit: int) -> list[str]:
        await asyncio.sleep(0)
        return self.inner.list(prefix, after, limit)


class FileStore:
    """The four functions over one table of a SQLite file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # SQLite does not wait for a process that enables write-ahead logging at the same time.
        with path.with_name(f"{path.name}.lock").open("w") as lock, closing(self._open()) as link:
            fcntl.flock(lock, fcntl.LOCK_EX)
            link.execute("pragma journal_mode = wal").fetchall()
            link.execute(
                "create table if not exists kept (key text primary key, value blob, token integer) without rowid"
            )

    def _open(self) -> sqlite3.Connection:
        link = sqlite3.connect(self._path, timeout=60, isolation_level=None)
        link.execute("pragma synchronous = off")
        return link

    def get(self, key: str) -> tuple[bytes, int] | None:
        with closing(self._open()) as link:
            found: tuple[bytes, int] | None = link.execute(
                "select value, token from kept where key = ?", (key,)
            ).fetchone()
            return found

    def put(self, key: str, value: bytes, expected_token: int | None) -> int | None:
        # A token is never used twice, even after its key was deleted.
        fresh = int.from_bytes(os.urandom(7))
        if expected_token is None:
            sql, values = "insert or ignore into kept values (?, ?, ?)", (key, value, fresh)
        else:
            sql = "update kept set value = ?, token = ? where key = ? and token = ?"
            values = (value, fresh, key, expected_token)  # type: ignore[assignment]
        with closing(self._open()) as link:
            return fresh if link.execute(sql, values).rowcount == 1 else None

    def delete(self, key: str, expected_token: int | None) -> bool:
        with closing(self._open()) as link:
            sql = "delete from kept where key = ?1 and (?2 is null or token = ?2)"
            return link.execute(sql, (key, expected_token)).rowcount == 1

    def list(self, prefix: str, after: str, limit: int) -> list[str]:
        sql = "select key from kept where key > ? and key >= ? and key < ? order by key limit ?"
        with closing(self._open()) as link:
            return [key for (key,) in link.execute(sql, (after, prefix, prefix + "~", limit))]


async def open_file_store(url: Url, *, blocking: bool, upgrade: bool) -> KeyValueBackend:
    """`keyvalue-file:///path`: blocking functions for blocking callers, else in threads."""
    url.finish(())
    store = FileStore(Path(url.path.removeprefix("/")))
    return KeyValueBackend(store, durability="process", name="keyvalue-file", in_threads=not blocking)
