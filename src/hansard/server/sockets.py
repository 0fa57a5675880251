"""The live tail by WebSocket: the path, the walls and the refusals are those of the route for events."""

from __future__ import annotations

import logging
from typing import Any

from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from hansard.errors import HansardError, NotFound
from hansard.server import parameters, problems, tail
from hansard.server.api import PREFIX
from hansard.server.calls import Caller
from hansard.server.gate import Gate
from hansard.server.problems import Refused
from hansard.server.routes.tails import ROUTES, TailQuery
from hansard.server.routing import Router
from hansard.server.settings import Settings
from hansard.server.tail import Stopping
from hansard.store import Store

_LOG = logging.getLogger("hansard.server")
_GOING_AWAY, _FAILED = 1001, 1011


class Sockets:
    def __init__(self, store: Store, gate: Gate, settings: Settings, stopping: Stopping) -> None:
        self._store = store
        self._gate = gate
        self._settings = settings
        self._stopping = stopping
        self._router = Router(ROUTES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        socket = WebSocket(scope, receive, send)
        caller: Caller | None = None
        try:
            headers = dict(scope["headers"])
            caller = await self._gate.admit(headers, scope.get("client"))
            path = (scope.get("raw_path") or scope["path"].encode())[len(PREFIX) + len(scope["root_path"]) :]
            endpoint, (id,) = self._router.find("GET", path)
            self._gate.allow(caller, endpoint)
            view = self._gate.view(self._store, caller, headers)
            query: TailQuery = parameters.decode(scope["query_string"], TailQuery)
            cursor = await tail.begin(view, id, query.after, query.branch)
        except (HansardError, Refused) as error:
            await _refuse(socket, error, caller)
            return
        await socket.accept()
        await self._follow(socket, view, id, cursor, query.branch)

    async def _follow(self, socket: WebSocket, view: Store, id: str, cursor: str, branch: str | None) -> None:
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
                stopping=self._stopping,
                heartbeat=self._settings.heartbeat_seconds,
            ):
                await socket.send_text(tail.frame(message))
            if self._stopping.is_set:
                await socket.close(_GOING_AWAY)
        except WebSocketDisconnect:
            return
        except HansardError as error:
            _LOG.warning("a tail ended: %s: %s", error.code, error)
            await socket.close(_FAILED, error.code)


async def _refuse(socket: WebSocket, refusal: HansardError | Refused, caller: Caller | None) -> None:
    """Answers the handshake with the problem document, as any other request."""
    error = refusal.error if isinstance(refusal, Refused) else refusal
    status = refusal.status
    is_trusted = caller is not None and caller.is_operator
    body = problems.encode(error, status, "", is_trusted=is_trusted)
    headers: list[tuple[bytes, bytes]] = [
        (b"content-type", problems.MEDIA_TYPE),
        (b"content-length", str(len(body)).encode()),
    ]
    event: dict[str, Any] = {"type": "websocket.http.response.start", "status": status, "headers": headers}
    if "websocket.http.response" not in socket.scope.get("extensions", {}):
        await socket.close()
        return
    await socket.send(event)
    await socket.send({"type": "websocket.http.response.body", "body": body})


async def not_found(scope: Scope, receive: Receive, send: Send) -> None:
    await _refuse(WebSocket(scope, receive, send), NotFound("there is nothing here to listen to"), None)
