"""Reads that a replica may answer: `read_from="replica"`.

A replica that cannot be reached, or has not received the tables yet, is left alone for a moment, and the primary
answers.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from msgspec import structs

from hansard.backends.postgres.connection import PostgresConnection
from hansard.backends.postgres.engine import PostgresEngine
from hansard.backends.postgres.errors import was_cancelled
from hansard.backends.postgres.options import PostgresOptions
from hansard.contract.types import Context
from hansard.errors import FormatMismatch, Unavailable

T = TypeVar("T")

_AWAY = 5.0
"""Seconds until a replica that failed is tried again."""

_log = logging.getLogger("hansard")


class Reader:
    def __init__(self, primary: PostgresEngine, *, walled: bool) -> None:
        self._primary = primary
        self._replica = _engine(primary.options, walled=walled) if primary.options.replica_dsns else None
        self._away_until = 0.0

    async def close(self) -> None:
        if self._replica is not None:
            await self._replica.close()

    async def read(
        self, context: Context, run: Callable[[PostgresConnection], Awaitable[T]], *, snapshot: bool = False
    ) -> T:
        """Runs a read as `PostgresEngine.read` does, on a replica if the context allows it."""
        replica = self._replica if context.replica and time.monotonic() >= self._away_until else None
        if replica is not None:
            try:
                return await replica.read(context.tenant, run, snapshot=snapshot)
            except (Unavailable, FormatMismatch) as error:
                # A statement that takes too long there would take too long on the primary, too.
                if was_cancelled(error):
                    raise
                _log.warning("reading from the primary instead of a replica: %s", error)
                self._away_until = time.monotonic() + _AWAY
        return await self._primary.read(context.tenant, run, snapshot=snapshot)


def _engine(options: PostgresOptions, *, walled: bool) -> PostgresEngine:
    """Each process asks the replicas in an order of its own, so that all of them get work."""
    dsns = random.SystemRandom().sample(options.replica_dsns, len(options.replica_dsns))
    own = structs.replace(options, dsns=tuple(dsns), where=f"a replica of {options.where}", needs_primary=False)
    return PostgresEngine(own, walled=walled)
