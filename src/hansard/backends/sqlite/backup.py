"""A copy of the database file that is either complete or absent.

The copy is written under a temporary name next to its target and renamed when all of it is on the disk. So a full disk,
an error or a crash never leaves an incomplete store under the name of a backup.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from hansard.backends.sqlite.errors import map_errors
from hansard.errors import Unavailable, ValidationError

_TEMPORARY = ".tmp"
_OLD = 3600.0
"""A temporary file without writes for this many seconds belongs to a backup that was killed."""


def backup(connection: sqlite3.Connection, target: Path) -> None:
    _refuse_existing(target)
    _remove_leftovers(target)
    partial = target.with_name(f"{target.name}.{secrets.token_hex(4)}{_TEMPORARY}")
    try:
        with map_errors(str(target)):
            _copy(connection, partial)
        _publish(partial, target)
    except OSError as error:
        raise Unavailable(f"{target} was not written: {error}") from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def _refuse_existing(target: Path) -> None:
    if target.exists():
        raise ValidationError(f"{str(target)!r} exists already: a backup never overwrites")


def _remove_leftovers(target: Path) -> None:
    oldest = time.time() - _OLD
    with contextlib.suppress(OSError):
        for path in target.parent.iterdir():
            token = path.name.removeprefix(f"{target.name}.").removesuffix(_TEMPORARY)
            if path.name == f"{target.name}.{token}{_TEMPORARY}" and len(token) == 8 and path.stat().st_mtime < oldest:
                path.unlink()


def _copy(connection: sqlite3.Connection, partial: Path) -> None:
    with closing(sqlite3.connect(partial)) as copy:
        # An interrupted copy is discarded, and a complete one is synced at once: it needs no journal.
        copy.execute("PRAGMA journal_mode = OFF")
        copy.execute("PRAGMA synchronous = OFF")
        connection.backup(copy)


def _publish(partial: Path, target: Path) -> None:
    """Moves the copy to its final name, unless another process has created that file meanwhile."""
    _sync(partial)
    try:
        os.link(partial, target)
    except FileExistsError:
        _refuse_existing(target)
        raise
    except OSError:
        # Not every file system has hard links.
        _refuse_existing(target)
        partial.rename(target)
    _sync(target.parent)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
