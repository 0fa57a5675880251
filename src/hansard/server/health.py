"""Liveness and readiness checks, which need no key."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from hansard import Store, __version__
from hansard.errors import HansardError, TimedOut

_PATIENCE = 5.0

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class Health:
    def __init__(self, store: Store) -> None:
        self._store = store

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
    # The message may contain file names and ids, so it is not sent to an unauthenticated client.
    return JSONResponse({"status": "unavailable", "error": {"code": error.code}}, status_code=503, headers=HEADERS)
