"""A request as handlers receive it, and how its response is sent."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections.abc import AsyncIterator
from copy import copy
from functools import lru_cache
from typing import Generic, Self, TypeVar

from starlette.types import Receive, Scope, Send

from hansard.server.body import EXTENSION, Exchange, RequestBody
from hansard.server.context import ServerContext
from hansard.server.endpoints import Caller, Endpoint, Headers, HttpResponse
from hansard.store import Store

Q = TypeVar("Q")
B = TypeVar("B")

_PROCESS = secrets.token_hex(4)
_numbers = itertools.count(secrets.randbits(30))
_STREAM_BYTES = 64 * 1024
_SAFE_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
)


@lru_cache(maxsize=64)
def _fixed_headers(media_type: str) -> Headers:
    """Returns the headers that every response of a media type has."""
    return (*_SAFE_HEADERS, (b"content-type", media_type.encode()))


def _new_id() -> str:
    # Not from the system's generator: that call releases the GIL, and a request id need not be unguessable.
    return f"{_PROCESS}{next(_numbers):08x}"


class Request(Generic[Q, B]):
    """One request. The pipeline fills in its fields; handlers receive it authorized and decoded."""

    query: Q
    body: B
    store: Store
    """The caller's view of the store."""
    id_headers: tuple[bytes, ...] = (b"request-id",)
    """Response headers that contain the request id."""

    endpoint: Endpoint | None = None
    path: tuple[str, ...] = ()
    """Values of the endpoint's path parameters, in order."""
    caller: Caller | None = None
    tenant: str | None = None
    user: str | None = None
    version: int | None = None
    """The version in `If-Match`."""
    key: str | None = None
    """The `Idempotency-Key`."""
    has_started = False
    """Part of the response was sent."""
    received = 0
    """Bytes of the body that have arrived."""

    def __init__(self, context: ServerContext, prefix: int, scope: Scope, receive: Receive, send: Send) -> None:
        self.started_at = time.perf_counter()
        self.context = context
        self.root = context.store
        """The whole store, for operator routes."""
        self.scope = scope
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.method: str = scope.get("method", "GET")
        self.raw_path: bytes = (scope.get("raw_path") or scope["path"].encode())[prefix + len(scope["root_path"]) :]
        """The path as sent, without the prefix of the application."""
        self.request_id = _new_id()
        # Removed from the scope, which the exchange refers to: otherwise each request would be a reference cycle.
        exchange: Exchange | None = scope["extensions"].pop(EXTENSION, None) if "extensions" in scope else None
        self._exchange = exchange if exchange is not None and exchange.is_for(receive, send) else None
        most = context.settings.max_body_bytes
        self.stream = RequestBody(receive, self.headers, most, context.body_deadlines, self._exchange)
        self.extra_ids: dict[str, str] = {}
        """Ids for the audit log that the path does not contain."""
        self._send = send

    @property
    def action(self) -> str | None:
        """The name of the endpoint."""
        return self.endpoint.name if self.endpoint is not None else None

    @property
    def subject_ids(self) -> dict[str, str]:
        """The ids that the request is about, by name."""
        names = self.endpoint.parameters if self.endpoint is not None else ()
        return {**dict(zip(names, self.path, strict=True)), **self.extra_ids}

    @property
    def known_caller(self) -> Caller:
        """The caller, after authentication."""
        assert self.caller is not None
        return self.caller

    def new_event(self, size: int) -> Self:
        """Returns a request for a message of `size` bytes on this connection, for limits, audit and metrics."""
        event = copy(self)
        event.started_at, event.request_id = time.perf_counter(), _new_id()
        event.received, event.extra_ids = size, {}
        return event

    # The response

    async def send(self, answer: HttpResponse) -> None:
        """Sends a response. A stream ends when the client disconnects."""
        if not isinstance(answer.body, bytes):
            await self._send_stream(answer, answer.body)
            return
        fixed, own = _fixed_headers(answer.media_type), self._own_headers(answer)
        own.append((b"content-length", b"%d" % len(answer.body)))
        self.has_started = True
        if self._exchange is None or not self._exchange.respond(answer.status, fixed, own, answer.body):
            await self._send({"type": "http.response.start", "status": answer.status, "headers": [*fixed, *own]})
            await self._send({"type": "http.response.body", "body": answer.body})

    def _own_headers(self, answer: HttpResponse) -> list[tuple[bytes, bytes]]:
        """Returns the headers that only this response has."""
        id = self.request_id.encode()
        return [*[(name, id) for name in self.id_headers], *answer.headers]

    async def _send_stream(self, answer: HttpResponse, pieces: AsyncIterator[bytes]) -> None:
        """Sends no headers before the first chunk: until then, an error can still be reported with its status."""
        held: list[bytes] = []
        size = 0
        # Live streams detect disconnects themselves; other streams are stopped here.
        leaving = None if answer.is_live else asyncio.ensure_future(self.stream.disconnected())
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

    async def _send_piece(self, answer: HttpResponse, piece: bytes, *, more: bool = True) -> None:
        if not self.has_started:
            self.has_started = True
            headers = [*_fixed_headers(answer.media_type), *self._own_headers(answer)]
            await self._send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await self._send({"type": "http.response.body", "body": piece, "more_body": more})

    async def refuse_handshake(self, answer: HttpResponse, *more: tuple[bytes, bytes]) -> None:
        """Answers a WebSocket handshake with an HTTP error."""
        if "websocket.http.response" not in self.scope.get("extensions", {}):
            await self._send({"type": "websocket.close", "code": 1000, "reason": ""})
            return
        assert isinstance(answer.body, bytes)
        length = (b"content-length", b"%d" % len(answer.body))
        headers = [(b"content-type", answer.media_type.encode()), length, *more, *answer.headers]
        await self._send({"type": "websocket.http.response.start", "status": answer.status, "headers": headers})
        await self._send({"type": "websocket.http.response.body", "body": answer.body})
