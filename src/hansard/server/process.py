"""Runs the application. The store is opened before the first request and closed after the last response."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import socket
import tempfile
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn
from msgspec import structs
from starlette.types import ASGIApp
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from hansard.connection import connect
from hansard.errors import Unavailable, ValidationError
from hansard.search.embedders import by_name
from hansard.server import logs, tracing
from hansard.server.app import create_app
from hansard.server.backups import Backups
from hansard.server.schedule import repeating
from hansard.server.settings import Settings
from hansard.server.store_keys import StoreKeys
from hansard.server.supervisor import WorkerTask, supervise
from hansard.server.tail import Shutdown
from hansard.store import Store

if TYPE_CHECKING:
    from hansard.search import Embedder

HOST = "127.0.0.1"
PORT = 8787
_BACKLOG = 2048
_COLLECT_AFTER = 20_000
"""Objects that are created before the garbage collector looks for unused cycles among them."""
_MOST_RECEIVED = 16
"""Connections that a worker receives at a time."""
_IDLE_CHECK_TICKS = 5
"""Tenths of a second between two checks for idle connections."""


class HttpServer(uvicorn.Server):
    """A uvicorn server that treats a stop signal as a normal exit and ends live tails first."""

    def __init__(self, config: uvicorn.Config, shutdown: Shutdown | None = None, patience: float = 60.0) -> None:
        super().__init__(config)
        self._shutdown = shutdown or Shutdown()
        self._patience = patience
        """Seconds for which a client may neither send nor read."""

    async def on_tick(self, counter: int) -> bool:
        if counter % _IDLE_CHECK_TICKS == 0:
            for connection in list(self.server_state.connections):
                # WebSockets have no such method.
                if (close_if_idle := getattr(connection, "close_if_idle", None)) is not None:
                    close_if_idle(self._patience)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._shutdown.set()
        await super().shutdown(sockets)
        if tasks := self._shutdown.tasks:
            await asyncio.wait(set(tasks), timeout=self.config.timeout_graceful_shutdown)

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


class WorkerServer(HttpServer):
    """The server of a worker process, which receives its connections from the supervisor."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])
        assert sockets is not None
        (channel,) = sockets
        channel.setblocking(False)
        self._accepting: set[asyncio.Task[Any]] = set()
        asyncio.get_running_loop().add_reader(channel, self._receive, channel)
        channel.send(b".")  # tells the supervisor that this worker is ready

    def _receive(self, channel: socket.socket) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(channel, _MOST_RECEIVED, _MOST_RECEIVED)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data, descriptors = b"", []
        loop = asyncio.get_running_loop()
        for descriptor in descriptors:
            task = loop.create_task(self._serve_connection(socket.socket(fileno=descriptor)))
            self._accepting.add(task)
            task.add_done_callback(self._accepting.discard)
        if not data:  # the supervisor has died
            loop.remove_reader(channel)
            self.should_exit = True

    async def _serve_connection(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(self._protocol, connection, ssl=self.config.ssl)
        except OSError:  # the client has left, or its TLS handshake has failed
            connection.close()

    def _protocol(self) -> asyncio.Protocol:
        return self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for channel in sockets or ():
            asyncio.get_running_loop().remove_reader(channel)
        await super().shutdown(sockets)


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """uvicorn's protocol, with refused handshakes counted as complete.

    uvicorn logs an error for every handshake that was neither accepted nor closed, even if it was answered. Without
    this class, clients without a key could fill the log.
    """

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True


def listen(host: str, port: int) -> socket.socket:
    """Returns a listening socket. Port 0 selects a free port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise Unavailable(
            f"cannot listen on {host}, port {port}: {error.strerror or error}", retryable=False
        ) from error
    # A response may be written in two parts, and the second must not wait 40 ms for the client's delayed ACK. asyncio
    # sets TCP_NODELAY only on sockets whose protocol number is TCP, which is 0 here. Connections inherit the option.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def config_of(app: ASGIApp, settings: Settings | None = None) -> uvicorn.Config:
    """Returns uvicorn's configuration. Its own logs are off: they would contain addresses and paths."""
    settings = settings or Settings()
    if settings.trusted_proxies:
        app = ProxyHeadersMiddleware(app, list(settings.trusted_proxies))  # type: ignore[assignment,arg-type]
    return uvicorn.Config(
        app,
        interface="asgi3",
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        http=_protocol(),
        ws=WebSocketProtocol,
        timeout_graceful_shutdown=settings.drain_seconds,  # type: ignore[arg-type]
        backlog=_BACKLOG,
    )


def _protocol() -> Any:
    """Returns our HTTP protocol if httptools is installed, else uvicorn's choice."""
    try:
        from hansard.server import http_protocol
    except ModuleNotFoundError:
        return "auto"
    return http_protocol.HttpProtocol


def run(
    url: str,
    port: int,
    announce: Callable[[str], None],
    settings: Settings,
    *,
    workers: int = 1,
    log_level: str = "warning",
) -> None:
    """Serves a store until SIGINT or SIGTERM. Calls `announce` with the address when the server is ready."""
    logs.set_up(log_level)
    with listen(settings.host, port) as listening:
        shown = f"[{settings.host}]" if ":" in settings.host else settings.host
        scheme = "http" if settings.tls_cert is None else "https"
        address = f"{scheme}://{shown}:{listening.getsockname()[1]}"
        if workers == 1:
            serve_socket(listening, url, settings, lambda: announce(address))
            return
        asyncio.run(_check(url, settings))
        announce(address)
        with tempfile.TemporaryDirectory(prefix="hansard-") as folder:
            settings = structs.replace(settings, metrics_folder=Path(folder))
            supervise(WorkerTask(url, settings, log_level), listening, workers)


def serve_socket(
    given: socket.socket,
    url: str,
    settings: Settings,
    announce: Callable[[], None] = lambda: None,
    server: type[HttpServer] = HttpServer,
) -> None:
    """Serves a store on a listening socket, or on connections from a supervisor."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(given, url, settings, announce, server))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Returns uvloop's event loop if it is installed."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return None
    return uvloop.new_event_loop


def _tune_collector() -> None:
    """Lets the garbage collector run less often, over what requests made.

    Few objects of a request refer to each other in a cycle, and what exists before the first request stays for good.
    The default costs a tenth of the processor time of a small request.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, 20, 20)


def embedder_of(settings: Settings) -> Embedder | None:
    return None if settings.embedder is None else by_name(settings.embedder)


async def _serve(
    given: socket.socket, url: str, settings: Settings, announce: Callable[[], None], server: type[HttpServer]
) -> None:
    async with connect(url, embedder=embedder_of(settings)) as store:
        shutdown = Shutdown()
        if settings.otlp is not None:
            tracing.export_to(settings.otlp)
        app = create_app(store, settings, shutdown, keys=await _store_keys(store, settings))
        announce()
        _tune_collector()
        async with _backups(store, settings), _purges(store, settings):
            await server(config_of(app, settings), shutdown, settings.body_seconds).serve(sockets=[given])


def _backups(store: Store, settings: Settings) -> contextlib.AbstractAsyncContextManager[None]:
    if settings.backup_to is None:
        return contextlib.nullcontext()
    made = Backups(store, settings.backup_to, every=settings.backup_seconds, keep=settings.backup_keep)
    return made.running()


def _purges(store: Store, settings: Settings) -> contextlib.AbstractAsyncContextManager[None]:
    if settings.purge_seconds is None:
        return contextlib.nullcontext()

    async def purge() -> dict[str, int]:
        receipt = await store.purge()
        return {"conversations": receipt.conversations, "records": receipt.records, "blobs": receipt.blobs}

    return repeating("purge", purge, settings.purge_seconds)


async def _store_keys(store: Store, settings: Settings) -> StoreKeys | None:
    if not settings.keys_in_store:
        return None
    keys = StoreKeys(store)
    await keys.refresh()
    return keys


async def _check(url: str, settings: Settings) -> None:
    """Checks the settings and the store once, before several workers start."""
    async with connect(url) as store:
        create_app(store, settings, keys=await _store_keys(store, settings))
        if settings.backup_to is not None:
            Backups(store, settings.backup_to, every=settings.backup_seconds, keep=settings.backup_keep)
        if not store.capabilities.shared:
            raise ValidationError(f"{store.capabilities.name} cannot be shared by several workers: use one")
