"""Work at an interval while the server runs: backups, and the removal of expired data."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from hansard.errors import HansardError

_LOG = logging.getLogger("hansard.server")
_RETRY_SECONDS = 300.0

Work = Callable[[], Awaitable[dict[str, Any]]]
"""Returns facts for the log."""


@contextlib.asynccontextmanager
async def repeating(what: str, work: Work, every: float) -> AsyncIterator[None]:
    """Does the work now and at the interval, until the server stops.

    A failure is logged, and the work is tried again within five minutes.
    """
    task = asyncio.create_task(_repeat(what, work, every))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _repeat(what: str, work: Work, every: float) -> None:
    while True:
        wait = every
        try:
            _LOG.info("the %s is done", what, extra={"facts": await work()})
        except HansardError as error:
            _LOG.error("the %s failed: %s", what, error)
            wait = min(wait, _RETRY_SECONDS)
        except Exception:  # a mistake in the work must not end the schedule without a word
            _LOG.exception("the %s failed", what)
            wait = min(wait, _RETRY_SECONDS)
        await asyncio.sleep(wait)
