"""The suite's own yardsticks: a check that cannot fail proves nothing."""

from __future__ import annotations

import pytest

from hansard.testing import Clock, facts
from hansard.testing.clock import START, STEP
from hansard.testing.contract import TestOrder as Order
from hansard.testing.contract.calls import CALLS, NOT_CALLS, public_methods


def test_every_public_method_is_tried_against_the_walls() -> None:
    """A method that is missing from the table would be tried by no test."""
    assert set(public_methods()) - NOT_CALLS == set(CALLS)


def test_facts_tell_apart_what_python_does_not() -> None:
    different = [1, 1.0, True, "1", [1], {"a": 1, "b": 2}, {"b": 2, "a": 1}, 0.0, -0.0, 0, False, None, "", []]
    shown = [repr(facts(each)) for each in different]
    assert len(set(shown)) == len(different)


def test_a_contract_test_cannot_be_softened() -> None:
    with pytest.raises(TypeError, match="overrides contract tests: test_pages_sorted_by_time_are_complete"):
        type("Softer", (Order,), {"test_pages_sorted_by_time_are_complete": lambda self: None})
    type("Longer", (Order,), {"test_one_more": lambda self: None})


def test_the_clock_moves_only_as_told() -> None:
    clock = Clock()
    assert (clock(), clock()) == (START, START + STEP)
    clock.stop()
    assert clock() == clock()
    assert clock.advance(-STEP) == clock()
