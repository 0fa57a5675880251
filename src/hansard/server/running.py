"""Running the application: the store is open before anybody can ask, and closed after the last answer."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Generator

import uvicorn
from starlette.types import ASGIApp

from hansard.errors import Unavailable
from hansard.opening import connect
from hansard.server.app import create_app
from hansard.server.settings import Settings

HOST = "127.0.0.1"
PORT = 8787
_GRACE = 10
_BACKLOG = 2048


class Server(uvicorn.Server):
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
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise Unavailable(
            f"cannot listen on {host}, port {port}: {error.strerror or error}", retryable=False
        ) from error


def config_of(app: ASGIApp) -> uvicorn.Config:
    """How the application is run: without uvicorn's own logs, which would hold addresses and paths."""
    return uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        ws="websockets-sansio",
        timeout_graceful_shutdown=_GRACE,
        backlog=_BACKLOG,
    )


def run(url: str, port: int, announce: Callable[[str], None], settings: Settings) -> None:
    """Serves a store until SIGINT or SIGTERM. `announce` is told the address when it answers."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(serve(url, port, announce, settings))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The faster loop, where there is one."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return None
    return uvloop.new_event_loop


async def serve(url: str, port: int, announce: Callable[[str], None], settings: Settings) -> None:
    async with connect(url) as store:
        app = create_app(store, settings)
        with listen(settings.host, port) as listening:
            bound = listening.getsockname()[1]
            shown = f"[{settings.host}]" if ":" in settings.host else settings.host
            announce(f"http://{shown}:{bound}")
            await Server(config_of(app)).serve(sockets=[listening])
