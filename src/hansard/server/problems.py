"""Errors on the wire: RFC 9457 problem documents, whose codes and facts come from the one table in `hansard.errors`.

The status is the table's, except where HTTP itself has a more precise one (a failed `If-Match` is 412, a body that is
too large 413): then the code still says which class of the table it is.
"""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from hansard.errors import HansardError, RateLimited, Unsupported
from hansard.server.endpoints import NO_HEADERS, Headers

MEDIA_TYPE = "application/problem+json"


class ProblemDocument(Struct, frozen=True):
    """What went wrong. `code` is stable, `details` are the facts of the error; `detail` is for people."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    details: dict[str, Any]
    request_id: str


class HttpError(Exception):
    """An error with a status that HTTP knows better, and headers that go with it."""

    def __init__(self, status: int, error: HansardError, headers: Headers = NO_HEADERS) -> None:
        super().__init__(str(error))
        self.status = status
        self.error = error
        self.headers = headers


class ReportedError(NamedTuple):
    """What a request failed with, as its client may know it."""

    error: HansardError
    status: int
    headers: Headers


def reported(failure: Exception) -> ReportedError:
    """A failure in terms of the one table, with what HTTP adds to it."""
    status, headers = 0, NO_HEADERS
    if isinstance(failure, HttpError):
        status, headers, failure = failure.status, failure.headers, failure.error
    if not isinstance(failure, HansardError):
        failure = HansardError("the server failed: its log has more under this request id")
    if isinstance(failure, RateLimited):
        headers = ((b"retry-after", str(failure.retry_after).encode()),)
    return ReportedError(failure, status or failure.status, headers)


def encode(error: HansardError, status: int, request_id: str, *, is_trusted: bool) -> bytes:
    """The document. A failure of the storage may name files and hosts: only an operator is told."""
    kind = type(error)
    # Some messages belong to no class that the wire knows: a subclass of somebody's own goes by its parent's code.
    says_why = is_trusted or status < 500 or isinstance(error, Unsupported)
    detail = str(error) if says_why else (inspect.getdoc(kind) or kind.__name__)
    details = error.details if says_why else {key: error.details[key] for key in _HARMLESS & error.details.keys()}
    problem = ProblemDocument(
        f"urn:hansard:error:{kind.code}", kind.__name__, status, detail, kind.code, details, request_id
    )
    return msgspec.json.encode(problem, enc_hook=str)


_HARMLESS = frozenset({"retryable", "outcome", "retry_after", "capability"})
