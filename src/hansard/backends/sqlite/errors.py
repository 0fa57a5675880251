"""The only place where SQLite's errors become ours."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

from hansard.errors import Corrupt, Denied, FormatMismatch, HansardError, TimedOut, Unavailable, ValidationError

P = ParamSpec("P")
T = TypeVar("T")


class Unreadable(Exception):
    """A row has values that Hansard does not write: NULL for a text, a number that is no time."""


DRIVER = (sqlite3.Error, UnicodeDecodeError, Unreadable)
"""The exceptions that `translate` handles. The sqlite3 module decodes texts of a file, and its messages that contain
them."""


def decodes(function: Callable[P, T]) -> Callable[P, T]:
    """For functions that only decode rows: their errors become `Unreadable`.

    Errors elsewhere are bugs of ours or of a caller, and are raised unchanged.
    """

    @wraps(function)
    def decode(*args: P.args, **options: P.kwargs) -> T:
        try:
            return function(*args, **options)
        except HansardError:
            raise
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
            raise unreadable(error) from error

    return decode


def unreadable(error: Exception) -> Unreadable:
    return Unreadable(f"a row has other values than Hansard writes ({type(error).__name__}: {error})")


def next_number(after: int, number: int) -> int:
    """Returns the number of the next row of a walk. In a damaged file it may not increase: the walk would never end."""
    if number <= after:
        raise Unreadable(f"rows are not in the order of their numbers: {number} comes after {after}")
    return number


def translate(error: Exception, where: str) -> Exception:
    """Translates an error of SQLite or of a damaged row; returns any other error unchanged.

    By SQLite's primary result code; a code that is not in the table means that nothing was applied.
    """
    if isinstance(error, Unreadable | UnicodeDecodeError):
        return _corrupt(error, where)
    if not isinstance(error, sqlite3.Error):
        return error
    if str(error).startswith(_DAMAGED_SCHEMA):
        return _corrupt(error, where)
    make = _TABLE.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, _other)
    return make(error, where)


_DAMAGED_SCHEMA = (
    "no such ",
    "vtable constructor failed",
    "malformed ",
    "Could not decode to UTF-8",
    "SQL logic error",
)
"""Prefixes of SQLite's messages when our statements meet tables that differ from our schema; they have no code."""


def _busy(error: sqlite3.Error, where: str) -> HansardError:
    return TimedOut(f"{where} is locked by another process: {error}", outcome="not_applied")


def _full(error: sqlite3.Error, where: str) -> HansardError:
    return Unavailable(f"the disk of {where} is full: nothing was written", outcome="not_applied")


def _denied(error: sqlite3.Error, where: str) -> HansardError:
    return Denied(f"{where} cannot be written: {error}")


def _cannot_open(error: sqlite3.Error, where: str) -> HansardError:
    return Denied(f"{where} cannot be opened: {error} (check the permissions of the file and its folder)")


def _foreign(error: sqlite3.Error, where: str) -> HansardError:
    if _was_ours(where):
        return _corrupt(error, where)
    what = "is not a SQLite database, or its first page is lost"
    return FormatMismatch(f"{where} {what}", found="another file", wanted="a Hansard store")


def _was_ours(where: str) -> bool:
    """Returns whether the header still has SQLite's magic or ours: then it is damaged, and not another kind of file."""
    try:
        with Path(where).open("rb") as file:
            header = file.read(72)
    except OSError:
        return False
    return header.startswith(b"SQLite format 3\0") or header[68:72] == b"HANS"


def _corrupt(error: Exception, where: str) -> HansardError:
    return Corrupt(f"{where} is damaged: {error}. Run `hansard check`, restore a backup", where=where)


def _contradictory(error: sqlite3.Error, where: str) -> HansardError:
    what = f"its indexes contradict its tables ({error})"
    return Corrupt(f"{where} is damaged: {what}. Run `hansard check`, restore a backup", where=where)


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
    sqlite3.SQLITE_CONSTRAINT: _contradictory,
    sqlite3.SQLITE_MISMATCH: _contradictory,
}


@contextmanager
def map_errors(where: str) -> Iterator[None]:
    try:
        yield
    except DRIVER as error:
        raise translate(error, where) from error
