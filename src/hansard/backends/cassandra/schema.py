"""The keyspace and its tables: made on first use, and brought up to date by migrations with a ledger."""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
import time
import uuid
from collections.abc import Sequence
from importlib.resources import files

from msgspec import Struct

from hansard.backends.cassandra.connection import Link, Row
from hansard.backends.shared.migrations import lacking
from hansard.contract.backend import Durability
from hansard.errors import Denied, FormatMismatch, TimedOut, Unavailable

OLDEST = (5, 0)
_PATIENCE = 60
_LEDGER = (
    "CREATE TABLE IF NOT EXISTS {0}.migrations (name text PRIMARY KEY, checksum text, state text, at timestamp) "
    "WITH ID = {1}"
)
"""The id is fixed, so that processes that make the table at once, through different nodes, make the same one."""
_SETTINGS = "SELECT name, value FROM system_views.settings WHERE name IN ('commitlog_sync', 'paxos_variant')"
_NOT_YET = ("does not exist", "Unknown CF", "unconfigured table", "INCOMPATIBLE_SCHEMA")
"""The answers of a node that does not know a new table yet."""
_TABLE = re.compile(r"(?<=TABLE IF NOT EXISTS )|(?<=ALTER TABLE )|(?<= ON )(?=\w+ \()")
"""Where a statement names a table, without its keyspace."""
_LOCK = "(lock)"
_LOCK_SECONDS = 120


class Migration(Struct, frozen=True):
    name: str
    statements: tuple[str, ...]
    checksum: str


def migrations() -> list[Migration]:
    found = sorted(
        (each for each in files(__package__).joinpath("migrations").iterdir() if each.name.endswith(".cql")),
        key=lambda each: each.name,
    )
    return [_migration(each.name.removesuffix(".cql"), each.read_text()) for each in found]


def _migration(name: str, text: str) -> Migration:
    plain = re.sub(r"^--.*$", "", text, flags=re.MULTILINE)
    statements = tuple(" ".join(each.split()) for each in plain.split(";") if each.strip())
    # Without the comments, which may be reworded.
    return Migration(name, statements, hashlib.sha256(";".join(statements).encode()).hexdigest())


async def prepare(link: Link, *, upgrade: bool) -> Durability:
    """Makes or migrates the tables where that is asked for, and says what the server's commit log survives."""
    durability = await _look(link)
    keyspace = link.options.keyspace
    done = await _ledger(link)
    known = migrations()
    missing = known if done is None else lacking(link.where, known, done)
    if missing:
        if done and not upgrade:
            raise FormatMismatch(
                f"{link.where} was written by an older version and lacks {missing[0].name!r}: run `hansard upgrade`",
                found=max(done),
                wanted=missing[-1].name,
            )
        await _make_keyspace(link)
        await link.execute(_LEDGER.format(keyspace, uuid.uuid5(uuid.NAMESPACE_OID, keyspace)))
        await _migrate(link)
    return durability


async def _look(link: Link) -> Durability:
    ((version,),) = await link.execute("SELECT release_version FROM system.local")
    check_version(link.where, version)
    try:
        rows = await link.execute(_SETTINGS)
    except Denied as error:
        raise Denied(
            f"{link.where}: this role may not read how the server commits: GRANT SELECT ON system_views.settings to it"
        ) from error
    settings: dict[str, str] = {name: value for name, value in rows}  # noqa: C416
    if settings.get("paxos_variant") not in ("v2", "v2_without_linearizable_reads_or_rejected_writes"):
        raise FormatMismatch(
            f"{link.where} has paxos_variant {settings.get('paxos_variant')!r}: set paxos_variant to v2 on each node",
            found=settings.get("paxos_variant"),
            wanted="v2",
        )
    return "machine" if settings.get("commitlog_sync") in ("group", "batch") else "process"


def check_version(where: str, version: str) -> None:
    if tuple(int(each) for each in re.findall(r"\d+", version)[:2]) < OLDEST:
        raise FormatMismatch(f"{where} is version {version}: Hansard needs 5.0 or newer", found=version, wanted="5.0")


async def _make_keyspace(link: Link) -> None:
    name = link.options.keyspace
    found = await link.execute("SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = %s", (name,))
    if found:
        return
    nodes = await link.execute("SELECT data_center FROM system.peers_v2")
    ((datacenter,),) = await link.execute("SELECT data_center FROM system.local")
    size = 1 + sum(each == datacenter for (each,) in nodes)
    await link.execute(
        f"CREATE KEYSPACE IF NOT EXISTS {name} WITH replication = "
        f"{{'class': 'NetworkTopologyStrategy', '{datacenter}': {min(size, link.options.replication)}}}"
    )


async def _ledger(link: Link) -> dict[str, str] | None:
    """Checksum by name; None where there is no ledger."""
    keyspace = link.options.keyspace
    tables = await link.execute(
        "SELECT table_name FROM system_schema.tables WHERE keyspace_name = %s AND table_name = 'migrations'",
        (keyspace,),
    )
    if not tables:
        return None
    rows = await _execute(link, f"SELECT name, checksum, state FROM {keyspace}.migrations")
    return {name: checksum for name, checksum, state in rows if state == "done"}


async def _execute(link: Link, cql: str, arguments: Sequence[str] = ()) -> list[Row]:
    """Waits for a table that another process is making: its name is stored before the nodes know the table."""
    give_up = time.monotonic() + _PATIENCE
    while True:
        try:
            return await link.execute(cql, arguments)
        except Unavailable as error:
            is_being_made = any(words in str(error) for words in _NOT_YET)
            if not is_being_made or time.monotonic() > give_up:
                raise
            await asyncio.sleep(0.1)


async def _migrate(link: Link) -> None:
    """One process after another: changes of the schema at the same time can leave a table twice."""
    table = f"{link.options.keyspace}.migrations"
    token = secrets.token_hex(8)
    for _ in range(_PATIENCE * 4):
        taken = await _execute(
            link,
            f"INSERT INTO {table} (name, checksum, state) VALUES (%s, %s, 'lock') IF NOT EXISTS "
            f"USING TTL {_LOCK_SECONDS}",
            (_LOCK, token),
        )
        if taken[0][0]:
            break
        await asyncio.sleep(0.25)
    else:
        raise TimedOut(f"{link.where} is being migrated by another process, for more than {_PATIENCE} seconds")
    try:
        for migration in lacking(link.where, migrations(), await _ledger(link) or {}):
            await _run(link, migration)
    finally:
        await link.execute(f"DELETE FROM {table} WHERE name = %s IF checksum = %s", (_LOCK, token))


async def _run(link: Link, migration: Migration) -> None:
    """Each statement may be repeated, by the process that continues after a crash."""
    keyspace = link.options.keyspace
    for statement in migration.statements:
        await link.execute(_TABLE.sub(f"{keyspace}.", statement))
    await link.execute(
        f"INSERT INTO {keyspace}.migrations (name, checksum, state, at) VALUES (%s, %s, 'done', toTimestamp(now())) "
        "IF NOT EXISTS",
        (migration.name, migration.checksum),
    )
