"""Which tenant has most of the messages and which words are common, as the statistics of the server know it.

They only decide how a search is done, never what it finds: old or missing ones cost time. Nothing is counted for them,
since no statement may read the rows of several tenants.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from hansard.backends.postgres.connection import PostgresConnection
from hansard.backends.postgres.replica import Reader
from hansard.contract.types import Context

MOST = 5000
"""Messages that a rare word has at most."""
_SECONDS = 600.0
"""How long an answer is used."""


class Known(NamedTuple):
    largest: str | None = None
    """The tenant with at least half of the messages."""
    common: frozenset[str] = frozenset()
    """Words that are in more than `MOST` of its messages."""


class IndexStatistics:
    def __init__(self, reader: Reader, schema: str) -> None:
        self._reader = reader
        self._schema = schema
        self._known = Known()
        self._until = 0.0

    async def known(self, context: Context) -> Known:
        now = time.monotonic()
        if now >= self._until:
            self._until = now + _SECONDS  # before the answer, so that concurrent searches do not ask as well
            self._known = await self._reader.read(context, self._ask)
        return self._known

    async def _ask(self, link: PostgresConnection) -> Known:
        row = await link.one("index_statistics", self._schema, MOST)
        assert row is not None
        return Known(row[0], frozenset(row[1] or ()))
