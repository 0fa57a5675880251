"""A state machine that runs random operations on a backend and on `memory`, and compares every answer.

`memory` is the reference, so any difference is a bug of the backend under test. Both stores use the same clock and the
same ids, chosen from few, so that operations touch the same data. Values are compared field by field, errors by class
and details, and at the end everything that can be read. Where several handles may share the storage, each operation
goes to one of two, so that their caches are tested too; now and then all handles are closed and opened again. A backend
that lacks a capability cannot be compared: it answers `Unsupported` where memory does not.

    TestMine = compare_with_memory(lambda: Target.temporary("mine:///{folder}"))
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from hansard.errors import HansardError
from hansard.limits import Limits
from hansard.testing.clock import Clock
from hansard.testing.comparison import facts, state
from hansard.testing.operations import Operation, beginning, operations
from hansard.testing.targets import Driver, Mode, Target

UNLIKE = frozenset({"physically_gone", "bytes", "backend"})
"""Fields in which backends may differ."""
LIMITS = Limits(blob_bytes=64)
"""Small, so that small pictures become blobs."""
_GIVEN_BY_THE_STORE = re.compile(r"'msg_[0-9a-f]{32}'")

WAITS = [timedelta(seconds=seconds) for seconds in (0, 0, 0, 1, 1, 1, 2, 3, 60, -3600, 7200)]
REOPEN = [False] * 15 + [True]

Maker = Callable[[], Target]


def outcome(store: Driver, operation: Operation, unlike: frozenset[str] = UNLIKE) -> str:
    """Returns the result or the error of an operation, as text that is equal exactly when the outcomes are."""
    try:
        given: Any = facts(operation.do(store), leave_out=unlike)
    except HansardError as error:
        given = type(error).__name__, error.details
    return _normal(given)


class Comparison(RuleBasedStateMachine):
    """Random operations on a backend under test and on `memory`."""

    make: ClassVar[Maker]
    mode: ClassVar[Mode]
    unlike: ClassVar[frozenset[str]] = UNLIKE

    @initialize()
    def open_stores(self) -> None:
        self.clock = Clock(step=timedelta(0))
        self.memory = Target("memory://")
        self.truth = self.memory.open(clock=self.clock, limits=LIMITS)
        self.target = type(self).make()
        self._open()
        for operation in beginning():
            assert outcome(self.handles[0], operation) == outcome(self.truth, operation)

    def _open(self) -> None:
        self.handles = [self.target.open(self.mode, clock=self.clock, limits=LIMITS)]
        if self.handles[0].capabilities.shared:
            self.handles.append(self.target.open("blocking", clock=self.clock, limits=LIMITS))

    @rule(operation=operations(), handle=st.integers(0, 1), wait=st.sampled_from(WAITS), reopen=st.sampled_from(REOPEN))
    def operate(self, operation: Operation, handle: int, wait: timedelta, reopen: bool) -> None:
        bound = operation.bind(self.truth)
        expected = outcome(self.truth, bound, self.unlike)
        found = outcome(self.handles[handle % len(self.handles)], bound, self.unlike)
        assert found == expected, f"{bound}\n{difference(expected, found)}"
        self.clock.advance(wait)
        if reopen and self.handles[0].capabilities.durability != "none":
            self.target.close()
            self._open()

    @invariant()
    def nothing_is_wrong(self) -> None:
        if hasattr(self, "handles"):
            assert self.handles[-1].check() == []

    def teardown(self) -> None:
        if not hasattr(self, "handles"):
            return
        try:
            for handle in self.handles:
                expected, found = shown(self.truth), shown(handle)
                assert found == expected, f"what can be read\n{difference(expected, found)}"
        finally:
            self.target.discard()
            self.memory.close()


def shown(store: Driver) -> str:
    """Returns everything that can be read, through every view."""
    views = (store, store.user("u0"), store.user("u1"), store.tenant("t"))
    return _normal([state(view, leave_out=UNLIKE) for view in views])


def difference(expected: str, found: str) -> str:
    """Shows the place where two texts begin to differ."""
    pairs = enumerate(zip(expected, found, strict=False))
    at = next((at for at, pair in pairs if pair[0] != pair[1]), min(len(expected), len(found)))
    around = slice(max(0, at - 200), at + 200)
    return f"  memory:  …{expected[around]}…\n  backend: …{found[around]}…"


def _normal(given: Any) -> str:
    return _GIVEN_BY_THE_STORE.sub("'msg_…'", repr(given))


def compare_with_memory(make: Maker, mode: Mode = "blocking", unlike: Iterable[str] = ()) -> type[Any]:
    """Returns a test case for pytest or unittest. `make` returns a new storage at each call.

    `unlike` names fields of answers in which this backend may differ, for a reason that its documentation gives.
    """
    members = {"make": staticmethod(make), "mode": mode, "unlike": UNLIKE.union(unlike)}
    made = type("Compared", (Comparison,), members)
    return made.TestCase  # type: ignore[no-any-return, attr-defined]
