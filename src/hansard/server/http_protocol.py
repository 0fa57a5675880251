"""uvicorn's HTTP protocol with whole requests and responses, and limits.

- A request that has arrived whole is read, and a response that is complete is written, without ASGI events. Each write
  is a system call and wakes the client, which for a small response costs as much as creating it. The connection offers
  both as the extension `hansard.exchange` in the scope of a request: see `HttpExchange`.
- The headers of a request are limited in size and time. A client that does not read its response is disconnected, so
  that its buffers are freed.
"""

from __future__ import annotations

import asyncio
from functools import lru_cache

from starlette.types import Receive, Send
from uvicorn.protocols.http.httptools_impl import (
    HEADER_VALUE_RE,
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from hansard.server.body import EXTENSION
from hansard.server.endpoints import Headers

_LONGEST_HEAD = 64 * 1024
_PUNCTUATION = len(": \r\n")
"""Bytes in a header line besides name and value."""
_TOO_LONG = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-type: text/plain\r\ncontent-length: 20\r\nconnection: close\r\n\r\n"
    b"the head is too long"
)


class HttpProtocol(HttpToolsProtocol):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._head_since: float | None = self.loop.time()
        """When we began to wait for headers; None after they have arrived."""
        self._head_size = self._read_size = 0
        self._is_refused = False
        """The headers were too long; all further input is ignored."""
        self._idle_since: float | None = None
        """When the last response was complete; None during a request and before the first one."""
        self._unread: tuple[int, float] | None = None
        """Bytes that the client has not read yet, and since when that number has not changed."""
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._read_size = len(data)
        super().data_received(data)
        if self._head_since is not None:
            self._head_size += len(data)
            if self._head_size > _LONGEST_HEAD and not self.transport.is_closing():
                self._refuse()

    def _is_head_too_long(self) -> bool:
        """Measures the parsed headers: the received data may also contain the body and other requests."""
        fields = sum(len(name) + len(value) + _PUNCTUATION for name, value in self.headers)
        return len(self.url) + fields > _LONGEST_HEAD

    def _refuse(self) -> None:
        self._is_refused = True
        self.transport.write(_TOO_LONG)
        self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._idle_since = None
        self._head_since, self._head_size = self.loop.time(), 0

    def on_headers_complete(self) -> None:
        self._head_since = None
        if self._head_size + self._read_size > _LONGEST_HEAD and not self._is_refused and self._is_head_too_long():
            self._refuse()
        if not self._is_refused:
            super().on_headers_complete()
            if getattr(self.cycle, "scope", None) is self.scope:  # not so for an upgrade to WebSocket
                # The request's task starts in a later turn of the event loop, and finds the extension.
                self.scope["extensions"] = {EXTENSION: HttpExchange(self.cycle)}

    def on_body(self, body: bytes) -> None:
        if self._idle_since is not None:  # the response was complete before the body
            self._idle_since = self.loop.time()
        if not self._is_refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._is_refused:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """As uvicorn's, without a timer for each response: `close_if_idle` ends connections that are not used."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif self._head_since is None:  # else the next request has begun
            self._idle_since = self.loop.time()

    def handle_websocket_upgrade(self) -> None:
        if not self._is_refused:
            super().handle_websocket_upgrade()

    def close_if_idle(self, patience: float) -> None:
        """Closes the connection if its client has neither sent nor read anything for `patience` seconds.

        Between two requests, a client has the seconds of uvicorn's `timeout_keep_alive`.
        """
        now = self.loop.time()
        if self._idle_since is not None and now - self._idle_since > self.timeout_keep_alive:
            self.transport.close()
            return
        if self._head_since is not None and now - self._head_since > patience:
            self.transport.abort()
            return
        size = self.transport.get_write_buffer_size()
        if not size:
            self._unread = None
        elif self._unread is None or self._unread[0] != size:
            self._unread = size, now
        elif now - self._unread[1] > patience:
            self.transport.abort()


@lru_cache(maxsize=256)
def _head(status: int, fixed: Headers) -> bytes:
    """Returns the first lines of a response."""
    if HEADER_VALUE_RE.search(b"".join([value for _, value in fixed])):
        raise RuntimeError("a header of the response contains a control character")
    return STATUS_LINE[status] + b"".join([b"%b: %b\r\n" % header for header in fixed])


class HttpExchange:
    """One request and its response on a connection, without the events of ASGI."""

    __slots__ = ("_cycle",)

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle

    def is_for(self, receive: Receive, send: Send) -> bool:
        """Returns whether these are the connection's own functions: middleware that replaces them must see events."""
        return receive == self._cycle.receive and send == self._cycle.send

    def take_body(self) -> bytes | None:
        """Returns the body if all of it has arrived, else None. It can be taken once."""
        cycle = self._cycle
        if cycle.more_body or cycle.disconnected:
            return None
        data = bytes(cycle.body)
        cycle.body = bytearray()
        return data

    def respond(self, status: int, fixed: Headers, own: list[tuple[bytes, bytes]], body: bytes) -> bool:
        """Writes a whole response. Returns False, and writes nothing, if the client must read earlier bytes first."""
        cycle = self._cycle
        if cycle.disconnected or cycle.response_started or cycle.flow.write_paused:
            return False
        if HEADER_VALUE_RE.search(b"".join([value for _, value in own])):
            raise RuntimeError("a header of the response contains a control character")
        cycle.response_started = True
        cycle.waiting_for_100_continue = False
        lines = [_head(status, fixed), *[b"%b: %b\r\n" % header for header in (*cycle.default_headers, *own)]]
        lines.append(b"\r\n" if cycle.keep_alive else b"connection: close\r\n\r\n")
        if cycle.scope["method"] != "HEAD":
            lines.append(body)
        cycle.transport.write(b"".join(lines))
        cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()
        return True
