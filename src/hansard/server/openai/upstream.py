"""The model endpoint behind the wire: requests are passed on to it, and its answers passed back.

It is asked with the operator's own key, never with the caller's. Nothing here knows what a request means.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import msgspec
from anyio import CancelScope

from hansard.errors import Unsupported
from hansard.server.body import ClientDisconnected
from hansard.server.openai.wire_errors import NO_RETRY, WireError
from hansard.server.settings import Settings

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

_SECONDS = 600.0
_TO_CONNECT = 10.0
_TO_CLOSE = 8.0
"""Seconds in which what the endpoint has said is read to its end. A client that does not read may take some of them."""
_LARGEST = 16 * 1024 * 1024
"""Bytes of an event, either way: audio comes in pieces."""
_MOST = 100 * 1024 * 1024
"""Bytes of an answer, or of one event of a stream: twice what the content of a message may hold."""
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What is raised for bytes that are no JSON, or nested deeper than anybody could read."""
_EVENT = b"\n\n"
_END = re.compile(rb"\r?\n\r?\n")
_LONGEST_END = 3

UntilDisconnected = Callable[[], Awaitable[None]]


class StreamDisconnected(ClientDisconnected):
    """The client went away in the middle of a stream: the endpoint is not listened to any longer."""


class Upstream:
    def __init__(self, settings: Settings) -> None:
        self._address = (settings.upstream or "").rstrip("/")
        self._key = settings.upstream_key
        self._client: Any = None

    @property
    def is_there(self) -> bool:
        return bool(self._address)

    def _require_address(self) -> None:
        if not self._address:
            raise WireError(
                501,
                "No model endpoint is configured here: start the server with --upstream.",
                code="no_upstream",
                headers=NO_RETRY,
            )

    def _http(self) -> Any:
        """The client, made when it is first needed: most servers pass nothing on."""
        self._require_address()
        if self._client is None:
            try:
                import httpx
            except ModuleNotFoundError as error:
                raise Unsupported("--upstream needs an extra: pip install 'hansard[http]'") from error
            # No connection outlives its request: there is nothing to close in the end, and a model takes longer anyway.
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
            self._client = httpx.AsyncClient(timeout=httpx.Timeout(_SECONDS, connect=10), limits=limits)
        return self._client

    @asynccontextmanager
    async def ask(self, path: str, body: dict[str, Any] | None = None) -> AsyncIterator[Any]:
        """The answer, its body not read yet. `WireError` when the endpoint cannot be reached, or refuses.

        Without a body nothing is to be said, only to be read.
        """
        http = self._http()
        import httpx

        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        if body is None:
            request = http.build_request("GET", self._address + path, headers=headers)
        else:
            headers["Content-Type"] = "application/json"
            request = http.build_request(
                "POST", self._address + path, content=msgspec.json.encode(body), headers=headers
            )
        try:
            answer = await http.send(request, stream=True)
        except httpx.HTTPError as error:
            raise broken_off(error) from error
        try:
            if answer.status_code >= 400:
                raise _endpoint_error(answer.status_code, await answer.aread(), answer.headers)
            yield answer
        except httpx.HTTPError as error:
            raise broken_off(error) from error
        finally:
            await answer.aclose()

    @asynccontextmanager
    async def listen(
        self, path: str, query: dict[str, str], headers: dict[str, str], subprotocols: list[str]
    ) -> AsyncIterator[ClientConnection]:
        """A WebSocket to the endpoint. `WireError` when it cannot be reached, or refuses."""
        self._require_address()
        from websockets.asyncio.client import connect
        from websockets.exceptions import InvalidStatus, WebSocketException
        from websockets.typing import Subprotocol

        class Connect(connect):
            def process_redirect(self, exc: Exception) -> Exception | str:
                """Follows nobody elsewhere: the key is for this endpoint alone."""
                return exc

        address = "ws" + self._address.removeprefix("http") + path + ("?" + urlencode(query) if query else "")
        try:
            connection = await Connect(
                address,
                additional_headers=headers | ({"Authorization": f"Bearer {self._key}"} if self._key else {}),
                subprotocols=[Subprotocol(each) for each in subprotocols] or None,
                # Audio hardly gets smaller, and is what most of a session is.
                compression=None,
                max_size=_LARGEST,
                open_timeout=_TO_CONNECT,
                close_timeout=_TO_CLOSE,
            )
        except InvalidStatus as error:
            answer = error.response
            raise _endpoint_error(answer.status_code, answer.body or b"", answer.headers) from error
        except (OSError, TimeoutError, WebSocketException) as error:
            raise broken_off(error) from error
        try:
            yield connection
        finally:
            await close_connection(connection)


async def close_connection(connection: ClientConnection, code: int = 1000, reason: str = "") -> None:
    """Ends a connection, which may have ended already."""
    from websockets.exceptions import ConnectionClosed

    with suppress(ConnectionClosed), _as_connection_closed(connection):
        await connection.close(code, reason)


async def send_text(connection: ClientConnection, text: str) -> None:
    """`ConnectionClosed` when it has ended."""
    with _as_connection_closed(connection):
        await connection.send(text)


@contextmanager
def _as_connection_closed(connection: ClientConnection) -> Iterator[None]:
    """A transport that was lost with something still to be sent may fail when it is aborted: it has ended."""
    try:
        yield
    except AttributeError as error:
        from websockets.protocol import State

        if connection.state is not State.CLOSED:
            raise
        raise connection.protocol.close_exc from error


def broken_off(error: Exception) -> WireError:
    return WireError(502, f"The model endpoint broke off: {type(error).__name__}", code="upstream", type="server_error")


def _endpoint_error(status: int, raw: bytes, headers: Any) -> WireError:
    """The endpoint's own error, passed on. Its refusal of our key is not the caller's fault."""
    try:
        error = msgspec.json.decode(raw)["error"]
        message, kind = str(error["message"]), str(error.get("type"))
        param, code = error.get("param"), error.get("code")
    except (*UNREADABLE, KeyError, TypeError, AttributeError):
        message, kind, param, code = f"The model endpoint answered {status}.", "server_error", None, None
    if status in (401, 403) or status < 400:
        # To ask again would meet the same.
        return WireError(
            502, "The model endpoint refused the server's key.", code="upstream", type="server_error", headers=NO_RETRY
        )
    kept = tuple(
        (name.encode(), headers[name].encode())
        for name in ("retry-after", "retry-after-ms", "x-should-retry")
        if name in headers
    )
    return WireError(status, message, type=kind, param=_text(param), code=_text(code), headers=kept)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


async def whole(answer: Any) -> bytes:
    """All that the endpoint answers, unless that is more than anybody could store."""
    held = bytearray()
    async for piece in answer.aiter_bytes():
        held += piece
        _check_size(len(held))
    return bytes(held)


async def events(answer: Any, gone: UntilDisconnected | None = None) -> AsyncIterator[tuple[bytes, Any]]:
    """Server-sent events as they come: each as it was sent, and its data as JSON; None for what is none.

    They end when the client has gone, if one is waiting: nobody repeats a request whose answer has begun, so
    a model need not go on.
    """
    held = bytearray()
    looked = 0
    pieces = answer.aiter_bytes()
    async for piece in pieces if gone is None else _until(gone, pieces):
        held += piece
        while (found := _END.search(held, looked)) is not None:
            event = bytes(held[: found.start()])
            del held[: found.end()]
            looked = 0
            yield event + _EVENT, _data(event)
        # An end may have begun.
        looked = max(0, len(held) - _LONGEST_END)
        _check_size(len(held))
    if held.strip():
        yield bytes(held) + _EVENT, _data(bytes(held))


async def _until(gone: UntilDisconnected, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The pieces, until there are no more, or the client leaves an answer that has begun: then `ClientGone`.

    Who left before it began may be about to ask again, and shall find it: so it goes on, for as long as that counts.
    """
    leaving = asyncio.ensure_future(gone())
    try:
        if (piece := await _next(pieces)) is None:
            return
        await asyncio.sleep(0)  # one who has left before is heard of now
        has_left, until = leaving.done(), asyncio.get_running_loop().time() + _SECONDS
        while piece is not None:
            yield piece
            if has_left:
                piece = await _next(pieces)
                if asyncio.get_running_loop().time() > until:
                    raise StreamDisconnected
                continue
            scope = CancelScope()
            coming = asyncio.ensure_future(_next(pieces, scope))
            try:
                await asyncio.wait({coming, leaving}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                if not coming.done():
                    # Not the task itself: cut off in the middle of closing the connection, it would never close it.
                    scope.cancel()
                    await asyncio.wait({coming})
            if scope.cancelled_caught:
                raise StreamDisconnected
            piece = coming.result()
    finally:
        leaving.cancel()


async def _next(pieces: AsyncIterator[bytes], scope: CancelScope | None = None) -> bytes | None:
    with scope or nullcontext():
        return await anext(pieces, None)
    return None


def _check_size(size: int) -> None:
    if size > _MOST:
        raise WireError(502, "The model endpoint does not come to an end.", code="upstream", type="server_error")


def _data(event: bytes) -> Any:
    try:
        return msgspec.json.decode(_event_data(event))
    except UNREADABLE:
        return None


def _event_data(event: bytes) -> bytes:
    return b"\n".join(line[5:].strip() for line in event.splitlines() if line.startswith(b"data:"))


def is_done(event: bytes) -> bool:
    """Whether an event is the last one of a stream of chunks. The space after the colon is as one likes."""
    return _event_data(event) == b"[DONE]"


def event(data: dict[str, Any], name: str | None = None) -> bytes:
    """An event of our own."""
    named = f"event: {name}\n".encode() if name else b""
    return named + b"data: " + msgspec.json.encode(data) + _EVENT
