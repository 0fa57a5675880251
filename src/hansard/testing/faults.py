"""Every fault that can strike an operation, one after another.

`strikes` runs an operation again and again, each time on fresh ground: first with the first call of the backend failing
before it begins, then after it, then the second call, and so on, until the operation gets through unharmed.
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
    """An operation that was struck: on which store, where, and what it told its caller."""

    store: Driver
    """Sound again: the fault has struck."""
    fault: Fault
    error: Unavailable

    def __repr__(self) -> str:
        return f"{self.fault.when} {self.fault.struck}, call {self.fault.at}"


def strikes(store: Driver, prepare: Act, act: Act, **options: Any) -> Iterator[Strike]:
    """Each strike on a tenant of its own, which `prepare` has filled. The options are those of `hansard.Store`."""
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
                assert fault.struck is None, f"{fault.struck} failed, and nobody was told"
                return
