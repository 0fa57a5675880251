"""Endpoints: what a route is declared as, who may call it, and what it answers.

A handler is declared by a decorator of its module's `Routes`, and the types of query, body and answer are read from its
annotations. An endpoint is data: the pipeline decodes and guards by it, and the OpenAPI document, the metrics, the
audit log and the tests that try to cross the walls are made from it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import datetime
from types import NoneType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_type_hints

from msgspec import Meta, Struct

from hansard.errors import HansardError

Scope = Literal["read", "write", "admin"]
SCOPES: tuple[Scope, ...] = ("read", "write", "admin")
"""What a key may do."""

JSON = "application/json"
NDJSON = "application/x-ndjson"
BYTES = "application/octet-stream"

Headers = tuple[tuple[bytes, bytes], ...]
NO_HEADERS: Headers = ()
Id = Annotated[str, Meta(min_length=1, max_length=256)]


class NoQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """A route without parameters."""


class Caller(Struct, frozen=True):
    """Who asks, and what they may do."""

    name: str
    """The id of a key or the subject of a token; `local` where no key is needed."""
    scopes: frozenset[str]
    tenant: str | None = None
    """None for an operator, who may open every tenant."""
    user: str | None = None
    until: datetime | None = None
    """When a token ends. Whether a key is still valid, its file says."""

    @property
    def is_operator(self) -> bool:
        return self.tenant is None


class HttpResponse(Struct, frozen=True):
    """An answer that is more than a value: a status, headers, bytes or a stream of its own."""

    body: bytes | AsyncIterator[bytes] = b""
    status: int = 200
    headers: Headers = ()
    media_type: str = JSON
    is_live: bool = False
    """Each piece of the stream is sent at once."""


Handler = Callable[[Any], Awaitable[Any]]
H = TypeVar("H", bound=Handler)


class Endpoint(Struct, frozen=True, kw_only=True, cache_hash=True):
    """A route."""

    name: str
    """Of its action, in the OpenAPI document, the metrics and the audit log."""
    method: str
    path: str
    """Below the prefix of its application, with parameters in braces."""
    handler: Handler
    scope: Scope
    operator: bool = False
    """Only for keys that are bound to no tenant."""
    query: Any = NoQuery
    """The type of its parameters; for OpenAI's wire, their names."""
    body: Any = None
    """The type of its body; None where there is none, or where the handler reads it as a stream."""
    is_batch: bool = False
    """The body holds messages to store, as many as the settings allow."""
    consumes: str | None = None
    """The media type of a body that is read as a stream."""
    is_slow: bool = False
    """It waits for its client or for another server, so it has no deadline."""
    response: Any = None
    """The type of the JSON answer; None when it is a stream or bytes."""
    produces: str = JSON
    also_produces: tuple[str, ...] = ()
    """The media types that a parameter can choose instead."""
    status: int = 200
    etag: str | None = None
    """The field of the answer that holds its version."""
    versioned: bool = False
    """`If-Match` is honoured."""
    repeat: Literal["natural", "key", "no"] = "natural"
    """Whether repeating the request is safe: always, with an `Idempotency-Key`, or never."""
    is_public: bool = True
    """The route is in the OpenAPI document and may not change. Other routes serve only clients of the same version."""
    errors: tuple[type[HansardError], ...] = ()
    """Errors that it may answer with, in addition to those of every route."""

    @property
    def summary(self) -> str:
        return " ".join((self.handler.__doc__ or "").split())

    @property
    def parameters(self) -> list[str]:
        return [part[1:-1] for part in self.path.split("/") if part.startswith("{")]


class Routes:
    """The endpoints of a module, declared by decorators. GET needs the scope `read`, the other methods `write`."""

    prefix = ""
    """Of the names of its endpoints."""
    _endpoints: list[Endpoint]

    def __init__(self) -> None:
        self._endpoints = []

    def __iter__(self) -> Iterator[Endpoint]:
        return iter(self._endpoints)

    def add(self, endpoint: Endpoint) -> None:
        self._endpoints.append(endpoint)

    def get(self, path: str, **facts: Any) -> Callable[[H], H]:
        return self._declared("GET", path, {"scope": "read"} | facts)

    def post(self, path: str, **facts: Any) -> Callable[[H], H]:
        return self._declared("POST", path, {"scope": "write"} | facts)

    def put(self, path: str, **facts: Any) -> Callable[[H], H]:
        return self._declared("PUT", path, {"scope": "write"} | facts)

    def patch(self, path: str, **facts: Any) -> Callable[[H], H]:
        return self._declared("PATCH", path, {"scope": "write"} | facts)

    def delete(self, path: str, **facts: Any) -> Callable[[H], H]:
        return self._declared("DELETE", path, {"scope": "write"} | facts)

    def _declared(self, method: str, path: str, facts: dict[str, Any]) -> Callable[[H], H]:
        def declare(handler: H) -> H:
            name = self.prefix + handler.__name__.rstrip("_")
            given = self.types_of(handler) | {"is_slow": "consumes" in facts} | facts
            self.add(Endpoint(name=name, method=method, path=path, handler=handler, **given))
            return handler

        return declare

    def types_of(self, handler: Handler) -> dict[str, Any]:
        """Query, body and answer, from `call: Call[Query, Body]` and what the handler returns."""
        request, response = get_type_hints(handler, include_extras=True).values()
        query, body = get_args(request)
        kinds = [kind for kind in get_args(response) or (response,) if kind is not HttpResponse]
        return {"query": query, "body": None if body is NoneType else body, "response": kinds[0] if kinds else None}
