"""A store that counts what it asks of the cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import hansard
from hansard.backends.cassandra import CassandraBackend
from hansard.backends.cassandra.connection import Link, Row, Statement
from hansard.backends.cassandra.options import options_of
from hansard.testing.clock import Clock
from hansard.urls import Url


class CountingLink(Link):
    counts: Counter[str]
    rows: Counter[str]
    under_way = 0
    most = 0
    """Requests that were under way at once."""

    @contextmanager
    def _counted(self, name: str) -> Iterator[None]:
        self.counts[name] += 1
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            yield
        finally:
            self.under_way -= 1

    async def read(self, name: str, *arguments: Any, serial: bool = False) -> list[Row]:
        with self._counted(name):
            found = await super().read(name, *arguments, serial=serial)
        self.rows[name] += len(found)
        return found

    async def put(self, name: str, *arguments: Any) -> None:
        with self._counted(name):
            await super().put(name, *arguments)

    async def put_together(self, statements: Sequence[Statement]) -> None:
        with self._counted("put_together"):
            await super().put_together(statements)

    async def swap(self, statements: Sequence[Statement]) -> bool:
        with self._counted("swap"):
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
