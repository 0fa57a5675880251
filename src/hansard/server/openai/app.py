"""`/v1`: the wire of OpenAI, in front of the same store, and through the same pipeline, as the REST API."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from hansard.errors import HansardError, NotFound
from hansard.formats.openai_items import BadItem
from hansard.server import body, keys
from hansard.server.context import ServerContext
from hansard.server.endpoints import JSON, NO_HEADERS, Caller, Endpoint, HttpResponse
from hansard.server.openai import (
    completions,
    conversations,
    items,
    models,
    realtime,
    realtime_relay,
    responses,
    stored_completions,
    stored_responses,
    threads,
    wire_request,
)
from hansard.server.openai.answer_cache import AnswerCache
from hansard.server.openai.background import Background
from hansard.server.openai.item_pages import DeletedItems
from hansard.server.openai.realtime import Guard
from hansard.server.openai.references import References
from hansard.server.openai.retries import Retries
from hansard.server.openai.upstream import Upstream
from hansard.server.openai.wire_errors import WireError, code_of, invalid, unknown_url, wire_error
from hansard.server.openai.wire_request import PREFIX, WireRequest, WireServices
from hansard.server.pipeline import Pipeline, is_trusted
from hansard.server.problems import HttpError

ENDPOINTS: tuple[Endpoint, ...] = (
    *conversations.routes,
    *items.routes,
    *threads.routes,
    *stored_responses.routes,
    *stored_completions.routes,
)
MODELS: tuple[Endpoint, ...] = (*responses.routes, *completions.routes, *models.routes)
"""What is passed on to a model endpoint."""
REALTIME = PREFIX + realtime.PATH
_REALTIME_ROUTE = Endpoint(
    name="openai_realtime",
    method="GET",
    path=realtime.PATH,
    handler=realtime.realtime,
    scope="write",
    query=(*realtime_relay.PASSED, "conversation", "relay", "replay", "keep_audio"),
)


class OpenAiWire(Pipeline[WireRequest]):
    """The application below `/v1`. It speaks in OpenAI's words, also about what is wrong."""

    expected = (HansardError, HttpError, WireError, BadItem)

    def __init__(self, parts: ServerContext) -> None:
        super().__init__(parts, (*ENDPOINTS, *MODELS))
        self._services = WireServices(
            Retries(),
            AnswerCache(),
            DeletedItems(),
            References(parts.store),
            Upstream(parts.settings),
            Background(parts.stopping),
        )

    def call(self, scope: Scope, receive: Receive, send: Send) -> WireRequest:
        return WireRequest(self._services, self.parts, scope, receive, send)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        call = self.call(scope, receive, send)
        if scope["type"] == "websocket":
            await self._listen(call, WebSocket(scope, receive, send))
        else:
            await self.serve(call)

    async def _listen(self, call: WireRequest, socket: WebSocket) -> None:
        """A WebSocket. What is wrong with the handshake is answered as any other request is."""
        try:
            await self.open(call)
            await self.decode(call)
            upstream, guard = self._services.upstream, Guard(call)
            asked = realtime.read_handshake(call.query, call.headers, has_upstream=upstream.is_there)
            if asked.relay:
                await realtime_relay.serve(socket, call.store, asked, guard, upstream, self.parts)
            else:
                await realtime.serve(socket, call.store, asked, guard, self._services.retries)
        except self.expected as error:
            await call.refuse_handshake(self.fail(call, error), (b"x-request-id", call.request_id.encode()))

    async def admit(self, call: WireRequest) -> Caller:
        """Who asks. An SDK always sends a key: where none is needed, one that cannot be ours is not looked at."""
        headers = realtime.with_key(call.headers, call.scope.get("subprotocols", ()))
        sent = headers.get(b"authorization", b"").partition(b" ")[2]
        if not self.auth.needs_key and not sent.startswith(keys.PREFIX.encode()):
            headers = {name: value for name, value in headers.items() if name != b"authorization"}
        return await self.auth.admit(headers, call.scope.get("client"))

    def find(self, call: WireRequest) -> tuple[Endpoint, tuple[str, ...]]:
        path = call.scope["path"]
        if call.scope["type"] == "websocket":
            if call.address != realtime.PATH.encode():
                raise unknown_url(404, call.method, path)
            return _REALTIME_ROUTE, ()
        try:
            return super().find(call)
        except (NotFound, HttpError) as error:
            headers = error.headers if isinstance(error, HttpError) else NO_HEADERS
            raise unknown_url(error.status, call.method, path, headers) from error

    async def decode(self, call: WireRequest) -> None:
        assert call.endpoint is not None
        call.query = wire_request.parameters(call.scope["query_string"], call.endpoint.query)
        if call.endpoint.body is not None:
            call.raw = await call.stream.whole()
            call.body = _decoded(call.raw, call.headers)

    def refusal(self, call: WireRequest, failure: Exception) -> tuple[HttpResponse, str]:
        return wire_error(failure, is_trusted=is_trusted(call)).answer(), code_of(failure)


def _decoded(raw: bytes, headers: dict[bytes, bytes]) -> dict[str, Any]:
    if not raw:
        return {}
    body.need_type(headers, JSON)
    try:
        decoded = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise invalid(f"We could not parse the JSON body of your request: {error}", None, "invalid_json") from error
    if not isinstance(decoded, dict):
        raise invalid("Invalid type for the body: expected an object.", None, "invalid_type")
    return decoded
