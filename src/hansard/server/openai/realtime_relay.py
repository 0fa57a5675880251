"""`GET /realtime`, relayed to a model endpoint: a live session that is recorded.

Events are relayed unchanged in both directions. `hansard.realtime.Recorder` records the endpoint's events before they
are sent to the client. The stored history is sent to the endpoint first, before any event of the client. When one side
closes, the other is closed with the same code; what the endpoint has sent until then is still recorded, and incomplete
messages are stored as interrupted. A session that cannot be recorded is closed with an error.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import msgspec
from msgspec import Struct
from starlette.websockets import WebSocket, WebSocketDisconnect
from websockets.exceptions import ConnectionClosed

from hansard.errors import HansardError, RateLimited, Unauthenticated, Unavailable
from hansard.realtime import Recorder
from hansard.server.context import ServerContext
from hansard.server.openai import conversations, realtime
from hansard.server.openai.realtime import Guard, Handshake
from hansard.server.openai.upstream import Upstream, broken_off, close_connection, send_text
from hansard.server.openai.wire_errors import WireError
from hansard.store import Store

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

PASSED = ("model", "intent", "call_id")
"""Query parameters that are passed on to the endpoint."""
_PASSED_HEADERS = (b"openai-beta", b"openai-safety-identifier")
_PASSED_PROTOCOLS = ("realtime", "openai-beta.")
_AUDIO = "input_audio_buffer.append"
"""Arrives many times a second: its bytes are counted, but it is neither counted as a request nor audited."""
_DONE, _GOING_AWAY, _NOT_TEXT, _NO_LONGER, _FAILED = 1000, 1001, 1003, 1008, 1011
_NO_CODE, _NO_CLOSE, _NO_TLS = 1005, 1006, 1015
"""Codes that are never sent: they mean that there was no close frame or no code in it."""
_CHECK_SECONDS = 1.0
"""Seconds between two checks of the key and the recording."""
_GRACE = 3.0
"""Seconds to relay the endpoint's last events to a client that does not read them."""
_NOT_RECORDED = "not_recorded"
_SHOWN = 256
_LOG = logging.getLogger("hansard.server")


class SessionEnd(NamedTuple):
    """How a session ends."""

    code: int
    reason: str = ""
    failure: Exception | None = None
    """Sent to the client as an error event before the close."""
    by_client: bool = False


class _Item(Struct):
    id: Any = None


class _ClientEvent(Struct):
    """The fields of a client event that the relay needs."""

    type: Any = None
    event_id: Any = None
    item_id: Any = None
    item: _Item | None = None


_decode = msgspec.json.Decoder(_ClientEvent).decode


async def serve(
    socket: WebSocket, store: Store, handshake: Handshake, guard: Guard, upstream: Upstream, context: ServerContext
) -> None:
    """Serves a session from the handshake to its end. The endpoint is connected before the client is accepted."""
    await realtime.check_conversation(store, handshake)
    query = {name: value for name, value in handshake.query.items() if name in PASSED}
    headers = {
        name.decode("latin-1"): value.decode("latin-1")
        for name, value in socket.scope["headers"]
        if name in _PASSED_HEADERS
    }
    protocols = [each for each in socket.scope.get("subprotocols", ()) if each.startswith(_PASSED_PROTOCOLS)]
    with context.relay_sessions.open_session():
        async with upstream.listen(realtime.PATH, query, headers, protocols) as connection:
            id = await realtime.open_conversation(store, handshake)
            # create=False: if the conversation is deleted during the session, it is not created again.
            # With a call_id, the client joins a running call, of which a part may already be recorded.
            fresh = "call_id" not in query
            recorder = Recorder(store, id, create=False, fresh=fresh, keep_audio=handshake.keep_audio)
            guard.started(id)
            named = (b"hansard-conversation", quote(id).encode())
            await socket.accept(realtime.subprotocol(socket), headers=[named])
            await Relay(socket, connection, recorder, guard, context).run(replay=handshake.replay)


class Relay:
    """A client, an endpoint, and the recorder between them."""

    def __init__(
        self, client: WebSocket, upstream: ClientConnection, recorder: Recorder, guard: Guard, context: ServerContext
    ) -> None:
        self._client = client
        self._upstream = upstream
        self._recorder = recorder
        self._guard = guard
        self._relay_sessions = context.relay_sessions
        self._shutdown = context.shutdown
        self._patience = context.settings.recording_seconds
        self._is_client_gone = False
        """The client has disconnected."""
        self._is_closed = False
        """The recorder is closed."""

    async def run(self, *, replay: bool) -> None:
        from_endpoint = asyncio.create_task(self._from_endpoint())
        stop = self._shutdown.watch()
        others = [
            asyncio.create_task(each)
            for each in (self._from_client(from_endpoint, replay), self._watch_session(), _stopped(stop))
        ]
        try:
            done, _ = await asyncio.wait({from_endpoint, *others}, return_when=asyncio.FIRST_COMPLETED)
            end = _end_of(next(iter(done)))
            await _cancel(*others)
            await self._finish(end, from_endpoint)
        finally:
            self._shutdown.discard(stop)
            await _cancel(from_endpoint, *others)
            if not self._is_closed:
                await self._recorder.close()

    # Relaying

    async def _from_endpoint(self) -> SessionEnd:
        """Relays events from the endpoint to the client until the endpoint closes."""
        while True:
            try:
                data = await self._upstream.recv()
            except ConnectionClosed:
                return self._ended_by_upstream()
            if isinstance(data, str):
                await self._recorder.feed(data)
            self._relay_sessions.from_models += 1
            await self._send_to_client(data)

    async def _send_to_client(self, data: str | bytes) -> None:
        if self._is_client_gone:
            return
        try:
            await (self._client.send_text(data) if isinstance(data, str) else self._client.send_bytes(data))
        except (WebSocketDisconnect, RuntimeError):
            # `_from_client` will notice the disconnect.
            self._is_client_gone = True

    def _ended_by_upstream(self) -> SessionEnd:
        code = self._upstream.close_code or _NO_CLOSE
        if code in (_NO_CLOSE, _NO_TLS):
            return SessionEnd(_FAILED, "upstream", broken_off(ConnectionError()))
        return SessionEnd(_DONE if code == _NO_CODE else code, self._upstream.close_reason or "")

    async def _from_client(self, from_endpoint: asyncio.Task[SessionEnd], replay: bool) -> SessionEnd:
        """Relays events from the client to the endpoint until the client closes."""
        try:
            if not await self._recorder.flush():
                return SessionEnd(_FAILED, Unavailable.code, Unavailable("the store does not answer"))
            if replay:
                await self._recorder.restore(_Sending(self._upstream))
            while True:
                message = await self._client.receive()
                if message["type"] == "websocket.disconnect":
                    return _ended_by_client(message)
                text = message.get("text")
                if text is None:
                    return SessionEnd(_NOT_TEXT, "events must be text")
                if await self._may_pass(text):
                    await send_text(self._upstream, text)
                    self._relay_sessions.from_clients += 1
        except ConnectionClosed:
            return await asyncio.shield(from_endpoint)

    async def _may_pass(self, text: str) -> bool:
        """Whether an event may be relayed. A refused event gets an error, and the session continues."""
        event = _client_event(text)
        counts = event.type != _AUDIO
        failure: Exception | None = None
        try:
            self._guard.admit(text, counts=counts)
            self._refuse_earlier_id(event)
        except (WireError, HansardError) as error:
            failure = error
        if counts or failure is not None:
            self._guard.observe(self._about(event), failure)
        if failure is None:
            return True
        if isinstance(failure, Unavailable | Unauthenticated) and not isinstance(failure, RateLimited):
            raise failure
        await self._send_to_client(realtime.encoded(realtime.error_event(failure, event.event_id)))
        return False

    def _refuse_earlier_id(self, event: _ClientEvent) -> None:
        """Refuses an item id from before the session. The endpoint would accept it, but the recorder has stored it."""
        id = event.item.id if event.item is not None else None
        if event.type == "conversation.item.create" and isinstance(id, str) and self._recorder.is_earlier(id):
            raise conversations.duplicate(f"id {id!r} is in the conversation already", "item.id")

    def _about(self, event: _ClientEvent) -> dict[str, str]:
        """Returns the ids of an event for the audit log."""
        named = {"event": event.type, "item_id": event.item_id or (event.item.id if event.item is not None else None)}
        shown = {name: value[:_SHOWN] for name, value in named.items() if isinstance(value, str)}
        return {"conversation_id": self._recorder.conversation_id, **shown}

    # Supervision

    async def _watch_session(self) -> SessionEnd:
        """Ends the session when its key is no longer valid or the session can no longer be recorded."""
        behind_since: float | None = None
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            if not self._guard.is_still_valid():
                return SessionEnd(_NO_LONGER, failure=Unauthenticated("the key is no longer valid"))
            if self._recorder.counts.refused:
                return self._unrecorded("The store refuses a message: the session can no longer be recorded.")
            if not self._recorder.is_behind or await self._recorder.flush():
                behind_since = None
                continue
            behind_since = behind_since or time.monotonic()
            if time.monotonic() - behind_since >= self._patience:
                return self._unrecorded("The store does not answer: the session can no longer be recorded.")

    def _unrecorded(self, why: str) -> SessionEnd:
        return SessionEnd(_FAILED, _NOT_RECORDED, WireError(503, why, code=_NOT_RECORDED, type="server_error"))

    # The end

    async def _finish(self, end: SessionEnd, from_endpoint: asyncio.Task[SessionEnd]) -> None:
        """Closes the endpoint, records its last events, and then closes the client."""
        self._is_client_gone = self._is_client_gone or end.by_client
        closing = asyncio.create_task(close_connection(self._upstream, end.code, end.reason))
        # The task reads to the end by itself, unless it waits for the client. The event it waits with is recorded.
        await asyncio.wait({from_endpoint}, timeout=_GRACE)
        if not from_endpoint.done():
            self._is_client_gone = True
            await _cancel(from_endpoint)
            await self._from_endpoint()
        await closing
        self._is_closed = True
        is_stored = await self._recorder.close() and not self._recorder.counts.refused
        if not is_stored:
            self._relay_sessions.unrecorded += 1
            if end.failure is None:
                end = self._unrecorded("The store does not answer: the last messages are not recorded.")
        await self._close_client(end)

    async def _close_client(self, end: SessionEnd) -> None:
        if end.failure is not None:
            _LOG.warning("a relayed session ended: %s", end.failure)
            await self._send_to_client(realtime.encoded(realtime.error_event(end.failure, None)))
        if self._is_client_gone:
            return
        try:
            await self._client.close(end.code, end.reason)
        except (WebSocketDisconnect, RuntimeError):
            self._is_client_gone = True


class _Sending:
    """The endpoint as the connection that `Recorder.restore` needs."""

    def __init__(self, upstream: ClientConnection) -> None:
        self._upstream = upstream

    async def send(self, event: dict[str, Any]) -> None:
        await send_text(self._upstream, msgspec.json.encode(event).decode())


def _client_event(text: str) -> _ClientEvent:
    """Decodes an event; returns an empty one if it is not valid: the endpoint will report that."""
    try:
        return _decode(text)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return _ClientEvent()


def _ended_by_client(message: Any) -> SessionEnd:
    """Returns how the client ended the session. Without a close frame, the connection was lost."""
    if "reason" not in message:
        return SessionEnd(_GOING_AWAY, by_client=True)
    code = message["code"]
    return SessionEnd(_DONE if code == _NO_CODE else code, message["reason"] or "", by_client=True)


async def _stopped(stop: asyncio.Event) -> SessionEnd:
    await stop.wait()
    return SessionEnd(_GOING_AWAY, "the server is shutting down")


def _end_of(task: asyncio.Task[SessionEnd]) -> SessionEnd:
    """Returns the result of a task, or its failure, as the end of the session."""
    failure = task.exception()
    if failure is None:
        return task.result()
    if isinstance(failure, Unauthenticated):
        return SessionEnd(_NO_LONGER, failure=failure)
    if isinstance(failure, HansardError | WireError):
        return SessionEnd(_FAILED, getattr(failure, "code", None) or "failed", failure)
    _LOG.error("a relayed session failed", exc_info=failure)
    return SessionEnd(_FAILED, "failed", HansardError("the server failed"))


async def _cancel(*tasks: asyncio.Task[SessionEnd]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
