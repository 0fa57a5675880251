"""The garbage collector is left as it was, whatever happens during a load."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest

from hansard.importers.garbage import rare_collections


@pytest.fixture
def thresholds() -> Iterator[tuple[int, int, int]]:
    before = gc.get_threshold()
    yield before
    gc.set_threshold(*before)


def test_the_last_of_several_loads_restores_the_thresholds(thresholds: tuple[int, int, int]) -> None:
    first, second = rare_collections(), rare_collections()
    with first, pytest.raises(RuntimeError, match="broken"):
        fail_inside(second)
    assert gc.get_threshold() == thresholds


def fail_inside(load: AbstractContextManager[None]) -> None:
    before = gc.get_threshold()
    with load:
        assert gc.get_threshold() == before
        raise RuntimeError("broken")


def test_collections_are_rare_during_a_load(thresholds: tuple[int, int, int]) -> None:
    with rare_collections():
        with rare_collections():
            assert gc.get_threshold()[0] > thresholds[0]
        assert gc.get_threshold()[0] > thresholds[0]
    assert gc.get_threshold() == thresholds


def test_a_collector_that_is_off_or_rarer_stays_so(thresholds: tuple[int, int, int]) -> None:
    gc.set_threshold(0)
    with rare_collections():
        assert gc.get_threshold()[0] == 0
    gc.set_threshold(10**9, 10, 10)
    with rare_collections():
        assert gc.get_threshold()[0] == 10**9
    assert gc.get_threshold() == (10**9, 10, 10)
