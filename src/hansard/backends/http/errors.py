"""What the server met, as the same class; and what the connection did, with what is known about the outcome."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import msgspec
from msgspec import Struct

from hansard.errors import TABLE, HansardError, TimedOut, Unavailable


class ProblemDocument(Struct):
    """The problem document, as far as it is needed."""

    code: str
    detail: str
    details: dict[str, Any] = {}


def error_of(answer: httpx.Response, *, writes: bool) -> HansardError:
    """The error that an answer is."""
    try:
        problem = msgspec.json.decode(answer.content, type=ProblemDocument)
        return TABLE[problem.code](problem.detail, **problem.details)
    except (msgspec.MsgspecError, KeyError, TypeError):
        # Something between us and the server answered: who knows what it did with the request.
        outcome = f"{answer.status_code} from {answer.url.host}, which is no answer of a Hansard server"
        return Unavailable(outcome, outcome="unknown" if writes else "not_applied")


NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
"""The request never left."""


@contextmanager
def mapped(*, writes: bool) -> Iterator[None]:
    """Errors of the connection as ours. A write whose answer got lost may have been made."""
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
