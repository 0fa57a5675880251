"""`/v1`: OpenAI's wire format, over the same store and through the same pipeline as the REST API."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from hansard.errors import HansardError, NotFound
from hansard.formats.openai_items import BadItem
from hansard.server import body, key_file
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
"""Routes that are passed on to a model endpoint."""
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
    """The application under `/v1`. Its errors have OpenAI's format."""

    expected = (HansardError, HttpError, WireError, BadItem)

    def __init__(self, context: ServerContext) -> None:
        super().__init__(context, (*ENDPOINTS, *MODELS))
        self._services = WireServices(
            Retries(),
            AnswerCache(),
            DeletedItems(),
            References(context.store),
            Upstream(context.settings),
            Background(context.shutdown),
        )

    def make_request(self, scope: Scope, receive: Receive, send: Send) -> WireRequest:
        return WireRequest(self._services, self.context, scope, receive, send)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = self.make_request(scope, receive, send)
        if scope["type"] == "websocket":
            await self._listen(request, WebSocket(scope, receive, send))
        else:
            await self.serve(request)

    async def _listen(self, request: WireRequest, socket: WebSocket) -> None:
        """Serves a WebSocket. Errors in the handshake are answered as for any other request."""
        try:
            await self.open(request)
            await self.decode(request)
            upstream, guard = self._services.upstream, Guard(request)
            handshake = realtime.read_handshake(request.query, request.headers, has_upstream=upstream.is_there)
            if handshake.relay:
                await realtime_relay.serve(socket, request.store, handshake, guard, upstream, self.context)
            else:
                await realtime.serve(socket, request.store, handshake, guard, self._services.retries)
        except self.expected as error:
            await request.refuse_handshake(self.fail(request, error), (b"x-request-id", request.request_id.encode()))

    async def admit(self, request: WireRequest) -> Caller:
        """Returns the caller. SDKs always send a key: if the server needs none, keys that are not ours are ignored."""
        headers = realtime.with_key(request.headers, request.scope.get("subprotocols", ()))
        sent = headers.get(b"authorization", b"").partition(b" ")[2]
        if not self.auth.needs_key and not sent.startswith(key_file.PREFIX.encode()):
            headers = {name: value for name, value in headers.items() if name != b"authorization"}
        return await self.auth.admit(headers, request.scope.get("client"))

    def find(self, request: WireRequest) -> tuple[Endpoint, tuple[str, ...]]:
        path = request.scope["path"]
        if request.scope["type"] == "websocket":
            if request.raw_path != realtime.PATH.encode():
                raise unknown_url(404, request.method, path)
            return _REALTIME_ROUTE, ()
        try:
            return super().find(request)
        except (NotFound, HttpError) as error:
            headers = error.headers if isinstance(error, HttpError) else NO_HEADERS
            raise unknown_url(error.status, request.method, path, headers) from error

    async def decode(self, request: WireRequest) -> None:
        assert request.endpoint is not None
        request.query = wire_request.parameters(request.scope["query_string"], request.endpoint.query)
        if request.endpoint.body is not None:
            request.raw = await request.stream.whole()
            request.body = _decoded(request.raw, request.headers)

    def error_response(self, request: WireRequest, failure: Exception) -> tuple[HttpResponse, str]:
        return wire_error(failure, is_trusted=is_trusted(request)).response(), code_of(failure)


def _decoded(raw: bytes, headers: dict[bytes, bytes]) -> dict[str, Any]:
    if not raw:
        return {}
    body.require_type(headers, JSON)
    try:
        decoded = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise invalid(f"We could not parse the JSON body of your request: {error}", None, "invalid_json") from error
    if not isinstance(decoded, dict):
        raise invalid("Invalid type for the body: expected an object.", None, "invalid_type")
    return decoded
