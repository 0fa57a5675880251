"""The live tail of a conversation: by server-sent events and, on the same path, by WebSocket."""

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
    """`after` is a message id or a cursor. Without it, and without `Last-Event-ID`, the tail begins now."""

    after: str | None = None
    branch: Id | None = None


@routes.get("/conversations/{conversation_id}/tail", gives=tail.EVENTS, errors=(MessageNotFound, NotFound, Unsupported))
async def tail_conversation(call: Request[TailQuery, None]) -> HttpResponse:
    """Each new message as an event, as it arrives; one in progress comes again each time that it has grown."""
    last = call.headers.get(b"last-event-id")
    after = call.query.after if last is None else last.decode("latin-1")
    cursor = await tail.begin(call.store, call.path[0], after, call.query.branch)
    return HttpResponse(_events(call, cursor), media_type=tail.EVENTS, is_live=True)


async def _events(call: Request[TailQuery, None], cursor: str) -> AsyncIterator[bytes]:
    yield tail.opened(cursor)
    async for message in _messages(call, cursor, call.stream.gone):
        yield tail.event(message)


def _messages(
    call: Request[TailQuery, None], cursor: str, gone: Callable[[], Awaitable[None]]
) -> AsyncIterator[Message | None]:
    return tail.follow(
        call.store,
        call.path[0],
        cursor,
        call.query.branch,
        gone=gone,
        holds=_holds(call),
        stopping=call.parts.stopping,
        heartbeat=call.parts.settings.heartbeat_seconds,
    )


def _holds(call: Request[Any, Any]) -> Callable[[], bool]:
    """Whether the caller's key is still valid."""
    return partial(call.parts.auth.holds, call.known_caller)


class WebSocketTail(Pipeline[Request[TailQuery, None]]):
    """The live tail by WebSocket. What is wrong with a handshake is answered as any other request is."""

    def __init__(self, parts: ServerContext) -> None:
        super().__init__(parts, routes)

    def call(self, scope: Scope, receive: Receive, send: Send) -> Request[TailQuery, None]:
        return Request(self.parts, len(_PREFIX), scope, receive, send)

    def find(self, call: Request[TailQuery, None]) -> tuple[Endpoint, tuple[str, ...]]:
        if not call.scope["path"][len(call.scope["root_path"]) :].startswith(_PREFIX + "/"):
            raise NotFound("there is nothing here to listen to")
        return super().find(call)

    async def decode(self, call: Request[TailQuery, None]) -> None:
        call.query = parameters.decode(call.scope["query_string"], TailQuery)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        call, socket = self.call(scope, receive, send), WebSocket(scope, receive, send)
        try:
            await self.open(call)
            await self.decode(call)
            cursor = await tail.begin(call.store, call.path[0], call.query.after, call.query.branch)
            self.parts.observe(call, _SWITCHED)
        except Exception as error:
            await call.refuse_handshake(self.fail(call, error))
            return
        await socket.accept()
        await _follow(call, socket, cursor)


async def _follow(call: Request[TailQuery, None], socket: WebSocket, cursor: str) -> None:
    async def gone() -> None:
        """Whatever the client says is passed over: a tail only speaks."""
        while (await socket.receive())["type"] != "websocket.disconnect":
            pass

    try:
        await socket.send_json({"type": "open", "cursor": cursor})
        async for message in _messages(call, cursor, gone):
            await socket.send_text(tail.frame(message))
        if call.parts.stopping.is_set:
            await socket.close(_GOING_AWAY)
        elif not _holds(call)():
            await socket.close(_NO_LONGER)
    except WebSocketDisconnect:
        return
    except HansardError as error:
        _LOG.warning("a tail ended: %s: %s", error.code, error)
        await socket.close(_FAILED, error.code)
