"""What these tests share: stores in schemas of their own, and a look past them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
from tests.servers import postgres

from hansard import Store, connect
from hansard.backends.postgres import PostgresBackend


def play(scenario: Callable[[], Coroutine[Any, Any, None]], patience: float = 120) -> None:
    asyncio.run(asyncio.wait_for(scenario(), patience))


@asynccontextmanager
async def raw(url: str | None = None) -> AsyncIterator[Any]:
    """A connection of the test's own."""
    connection = await asyncpg.connect(url or postgres.url())
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    async with connect(url) as store:
        yield store


def backend_of(store: Store) -> PostgresBackend:
    backend = store.backend
    assert isinstance(backend, PostgresBackend)
    return backend


@asynccontextmanager
async def following(store: Store, conversation: str, after: str | None = None) -> AsyncIterator[Any]:
    """A live tail, closed in the end."""
    tail: Any = store.watch(conversation, after=after)
    try:
        yield tail
    finally:
        await tail.aclose()


async def sessions(connection: Any, pattern: str = "hansard") -> list[int]:
    """The server's processes that serve stores."""
    found = await connection.fetch(
        "SELECT pid FROM pg_stat_activity WHERE application_name = $1 AND pid <> pg_backend_pid()", pattern
    )
    return [row[0] for row in found]
