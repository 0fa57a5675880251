"""The live tail by WebSocket: the path, the walls, the refusals and the audit are those of the route for events."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial

from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from hansard.errors import HansardError, NotFound
from hansard.server import parameters, tail
from hansard.server.calls import Answer
from hansard.server.exchanges import PREFIX, Exchange, failed
from hansard.server.parts import Parts
from hansard.server.rest.tails import ROUTES, TailQuery
from hansard.server.routing import Router
from hansard.store import Store

_LOG = logging.getLogger("hansard.server")
_SWITCHED = 101
_GOING_AWAY, _NO_LONGER, _FAILED = 1001, 1008, 1011
_API = PREFIX.decode() + "/"


class Sockets:
    def __init__(self, parts: Parts) -> None:
        self._store = parts.store
        self._gate = parts.gate
        self._watchers = parts.watchers
        self._settings = parts.settings
        self._stopping = parts.stopping
        self._router = Router(ROUTES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        socket = WebSocket(scope, receive, send)
        exchange = Exchange(scope, send, time.perf_counter())
        try:
            view, id, query = await self._admit(exchange)
            cursor = await tail.begin(view, id, query.after, query.branch)
            self._watchers.answered(exchange, _SWITCHED)
        except Exception as error:
            await _refuse(socket, failed(exchange, error, self._watchers))
            return
        await socket.accept()
        assert exchange.caller is not None
        holds = partial(self._gate.holds, exchange.caller)
        await self._follow(socket, view, id, cursor, query.branch, holds)

    async def _admit(self, exchange: Exchange) -> tuple[Store, str, TailQuery]:
        exchange.caller = caller = await self._gate.admit(exchange.headers, exchange.scope.get("client"))
        if not exchange.scope["path"][len(exchange.scope["root_path"]) :].startswith(_API):
            raise NotFound("there is nothing here to listen to")
        exchange.endpoint, exchange.parameters = self._router.find("GET", exchange.path)
        self._gate.allow(caller, exchange.endpoint)
        view = self._gate.view(self._store, caller, exchange.headers)
        exchange.tenant, exchange.user = view.tenant_id, view.user_id
        query: TailQuery = parameters.decode(exchange.scope["query_string"], TailQuery)
        return view, exchange.parameters[0], query

    async def _follow(
        self, socket: WebSocket, view: Store, id: str, cursor: str, branch: str | None, holds: Callable[[], bool]
    ) -> None:
        async def gone() -> None:
            """Whatever the client says is passed over: a tail only speaks."""
            while (await socket.receive())["type"] != "websocket.disconnect":
                pass

        try:
            await socket.send_json({"type": "open", "cursor": cursor})
            async for message in tail.follow(
                view,
                id,
                cursor,
                branch,
                gone=gone,
                holds=holds,
                stopping=self._stopping,
                heartbeat=self._settings.heartbeat_seconds,
            ):
                await socket.send_text(tail.frame(message))
            if self._stopping.is_set:
                await socket.close(_GOING_AWAY)
            elif not holds():
                await socket.close(_NO_LONGER)
        except WebSocketDisconnect:
            return
        except HansardError as error:
            _LOG.warning("a tail ended: %s: %s", error.code, error)
            await socket.close(_FAILED, error.code)


async def _refuse(socket: WebSocket, answer: Answer) -> None:
    """Answers the handshake with the problem document, as any other request."""
    if "websocket.http.response" not in socket.scope.get("extensions", {}):
        await socket.close()
        return
    assert isinstance(answer.body, bytes)
    headers = [
        (b"content-type", answer.media_type.encode()),
        (b"content-length", str(len(answer.body)).encode()),
        *answer.headers,
    ]
    await socket.send({"type": "websocket.http.response.start", "status": answer.status, "headers": headers})
    await socket.send({"type": "websocket.http.response.body", "body": answer.body})
