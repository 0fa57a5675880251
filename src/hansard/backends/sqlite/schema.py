"""Opens a database file: settings, first schema, migrations.

The ledger stores the name, checksum and time of every migration. An empty file gets the whole schema; an older one is
only migrated on request (`hansard upgrade`); a newer one, or one of another program, is refused. Several processes may
open a new file at once.
"""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from hansard.backends.shared.migrations import lacking
from hansard.backends.sqlite.errors import map_errors
from hansard.errors import Corrupt, Denied, FormatMismatch, ValidationError

APPLICATION_ID = 0x48414E53
"""'HANS': marks a file as ours."""

BUSY_SECONDS = 30.0
_LOG_PAGES = 4000
"""Pages of the write-ahead log after which a commit moves them into the file: 16 MB, four times SQLite's default.

Appends change the same pages again and again, which are moved once. Readers find a page among this many by one lookup.
"""

_LEDGER = """
CREATE TABLE migrations (
    name TEXT PRIMARY KEY,
    checksum TEXT NOT NULL,
    applied_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID
"""

_OURS = {"migrations", "conversations", "branches", "messages"}
"""Tables of every version. A file with all of them is ours, even if its header does not say so."""

C = TypeVar("C", bound=sqlite3.Connection)

SYNCHRONOUS = {"full": "FULL", "normal": "NORMAL", "off": "OFF"}


class SqliteMigration(Struct, frozen=True):
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


def migrations() -> list[SqliteMigration]:
    folder = resources.files(__package__).joinpath("migrations")
    files = sorted((entry for entry in folder.iterdir() if entry.name.endswith(".sql")), key=lambda entry: entry.name)
    return [SqliteMigration(entry.name.removesuffix(".sql"), entry.read_text("utf-8")) for entry in files]


def connect(path: Path, durability: str, kind: type[C], *, readonly: bool = False) -> C:
    """Opens a connection with our settings. Threads take turns on it, under our own locks."""
    connection = kind(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=256)
    connection.execute(f"PRAGMA synchronous = {SYNCHRONOUS[durability]}")
    connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute(f"PRAGMA query_only = {'ON' if readonly else 'OFF'}")
    return connection


def prepare(path: Path, durability: str, *, upgrade: bool) -> sqlite3.Connection:
    """Returns the writing connection to a file, created, checked and, if requested, migrated."""
    _check_place(path)
    with map_errors(str(path)):
        connection = connect(path, durability, sqlite3.Connection)
        try:
            _refuse_foreign(connection, path)
            _enter_wal(connection)
            _apply(connection, path, upgrade=upgrade)
        except BaseException:
            connection.close()
            raise
        return connection


def _check_place(path: Path) -> None:
    try:
        is_folder, has_folder = path.is_dir(), path.parent.is_dir()
    except PermissionError as error:
        raise Denied(f"{path} cannot be opened: {error.strerror} (check the permissions of its folders)") from error
    except OSError as error:
        raise ValidationError(f"{str(path)!r} cannot be the name of a file: {error.strerror}") from error
    if is_folder:
        raise ValidationError(f"{str(path)!r} is a folder: name a file in it, such as 'sqlite:///{path}/hansard.db'")
    if not has_folder:
        raise ValidationError(f"the folder {str(path.parent)!r} does not exist: create it first")


def _refuse_foreign(connection: sqlite3.Connection, path: Path) -> None:
    """Checks before it writes: not one byte changes in a file of another program."""
    # One snapshot: another process may be creating the store.
    connection.execute("BEGIN")
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    mark = connection.execute("PRAGMA application_id").fetchone()[0]
    connection.execute("COMMIT")
    is_marked, is_ours = mark == APPLICATION_ID, tables >= _OURS
    if is_marked != is_ours:
        raise Corrupt(f"{str(path)!r} is damaged: its header or its list of tables is wrong", where=str(path))
    if tables and not is_ours:
        raise FormatMismatch(
            f"{str(path)!r} is a SQLite database of another program: choose another file",
            found="a foreign database",
            wanted="a Hansard store",
        )


def _enter_wal(connection: sqlite3.Connection) -> None:
    """Enables write-ahead logging.

    Two processes that create a file at once collide here without SQLite waiting, so we wait.
    """
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
            continue
        if mode != "wal":
            raise Denied(f"this file system does not support write-ahead logging (journal mode {mode!r})")
        return


def _apply(connection: sqlite3.Connection, path: Path, *, upgrade: bool) -> None:
    known, where = migrations(), repr(str(path))
    done = _ledger(connection)
    if done is not None and not lacking(where, known, done):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have been first.
        done = _ledger(connection)
        pending = known if done is None else lacking(where, known, done)
        if pending and done is not None and not upgrade:
            raise FormatMismatch(
                f"{where} was written by an older version and lacks {pending[0].name!r}: run `hansard upgrade`",
                found=max(done, default="nothing"),
                wanted=known[-1].name,
            )
        if done is None:
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(_LEDGER)
        for migration in pending:
            _run(connection, migration)
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _ledger(connection: sqlite3.Connection) -> dict[str, str] | None:
    """Returns checksums by name; None for an empty file."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'migrations'").fetchone():
        return None
    return dict(connection.execute("SELECT name, checksum FROM migrations"))


def _run(connection: sqlite3.Connection, migration: SqliteMigration) -> None:
    for statement in _statements(migration.sql):
        connection.execute(statement)
    now = time.time_ns() // 1000
    connection.execute("INSERT INTO migrations VALUES (?, ?, ?)", (migration.name, migration.checksum, now))


def _statements(sql: str) -> Iterator[str]:
    """Splits the statements, which run inside our transaction: executescript would commit first."""
    statement = ""
    for segment in sql.splitlines(keepends=True):
        statement += segment
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
