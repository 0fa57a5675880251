"""A backend that fails at its Nth call, for tests.

It fails *before* the call, so that nothing has happened, or *after* it, so that only the answer is lost: then the
outcome is unknown, and the error says so. A test that loops over N proves that an error never leaves half a write, and
that a retry is safe.
"""

from __future__ import annotations

import inspect
from typing import Any, Literal, cast

from msgspec import Struct

from hansard.contract.backend import Backend
from hansard.errors import Unavailable


class Fault(Struct):
    """When to fail, and where it did. A fault strikes once."""

    at: int = 0
    """The number of the call, from 1. 0 never strikes."""
    when: Literal["before", "after"] = "before"
    calls: int = 0
    struck: str | None = None
    """The method that failed."""

    def is_due(self, name: str) -> bool:
        self.calls += 1
        if self.struck is not None or self.calls != self.at:
            return False
        self.struck = name
        return True


def faulty(inner: Backend, fault: Fault) -> Backend:
    """Returns the backend with the fault injected."""
    return cast(Backend, _Faulty(inner, fault))


class _Faulty:
    def __init__(self, inner: Backend, fault: Fault) -> None:
        self._inner = inner
        self._fault = fault

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not inspect.iscoroutinefunction(found) or name == "close":
            return found

        async def call(*args: Any, **kwargs: Any) -> Any:
            if not self._fault.is_due(name):
                return await found(*args, **kwargs)
            if self._fault.when == "before":
                raise Unavailable(f"{name} was made to fail before it began", outcome="not_applied")
            await found(*args, **kwargs)
            raise Unavailable(f"the answer of {name} was made to get lost", outcome="unknown")

        return call
