"""A server on a real socket, in a thread of the test's own process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import uvicorn
from starlette.types import ASGIApp
from tests.wait import PATIENCE

from hansard import connect
from hansard.server.app import create_app
from hansard.server.process import HttpServer, config_of, embedder_of, listen
from hansard.server.settings import Settings
from hansard.server.tail import Shutdown
from hansard.store import Store


class Served(httpx.Client):
    """A client of a server that runs as long as it does."""

    address: str
    store: Store
    loop: asyncio.AbstractEventLoop


Wrap = Callable[[ASGIApp, Store], ASGIApp]
BEFORE_ALL: list[Wrap] = []
"""What stands before every application that is served from now on."""


def _as_it_is(app: ASGIApp, store: Store) -> ASGIApp:
    return app


class _Quiet(HttpServer):
    """A server in a thread has no signals to catch."""

    def capture_signals(self):  # type: ignore[no-untyped-def]
        from contextlib import nullcontext

        return nullcontext()


@contextmanager
def serving(
    url: str = "memory://", settings: Settings | None = None, *, wrap: Wrap = _as_it_is, **options: object
) -> Iterator[Served]:
    """The store that a URL names, served on a free port. `wrap` may stand before the application."""
    with listen("127.0.0.1", 0) as listening:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        served = Served(base_url=address + "/api/v1", timeout=PATIENCE, **options)  # type: ignore[arg-type]
        served.address = address
        server, thread = _start(url, settings or Settings(), listening, served, wrap)
        try:
            yield served
        finally:
            served.close()
            server.should_exit = True
            thread.join(PATIENCE)
            assert not thread.is_alive()


def _start(
    url: str, settings: Settings, listening: object, served: Served, wrap: Wrap
) -> tuple[uvicorn.Server, threading.Thread]:
    is_ready = threading.Event()
    servers: list[uvicorn.Server] = []

    async def run() -> None:
        async with connect(url, embedder=embedder_of(settings)) as store:
            served.store, served.loop = store, asyncio.get_running_loop()
            shutdown = Shutdown()
            app = wrap(create_app(store, settings, shutdown), store)
            for each in BEFORE_ALL:
                app = each(app, store)
            server = _Quiet(config_of(app), shutdown, settings.body_seconds)
            servers.append(server)
            is_ready.set()
            await server.serve(sockets=[listening])  # type: ignore[list-item]

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    assert is_ready.wait(PATIENCE)
    return servers[0], thread
