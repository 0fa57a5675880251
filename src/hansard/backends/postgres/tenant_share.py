"""Which tenant has most of the messages, as the statistics of the server know it.

It only decides how a search is done, never what it finds: an old or missing answer costs time. It is not counted, since
no statement may read the rows of several tenants.
"""

from __future__ import annotations

import time

from hansard.backends.postgres.connection import PostgresConnection
from hansard.backends.postgres.replica import Reader
from hansard.contract.types import Context

_SECONDS = 600.0
"""How long an answer is used."""


class TenantShare:
    def __init__(self, reader: Reader, schema: str) -> None:
        self._reader = reader
        self._schema = schema
        self._largest: str | None = None
        self._until = 0.0

    async def has_most(self, context: Context) -> bool:
        """Returns whether the tenant of a search has at least half of all messages."""
        now = time.monotonic()
        if now >= self._until:
            self._until = now + _SECONDS  # before the answer, so that concurrent searches do not ask as well
            self._largest = await self._reader.read(context, self._ask)
        return self._largest == context.tenant

    async def _ask(self, link: PostgresConnection) -> str | None:
        row = await link.one("largest_tenant", self._schema)
        return None if row is None else str(row[0])
