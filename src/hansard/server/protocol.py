"""The HTTP protocol of the server underneath, with one thing more: the head and the body of an answer as one write.

Each write is a call of the system and wakes the client, which for a small answer costs as much as making it. ASGI has
no event for both, so the connection offers it beside: as the extension `hansard.together` of a request's scope.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from hansard.server.exchanges import EXTENSION


class Protocol(HttpToolsProtocol):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._together = Together(transport)
        super().connection_made(self._together)  # type: ignore[arg-type]

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {EXTENSION: {"hold": self._together.hold}}

    def on_response_complete(self) -> None:
        self._together.flush()  # an answer to HEAD has no second write
        super().on_response_complete()


class Together:
    """A transport of which the next two writes can be made one."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._holds = False
        self._held = b""
        self.is_closing = transport.is_closing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def hold(self) -> None:
        """Keeps the next write back until the one after it."""
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
