"""The HTTP application over a store.

- `/`: the web page, `hansard.server.web`. It also handles every path that no other route matches.
- `/healthz`: liveness. 200 while the process runs, even if the store is down.
- `/readyz`: readiness. 200 if the store answers, else 503.
- `/metrics`: Prometheus metrics, for an operator's key.
- `/mcp`: conversations as tools of the Model Context Protocol, if that extra is installed.
- `/api/v1/…`: the REST API. `/api/v1/openapi.json` describes it, and `/api/docs` shows that to people.
- `/v1/…`: the same store over OpenAI's wire format.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import cache, cached_property
from importlib.util import find_spec
from typing import cast

import msgspec
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from hansard.assembly.summaries import Summarizer
from hansard.assembly.summarizers import ExtractiveSummarizer
from hansard.contract.backend import Grouping
from hansard.errors import Denied, HansardError, TimedOut
from hansard.model import Stats
from hansard.server import api_docs, openapi, problems, rest, tail_endpoint, tracing
from hansard.server.audit import AuditLog
from hansard.server.auth import Auth
from hansard.server.context import Observer, ServerContext
from hansard.server.deadlines import Deadlines
from hansard.server.endpoints import Endpoint
from hansard.server.health import HEADERS, Health
from hansard.server.logs import RequestLog
from hansard.server.metrics import Metrics
from hansard.server.openai.app import OpenAiWire
from hansard.server.openai.chat_model import ChatModel
from hansard.server.openai.upstream import Upstream
from hansard.server.openai.wire_request import PREFIX as WIRE_PREFIX
from hansard.server.relay_sessions import RelaySessions
from hansard.server.rest.app import PREFIX, RestApi
from hansard.server.settings import Settings
from hansard.server.shares import SharePages
from hansard.server.store_keys import StoreKeys
from hansard.server.tail import Shutdown
from hansard.server.tail_endpoint import WebSocketTail
from hansard.server.upload_slots import UploadSlots
from hansard.server.web.app import Site
from hansard.server.web.chat import PageModel
from hansard.server.worker_metrics import SharedCounters
from hansard.store import Store

ENDPOINTS: tuple[Endpoint, ...] = (*rest.ENDPOINTS, *tail_endpoint.routes)
"""The routes below `/api/v1`."""
PUBLIC = tuple(endpoint for endpoint in ENDPOINTS if endpoint.is_public)
"""The routes that the OpenAPI document describes."""
_LOG = logging.getLogger("hansard.server")
_STATS_SECONDS = 15.0
"""How long the size of the store is at least not counted again."""
_STATS_PAUSE = 100
"""The pause after a count, as a multiple of its duration: counting takes at most 1% of the time."""
_STATS_PATIENCE = 5.0
_API, _WIRE = PREFIX + "/", WIRE_PREFIX + "/"
_OPENAPI, _API_DOCS, _SHARES = _API + "openapi.json", "/api/docs", "/s/"
_OTHERS = {"/healthz", "/readyz", "/metrics", "/mcp", _OPENAPI, _API_DOCS}

_UPLOADS = 8
"""Uploads that a process receives at the same time. They may take this many times `max_upload_bytes` of its disk."""
_UPLOADS_OF_TENANT = 2
"""Those of one tenant, so that its slow uploads do not stop those of others."""
_IMPORTS = 2
"""Received files that a process reads at the same time."""


class App:
    """The application. Requests for the API and for pages bypass the router of the other routes, which is slower."""

    def __init__(self, api: ASGIApp, openai: ASGIApp, live: ASGIApp, site: ASGIApp, others: Router) -> None:
        self._api = api
        self._openai = openai
        self._live = live
        self._site = site
        self._others = others

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        inside = scope.get("path", "")[len(scope.get("root_path", "")) :]
        if inside.startswith(_WIRE):
            handler = self._openai
        elif scope["type"] == "websocket":
            handler = self._live
        elif inside in _OTHERS or inside.startswith(_SHARES):
            handler = self._others
        else:
            handler = self._api if inside.startswith(_API) else self._site
        return handler(scope, receive, send)


@cache
def _openapi_json() -> bytes:
    return msgspec.json.encode(openapi.document(PUBLIC))


async def _get_openapi(request: Request) -> Response:
    return Response(_openapi_json(), media_type="application/json", headers=HEADERS)


@cache
def _api_docs() -> str:
    return api_docs.page(openapi.document(PUBLIC))


async def _get_api_docs(request: Request) -> Response:
    policy = "default-src 'none'; style-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    return HTMLResponse(_api_docs(), headers={**HEADERS, "Content-Security-Policy": policy})


class _StoreStats:
    """The size of the store, which is not counted again for every scrape."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stats: Stats | None = None
        self._until = 0.0

    async def current(self) -> Stats | None:
        """Returns None if the store does not answer: the other metrics are needed most then."""
        began = time.monotonic()
        if began >= self._until:
            pause = _STATS_PAUSE
            try:
                async with asyncio.timeout(_STATS_PATIENCE):
                    self._stats = await self._store.admin.stats()
            except (HansardError, TimeoutError) as error:
                _LOG.warning("the store could not be measured: %s", type(error).__name__)
                self._stats = None
                if not isinstance(error, TimedOut | TimeoutError):
                    pause = 0  # it did not count, but waited for a connection, for example
            ended = time.monotonic()
            self._until = ended + max(_STATS_SECONDS, pause * (ended - began))
        return self._stats


def _metrics_handler(auth: Auth, metrics: Metrics, stats: _StoreStats) -> Callable[[Request], Awaitable[Response]]:
    """A handler that returns the metrics to operators only: usage is sensitive."""

    async def get_metrics(request: Request) -> Response:
        try:
            caller = await auth.admit(dict(request.scope["headers"]), request.scope.get("client"))
            if not caller.is_operator or "read" not in caller.scopes:
                raise Denied("metrics are for an operator's key with the scope 'read'")
        except HansardError as error:
            body = problems.encode(error, error.status, "", is_trusted=False)
            return Response(body, error.status, HEADERS, problems.MEDIA_TYPE)
        metrics.stats = await stats.current()
        return Response(metrics.render(), headers={"Content-Type": metrics.media_type, **HEADERS})

    return get_metrics


def create_app(
    store: Store,
    settings: Settings | None = None,
    shutdown: Shutdown | None = None,
    summarizers: Mapping[str, Summarizer] | None = None,
    model: PageModel | None = None,
    keys: StoreKeys | None = None,
) -> ASGIApp:
    """Creates the application.

    Callers must close the store themselves, and set `shutdown` before they stop the server. Clients may choose one of
    `summarizers` by name, in addition to `extractive`, which needs no model. `model` answers messages written on the
    page; by default, the model of the settings answers, or an echo. `keys` are those of the store, which
    replace the key file; callers must have refreshed them.
    """
    settings, shutdown = settings or Settings(), shutdown or Shutdown()
    auth = Auth(settings, keys)
    auth.check_settings()
    relay_sessions = RelaySessions(settings.max_relays)
    metrics = Metrics(
        store.capabilities.name,
        relay_sessions,
        shutdown,
        _commits(store) if store.capabilities.groups else None,
        None if settings.metrics_folder is None else SharedCounters(settings.metrics_folder),
        settings.spool,
    )
    context = ServerContext(
        store=store,
        auth=auth,
        observers=_observers(metrics, settings),
        settings=settings,
        shutdown=shutdown,
        body_deadlines=Deadlines(settings.body_seconds),
        handler_deadlines=Deadlines(settings.request_seconds),
        relay_sessions=relay_sessions,
        uploads=UploadSlots(_UPLOADS, _UPLOADS_OF_TENANT, settings.body_seconds),
        imports=asyncio.Semaphore(_IMPORTS),
        summarizers={"extractive": ExtractiveSummarizer(), **(summarizers or {})},
    )
    health = Health(store)
    site = Site(context, model or _model(settings))
    others = Router(
        routes=[
            Route("/healthz", health.is_up),
            Route("/readyz", health.is_ready),
            Route(_OPENAPI, _get_openapi),
            Route(_API_DOCS, _get_api_docs),
            Route("/metrics", _metrics_handler(auth, metrics, _StoreStats(store))),
            Route(_SHARES + "{token}", SharePages(store).get),
            *_mcp(context),
        ],
        default=site,
    )
    app = App(RestApi(context, ENDPOINTS), OpenAiWire(context), WebSocketTail(context), site, others)
    return _with_cors(app, settings.cors_origins) if settings.cors_origins else app


def _model(settings: Settings) -> PageModel | None:
    """Returns the model that the settings name."""
    if settings.upstream and settings.model:
        return ChatModel(Upstream(settings), settings.model)
    return None


def _commits(store: Store) -> Callable[[], tuple[int, int]]:
    backend = cast(Grouping, store.backend)
    return lambda: backend.commits


class _LazyMcp:
    """The MCP application, imported on the first request: its SDK takes longer to load than the rest of the server."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context

    @cached_property
    def _app(self) -> ASGIApp:
        from hansard.server.mcp import McpOverHttp

        return McpOverHttp(self._context)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


def _mcp(context: ServerContext) -> list[Route]:
    """Returns the MCP route if its extra is installed."""
    return [Route("/mcp", _LazyMcp(context))] if find_spec("mcp") is not None else []


def _observers(metrics: Metrics, settings: Settings) -> tuple[Observer, ...]:
    observers: list[Observer] = [metrics, RequestLog()]
    if (traces := tracing.tracer()) is not None:
        observers.append(traces)
    if settings.audit_log is not None:
        observers.append(AuditLog(settings.audit_log))
    return tuple(observers)


def _with_cors(app: ASGIApp, origins: tuple[str, ...]) -> ASGIApp:
    return CORSMiddleware(
        app,
        allow_origins=origins,
        allow_methods=("GET", "POST", "PUT", "PATCH", "DELETE"),
        allow_headers=("Authorization", "Content-Type", "If-Match", "If-None-Match", "Idempotency-Key", "Range"),
        expose_headers=("ETag", "Request-Id", "Retry-After"),
    )
