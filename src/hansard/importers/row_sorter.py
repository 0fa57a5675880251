"""Rows of a file sorted into conversations, in bounded memory: by a temporary database, which is removed afterwards.

Rows of one conversation mostly follow each other. Such a run is one row of the database, a JSON array.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from msgspec import json

from hansard.errors import Unavailable

_TABLE = """
PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;
CREATE TABLE runs (number INTEGER PRIMARY KEY, conversation TEXT NOT NULL, place REAL NOT NULL, rows BLOB NOT NULL);
"""
_INDEX = "CREATE INDEX IF NOT EXISTS by_conversation ON runs (conversation, place, number)"
_BATCH = 1_000
_BATCH_BYTES = 16 << 20
"""Rows that are held until they are written, and their bytes."""
_LONGEST_RUN = 1 << 16
"""Bytes after which a run ends."""


class RowSorter:
    """Rows are JSON values. Those of a conversation come back by their places, equal ones in the order of adding."""

    def __enter__(self) -> Self:
        self._folder = TemporaryDirectory(prefix="hansard-import-")
        self._connection = sqlite3.connect(f"{self._folder.name}/rows.db", isolation_level=None)
        with self._reporting():
            self._connection.executescript(_TABLE)
            self._connection.execute("BEGIN")
        self._waiting: list[tuple[str, float, list[bytes]]] = []
        self._held = self._held_bytes = 0
        self._last: tuple[str, float] | None = None
        """The conversation and place of the last run, while it may grow."""
        self._room = 0
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.close()
        self._folder.cleanup()

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Says what failed: the file that is imported may be a database, too."""
        try:
            yield
        except sqlite3.Error as error:
            self.__exit__()
            folder = Path(self._folder.name).parent
            text = f"the folder for temporary files, {folder}, failed: {error}. Free some space there, or set TMPDIR"
            raise Unavailable(text, outcome="unknown") from error

    def add(self, conversation: str, row: Any, place: float = 0.0) -> None:
        self.add_encoded(conversation, json.encode(row), place)

    def add_encoded(self, conversation: str, row: bytes, place: float = 0.0) -> None:
        """The same for a row that is JSON already."""
        self._room -= len(row)
        if self._last == (conversation, place) and self._room > 0:
            self._waiting[-1][2].append(row)
        else:
            self._waiting.append((conversation, place, [row]))
            self._last, self._room = (conversation, place), _LONGEST_RUN - len(row)
        self._held += 1
        self._held_bytes += len(row)
        if self._held >= _BATCH or self._held_bytes >= _BATCH_BYTES:
            self._write()

    def _write(self) -> None:
        runs = [(conversation, place, b"[%b]" % b",".join(rows)) for conversation, place, rows in self._waiting]
        with self._reporting():
            self._connection.executemany("INSERT INTO runs (conversation, place, rows) VALUES (?, ?, ?)", runs)
        self._waiting.clear()
        self._last, self._held, self._held_bytes = None, 0, 0

    def conversations(self) -> Iterator[tuple[str, list[Any]]]:
        """Each conversation with its rows, in the order of ids."""
        self._index()
        for (id,) in self._connection.execute("SELECT DISTINCT conversation FROM runs ORDER BY conversation"):
            yield id, [row for _, row in self._rows(id)]

    def places(self, conversation: str) -> Iterator[tuple[float, Any]]:
        """The places and rows of a conversation, one at a time."""
        self._index()
        return self._rows(conversation)

    def _index(self) -> None:
        self._write()
        with self._reporting():
            self._connection.execute(_INDEX)

    def _rows(self, id: str) -> Iterator[tuple[float, Any]]:
        query = "SELECT place, rows FROM runs WHERE conversation = ? ORDER BY place, number"
        found = self._connection.execute(query, (id,))
        return ((place, row) for place, rows in found for row in json.decode(rows))
