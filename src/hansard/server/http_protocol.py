"""uvicorn's HTTP protocol with combined writes and limits.

- The headers and the body of a response are sent with one write. Each write is a system call and wakes the client,
  which for a small response costs as much as creating it. ASGI has no event for both, so the connection offers the
  extension `hansard.combined_write` in the scope of a request.
- The headers of a request are limited in size and time. A client that does not read its response is disconnected, so
  that its buffers are freed.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from hansard.server.request import EXTENSION

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
        self._writes = CombinedWrites(transport)
        self._head_since: float | None = self.loop.time()
        """When we began to wait for headers; None after they have arrived."""
        self._head_size = self._read_size = 0
        self._is_refused = False
        """The headers were too long; all further input is ignored."""
        self._unread: tuple[int, float] | None = None
        """Bytes that the client has not read yet, and since when that number has not changed."""
        super().connection_made(self._writes)  # type: ignore[arg-type]

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
        self._head_since, self._head_size = self.loop.time(), 0
        self.scope["extensions"] = {EXTENSION: {"hold": self._writes.hold}}

    def on_headers_complete(self) -> None:
        self._head_since = None
        if self._head_size + self._read_size > _LONGEST_HEAD and not self._is_refused and self._is_head_too_long():
            self._refuse()
        if not self._is_refused:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if not self._is_refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._is_refused:
            super().on_message_complete()

    def handle_websocket_upgrade(self) -> None:
        if not self._is_refused:
            super().handle_websocket_upgrade()

    def on_response_complete(self) -> None:
        self._writes.flush()  # a response to HEAD has no second write
        super().on_response_complete()

    def close_if_idle(self, patience: float) -> None:
        """Closes the connection if its client has neither sent nor read anything for `patience` seconds."""
        now = self.loop.time()
        if self._head_since is not None and now - self._head_since > patience:
            self.transport.abort()
            return
        size = self._writes.get_write_buffer_size()
        if not size:
            self._unread = None
        elif self._unread is None or self._unread[0] != size:
            self._unread = size, now
        elif now - self._unread[1] > patience:
            self.transport.abort()


class CombinedWrites:
    """A transport that can combine its next two writes into one."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._holds = False
        self._held = b""
        self.is_closing = transport.is_closing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def hold(self) -> None:
        """Delays the next write until the one after it."""
        self._holds = True

    def write(self, data: bytes) -> None:
        if not self._holds:
            self._transport.write(data)
        elif not self._held:
            self._held = data
        else:
            self._held += data
            self.flush()

    def flush(self) -> None:
        data, self._held, self._holds = self._held, b"", False
        if data:
            self._transport.write(data)

    def close(self) -> None:
        self.flush()
        self._transport.close()
