"""Requests on OpenAI's wire: how routes are declared, and how parameters and bodies are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from msgspec import Struct
from starlette.types import Receive, Scope, Send

from hansard.model import Order, Usage
from hansard.server.context import ServerContext
from hansard.server.endpoints import H, Handler, Routes
from hansard.server.openai.wire_errors import invalid, missing
from hansard.server.request import Request

if TYPE_CHECKING:
    from hansard.server.openai.answer_cache import AnswerCache
    from hansard.server.openai.background import Background
    from hansard.server.openai.item_pages import DeletedItems
    from hansard.server.openai.references import References
    from hansard.server.openai.retries import Retries
    from hansard.server.openai.upstream import Upstream

PREFIX = "/v1"
MOST_ITEMS = 20
"""Items per request."""
MOST_PAGE = 100
_PAIRS, _KEY, _VALUE = 16, 64, 512
_MOST_PARAMETERS = 100
PAIR = "metadata["
"""Prefix of parameters that filter by a key of the metadata."""

Query = dict[str, list[str]]


class WireRoutes(Routes):
    """Routes of the wire. `query` names the parameters of a route; a POST has a JSON body."""

    prefix = "openai_"

    def post(self, path: str, **facts: Any) -> Callable[[H], H]:
        return super().post(path, **({"body": dict} | facts))

    def types_of(self, handler: Handler) -> dict[str, Any]:
        return {"query": ()}


class WireServices(Struct, frozen=True):
    """Objects that all requests of the wire share."""

    retries: Retries
    answers: AnswerCache
    deleted: DeletedItems
    references: References
    upstream: Upstream
    background: Background


class WireRequest(Request[Query, dict[str, Any]]):
    """One request. SDKs expect its id in `x-request-id`."""

    id_headers = (b"request-id", b"x-request-id")

    def __init__(
        self, services: WireServices, context: ServerContext, scope: Scope, receive: Receive, send: Send
    ) -> None:
        super().__init__(context, len(PREFIX), scope, receive, send)
        self.services = services
        self.body = {}
        self.raw = b""
        """The raw body."""
        self.answer_usage: Usage | None = None
        """The tokens of the model's answer, once it was stored."""

    @property
    def is_retry(self) -> bool:
        """Whether the SDK's headers mark this request as a retry."""
        count = self.headers.get(b"x-stainless-retry-count", b"0")
        return count.isdigit() and int(count[:9]) > 0

    # Parameters

    def parameter(self, name: str) -> str | None:
        given = self.query.get(name)
        return given[-1] if given else None

    @property
    def limit(self) -> int:
        text = self.parameter("limit")
        if text is None:
            return MOST_ITEMS
        digits = text.removeprefix("-")
        if not digits.isascii() or not digits.isdigit():
            raise invalid(
                f"Invalid type for 'limit': expected an integer, but got '{text[:40]}'.", "limit", "invalid_type"
            )
        number = int(text[:20])
        if number < 1:
            what = f"Expected a value >= 1, but got {number} instead."
            raise invalid(f"Invalid 'limit': integer below minimum value. {what}", "limit", "integer_below_min_value")
        if number > MOST_PAGE:
            what = f"Expected a value <= {MOST_PAGE}, but got {number} instead."
            raise invalid(f"Invalid 'limit': integer above maximum value. {what}", "limit", "integer_above_max_value")
        return number

    @property
    def order(self) -> Order:
        return self.order_or("desc")

    def order_or(self, usual: Order) -> Order:
        text = self.parameter("order") or usual
        if text not in ("asc", "desc"):
            raise invalid(f"Invalid value: '{text[:40]}'. Supported values are: 'asc' and 'desc'.", "order")
        return text  # type: ignore[return-value]


def parameters(query_string: bytes, known: Iterable[str]) -> Query:
    """Parses the query string and refuses unknown parameters. `include[]=a` is the list `include`.

    If `metadata` is known, so is every `metadata[key]=a`.
    """
    if not query_string:
        return {}
    try:
        pairs = parse_qsl(
            query_string.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MOST_PARAMETERS
        )
    except ValueError as error:
        raise invalid(f"The query string cannot be read: {error}", None) from error
    query: Query = {}
    for name, value in pairs:
        plain = name.removesuffix("[]")
        is_pair = plain.startswith(PAIR) and plain.endswith("]") and "metadata" in known
        if plain not in known and not is_pair:
            raise invalid(f"Unknown parameter: '{name[:80]}'.", name[:80], "unknown_parameter")
        query.setdefault(plain, []).append(value)
    return query


# Bodies


def only(body: dict[str, Any], *known: str) -> None:
    """Refuses unknown parameters: a misspelt one must not be ignored."""
    for name in body:
        if name not in known:
            raise invalid(f"Unknown parameter: '{name[:80]}'.", name[:80], "unknown_parameter")


def items_given(body: dict[str, Any], name: str, *, required: bool) -> list[Any]:
    """Returns a list of the body, which may have at most 20 items."""
    given = body.get(name)
    if given is None:
        if required:
            raise missing(name)
        return []
    if not isinstance(given, list):
        raise invalid(f"Invalid type for '{name}': expected an array.", name, "invalid_type")
    if len(given) > MOST_ITEMS:
        what = f"Expected an array with maximum length {MOST_ITEMS}, but got an array with length {len(given)} instead."
        raise invalid(f"Invalid '{name}': array too long. {what}", name, "array_above_max_length")
    return given


def metadata_given(body: dict[str, Any], where: str = "metadata") -> dict[str, str]:
    """Returns the metadata of the body: up to 16 pairs of text."""
    given = body.get("metadata")
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise invalid(f"Invalid type for '{where}': expected an object.", where, "invalid_type")
    if len(given) > _PAIRS:
        what = f"Expected an object with at most {_PAIRS} properties, but got an object with {len(given)} properties"
        raise invalid(f"Invalid '{where}': too many properties. {what} instead.", where, "object_above_max_properties")
    for key, value in given.items():
        if len(key) > _KEY:
            what = f"Expected keys of at most {_KEY} characters, but got one of {len(key)} instead."
            raise invalid(f"Invalid '{where}': key too long. {what}", where, "string_above_max_length")
        at = f"{where}.{key}"
        if not isinstance(value, str):
            raise invalid(f"Invalid type for '{at}': expected a string.", at, "invalid_type")
        if len(value) > _VALUE:
            what = f"Expected a string with maximum length {_VALUE}, but got a string with length {len(value)} instead."
            raise invalid(f"Invalid '{at}': string too long. {what}", at, "string_above_max_length")
    return given


# Envelopes


def listed(data: list[dict[str, Any]], *, has_more: bool = False) -> dict[str, Any]:
    """Returns a list object. If it is empty, its ids are empty strings: OpenAI's schema does not allow null."""
    return {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else "",
        "last_id": data[-1]["id"] if data else "",
        "has_more": has_more,
    }
