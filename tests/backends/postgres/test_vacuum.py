"""VACUUM frees the space of deleted rows, while others use the store."""

from __future__ import annotations

import asyncio

import pytest
from tests.backends.postgres.kit import opened, play, raw
from tests.servers import postgres

from hansard import Message


def test_every_table_is_vacuumed() -> None:
    if reason := postgres.why_absent():
        pytest.skip(reason)
    schema = postgres.new_schema()

    async def scenario() -> None:
        async with opened(postgres.with_schema(schema)) as store:
            await store.append("c", [Message("user", "x") for _ in range(100)])
            await store.append_message("kept", "user", "here")
            await store.delete_conversation("c")
            await asyncio.gather(store.admin.vacuum(), store.append_message("kept", "user", "meanwhile"))
            assert [message.content for message in await store.get_messages("kept")] == ["here", "meanwhile"]
            async with raw() as connection:
                tables = await connection.fetch(
                    "SELECT c.relname, pg_stat_get_vacuum_count(c.oid) AS times FROM pg_class c"
                    " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind = 'r'",
                    schema,
                )
            missed = {row["relname"] for row in tables if not row["times"]}
            assert missed <= {"migrations"}, "every table of ours that rows are deleted from"

    try:
        play(scenario)
    finally:
        postgres.run(postgres.sql(f"DROP SCHEMA IF EXISTS {schema} CASCADE"))
