"""The model endpoint, which requests are passed on to.

Requests use the operator's key, never the caller's. This module does not interpret them.
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
"""Seconds to read the endpoint's remaining data on close, including the time that a slow client takes."""
_LARGEST = 16 * 1024 * 1024
"""Bytes of the largest WebSocket event. Audio is sent in chunks."""
_MOST = 100 * 1024 * 1024
"""Bytes of the largest answer, or of one event of a stream: twice the limit for the content of a message."""
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Raised for bytes that are not JSON or are nested too deeply."""
_EVENT = b"\n\n"
_END = re.compile(rb"\r?\n\r?\n")
_LONGEST_END = 3

UntilDisconnected = Callable[[], Awaitable[None]]


class StreamDisconnected(ClientDisconnected):
    """The client disconnected during a stream, so the connection to the endpoint is closed."""


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
                "No model endpoint is configured: start the server with --upstream.",
                code="no_upstream",
                headers=NO_RETRY,
            )

    def _http(self) -> Any:
        """Returns the HTTP client, created on first use: most servers have no endpoint."""
        self._require_address()
        if self._client is None:
            try:
                import httpx
            except ModuleNotFoundError as error:
                raise Unsupported("--upstream needs an extra: pip install 'hansard[http]'") from error
            # No keep-alive, so that nothing must be closed at the end. Models take much longer than a connect.
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
            self._client = httpx.AsyncClient(timeout=httpx.Timeout(_SECONDS, connect=10), limits=limits)
        return self._client

    @asynccontextmanager
    async def ask(self, path: str, body: dict[str, Any] | None = None) -> AsyncIterator[Any]:
        """Sends a POST or, without a body, a GET, and yields the answer with its body unread.

        Raises `WireError` if the endpoint cannot be reached or returns an error.
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
        """Opens a WebSocket to the endpoint. Raises `WireError` if it cannot be reached or returns an error."""
        self._require_address()
        from websockets.asyncio.client import connect
        from websockets.exceptions import InvalidStatus, WebSocketException
        from websockets.typing import Subprotocol

        class Connect(connect):
            def process_redirect(self, exc: Exception) -> Exception | str:
                """Follows no redirects: the key is for this endpoint only."""
                return exc

        address = "ws" + self._address.removeprefix("http") + path + ("?" + urlencode(query) if query else "")
        try:
            connection = await Connect(
                address,
                additional_headers=headers | ({"Authorization": f"Bearer {self._key}"} if self._key else {}),
                subprotocols=[Subprotocol(each) for each in subprotocols] or None,
                # Most of a session is audio, which compresses badly.
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
    """Closes a connection, which may already be closed."""
    from websockets.exceptions import ConnectionClosed

    with suppress(ConnectionClosed), _as_connection_closed(connection):
        await connection.close(code, reason)


async def send_text(connection: ClientConnection, text: str) -> None:
    """Sends a text. Raises `ConnectionClosed` if the connection is closed."""
    with _as_connection_closed(connection):
        await connection.send(text)


@contextmanager
def _as_connection_closed(connection: ClientConnection) -> Iterator[None]:
    """Raises `ConnectionClosed` for an `AttributeError` of `websockets`, which aborting a lost transport may cause."""
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
    """Returns the endpoint's own error. If it refuses our key, that is not the caller's error."""
    try:
        error = msgspec.json.decode(raw)["error"]
        message, kind = str(error["message"]), str(error.get("type"))
        param, code = error.get("param"), error.get("code")
    except (*UNREADABLE, KeyError, TypeError, AttributeError):
        message, kind, param, code = f"The model endpoint answered {status}.", "server_error", None, None
    if status in (401, 403) or status < 400:
        # A retry would fail in the same way.
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
    """Returns the body of an answer. Raises `WireError` if it is too large to be stored."""
    held = bytearray()
    async for piece in answer.aiter_bytes():
        held += piece
        _check_size(len(held))
    return bytes(held)


async def events(answer: Any, gone: UntilDisconnected | None = None) -> AsyncIterator[tuple[bytes, Any]]:
    """Yields server-sent events as they arrive: the raw event, and its data as JSON or None if it is not JSON.

    Raises `StreamDisconnected` when the client disconnects: SDKs do not retry a request whose answer has begun, so the
    model need not finish.
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
        # The buffer may end in the middle of a separator.
        looked = max(0, len(held) - _LONGEST_END)
        _check_size(len(held))
    if held.strip():
        yield bytes(held) + _EVENT, _data(bytes(held))


async def _until(gone: UntilDisconnected, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yields chunks until the end. Raises `StreamDisconnected` if the client leaves after the first chunk.

    A client that left before the first chunk may retry and must find the answer, so the stream continues for as long as
    retries are recognized.
    """
    leaving = asyncio.ensure_future(gone())
    try:
        if (piece := await _next(pieces)) is None:
            return
        await asyncio.sleep(0)  # so that an earlier disconnect is noticed now
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
                    # Do not cancel the task itself: if it is closing the connection, that must complete.
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
        raise WireError(502, "The model endpoint's answer is too large.", code="upstream", type="server_error")


def _data(event: bytes) -> Any:
    try:
        return msgspec.json.decode(_event_data(event))
    except UNREADABLE:
        return None


def _event_data(event: bytes) -> bytes:
    return b"\n".join(line[5:].strip() for line in event.splitlines() if line.startswith(b"data:"))


def is_done(event: bytes) -> bool:
    """Whether an event is the last one of a stream of chunks. The space after the colon is optional."""
    return _event_data(event) == b"[DONE]"


def event(data: dict[str, Any], name: str | None = None) -> bytes:
    """Encodes an event."""
    named = f"event: {name}\n".encode() if name else b""
    return named + b"data: " + msgspec.json.encode(data) + _EVENT
