"""The HTTP application over a store.

- `/`: a page that says what is running.
- `/healthz`: 200 as long as the process answers, whatever the store does. For restarting it.
- `/readyz`: 200 when the store answers, else 503. For sending it traffic.
"""

from __future__ import annotations

import asyncio
import time

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from hansard import Stats, Store, __version__
from hansard.errors import HansardError, TimedOut
from hansard.server import page

_PATIENCE = 5.0
_FRESH = 5.0
"""Seconds for which counts are shown again: counting a large store is work."""

_HEADERS = {
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
        text = page.render(__version__, self._store.capabilities, stats)
        return HTMLResponse(text, status_code=503 if stats is None else 200, headers=_HEADERS)

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
        return JSONResponse({"status": "ok", "version": __version__}, headers=_HEADERS)

    async def is_ready(self, request: Request) -> Response:
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._store.get_conversation("hansard-readiness")
        except TimeoutError:
            return _unready(TimedOut("the store did not answer in time"))
        except HansardError as error:
            return _unready(error)
        return JSONResponse({"status": "ready", "store": self._store.capabilities.name}, headers=_HEADERS)


def _unready(error: HansardError) -> Response:
    # The message may name files and ids of the store: it is for the log, not for whoever asks.
    return JSONResponse({"status": "unavailable", "error": {"code": error.code}}, status_code=503, headers=_HEADERS)


def create_app(store: Store) -> Starlette:
    """The application. Whoever opened the store closes it."""
    health = Health(store)
    return Starlette(
        routes=[
            Route("/", health.page),
            Route("/healthz", health.is_up),
            Route("/readyz", health.is_ready),
        ]
    )
