"""Databases of other programs: a SQLite file or a PostgreSQL server, read-only, row by row."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from msgspec import DecodeError, json

from hansard.blocking import LoopThread
from hansard.errors import Unsupported, ValidationError
from hansard.urls import shown

_decode = json.Decoder().decode
_VALUE_BYTES = 256 << 20
_STEPS = 100_000
MOST_STEPS = 100_000
"""In hundreds of thousands: what SQLite may do for one file. A hostile file can hold a view that never ends."""
_FETCHED = 200
_TIMEOUT = 30.0


class ForeignDatabase(Protocol):
    """The tables of another program."""

    def columns(self, table: str) -> set[str]:
        """The names of a table's columns; none if there is no such table."""

    def tables_with(self, columns: set[str]) -> list[str]:
        """The tables that have all these columns."""

    def rows(self, query: str, *values: Any) -> Iterator[Sequence[Any]]:
        """The rows of a query, in which each value is a `?`."""


@contextmanager
def sqlite_file(path: Path) -> Iterator[sqlite3.Connection]:
    """A SQLite file, which is only read, with limits. What its program writes meanwhile is not seen."""
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, check_same_thread=False)
    done = count(1)
    try:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _VALUE_BYTES)
        connection.set_progress_handler(lambda: int(next(done) > MOST_STEPS), _STEPS)
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA query_only = ON")
        connection.execute("BEGIN")
        yield connection
    except sqlite3.DatabaseError as error:
        raise ValidationError(f"the SQLite file {path.name} cannot be read: {error}") from error
    finally:
        connection.close()


class SqliteDatabase:
    """An open SQLite file."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def columns(self, table: str) -> set[str]:
        return {row[1] for row in self.rows(f"PRAGMA table_info({_quoted(table)})")}

    def tables_with(self, columns: set[str]) -> list[str]:
        names = [name for (name,) in self.rows("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        return [name for name in names if columns <= self.columns(name)]

    def rows(self, query: str, *values: Any) -> Iterator[Sequence[Any]]:
        return iter(self._connection.execute(query, values))


class PostgresDatabase:
    """A connection to a PostgreSQL server, in one read-only transaction."""

    def __init__(self, url: str) -> None:
        self._thread = LoopThread()
        self._connection: Any = self._thread.run(_connected(url))

    def columns(self, table: str) -> set[str]:
        query = "SELECT column_name FROM information_schema.columns WHERE table_name = ? AND table_schema = ANY"
        return {row[0] for row in self.rows(f"{query}(current_schemas(false))", table)}

    def tables_with(self, columns: set[str]) -> list[str]:
        query = "SELECT table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE'"
        order = "AND table_schema = ANY(current_schemas(false)) ORDER BY table_name"
        names = [name for (name,) in self.rows(f"{query} {order}")]
        return [name for name in names if columns <= self.columns(name)]

    def rows(self, query: str, *values: Any) -> Iterator[Sequence[Any]]:
        places = count(1)
        numbered = re.sub(r"\?", lambda _: f"${next(places)}", query)
        cursor = self._thread.run(_opened(self._connection, numbered, values))
        while found := self._thread.run(cursor.fetch(_FETCHED)):
            yield from (tuple(row) for row in found)

    def close(self) -> None:
        self._thread.run(self._connection.close(timeout=5))
        self._thread.stop()


async def _connected(url: str) -> Any:
    try:
        import asyncpg
    except ImportError:
        raise Unsupported("PostgreSQL needs asyncpg: pip install 'hansard[postgres]'", capability="postgres") from None
    try:
        connection = await asyncpg.connect(url, timeout=_TIMEOUT, statement_cache_size=0)
        await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError) as error:
        raise ValidationError(f"cannot read {shown(url)}: {error}") from error
    return connection


async def _opened(connection: Any, query: str, values: Sequence[Any]) -> Any:
    return await connection.cursor(query, *values)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def json_of(value: object) -> Any:
    """JSON of a column, which some databases return decoded. None if it is not JSON."""
    if not isinstance(value, str | bytes):
        return value
    try:
        return _decode(value)
    except (DecodeError, UnicodeDecodeError):
        return None
