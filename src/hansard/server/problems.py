"""Errors as RFC 9457 problem documents. Their codes, statuses and details come from `hansard.errors`.

Where HTTP has a more precise status (412 for a failed `If-Match`, 413 for a body that is too large), that status is
used, and the code still names the error class.
"""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from hansard.errors import HansardError, RateLimited, Unsupported
from hansard.server.endpoints import NO_HEADERS, Headers

MEDIA_TYPE = "application/problem+json"


class HttpProblem(Struct, frozen=True):
    """An error. `code` is stable and `details` are for programs; `detail` is for people."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    details: dict[str, Any]
    request_id: str


class HttpError(Exception):
    """An error with an HTTP status that is more precise than that of its class, and with headers."""

    def __init__(self, status: int, error: HansardError, headers: Headers = NO_HEADERS) -> None:
        super().__init__(str(error))
        self.status = status
        self.error = error
        self.headers = headers


class ReportedError(NamedTuple):
    """The error that is reported to the client."""

    error: HansardError
    status: int
    headers: Headers


def reported(failure: Exception) -> ReportedError:
    """Maps an exception to an error of `hansard.errors`, an HTTP status and headers."""
    status, headers = 0, NO_HEADERS
    if isinstance(failure, HttpError):
        status, headers, failure = failure.status, failure.headers, failure.error
    if not isinstance(failure, HansardError):
        failure = HansardError("the server failed: its log has more under this request id")
    if isinstance(failure, RateLimited):
        headers = ((b"retry-after", str(failure.retry_after).encode()),)
    return ReportedError(failure, status or failure.status, headers)


def encode(error: HansardError, status: int, request_id: str, *, is_trusted: bool) -> bytes:
    """Encodes the document. Storage failures may contain file and host names, which only operators may see."""
    kind = type(error)
    says_why = is_trusted or status < 500 or isinstance(error, Unsupported)
    detail = str(error) if says_why else (inspect.getdoc(kind) or kind.__name__)
    details = error.details if says_why else {key: error.details[key] for key in _HARMLESS & error.details.keys()}
    problem = HttpProblem(
        f"urn:hansard:error:{kind.code}", kind.__name__, status, detail, kind.code, details, request_id
    )
    return msgspec.json.encode(problem, enc_hook=str)


_HARMLESS = frozenset({"retryable", "outcome", "retry_after", "capability"})
