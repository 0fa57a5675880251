"""A store that counts what it asks of the cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import hansard
from hansard.backends.cassandra import CassandraBackend
from hansard.backends.cassandra.connection import Link, Row, Statement
from hansard.backends.cassandra.options import options_of
from hansard.testing.clock import Clock
from hansard.urls import Url


class CountingLink(Link):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.counts: Counter[str] = Counter()
        self.rows: Counter[str] = Counter()

    async def read(self, name: str, *arguments: Any, serial: bool = False) -> list[Row]:
        self.counts[name] += 1
        found = await super().read(name, *arguments, serial=serial)
        self.rows[name] += len(found)
        return found

    async def put(self, name: str, *arguments: Any) -> None:
        self.counts[name] += 1
        await super().put(name, *arguments)

    async def put_together(self, statements: Sequence[Statement]) -> None:
        self.counts["put_together"] += 1
        await super().put_together(statements)

    async def swap(self, statements: Sequence[Statement]) -> bool:
        self.counts["swap"] += 1
        return await super().swap(statements)


def backend_of(url: str) -> CassandraBackend:
    return CassandraBackend(*options_of(Url(url)))


def counting_link(store: hansard.Store) -> CountingLink:
    """Counts from now on what a store asks."""
    assert isinstance(store.backend, CassandraBackend)
    link = store.backend.storage.link
    link.__class__ = CountingLink
    assert isinstance(link, CountingLink)
    link.counts, link.rows = Counter(), Counter()
    return link


@asynccontextmanager
async def counted(url: str) -> AsyncIterator[tuple[hansard.Store, Counter[str]]]:
    """A store whose clock moves on by a millisecond a call, and the counts of its requests."""
    backend = backend_of(url)
    await backend.storage.open(upgrade=False)
    async with hansard.Store(backend, clock=Clock()) as store:
        yield store, counting_link(store).counts
