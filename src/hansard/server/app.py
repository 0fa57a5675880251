"""The HTTP application over a store.

- `/`: a page that says what is running.
- `/healthz`: 200 as long as the process answers, whatever the store does. For restarting it.
- `/readyz`: 200 when the store answers, else 503. For sending it traffic.
- `/api/v1/…`: the store. `/api/v1/openapi.json` describes it.
"""

from __future__ import annotations

import msgspec
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from hansard.server import api, openapi
from hansard.server.api import Api
from hansard.server.audit import AuditLog
from hansard.server.gate import Gate
from hansard.server.health import HEADERS, Health
from hansard.server.routes import ENDPOINTS
from hansard.server.settings import Settings
from hansard.server.watchers import Watchers
from hansard.store import Store

_OPENAPI = "/api/v1/openapi.json"


class App:
    """The application. Requests to the API take the short way, past the router of the pages."""

    def __init__(self, api: ASGIApp, pages: ASGIApp) -> None:
        self._api = api
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        inside = scope.get("path", "")[len(scope.get("root_path", "")) :]
        is_call = scope["type"] == "http" and inside.startswith(_API) and inside != _OPENAPI
        await (self._api if is_call else self._pages)(scope, receive, send)


_API = api.PREFIX.decode() + "/"


def create_app(store: Store, settings: Settings | None = None) -> ASGIApp:
    """The application. Whoever opened the store closes it."""
    settings = settings or Settings()
    described = msgspec.json.encode(openapi.document(ENDPOINTS))

    async def describe(request: Request) -> Response:
        return Response(described, media_type="application/json", headers=HEADERS)

    health = Health(store)
    pages = Router(
        routes=[
            Route("/", health.page),
            Route("/healthz", health.is_up),
            Route("/readyz", health.is_ready),
            Route(_OPENAPI, describe),
        ]
    )
    gate = Gate(settings)
    gate.check_settings()
    watchers = Watchers(*([AuditLog(settings.audit_log)] if settings.audit_log is not None else []))
    app = App(Api(store, ENDPOINTS, gate, watchers, settings), pages)
    return _with_cors(app, settings.cors_origins) if settings.cors_origins else app


def _with_cors(app: ASGIApp, origins: tuple[str, ...]) -> ASGIApp:
    return CORSMiddleware(
        app,
        allow_origins=origins,
        allow_methods=("GET", "POST", "PUT", "PATCH", "DELETE"),
        allow_headers=("Authorization", "Content-Type", "If-Match", "If-None-Match", "Idempotency-Key", "Range"),
        expose_headers=("ETag", "Request-Id", "Retry-After"),
    )
