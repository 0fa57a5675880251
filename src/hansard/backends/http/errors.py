"""Errors of the server, as the same class; and of the connection, with the known outcome."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import msgspec
from msgspec import Struct

from hansard.errors import TABLE, HansardError, TimedOut, Unavailable


class ReceivedProblem(Struct):
    """The fields of a problem document that are used."""

    code: str
    detail: str
    details: dict[str, Any] = {}


def error_of(answer: httpx.Response, *, writes: bool) -> HansardError:
    """Returns the error of a response."""
    try:
        problem = msgspec.json.decode(answer.content, type=ReceivedProblem)
        return TABLE[problem.code](problem.detail, **problem.details)
    except (msgspec.MsgspecError, KeyError, TypeError):
        # A proxy between us and the server answered: it is unknown what it did with the request.
        outcome = f"{answer.status_code} from {answer.url.host}, which is not an answer of a Hansard server"
        return Unavailable(outcome, outcome="unknown" if writes else "not_applied")


NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
"""The request was never sent."""


@contextmanager
def mapped(*, writes: bool) -> Iterator[None]:
    """Translates errors of the connection. A write whose answer was lost may have been stored."""
    try:
        yield
    except NOT_SENT as error:
        raise Unavailable(f"the server cannot be reached: {_words(error)}", outcome="not_applied") from error
    except httpx.TimeoutException as error:
        raise TimedOut("the server did not answer in time", outcome="unknown" if writes else "not_applied") from error
    except httpx.TransportError as error:
        text = f"the connection to the server broke: {_words(error)}"
        raise Unavailable(text, outcome="unknown" if writes else "not_applied") from error


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
