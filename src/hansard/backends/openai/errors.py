"""Translates errors of the SDK. A call that fails after the index was written may still be applied."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import openai

from hansard.errors import (
    Denied,
    HansardError,
    Outcome,
    RateLimited,
    TimedOut,
    Unauthenticated,
    Unavailable,
)


@contextmanager
def mapped(*, index_written: bool) -> Iterator[None]:
    outcome: Outcome = "unknown" if index_written else "not_applied"
    try:
        yield
    except openai.APITimeoutError as error:
        raise TimedOut(f"the API did not answer in time: {error}", outcome=outcome) from error
    except openai.APIStatusError as error:
        raise _of_status(error, outcome) from error
    except openai.APIError as error:
        raise Unavailable(f"the API cannot be reached: {error}", outcome=outcome) from error
    except json.JSONDecodeError as error:
        raise Unavailable(f"the API answered with broken JSON: {error}", retryable=False, outcome=outcome) from error


def _of_status(error: openai.APIStatusError, outcome: Outcome) -> HansardError:
    what = f"the API refused: {error.message}"
    if outcome == "not_applied":
        if error.status_code == 401:
            return Unauthenticated(what)
        if error.status_code == 403:
            return Denied(what)
        if error.status_code == 429:
            return RateLimited(what)
    retryable = error.status_code in (408, 409, 429) or error.status_code >= 500
    return Unavailable(what, retryable=retryable, outcome=outcome)
