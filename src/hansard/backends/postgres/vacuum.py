"""VACUUM of our tables, on a separate connection: it cannot run inside a transaction, and may take long."""

from __future__ import annotations

from hansard.backends.postgres.connection import connect
from hansard.backends.postgres.errors import DRIVER, translate
from hansard.backends.postgres.options import PostgresOptions

_TABLES = (
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
    "search_state",
)
_SECONDS = 86_400.0


async def vacuum(options: PostgresOptions) -> None:
    try:
        link = await connect(options, options.direct_dsn or options.dsn, {})
        try:
            await link.script("SET statement_timeout = 0")
            for table in _TABLES:
                await link.connection.execute(link.in_schema(f"VACUUM hansard.{table}"), timeout=_SECONDS)
        finally:
            await link.close()
    except DRIVER as error:
        raise translate(error, options.where) from error
