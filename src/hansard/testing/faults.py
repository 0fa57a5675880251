"""Injects every possible fault into an operation, one after another.

`strikes` repeats an operation, each time in a new tenant: first the first call of the backend fails before it begins,
then after it, then the second call, and so on, until the operation succeeds.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, Literal

from msgspec import Struct

from hansard.errors import Unavailable
from hansard.testing.faulty import Fault, faulty
from hansard.testing.targets import Driver

__all__ = ["Fault", "Strike", "faulty", "strikes"]

Act = Callable[[Driver], Any]
_WHEN: tuple[Literal["before", "after"], ...] = ("before", "after")


class Strike(Struct):
    """An operation that failed by a fault: its store, the fault, and the error that its caller got."""

    store: Driver
    """It works again: a fault strikes only once."""
    fault: Fault
    error: Unavailable

    def __repr__(self) -> str:
        return f"{self.fault.when} {self.fault.struck}, call {self.fault.at}"


def strikes(store: Driver, prepare: Act, act: Act, **options: Any) -> Iterator[Strike]:
    """Yields each strike, in a new tenant that `prepare` has filled. The options are those of `hansard.Store`."""
    for number in itertools.count(1):
        for when in _WHEN:
            ground = f"{number}-{when}"
            prepare(store.tenant(ground))
            fault = Fault(at=number, when=when)
            try:
                act(store.over_backend(faulty(store.backend, fault), tenant=ground, **options))
            except Unavailable as error:
                yield Strike(store.over_backend(store.backend, tenant=ground, **options), fault, error)
            else:
                assert fault.struck is None, f"{fault.struck} failed without an error"
                return
