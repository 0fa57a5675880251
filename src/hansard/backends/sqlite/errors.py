"""The one place where SQLite's errors become ours."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hansard.errors import Corrupt, Denied, FormatMismatch, HansardError, TimedOut, Unavailable, ValidationError


def translate(error: sqlite3.Error, where: str) -> HansardError:
    """By SQLite's primary result code; what is not in the table was not applied."""
    make = _TABLE.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, _other)
    return make(error, where)


def _busy(error: sqlite3.Error, where: str) -> HansardError:
    return TimedOut(f"{where} is locked by another process: {error}", outcome="not_applied")


def _full(error: sqlite3.Error, where: str) -> HansardError:
    return Unavailable(f"the disk of {where} is full: nothing was written", outcome="not_applied")


def _denied(error: sqlite3.Error, where: str) -> HansardError:
    return Denied(f"{where} cannot be written: {error}")


def _cannot_open(error: sqlite3.Error, where: str) -> HansardError:
    return Denied(f"{where} cannot be opened: {error} (check the permissions of the file and its folder)")


def _foreign(error: sqlite3.Error, where: str) -> HansardError:
    return FormatMismatch(f"{where} is not a SQLite database", found="another file", wanted="a Hansard store")


def _corrupt(error: sqlite3.Error, where: str) -> HansardError:
    return Corrupt(f"{where} is damaged: {error}. Run `hansard check`, restore a backup", where=where)


def _too_big(error: sqlite3.Error, where: str) -> HansardError:
    return ValidationError(f"a value is larger than SQLite stores: {error}")


def _disk(error: sqlite3.Error, where: str) -> HansardError:
    return Unavailable(f"the disk of {where} failed: {error}", outcome="unknown")


def _other(error: sqlite3.Error, where: str) -> HansardError:
    return Unavailable(f"{where}: {error}", retryable=False, outcome="not_applied")


_TABLE: dict[int, Callable[[sqlite3.Error, str], HansardError]] = {
    sqlite3.SQLITE_BUSY: _busy,
    sqlite3.SQLITE_LOCKED: _busy,
    sqlite3.SQLITE_FULL: _full,
    sqlite3.SQLITE_READONLY: _denied,
    sqlite3.SQLITE_PERM: _denied,
    sqlite3.SQLITE_AUTH: _denied,
    sqlite3.SQLITE_CANTOPEN: _cannot_open,
    sqlite3.SQLITE_NOTADB: _foreign,
    sqlite3.SQLITE_CORRUPT: _corrupt,
    sqlite3.SQLITE_TOOBIG: _too_big,
    sqlite3.SQLITE_IOERR: _disk,
}


@contextmanager
def map_errors(where: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise translate(error, where) from error
