"""Running the application: the store is open before anybody can ask, and closed after the last answer."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Generator

import uvicorn

from hansard.errors import Unavailable
from hansard.opening import connect
from hansard.server.app import create_app

HOST = "127.0.0.1"
PORT = 8787
_GRACE = 10


class _Server(uvicorn.Server):
    """A server for which being told to stop is the normal end, not a failure."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        loop = asyncio.get_running_loop()
        signals = (signal.SIGINT, signal.SIGTERM)
        for each in signals:
            loop.add_signal_handler(each, self.handle_exit, each, None)
        try:
            yield
        finally:
            for each in signals:
                loop.remove_signal_handler(each)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket, or an error that says why not. Port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise Unavailable(
            f"cannot listen on {host}, port {port}: {error.strerror or error}", retryable=False
        ) from error


async def serve(url: str, host: str, port: int, announce: Callable[[str], None]) -> None:
    """Serves a store until SIGINT or SIGTERM. `announce` is told the address when it answers."""
    async with connect(url) as store:
        with listen(host, port) as listening:
            config = uvicorn.Config(
                create_app(store), log_level="warning", access_log=False, timeout_graceful_shutdown=_GRACE
            )
            bound = listening.getsockname()[1]
            shown = f"[{host}]" if ":" in host else host
            announce(f"http://{shown}:{bound}")
            await _Server(config).serve(sockets=[listening])
