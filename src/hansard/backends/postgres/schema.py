"""Opens a database: checks the server, and creates, checks or migrates the schema.

The ledger stores the name, checksum and time of every migration. An empty schema gets the newest one; an older one is
only migrated on request (`hansard upgrade`); a newer one, or one of another program, is refused. A migration whose
first line is `-- additive` does not change what older code uses: older processes keep running, and may be started
again. Several processes may open a new database at once: one of them creates the schema, under a transaction lock.
"""

from __future__ import annotations

import hashlib
import time
from importlib import resources
from typing import Any

from msgspec import Struct

from hansard.analysis import VERSION
from hansard.backends.postgres.connection import PostgresConnection
from hansard.backends.postgres.options import PostgresOptions
from hansard.backends.postgres.queries import in_schema, quoted
from hansard.backends.shared.migrations import lacking
from hansard.contract.backend import Durability
from hansard.errors import FormatMismatch, ValidationError

OLDEST = 14
"""The oldest PostgreSQL that is tested and still supported upstream."""

TABLES = (
    "conversations",
    "branches",
    "messages",
    "summaries",
    "records",
    "blobs",
    "blob_uses",
    "tombstones",
    "usage",
    "search",
    "search_queue",
)

_LOCK = 0x48414E53
"""'HANS': the advisory lock of processes that create or migrate a store in this database."""

_PATIENCE = 86_400.0
"""Seconds that a migration may take."""

_LEDGER = """
CREATE TABLE hansard.migrations (
    name text COLLATE "C" PRIMARY KEY,
    checksum text NOT NULL,
    applied_at bigint NOT NULL,
    additive boolean NOT NULL
)
"""


class PostgresMigration(Struct, frozen=True):
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()

    @property
    def is_additive(self) -> bool:
        return self.sql.startswith("-- additive")


def migrations() -> list[PostgresMigration]:
    folder = resources.files(__package__).joinpath("migrations")
    files = sorted((entry for entry in folder.iterdir() if entry.name.endswith(".sql")), key=lambda entry: entry.name)
    return [PostgresMigration(entry.name.removesuffix(".sql"), entry.read_text("utf-8")) for entry in files]


class SchemaState(Struct, frozen=True):
    """The state found on opening."""

    durability: Durability
    walled: bool


async def prepare(link: PostgresConnection, options: PostgresOptions, *, upgrade: bool) -> SchemaState:
    """Creates or migrates the schema if requested, and returns what the server offers."""
    connection = link.connection
    check_server(
        connection.get_server_version().major, await connection.fetchval("SHOW server_encoding"), options.where
    )
    await _apply(connection, options, upgrade=upgrade)
    if options.rls:
        await _raise_wall(connection, options)
    return await _read_settings(connection, options)


def check_server(major: int, encoding: str, where: str) -> None:
    if major < OLDEST:
        raise FormatMismatch(
            f"{where} is PostgreSQL {major}: Hansard needs {OLDEST} or newer",
            found=str(major),
            wanted=str(OLDEST),
        )
    if encoding.upper() not in ("UTF8", "UTF-8"):
        raise FormatMismatch(
            f"{where} stores text as {encoding}: create a database with ENCODING 'UTF8'", found=encoding, wanted="UTF8"
        )


async def _apply(connection: Any, options: PostgresOptions, *, upgrade: bool) -> None:
    known = migrations()
    done = await _ledger(connection, options)
    if done is not None and not _lacking(options.where, known, done):
        return
    async with connection.transaction():
        await _lock(connection)
        # Another process may have been first.
        done = await _ledger(connection, options)
        missing = known if done is None else _lacking(options.where, known, done)
        if missing and done is not None and not upgrade:
            raise FormatMismatch(
                f"{options.where} was written by an older version and lacks {missing[0].name!r}: run `hansard upgrade`",
                found=max(done, default="nothing"),
                wanted=known[-1].name,
            )
        if done is None:
            await _create(connection, options)
        # A migration concerns all tenants: behind the second wall it would see none of them.
        await connection.execute("SET LOCAL hansard_wall.open = 'on'")
        for migration in missing:
            await _apply_one(connection, options, migration)
        # A new index is empty: our version of the analysis will fill it.
        fresh = "UPDATE hansard.search_state SET version = $1, filling = $1 WHERE version = 0 AND filling = 0"
        await connection.execute(in_schema(fresh, options.schema), VERSION)


async def _lock(connection: Any) -> None:
    """Locks until the transaction ends.

    Changing a large table may take long, and so may waiting for another process.
    """
    await connection.execute("SET LOCAL statement_timeout = 0")
    await connection.execute(f"SELECT pg_advisory_xact_lock({_LOCK})", timeout=_PATIENCE)


async def _ledger(connection: Any, options: PostgresOptions) -> dict[str, tuple[str, bool]] | None:
    """Returns checksum by name, and whether older code can continue; None if there is no ledger."""
    # By a query and not by to_regclass, which may use a cache from before we waited for the lock.
    if "migrations" not in await _tables(connection, options):
        return None
    found = await connection.fetch(in_schema("SELECT name, checksum, additive FROM hansard.migrations", options.schema))
    return {row[0]: (row[1], row[2]) for row in found}


def _lacking(where: str, known: list[PostgresMigration], done: dict[str, tuple[str, bool]]) -> list[PostgresMigration]:
    """Unknown migrations that are additive do not count."""
    names = {migration.name for migration in known}
    counted = {name: checksum for name, (checksum, is_additive) in done.items() if name in names or not is_additive}
    return lacking(where, known, counted)


async def _create(connection: Any, options: PostgresOptions) -> None:
    """Checks before it writes: nothing is created in a schema that another program uses."""
    if await _tables(connection, options):
        raise FormatMismatch(
            f"the schema {options.schema!r} of {options.where} holds tables of another program: "
            "name another with schema=… in the URL",
            found="foreign tables",
            wanted="a Hansard store",
        )
    # Not IF NOT EXISTS, which requires the right to create a schema even if it exists.
    if not await connection.fetchval("SELECT 1 FROM pg_namespace WHERE nspname = $1", options.schema):
        await connection.execute(f"CREATE SCHEMA {quoted(options.schema)}")
    await connection.execute(in_schema(_LEDGER, options.schema))


async def _tables(connection: Any, options: PostgresOptions) -> set[str]:
    found = await connection.fetch(
        "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1",
        options.schema,
    )
    return {row[0] for row in found}


async def _apply_one(connection: Any, options: PostgresOptions, migration: PostgresMigration) -> None:
    await connection.execute(in_schema(migration.sql, options.schema), timeout=_PATIENCE)
    await connection.execute(
        in_schema("INSERT INTO hansard.migrations VALUES ($1, $2, $3, $4)", options.schema),
        migration.name,
        migration.checksum,
        time.time_ns() // 1000,
        migration.is_additive,
    )


# Row-level security


async def _raise_wall(connection: Any, options: PostgresOptions) -> None:
    """Enables the second wall permanently, also for the owner of the tables."""
    if await connection.fetchval("SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user"):
        raise ValidationError(
            "rls=true has no effect for a superuser or a role that may bypass row-level security: "
            "connect as a role that is neither"
        )
    if await _is_walled(connection, options):
        return
    async with connection.transaction():
        await _lock(connection)
        for table in TABLES:
            name = f"{quoted(options.schema)}.{table}"
            await connection.execute(f"ALTER TABLE {name} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY")


async def _is_walled(connection: Any, options: PostgresOptions) -> bool:
    return bool(
        await connection.fetchval(
            "SELECT relrowsecurity FROM pg_class WHERE oid = to_regclass($1)", f"{quoted(options.schema)}.conversations"
        )
    )


async def _read_settings(connection: Any, options: PostgresOptions) -> SchemaState:
    fsync, commit = await connection.fetchrow("SELECT current_setting('fsync'), current_setting('synchronous_commit')")
    safe = fsync == "on" and commit != "off" and options.durability == "full"
    return SchemaState("machine" if safe else "process", await _is_walled(connection, options))
