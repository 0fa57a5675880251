"""`/api/v1`: every request goes the same way, from the socket to the store and back.

Find the endpoint, let the caller in, decode, ask the store, encode, audit, answer. Whatever fails on the way becomes
one problem document; what nobody foresaw is logged with the id that the client is given, and says nothing more.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Sequence
from functools import cache, partial
from typing import Any

import msgspec
from starlette.types import Receive, Scope, Send

from hansard.errors import (
    Conflict,
    HansardError,
    Outcome,
    RateLimited,
    TimedOut,
    Unauthenticated,
    Unavailable,
    ValidationError,
)
from hansard.server import bodies, parameters, problems
from hansard.server.bodies import Body, Gone
from hansard.server.calls import JSON, NO_HEADERS, Answer, Call, Caller, Endpoint, digits
from hansard.server.gate import Gate
from hansard.server.problems import Refused
from hansard.server.routing import Router
from hansard.server.settings import Settings
from hansard.server.tail import Stopping
from hansard.server.watchers import Watchers
from hansard.store import Store

PREFIX = b"/api/v1"
_LOG = logging.getLogger("hansard.server")
_STREAM_BYTES = 64 * 1024
_SAFE_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
)
_encode = msgspec.json.Encoder().encode


_decoder = cache(msgspec.json.Decoder)


class Api:
    """The application below `/api/v1`."""

    def __init__(
        self,
        store: Store,
        endpoints: Sequence[Endpoint],
        gate: Gate,
        watchers: Watchers,
        settings: Settings,
        stopping: Stopping,
    ) -> None:
        self._store = store
        self._router = Router(endpoints)
        self._gate = gate
        self._watchers = watchers
        self._settings = settings
        self._stopping = stopping
        self._decoders = {endpoint: _decoder(endpoint.body) for endpoint in endpoints if endpoint.body is not None}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, send, time.perf_counter())
        body = Body(receive, exchange.headers, self._settings)
        try:
            answer = await self._answer(exchange, body)
            exchange.received = body.size
            self._watchers.answered(exchange, answer.status)
            await exchange.send(answer)
        except Gone:
            self._watchers.answered(exchange, 499)
        except Exception as error:
            if exchange.has_begun:
                # Half an answer must not look whole: leaving it unfinished makes the server close the connection.
                _LOG.error("the answer to %s broke off: %r", exchange.request_id, error)
                return
            await exchange.send(self._failed(exchange, error))

    async def _answer(self, exchange: Exchange, body: Body) -> Answer:
        exchange.caller = await self._gate.admit(exchange.headers, exchange.scope.get("client"))
        endpoint, path = self._router.find(exchange.method, exchange.path)
        exchange.endpoint, exchange.parameters = endpoint, path
        caller = exchange.caller
        self._gate.allow(caller, endpoint)
        view = self._gate.view(self._store, caller, exchange.headers)
        exchange.tenant, exchange.user = view.tenant_id, view.user_id
        call: Call[Any, Any] = Call(self._store, view, caller, path, body)
        call.headers = exchange.headers
        call.stopping, call.heartbeat = self._stopping, self._settings.heartbeat_seconds
        body.charge = partial(self._gate.charge, caller)
        self._read_conditions(endpoint, exchange.headers, call)
        call.query = parameters.decode(exchange.scope["query_string"], endpoint.query)
        if endpoint.takes is not None:
            bodies.need_type(exchange.headers, endpoint.takes)
            return self._shaped(endpoint, await endpoint.handler(call))
        call.body = await self._body(endpoint, exchange.headers, body)
        try:
            async with asyncio.timeout(self._settings.request_seconds):
                return self._shaped(endpoint, await endpoint.handler(call))
        except TimeoutError as error:
            outcome: Outcome = "not_applied" if endpoint.scope == "read" else "unknown"
            raise TimedOut("the store did not answer in time", outcome=outcome) from error
        except Conflict as error:
            if call.version is not None and error.expected is not None:
                raise Refused(412, error) from error
            raise

    def _read_conditions(self, endpoint: Endpoint, headers: dict[bytes, bytes], call: Call[Any, Any]) -> None:
        if (match := headers.get(b"if-match")) is not None:
            if not endpoint.versioned:
                raise ValidationError("this route has no version to compare: leave If-Match out")
            call.version = digits(match.decode("latin-1"))
        if (key := headers.get(b"idempotency-key")) is not None:
            if endpoint.repeat == "no":
                raise ValidationError("this route cannot be repeated safely: leave Idempotency-Key out")
            call.key = key.decode("latin-1")
            if not 0 < len(call.key) <= 256:
                raise ValidationError("Idempotency-Key must have between 1 and 256 characters")

    async def _body(self, endpoint: Endpoint, headers: dict[bytes, bytes], body: Body) -> Any:
        decoder = self._decoders.get(endpoint)
        if decoder is None:
            return None
        bodies.need_type(headers, JSON)
        raw = await body.whole()
        try:
            return decoder.decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
            raise ValidationError(f"the body is wrong: {error}") from error

    def _shaped(self, endpoint: Endpoint, value: Any) -> Answer:
        if isinstance(value, Answer):
            return value
        headers = ((b"etag", b'"%d"' % endpoint.etag(value)),) if endpoint.etag is not None else ()
        return Answer(_encode(value), endpoint.status, headers)

    def _failed(self, exchange: Exchange, failure: Exception) -> Answer:
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
        if isinstance(failure, Unauthenticated):
            headers = ((b"www-authenticate", b"Bearer"),)
        try:
            self._watchers.answered(exchange, status, failure.code)
        except Unavailable as error:
            _LOG.error("request %s: %s", exchange.request_id, error)
            failure, status = error, error.status
        is_trusted = exchange.caller is not None and exchange.caller.is_operator
        body = problems.encode(failure, status, exchange.request_id, is_trusted=is_trusted)
        return Answer(body, status, headers, problems.MEDIA_TYPE.decode())


class Exchange:
    """One request and its answer: what is known about it so far."""

    def __init__(self, scope: Scope, send: Send, began: float) -> None:
        self.scope = scope
        self.began = began
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.method: str = scope["method"]
        self.path: bytes = (scope.get("raw_path") or scope["path"].encode())[len(PREFIX) + len(scope["root_path"]) :]
        self.request_id = os.urandom(8).hex()
        self.endpoint: Endpoint | None = None
        self.parameters: tuple[str, ...] = ()
        self.caller: Caller | None = None
        self.tenant: str | None = None
        self.user: str | None = None
        self.has_begun = False
        self.received = 0
        """How many bytes of the body have arrived."""
        self._send = send

    async def send(self, answer: Answer) -> None:
        if not isinstance(answer.body, bytes):
            await self._send_stream(answer, answer.body)
            return
        length = (b"content-length", str(len(answer.body)).encode())
        await self._start(answer, length)
        await self._send({"type": "http.response.body", "body": answer.body})

    async def _start(self, answer: Answer, *more: tuple[bytes, bytes]) -> None:
        self.has_begun = True
        kind = (b"content-type", answer.media_type.encode())
        headers = [kind, *more, (b"request-id", self.request_id.encode()), *_SAFE_HEADERS, *answer.headers]
        await self._send({"type": "http.response.start", "status": answer.status, "headers": headers})

    async def _send_stream(self, answer: Answer, pieces: AsyncIterator[bytes]) -> None:
        """Begins only when there is something to send: until then an error can still be told."""
        held: list[bytes] = []
        size = 0
        async for piece in pieces:
            held.append(piece)
            size += len(piece)
            if size >= _STREAM_BYTES or answer.is_live:
                if not self.has_begun:
                    await self._start(answer)
                await self._send({"type": "http.response.body", "body": b"".join(held), "more_body": True})
                held, size = [], 0
        if not self.has_begun:
            await self._start(answer)
        await self._send({"type": "http.response.body", "body": b"".join(held)})
