"""Errors in OpenAI's format: `{"error": {"message", "type", "param", "code"}}`, a status and retry headers.

The official SDKs retry requests that fail with 408, 409, 429 or 500 and above. Where a retry cannot help,
`x-should-retry: false` prevents it.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

import msgspec

from hansard.errors import (
    Closed,
    Conflict,
    Denied,
    HansardError,
    NotFound,
    RateLimited,
    Unauthenticated,
    Unavailable,
    Unsupported,
    ValidationError,
)
from hansard.formats.openai_items import BadItem
from hansard.server.endpoints import NO_HEADERS, Headers, HttpResponse
from hansard.server.problems import HttpError

_PATIENCE = 120
"""The SDKs ignore a `retry-after` above this many seconds, and retry immediately."""
NO_RETRY: Headers = ((b"x-should-retry", b"false"),)
_INVALID = "invalid_request_error"


class WireError(Exception):
    """An error in OpenAI's format."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        type: str = _INVALID,
        headers: Headers = NO_HEADERS,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code
        self.type = type
        self.headers = headers

    def response(self) -> HttpResponse:
        return HttpResponse(self.body(), self.status, self.headers)

    def body(self) -> bytes:
        return msgspec.json.encode({"error": self.error()})

    def error(self) -> dict[str, Any]:
        return {"message": str(self), "type": self.type, "param": self.param, "code": self.code}


def invalid(message: str, param: str | None, code: str = "invalid_value") -> WireError:
    return WireError(400, message, param=param, code=code)


def missing(param: str) -> WireError:
    return invalid(f"Missing required parameter: '{param}'.", param, "missing_required_parameter")


def not_found(what: str, id: str) -> WireError:
    return WireError(404, f"{what} with id '{id}' not found.", code="not_found")


_NO_RUNS = """Runs are not supported: a store runs no models. Ask a model by POST /v1/responses, or ask it yourself \
and add its answer by POST /v1/threads/{thread_id}/messages."""
_NO_ASSISTANTS = "Assistants are not supported: a store only stores conversations."
_NOT_PASSED_ON = """It is not passed on: ask the model endpoint itself. Only POST /v1/responses, \
POST /v1/chat/completions and GET /v1/models are."""
_NOT_HERE = (
    (re.compile(r"/v1/threads/(runs|[^/]+/runs(/.*)?)"), _NO_RUNS),
    (re.compile(r"/v1/assistants(/.*)?"), _NO_ASSISTANTS),
    (re.compile(r"/v1/responses/(compact|input_tokens)"), _NOT_PASSED_ON),
)
"""Routes of OpenAI that are missing here, and why."""


def unknown_url(status: int, method: str, path: str, headers: Headers = NO_HEADERS) -> WireError:
    why = next((" " + why for pattern, why in _NOT_HERE if pattern.fullmatch(path)), "")
    if why:  # also if the path matches a parameter of another route, which would only refuse the method
        status, headers = 404, NO_HEADERS
    return WireError(status, f"Invalid URL ({method} {path[:200]}){why}", code="unknown_url", headers=headers)


def wire_error(failure: Exception, *, is_trusted: bool) -> WireError:
    """Converts any exception to OpenAI's format. Only operators see messages of storage failures."""
    if isinstance(failure, WireError):
        return failure
    if isinstance(failure, BadItem):
        return invalid(str(failure), failure.param, failure.code)
    status, headers = 0, NO_HEADERS
    if isinstance(failure, HttpError):
        status, headers, failure = failure.status, failure.headers, failure.error
    if not isinstance(failure, HansardError):
        failure = HansardError("the server failed: its log has more under this request id")
        return WireError(500, str(failure), type="server_error", code="server_error")
    return _of_ours(failure, status, headers, is_trusted=is_trusted)


def _of_ours(error: HansardError, status: int, headers: Headers, *, is_trusted: bool) -> WireError:
    if isinstance(error, Unauthenticated):
        return WireError(401, str(error), code="invalid_api_key", headers=((b"www-authenticate", b"Bearer"),))
    if isinstance(error, Denied):
        return WireError(403, str(error), code="permission_denied")
    if isinstance(error, RateLimited):
        return _too_fast(error)
    if isinstance(error, NotFound):
        return WireError(404, str(error), code="not_found")
    if isinstance(error, Conflict):
        # SDKs would retry a 409, and it would fail again.
        return WireError(status or 409, str(error), code=error.code, headers=(*headers, *NO_RETRY))
    if isinstance(error, ValidationError):
        return WireError(status or 400, str(error), code=error.code, headers=headers)
    status = status or error.status
    says_why = is_trusted or isinstance(error, Unsupported)
    message = str(error) if says_why else (inspect.getdoc(type(error)) or type(error).__name__)
    can_pass = isinstance(error, Unavailable | Closed) and getattr(error, "retryable", True)
    return WireError(status, message, code=error.code, type="server_error", headers=() if can_pass else NO_RETRY)


def _too_fast(error: RateLimited) -> WireError:
    wait: Headers = ((b"retry-after", str(error.retry_after).encode()),)
    headers = wait if error.retry_after <= _PATIENCE else (*wait, *NO_RETRY)
    return WireError(429, str(error), code="rate_limit_exceeded", type="rate_limit_error", headers=headers)


def code_of(failure: Exception) -> str:
    """Returns the stable code for the metrics and the audit log."""
    failure = failure.error if isinstance(failure, HttpError) else failure
    if isinstance(failure, HansardError):
        return failure.code
    status = getattr(failure, "status", 400)
    return {404: NotFound.code, 500: HansardError.code}.get(status, ValidationError.code)
