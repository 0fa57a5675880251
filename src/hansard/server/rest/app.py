"""`/api/v1`: the REST API, with JSON bodies, versions as entity tags and errors as problem documents."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec
from starlette.types import Receive, Scope, Send

from hansard.errors import Conflict, ValidationError
from hansard.server import body, parameters
from hansard.server.context import ServerContext
from hansard.server.endpoints import JSON, Endpoint, HttpResponse
from hansard.server.pipeline import Pipeline
from hansard.server.problems import HttpError
from hansard.server.request import Request

PREFIX = "/api/v1"
_encode = msgspec.json.Encoder().encode
_decoder = cache(msgspec.json.Decoder)


class RestApi(Pipeline[Request[Any, Any]]):
    """The application under `/api/v1`."""

    def __init__(self, context: ServerContext, endpoints: Sequence[Endpoint]) -> None:
        super().__init__(context, endpoints)
        self._decoders = {endpoint: _decoder(endpoint.body) for endpoint in endpoints if endpoint.body is not None}

    def make_request(self, scope: Scope, receive: Receive, send: Send) -> Request[Any, Any]:
        return Request(self.context, len(PREFIX), scope, receive, send)

    async def decode(self, request: Request[Any, Any]) -> None:
        assert request.endpoint is not None
        if b"if-match" in request.headers or b"idempotency-key" in request.headers:
            _read_conditions(request.endpoint, request)
        request.query = parameters.decode(request.scope["query_string"], request.endpoint.query)
        if request.endpoint.consumes is not None:
            body.require_type(request.headers, request.endpoint.consumes)
        elif (decoder := self._decoders.get(request.endpoint)) is not None:
            body.require_type(request.headers, JSON)
            raw = await request.stream.whole()
            if request.endpoint.is_batch:
                body.check_batch(raw, self.context.settings.max_messages)
            request.body = _decoded(raw, decoder)

    def encode(self, request: Request[Any, Any], value: Any) -> HttpResponse:
        if isinstance(value, HttpResponse):
            return value
        assert request.endpoint is not None
        field = request.endpoint.etag
        headers = ((b"etag", b'"%d"' % getattr(value, field)),) if field is not None else ()
        return HttpResponse(_encode(value), request.endpoint.status, headers)

    def error_response(self, request: Request[Any, Any], failure: Exception) -> tuple[HttpResponse, str]:
        if isinstance(failure, Conflict) and request.version is not None and failure.expected is not None:
            failure = HttpError(412, failure)
        return super().error_response(request, failure)


def _decoded(raw: bytes, decoder: msgspec.json.Decoder[Any]) -> Any:
    try:
        return body.decode(raw, decoder)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise ValidationError(f"the body is not valid: {error}") from error


def _read_conditions(endpoint: Endpoint, request: Request[Any, Any]) -> None:
    if (match := request.headers.get(b"if-match")) is not None:
        if not endpoint.versioned:
            raise ValidationError("this route does not support If-Match: leave it out")
        request.version = _version(match.decode("latin-1"))
    if (key := request.headers.get(b"idempotency-key")) is not None:
        if endpoint.repeat == "no":
            raise ValidationError("this route does not support Idempotency-Key: leave it out")
        request.key = key.decode("latin-1")
        if not 0 < len(request.key) <= 256:
            raise ValidationError("Idempotency-Key must have between 1 and 256 characters")


def _version(tag: str) -> int:
    """Returns the version in an entity tag: digits in quotes."""
    number = tag[1:-1]
    if len(tag) < 3 or tag[0] != '"' or tag[-1] != '"' or not number.isascii() or not number.isdigit():
        raise ValidationError(f"If-Match is {tag[:80]!r}: send one version in quotes, as in the ETag")
    if len(number) > 18:
        raise ValidationError("If-Match is too large for a version")
    return int(number)
