"""Runs operations on remembered states, for storages that compare and swap instead of locking.

A storage creates an *attempt* for each run: a transaction that detects, in `get` and `apply`, that another writer has
changed the conversation. A decision on a remembered state counts only if its changes were applied; a refusal is decided
again on a fresh state.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from hansard.contract.storage import Operation, T, Transaction
from hansard.errors import HansardError, TimedOut

PATIENCE = 30.0
"""Seconds for which a write that other writers keep overtaking is retried."""


class Overtaken(Exception):
    """Raised by `get` and `apply` when the state of this run is outdated, or an assumed answer was wrong.

    Nothing was stored.
    """


class Attempt(Transaction, Protocol):
    @property
    def is_certain(self) -> bool:
        """True if the state was read for this run and no answer was assumed."""

    @property
    def has_applied(self) -> bool:
        """True after `apply`, which may have stored something unless it raised `Overtaken`."""


async def write(
    operation: Operation[T], begin: Callable[[bool], Awaitable[Attempt]], *, patience: float = PATIENCE
) -> T:
    """Runs an operation until its changes are stored, or until it ends on a certain state without changes.

    `begin(False)` may use a remembered state and assume answers (`Wants.expects_none`); `begin(True)` must do neither.
    """
    certain = False
    give_up = time.monotonic() + patience
    while True:
        attempt = None
        try:
            # This attempt may be overtaken as well: answering an operation can take several requests.
            attempt = await begin(certain)
            value = await operation(attempt)
        except Overtaken:
            if time.monotonic() > give_up:
                which = "the conversation" if attempt is None else f"conversation {attempt.id!r}"
                raise TimedOut(
                    f"other writers kept changing {which} for {patience:g} seconds", outcome="not_applied"
                ) from None
        except HansardError:
            if attempt is None or attempt.is_certain or attempt.has_applied:
                raise
        else:
            if attempt.is_certain or attempt.has_applied:
                return value
        certain = True
