"""A connection to the server, with our statements by name."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import asyncpg

from hansard.backends.postgres.errors import DRIVER, leaves_usable
from hansard.backends.postgres.options import PostgresOptions
from hansard.backends.postgres.queries import combined, in_schema

Row = Sequence[Any]
Question = tuple[str, Sequence[Any]]
"""The name of a query, and its values."""

_STATEMENTS = 250
"""Prepared statements that a connection keeps; we have fewer, but filters add more."""
_PREFETCH = 200
_GRACE = 5.0
"""Seconds that the server gets to report by itself that a statement took too long."""


class PostgresConnection:
    __slots__ = ("_schema", "connection", "made_at", "queries", "used_at")

    def __init__(self, connection: Any, queries: Mapping[str, str], schema: str) -> None:
        self.connection = connection
        self.queries = queries
        self._schema = schema
        self.made_at = self.used_at = time.monotonic()

    async def all(self, name: str, *values: Any) -> list[Row]:
        return await self.fetch(self.queries[name], values)

    async def one(self, name: str, *values: Any) -> Row | None:
        row: Row | None = await self.connection.fetchrow(self.queries[name], *values)
        return row

    async def run(self, name: str, *values: Any) -> int:
        """Executes a statement and returns how many rows it changed."""
        status: str = await self.connection.execute(self.queries[name], *values)
        return int(status.rpartition(" ")[2])

    async def together(self, questions: Sequence[Question]) -> list[list[Row]]:
        """Returns the rows of several queries, in one round trip and of one snapshot."""
        if len(questions) == 1:
            name, values = questions[0]
            return [await self.fetch(self.queries[name], values)]
        sql = combined(tuple(self.queries[name] for name, _ in questions))
        answers: list[list[Row]] = [[] for _ in questions]
        for number, row in await self.fetch(sql, [value for _, values in questions for value in values]):
            answers[number].append(row)
        return answers

    async def fetch(self, sql: str, values: Sequence[Any]) -> list[Row]:
        """Executes generated SQL."""
        rows: list[Row] = await self.connection.fetch(sql, *values)
        return rows

    async def each(self, sql: str, values: Sequence[Any]) -> AsyncIterator[Row]:
        """Executes generated SQL inside a transaction and yields its rows, a few at a time."""
        async for row in self.connection.cursor(sql, *values, prefetch=_PREFETCH):
            yield row

    def in_schema(self, sql: str) -> str:
        return in_schema(sql, self._schema)

    async def script(self, sql: str) -> None:
        """Executes statements without parameters, in one round trip."""
        await self.connection.execute(sql)

    async def undo(self, error: BaseException) -> None:
        """Ends the transaction after an error, or the connection if its state is unknown."""
        if not leaves_usable(error):
            self.terminate()
        elif not self.connection.is_closed() and self.connection.is_in_transaction():
            try:
                await self.script("ROLLBACK")
            except DRIVER:
                self.terminate()

    @property
    def is_usable(self) -> bool:
        return not self.connection.is_closed() and not self.connection.is_in_transaction()

    def terminate(self) -> None:
        """Closes the connection at once, without waiting for the server."""
        self.connection.terminate()

    async def close(self) -> None:
        await self.connection.close(timeout=_GRACE)


async def connect(options: PostgresOptions, dsn: str, queries: Mapping[str, str], timeout: float) -> PostgresConnection:
    """Connects to one server. Behind a pooler the session holds nothing: no settings, no prepared statements."""
    session = {"application_name": "hansard", "default_transaction_isolation": "read committed", **options.settings}
    connection = await asyncpg.connect(
        dsn,
        timeout=timeout,
        command_timeout=options.statement_timeout + _GRACE,
        statement_cache_size=0 if options.pooler else _STATEMENTS,
        max_cached_statement_lifetime=0,
        server_settings=None if options.pooler else session,
    )
    return PostgresConnection(connection, queries, options.schema)
