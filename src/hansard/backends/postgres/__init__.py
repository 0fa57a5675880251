"""PostgreSQL. Begin with `backend.py`; `engine.py` says what a transaction is, `appending.py` how appends are fast."""

from __future__ import annotations

from hansard.backends.postgres.backend import PostgresBackend
from hansard.backends.postgres.options import parse
from hansard.urls import Url

__all__ = ["PostgresBackend", "open_backend"]


async def open_backend(url: Url, *, blocking: bool, upgrade: bool) -> PostgresBackend:
    """`postgresql://user:password@host/database?schema=hansard`; the options are in `options.py`."""
    return await PostgresBackend.open(parse(url), upgrade=upgrade)
