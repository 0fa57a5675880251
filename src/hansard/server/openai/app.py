"""`/v1`: the wire of OpenAI, in front of the same store, gate, audit log and metrics as the API.

Every request goes one way: let the caller in, find the route, read parameters and body, ask the store, answer. Whatever
fails on the way becomes OpenAI's error body.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import msgspec
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from hansard.errors import HansardError, NotFound, Outcome, TimedOut, Unavailable, ValidationError
from hansard.server import bodies, keys
from hansard.server.bodies import Body, Gone
from hansard.server.calls import JSON, NO_HEADERS, Answer, Caller
from hansard.server.exchanges import Exchange, left
from hansard.server.gate import Gate
from hansard.server.openai import (
    calls,
    completions,
    conversations,
    items,
    models,
    realtime,
    relay,
    responses,
    stored_completions,
    stored_responses,
    threads,
)
from hansard.server.openai.answers import Answers
from hansard.server.openai.background import Background
from hansard.server.openai.calls import WireCall, WireEndpoint
from hansard.server.openai.failures import WireError, invalid, unknown_url, wire_error
from hansard.server.openai.pages import Deleted
from hansard.server.openai.references import References
from hansard.server.openai.retries import Retries
from hansard.server.openai.upstream import ClientGone, Upstream
from hansard.server.parts import Parts
from hansard.server.problems import Refused
from hansard.server.routing import Router

PREFIX = "/v1/"
ENDPOINTS: tuple[WireEndpoint, ...] = (
    *conversations.ROUTES,
    *items.ROUTES,
    *threads.ROUTES,
    *stored_responses.ROUTES,
    *stored_completions.ROUTES,
)
MODELS: tuple[WireEndpoint, ...] = (*responses.ROUTES, *completions.ROUTES, *models.ROUTES)
"""What is passed on to a model endpoint."""
REALTIME = "/v1" + realtime.PATH
_REALTIME_ROUTE = WireEndpoint(
    method="GET",
    path=realtime.PATH,
    handler=realtime.realtime,
    scope="write",
    parameters_known=(*relay.PASSED, "conversation", "relay", "replay", "keep_audio"),
)
_SWITCHED = 101
_LOG = logging.getLogger("hansard.server")
_encode = msgspec.json.Encoder().encode


class OpenAiWire:
    """The application below `/v1`."""

    def __init__(self, parts: Parts, endpoints: Sequence[WireEndpoint] = (*ENDPOINTS, *MODELS)) -> None:
        self._parts = parts
        self._store = parts.store
        self._gate = parts.gate
        self._watchers = parts.watchers
        self._router = Router(endpoints)
        self._retries = Retries()
        self._answers = Answers()
        self._deleted = Deleted()
        self._references = References(parts.store)
        self._upstream = Upstream(parts.settings)
        self._background = Background(parts.stopping)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._listen(scope, receive, send)
            return
        exchange = WireExchange(scope, send, time.perf_counter())
        body = self._parts.body(receive, exchange.headers)
        try:
            answer = await self._answer(exchange, body)
            exchange.received = body.size
            self._watchers.answered(exchange, answer.status)
            await exchange.send(answer, body.gone)
        except Gone:
            left(exchange, self._watchers)
        except ClientGone:
            _LOG.info("the client of %s left its answer", exchange.request_id)
            if not exchange.has_begun:
                left(exchange, self._watchers)
        except Exception as error:
            if exchange.has_begun:
                _LOG.error("the answer to %s broke off: %r", exchange.request_id, error)
                return
            await exchange.send(self._failed(exchange, error), body.gone)

    async def _answer(self, exchange: WireExchange, body: Body) -> Answer:
        caller = exchange.caller = await admit(self._gate, exchange.headers, exchange.scope.get("client"))
        endpoint, path = self._find(exchange)
        exchange.endpoint, exchange.parameters = endpoint, path
        self._gate.allow(caller, endpoint)
        view = self._gate.view(self._store, caller, exchange.headers)
        exchange.tenant, exchange.user = view.tenant_id, view.user_id
        body.charge = partial(self._gate.charge, caller)
        query = calls.parameters(exchange.scope["query_string"], endpoint.parameters_known)
        call = WireCall(
            view,
            caller,
            path,
            query,
            retries=self._retries,
            answers=self._answers,
            deleted=self._deleted,
            references=self._references,
            upstream=self._upstream,
            background=self._background,
        )
        call.headers, call.gone = exchange.headers, body.gone
        if endpoint.has_body:
            call.raw = await body.whole()
            call.body = _decoded(call.raw, exchange.headers)
        if endpoint.is_slow:
            return _shaped(await endpoint.handler(call))
        try:
            return _shaped(await self._parts.answers.wait_for(endpoint.handler(call)))
        except TimeoutError as error:
            outcome: Outcome = "not_applied" if endpoint.scope == "read" else "unknown"
            raise TimedOut("the store did not answer in time", outcome=outcome) from error

    async def _listen(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A WebSocket. What is wrong with the handshake is answered as any other request is."""
        exchange = WireExchange(scope, send, time.perf_counter())
        try:
            given = realtime.with_key(exchange.headers, scope.get("subprotocols", ()))
            caller = exchange.caller = await admit(self._gate, given, scope.get("client"))
            if exchange.path != realtime.PATH.encode():
                raise unknown_url(404, exchange.method, scope["path"])
            exchange.endpoint = _REALTIME_ROUTE
            self._gate.allow(caller, _REALTIME_ROUTE)
            view = self._gate.view(self._store, caller, exchange.headers)
            exchange.tenant, exchange.user = view.tenant_id, view.user_id
            query = calls.parameters(scope["query_string"], _REALTIME_ROUTE.parameters_known)
            asked = realtime.asked(query, exchange.headers, has_upstream=self._upstream.is_there)
            socket, guard = WebSocket(scope, receive, send), Listening(exchange, send, self._parts)
            if asked.relay:
                await relay.serve(socket, view, asked, guard, self._upstream, self._parts)
            else:
                await realtime.serve(socket, view, asked, guard, self._retries)
        except (HansardError, WireError, Refused) as error:
            answer = exchange.named(self._failed(exchange, error))
            headers = [(b"content-type", JSON.encode()), *answer.headers]
            await send({"type": "websocket.http.response.start", "status": answer.status, "headers": headers})
            await send({"type": "websocket.http.response.body", "body": answer.body})

    def _find(self, exchange: WireExchange) -> tuple[WireEndpoint, tuple[str, ...]]:
        try:
            return self._router.find(exchange.method, exchange.path)  # type: ignore[return-value]
        except (NotFound, Refused) as error:
            headers = error.headers if isinstance(error, Refused) else NO_HEADERS
            raise unknown_url(error.status, exchange.method, exchange.scope["path"], headers) from error

    def _failed(self, exchange: WireExchange, failure: Exception) -> Answer:
        is_trusted = exchange.caller is not None and exchange.caller.is_operator
        error = wire_error(failure, is_trusted=is_trusted)
        if error.status >= 500:
            _log(exchange, failure)
        try:
            self._watchers.answered(exchange, error.status, _code(failure))
        except Unavailable as unheard:
            _LOG.error("request %s: %s", exchange.request_id, unheard)
            error = wire_error(unheard, is_trusted=is_trusted)
        return error.answer()


class WireExchange(Exchange):
    """One request and its answer, which the SDKs know by `x-request-id`."""

    def __init__(self, scope: Scope, send: Send, began: float) -> None:
        super().__init__(scope, send, began)
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        self.path = raw[len(scope.get("root_path", "")) + len(PREFIX) - 1 :]

    def named(self, answer: Answer) -> Answer:
        return msgspec.structs.replace(answer, headers=((b"x-request-id", self.request_id.encode()), *answer.headers))

    async def send(self, answer: Answer, gone: Callable[[], Awaitable[None]]) -> None:
        await super().send(self.named(answer), gone)


class Listening:
    """What a session's events pass: the gate before they are done, the audit before they are answered."""

    def __init__(self, handshake: WireExchange, send: Send, parts: Parts) -> None:
        self._handshake = handshake
        self._send = send
        self._gate = parts.gate
        self._watchers = parts.watchers
        self._event = handshake

    def begun(self, conversation_id: str) -> None:
        self._handshake.more = {"conversation_id": conversation_id}
        self._watchers.answered(self._handshake, _SWITCHED)

    def holds(self) -> bool:
        assert self._handshake.caller is not None
        return self._gate.holds(self._handshake.caller)

    def admit(self, text: str, *, counts: bool = True) -> None:
        handshake, caller = self._handshake, self._handshake.caller
        assert caller is not None
        self._event = event = WireExchange(handshake.scope, self._send, time.perf_counter())
        event.endpoint, event.caller = handshake.endpoint, caller
        event.tenant, event.user, event.received = handshake.tenant, handshake.user, len(text.encode())
        if counts:
            self._gate.admit_again(caller)
        self._gate.charge(caller, event.received)

    def answered(self, on: dict[str, str], failure: Exception | None) -> None:
        self._event.more = on
        if failure is None:
            self._watchers.answered(self._event, 200)
            return
        status = wire_error(failure, is_trusted=False).status
        self._watchers.answered(self._event, status, _code(failure))


async def admit(gate: Gate, headers: dict[bytes, bytes], client: Any) -> Caller:
    """Who asks. An SDK always sends a key: where none is needed, one that cannot be ours is not looked at."""
    sent = headers.get(b"authorization", b"").partition(b" ")[2]
    if not gate.needs_key and not sent.startswith(keys.PREFIX.encode()):
        headers = {name: value for name, value in headers.items() if name != b"authorization"}
    return await gate.admit(headers, client)


def _decoded(raw: bytes, headers: dict[bytes, bytes]) -> dict[str, Any]:
    if not raw:
        return {}
    bodies.need_type(headers, JSON)
    try:
        body = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise invalid(f"We could not parse the JSON body of your request: {error}", None, "invalid_json") from error
    if not isinstance(body, dict):
        raise invalid("Invalid type for the body: expected an object.", None, "invalid_type")
    return body


def _shaped(value: Any) -> Answer:
    return value if isinstance(value, Answer) else Answer(_encode(value))


def _code(failure: Exception) -> str:
    """The stable code, as the metrics and the audit log know it."""
    failure = failure.error if isinstance(failure, Refused) else failure
    if isinstance(failure, HansardError):
        return failure.code
    status = getattr(failure, "status", 400)
    return {404: NotFound.code, 500: HansardError.code}.get(status, ValidationError.code)


def _log(exchange: WireExchange, failure: Exception) -> None:
    if isinstance(failure, HansardError | WireError | Refused):
        _LOG.warning("request %s: %s", exchange.request_id, failure)
    else:
        _LOG.error("request %s failed", exchange.request_id, exc_info=failure)
