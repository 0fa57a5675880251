"""Running operations on a state that is only remembered, for storages that compare and swap instead of locking.

A storage makes an *attempt* for each run: a transaction that notices, when it asks or applies, that somebody else has
written. What was decided on a remembered state counts only if it was applied; a refusal is decided again.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from hansard.contract.storage import Operation, T, Transaction
from hansard.errors import HansardError, TimedOut

PATIENCE = 30.0
"""Seconds in which a write that others keep overtaking is decided again."""


class Overtaken(Exception):
    """Raised by `get` and `apply`: the state of this run no longer holds, or an answer that it assumed was wrong.

    Nothing was stored.
    """


class Attempt(Transaction, Protocol):
    @property
    def is_certain(self) -> bool:
        """The state was read for this run, and no answer was assumed."""

    @property
    def has_applied(self) -> bool:
        """`apply` was called, and may have stored something unless it raised `Overtaken`."""


async def write(
    operation: Operation[T], begin: Callable[[bool], Awaitable[Attempt]], *, patience: float = PATIENCE
) -> T:
    """Runs an operation until its changes are stored, or it ends on a certain state without any.

    `begin(False)` may remember the state and assume answers (`Wants.expects_none`); `begin(True)` must do neither.
    """
    certain = False
    give_up = time.monotonic() + patience
    while True:
        attempt = None
        try:
            # It may be overtaken as well: what a run asks for can take several looks.
            attempt = await begin(certain)
            value = await operation(attempt)
        except Overtaken:
            if time.monotonic() > give_up:
                which = "the conversation" if attempt is None else f"conversation {attempt.id!r}"
                raise TimedOut(
                    f"others kept changing {which} for {patience:g} seconds", outcome="not_applied"
                ) from None
        except HansardError:
            if attempt is None or attempt.is_certain or attempt.has_applied:
                raise
        else:
            if attempt.is_certain or attempt.has_applied:
                return value
        certain = True
