"""What the server says about itself and its store, without a key."""

from __future__ import annotations

import asyncio
import time

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from hansard import Stats, Store, __version__
from hansard.errors import HansardError, TimedOut
from hansard.server import page

_PATIENCE = 5.0
_FRESH = 5.0
"""Seconds for which counts are shown again: counting a large store is work."""

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class Health:
    """What the server says about itself and its store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stats: Stats | None = None
        self._counted_at = 0.0

    async def page(self, request: Request) -> Response:
        stats = await self._count()
        text = page.render(__version__, self._store.capabilities, stats, request.scope.get("root_path", ""))
        return HTMLResponse(text, status_code=503 if stats is None else 200, headers=HEADERS)

    async def _count(self) -> Stats | None:
        if self._stats is not None and time.monotonic() - self._counted_at < _FRESH:
            return self._stats
        try:
            async with asyncio.timeout(_PATIENCE):
                self._stats = await self._store.admin.stats()
        except (HansardError, TimeoutError):
            self._stats = None
        self._counted_at = time.monotonic()
        return self._stats

    async def is_up(self, request: Request) -> Response:
        return JSONResponse({"status": "ok", "version": __version__}, headers=HEADERS)

    async def is_ready(self, request: Request) -> Response:
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._store.get_conversation("hansard-readiness")
        except TimeoutError:
            return _unready(TimedOut("the store did not answer in time"))
        except HansardError as error:
            return _unready(error)
        return JSONResponse({"status": "ready", "store": self._store.capabilities.name}, headers=HEADERS)


def _unready(error: HansardError) -> Response:
    # The message may name files and ids of the store: it is for the log, not for whoever asks.
    return JSONResponse({"status": "unavailable", "error": {"code": error.code}}, status_code=503, headers=HEADERS)
