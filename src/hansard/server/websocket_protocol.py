"""The WebSocket protocol of the server underneath: a handshake that is refused is complete.

uvicorn counts only those handshakes as complete that were accepted or closed. It logs an error for every other one,
though the client was answered: anybody without a key could fill the log.
"""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol


class WebSocketProtocol(WebSocketsSansIOProtocol):
    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True
