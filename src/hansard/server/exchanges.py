"""One request and its answer, whatever it is about: the API, a WebSocket's handshake, a tool for a model.

Whatever fails becomes one problem document; what nobody foresaw is logged with the id that the client is given, and
says nothing more.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple

from starlette.types import Scope, Send

from hansard.errors import HansardError, RateLimited, Unauthenticated, Unavailable
from hansard.server import problems
from hansard.server.calls import NO_HEADERS, Answer, Caller, Endpoint, Headers
from hansard.server.problems import Refused
from hansard.server.watchers import Watchers

PREFIX = b"/api/v1"
EXTENSION = "hansard.together"
"""What `hansard.server.protocol` offers: `hold` makes the next two writes one."""
_LOG = logging.getLogger("hansard.server")
_random = random.Random()
_CLIENT_LEFT = 499
_STREAM_BYTES = 64 * 1024
_SAFE_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
)


class Exchange:
    """One request and its answer: what is known about it so far."""

    def __init__(self, scope: Scope, send: Send, began: float) -> None:
        self.scope = scope
        self.began = began
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.method: str = scope.get("method", "GET")
        self.path: bytes = (scope.get("raw_path") or scope["path"].encode())[len(PREFIX) + len(scope["root_path"]) :]
        # Not from the system: asking it lets another thread go first, and nobody gains by guessing one.
        self.request_id = f"{_random.getrandbits(64):016x}"
        self.endpoint: Endpoint | None = None
        self.parameters: tuple[str, ...] = ()
        """What stands in the path for those of the endpoint."""
        self.more: dict[str, str] = {}
        """What the request is about, where the path does not say it."""
        self.caller: Caller | None = None
        self.tenant: str | None = None
        self.user: str | None = None
        self.has_begun = False
        self.received = 0
        """How many bytes of the body have arrived."""
        self._send = send

    @property
    def action(self) -> str | None:
        """The name of what is asked for."""
        return self.endpoint.name if self.endpoint is not None else None

    @property
    def on(self) -> dict[str, str]:
        """What the request is about: ids by their names."""
        names = self.endpoint.parameters if self.endpoint is not None else ()
        return {**dict(zip(names, self.parameters, strict=True)), **self.more}

    async def send(self, answer: Answer, gone: Callable[[], Awaitable[None]]) -> None:
        """Sends it, a stream only as long as `gone` has not returned."""
        if not isinstance(answer.body, bytes):
            await self._send_stream(answer, answer.body, gone)
            return
        length = (b"content-length", b"%d" % len(answer.body))
        if (together := self.scope.get("extensions", {}).get(EXTENSION)) is not None:
            together["hold"]()
        await self._start(answer, length)
        await self._send({"type": "http.response.body", "body": answer.body})

    async def _start(self, answer: Answer, *more: tuple[bytes, bytes]) -> None:
        self.has_begun = True
        kind = (b"content-type", answer.media_type.encode())
        headers = [*_SAFE_HEADERS, kind, *more, (b"request-id", self.request_id.encode()), *answer.headers]
        await self._send({"type": "http.response.start", "status": answer.status, "headers": headers})

    async def _send_stream(
        self, answer: Answer, pieces: AsyncIterator[bytes], gone: Callable[[], Awaitable[None]]
    ) -> None:
        """Begins only when there is something to send: until then an error can still be told."""
        held: list[bytes] = []
        size = 0
        # A live stream listens itself for its client's leaving. Any other goes on to its end, which nobody may await.
        leaving = None if answer.is_live else asyncio.ensure_future(gone())
        try:
            async for piece in pieces:
                held.append(piece)
                size += len(piece)
                if size >= _STREAM_BYTES or answer.is_live:
                    await self._send_piece(answer, b"".join(held))
                    held, size = [], 0
                if leaving is not None and leaving.done():
                    return
            await self._send_piece(answer, b"".join(held), more=False)
        finally:
            if leaving is not None:
                leaving.cancel()
            await pieces.aclose()  # type: ignore[attr-defined]

    async def _send_piece(self, answer: Answer, piece: bytes, *, more: bool = True) -> None:
        if not self.has_begun:
            await self._start(answer)
        await self._send({"type": "http.response.body", "body": piece, "more_body": more})


class Fault(NamedTuple):
    """What a request failed with, as its client may know it."""

    error: HansardError
    status: int
    headers: Headers


def fault_of(exchange: Exchange, failure: Exception, watchers: Watchers) -> Fault:
    """What the client is to be told; those who watch have been told of it."""
    status, headers = 0, NO_HEADERS
    if isinstance(failure, Refused):
        status, headers = failure.status, failure.headers
        failure = failure.error
    if not isinstance(failure, HansardError):
        _LOG.error("request %s failed", exchange.request_id, exc_info=failure)
        failure = HansardError("the server failed: its log has more under this request id")
    status = status or failure.status
    if status >= 500:
        _LOG.warning("request %s: %s: %s", exchange.request_id, failure.code, failure)
    if isinstance(failure, RateLimited):
        headers = ((b"retry-after", str(failure.retry_after).encode()),)
    try:
        watchers.answered(exchange, status, failure.code)
    except Unavailable as error:
        _LOG.error("request %s: %s", exchange.request_id, error)
        failure, status = error, error.status
    return Fault(failure, status, headers)


def failed(exchange: Exchange, failure: Exception, watchers: Watchers) -> Answer:
    """The answer to a request that failed."""
    error, status, headers = fault_of(exchange, failure, watchers)
    if isinstance(error, Unauthenticated):
        headers = ((b"www-authenticate", b"Bearer"),)
    is_trusted = exchange.caller is not None and exchange.caller.is_operator
    body = problems.encode(error, status, exchange.request_id, is_trusted=is_trusted)
    return Answer(body, status, headers, problems.MEDIA_TYPE.decode())


def left(exchange: Exchange, watchers: Watchers) -> None:
    """The client went away in the middle of its request. Nobody is there to be told what goes wrong now."""
    try:
        watchers.answered(exchange, _CLIENT_LEFT)
    except Unavailable as error:
        _LOG.error("request %s: %s", exchange.request_id, error)
