"""A socket between a client and a server that counts round trips.

A round trip begins with the first bytes that a client sends after it got some, or after it connected.
"""

from __future__ import annotations

import asyncio
import threading
from asyncio import StreamReader, StreamWriter
from pathlib import Path


class Relay:
    """It runs in a thread of its own, so that a profiler of the client's thread does not see it."""

    def __init__(self, at: Path, server: Path) -> None:
        self.trips = 0
        self._server = server
        is_ready = threading.Event()
        threading.Thread(target=lambda: asyncio.run(self._listen(at, is_ready)), daemon=True).start()
        is_ready.wait()

    async def _listen(self, at: Path, is_ready: threading.Event) -> None:
        server = await asyncio.start_unix_server(self._serve, at)
        is_ready.set()
        await server.serve_forever()

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        from_server, to_server = await asyncio.open_unix_connection(self._server)
        connection = _Connection(self)
        await asyncio.gather(
            connection.pass_on(reader, to_server, is_client=True),
            connection.pass_on(from_server, writer, is_client=False),
        )


class _Connection:
    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._client_sent_last = False

    async def pass_on(self, source: StreamReader, target: StreamWriter, *, is_client: bool) -> None:
        while data := await source.read(1 << 20):
            if is_client and not self._client_sent_last:
                self._relay.trips += 1
            self._client_sent_last = is_client
            target.write(data)
        target.close()
