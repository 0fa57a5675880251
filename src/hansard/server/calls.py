"""What a route is declared as, and what its handler is given: an `Endpoint` and a `Call`.

A route is data. From it come the decoding of what arrives, the walls, the OpenAPI document, the metrics and the tests
that try to cross the walls: a route that is declared is guarded, documented and tested.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from msgspec import Struct

from hansard.errors import HansardError, ValidationError
from hansard.server.bodies import Body
from hansard.server.scopes import Scope
from hansard.store import Store

if TYPE_CHECKING:
    from hansard.server.parts import Parts

JSON = "application/json"
NDJSON = "application/x-ndjson"
BYTES = "application/octet-stream"

Q = TypeVar("Q")
B = TypeVar("B")
Headers = tuple[tuple[bytes, bytes], ...]
NO_HEADERS: Headers = ()


class NoQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """A route without parameters."""


class Caller(Struct, frozen=True):
    """Who asks, and what they may."""

    name: str
    """The id of a key or the subject of a token; `local` where no key is needed."""
    scopes: frozenset[str]
    tenant: str | None = None
    """None for an operator, who may open every tenant."""
    user: str | None = None
    until: datetime | None = None
    """When a token ends. Whether a key still holds, its file says."""

    @property
    def is_operator(self) -> bool:
        return self.tenant is None


class Call(Generic[Q, B]):
    """One request, decoded and let in."""

    __slots__ = (
        "body",
        "caller",
        "headers",
        "key",
        "parts",
        "path",
        "query",
        "root",
        "store",
        "stream",
        "version",
    )

    def __init__(self, root: Store, store: Store, caller: Caller, path: tuple[str, ...], stream: Body) -> None:
        self.root = root
        """The whole store: for routes that only an operator may use."""
        self.store = store
        """The store as the caller may see it."""
        self.caller = caller
        self.path = path
        """What stands in the path for its parameters, in their order."""
        self.stream = stream
        self.headers: dict[bytes, bytes] = {}
        self.parts: Parts
        """What the server is made of."""
        self.query: Q
        self.body: B
        self.version: int | None = None
        """What `If-Match` demands."""
        self.key: str | None = None
        """The `Idempotency-Key`."""


class Answer(Struct, frozen=True):
    """An answer that is more than a value: a status, headers, bytes or a stream of its own."""

    body: bytes | AsyncIterator[bytes] = b""
    status: int = 200
    headers: Headers = ()
    media_type: str = JSON
    is_live: bool = False
    """Each piece of the stream is sent at once."""


Handler = Callable[[Any], Awaitable[Any]]


@cache
def _name_of(handler: Handler) -> str:
    return handler.__name__.rstrip("_")


class Endpoint(Struct, frozen=True, kw_only=True, cache_hash=True):
    """A route."""

    method: str
    path: str
    """Below `/api/v1`, with parameters in braces."""
    handler: Handler
    scope: Scope
    operator: bool = False
    """Only for keys that are bound to no tenant."""
    query: type[Struct] = NoQuery
    body: Any = None
    """The type of a JSON body; None where there is none, or where the handler reads it as a stream."""
    is_batch: bool = False
    """The body holds messages to store, as many as the settings allow."""
    takes: str | None = None
    """The media type of a body that is read as a stream."""
    answer: Any = None
    """The type of the JSON answer; None when it is a stream or bytes."""
    gives: str = JSON
    status: int = 200
    etag: Callable[[Any], int] | None = None
    """How to read the version off the answer."""
    versioned: bool = False
    """`If-Match` is honoured."""
    repeat: Literal["natural", "key", "no"] = "natural"
    """Whether doing it twice does no harm by itself, with an `Idempotency-Key`, or not at all."""
    is_public: bool = True
    """It stands in the OpenAPI document, and may not change. What does not is between one version and itself."""
    errors: tuple[type[HansardError], ...] = ()
    """What it may answer beside what every route may."""

    @property
    def name(self) -> str:
        return _name_of(self.handler)

    @property
    def summary(self) -> str:
        return " ".join((self.handler.__doc__ or "").split())

    @property
    def parameters(self) -> list[str]:
        return [part[1:-1] for part in self.path.split("/") if part.startswith("{")]


def digits(text: str) -> int:
    """The version in an entity tag: digits in quotes."""
    number = text[1:-1]
    if len(text) < 3 or text[0] != '"' or text[-1] != '"' or not number.isascii() or not number.isdigit():
        raise ValidationError(f"If-Match is {text[:80]!r}: give one version in quotes, as an ETag does")
    if len(number) > 18:
        raise ValidationError("If-Match is a number that no version can be")
    return int(number)
