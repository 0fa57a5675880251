"""Detects other processes' writes by polling the file's `data_version`, shared by all waiters."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Hashable

from hansard.backends.sqlite.engine import SqliteEngine

_INTERVAL = 0.05


class Poll:
    """Counts the commits to a file, polling at most once an interval, on a connection of its own."""

    def __init__(self, engine: SqliteEngine) -> None:
        self._engine = engine
        self._connection: sqlite3.Connection | None = None
        self._version = 0
        self._changes = 0
        self._looked_at = 0.0

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def wait(self, key: Hashable, seen: int, timeout: float) -> int:
        """Returns the number of writes of this process plus changes of the file, once it differs from `seen`.

        Both only grow.
        """
        deadline = time.monotonic() + timeout
        while True:
            others = self._look()
            mark = others + await self._engine.signals.wait(key, seen - others, min(_INTERVAL, timeout))
            if mark != seen or time.monotonic() >= deadline:
                return mark

    def _look(self) -> int:
        now = time.monotonic()
        if now - self._looked_at >= _INTERVAL:
            self._looked_at = now
            version = self._data_version()
            self._changes += version != self._version
            self._version = version
        return self._changes

    def _data_version(self) -> int:
        if self._connection is None:
            self._connection = self._engine.open_reader()
        return int(self._connection.execute("PRAGMA data_version").fetchone()[0])
