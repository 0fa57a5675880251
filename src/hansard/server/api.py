"""`/api/v1`: every request goes the same way, from the socket to the store and back.

Find the endpoint, let the caller in, decode, ask the store, encode, audit, answer. Whatever fails on the way becomes
one problem document; what nobody foresaw is logged with the id that the client is given, and says nothing more.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import msgspec
from starlette.types import Receive, Scope, Send

from hansard.errors import Conflict, Outcome, TimedOut, ValidationError
from hansard.server import batch_size, bodies, parameters
from hansard.server.bodies import Body, Gone
from hansard.server.calls import JSON, Answer, Call, Endpoint, digits
from hansard.server.exchanges import Exchange, failed, left
from hansard.server.parts import Parts
from hansard.server.problems import Refused
from hansard.server.routing import Router

_LOG = logging.getLogger("hansard.server")
_encode = msgspec.json.Encoder().encode


_decoder = cache(msgspec.json.Decoder)


class Api:
    """The application below `/api/v1`."""

    def __init__(self, parts: Parts, endpoints: Sequence[Endpoint]) -> None:
        self._parts = parts
        self._store = parts.store
        self._gate = parts.gate
        self._watchers = parts.watchers
        self._router = Router(endpoints)
        self._decoders = {endpoint: _decoder(endpoint.body) for endpoint in endpoints if endpoint.body is not None}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, send, time.perf_counter())
        body = self._parts.body(receive, exchange.headers)
        try:
            answer = await self._answer(exchange, body)
            exchange.received = body.size
            self._watchers.answered(exchange, answer.status)
            await exchange.send(answer, body.gone)
        except Gone:
            left(exchange, self._watchers)
        except Exception as error:
            if exchange.has_begun:
                # Half an answer must not look whole: leaving it unfinished makes the server close the connection.
                _LOG.error("the answer to %s broke off: %r", exchange.request_id, error)
                return
            await exchange.send(failed(exchange, error, self._watchers), body.gone)

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
        call.parts = self._parts
        body.charge = partial(self._gate.charge, caller)
        self._read_conditions(endpoint, exchange.headers, call)
        call.query = parameters.decode(exchange.scope["query_string"], endpoint.query)
        if endpoint.takes is not None:
            bodies.need_type(exchange.headers, endpoint.takes)
            return self._shaped(endpoint, await endpoint.handler(call))
        call.body = await self._body(endpoint, exchange.headers, body)
        try:
            return self._shaped(endpoint, await self._parts.answers.wait_for(endpoint.handler(call)))
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
        if endpoint.is_batch:
            batch_size.check(raw, self._parts.settings.max_messages)
        try:
            return bodies.decode(raw, decoder)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
            raise ValidationError(f"the body is wrong: {error}") from error

    def _shaped(self, endpoint: Endpoint, value: Any) -> Answer:
        if isinstance(value, Answer):
            return value
        headers = ((b"etag", b'"%d"' % endpoint.etag(value)),) if endpoint.etag is not None else ()
        return Answer(_encode(value), endpoint.status, headers)
