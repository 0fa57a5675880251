"""The live tail of a conversation as server-sent events and, on the same path, over a WebSocket."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

from msgspec import Struct
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from hansard.errors import HansardError, MessageNotFound, NotFound, Unsupported
from hansard.model import Message
from hansard.server import parameters, tail
from hansard.server.context import ServerContext
from hansard.server.endpoints import Endpoint, HttpResponse, Id, Routes
from hansard.server.pipeline import Pipeline
from hansard.server.request import Request

routes = Routes()
_LOG = logging.getLogger("hansard.server")
_PREFIX = "/api/v1"
_SWITCHED = 101
_GOING_AWAY, _NO_LONGER, _FAILED = 1001, 1008, 1011


class TailQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """`after` is a message id or a cursor. By default, and without `Last-Event-ID`, the tail has new messages only."""

    after: str | None = None
    branch: Id | None = None


@routes.get(
    "/conversations/{conversation_id}/tail", produces=tail.EVENTS, errors=(MessageNotFound, NotFound, Unsupported)
)
async def tail_conversation(request: Request[TailQuery, None]) -> HttpResponse:
    """Streams each new message as an event. A message in progress is sent again each time that it has grown."""
    last = request.headers.get(b"last-event-id")
    after = request.query.after if last is None else last.decode("latin-1")
    cursor = await tail.start_cursor(request.store, request.path[0], after, request.query.branch)
    return HttpResponse(_events(request, cursor), media_type=tail.EVENTS, is_live=True)


async def _events(request: Request[TailQuery, None], cursor: str) -> AsyncIterator[bytes]:
    yield tail.opened(cursor)
    async for message in _messages(request, cursor, request.stream.disconnected):
        yield tail.event(message)


def _messages(
    request: Request[TailQuery, None], cursor: str, disconnected: Callable[[], Awaitable[None]]
) -> AsyncIterator[Message | None]:
    return tail.follow(
        request.store,
        request.path[0],
        cursor,
        request.query.branch,
        disconnected=disconnected,
        is_still_valid=_is_still_valid(request),
        shutdown=request.context.shutdown,
        heartbeat=request.context.settings.heartbeat_seconds,
    )


def _is_still_valid(request: Request[Any, Any]) -> Callable[[], bool]:
    """Returns a check whether the caller's key is still valid."""
    return partial(request.context.auth.is_still_valid, request.known_caller)


class WebSocketTail(Pipeline[Request[TailQuery, None]]):
    """The live tail over a WebSocket. Errors in the handshake are answered as for any other request."""

    def __init__(self, context: ServerContext) -> None:
        super().__init__(context, routes)

    def make_request(self, scope: Scope, receive: Receive, send: Send) -> Request[TailQuery, None]:
        return Request(self.context, len(_PREFIX), scope, receive, send)

    def find(self, request: Request[TailQuery, None]) -> tuple[Endpoint, tuple[str, ...]]:
        if not request.scope["path"][len(request.scope["root_path"]) :].startswith(_PREFIX + "/"):
            raise NotFound("there is no WebSocket at this path")
        return super().find(request)

    async def decode(self, request: Request[TailQuery, None]) -> None:
        request.query = parameters.decode(request.scope["query_string"], TailQuery)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, socket = self.make_request(scope, receive, send), WebSocket(scope, receive, send)
        try:
            await self.open(request)
            await self.decode(request)
            cursor = await tail.start_cursor(request.store, request.path[0], request.query.after, request.query.branch)
            self.context.observe(request, _SWITCHED)
        except Exception as error:
            await request.refuse_handshake(self.fail(request, error))
            return
        await socket.accept()
        await _follow(request, socket, cursor)


async def _follow(request: Request[TailQuery, None], socket: WebSocket, cursor: str) -> None:
    async def disconnected() -> None:
        """Ignores what the client sends."""
        while (await socket.receive())["type"] != "websocket.disconnect":
            pass

    try:
        await socket.send_json({"type": "open", "cursor": cursor})
        async for message in _messages(request, cursor, disconnected):
            await socket.send_text(tail.frame(message))
        if request.context.shutdown.is_set:
            await socket.close(_GOING_AWAY)
        elif not _is_still_valid(request)():
            await socket.close(_NO_LONGER)
    except WebSocketDisconnect:
        return
    except HansardError as error:
        _LOG.warning("a tail ended: %s: %s", error.code, error)
        await socket.close(_FAILED, error.code)
