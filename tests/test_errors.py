"""Errors: one tree, one table, picklable, their facts as attributes."""

from __future__ import annotations

import copy
import pickle

import pytest

from hansard import errors
from hansard.errors import (
    TABLE,
    Conflict,
    Corrupt,
    FormatMismatch,
    HansardError,
    QuotaExceeded,
    RateLimited,
    TimedOut,
    Unavailable,
    Unsupported,
)

CLASSES = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, HansardError)]

WITH_FACTS: list[HansardError] = [
    QuotaExceeded("x", limit=3, value=4),
    Conflict("x", expected=1, actual=2),
    Corrupt("x", where="row 5"),
    FormatMismatch("x", found="2", wanted="1"),
    Unsupported("x", capability="blobs"),
    Unavailable("x", retryable=False, outcome="unknown"),
    TimedOut("x", outcome="unknown"),
    RateLimited("x", retry_after=7),
]


def test_the_table_is_complete() -> None:
    assert set(TABLE.values()) == set(CLASSES)
    assert all(TABLE[each.code] is each for each in CLASSES)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_each_class_says_what_to_do(kind: type[HansardError]) -> None:
    assert kind.__doc__
    assert 400 <= kind.status < 600
    assert 0 < kind.exit_code < 64
    assert kind.code.replace("_", "").isalpha()


def test_exit_codes_and_codes_are_unique() -> None:
    assert len({kind.code for kind in CLASSES}) == len(CLASSES)
    by_exit: dict[int, set[type[HansardError]]] = {}
    for kind in CLASSES:
        by_exit.setdefault(kind.exit_code, set()).add(kind)
    for kinds in by_exit.values():
        # Only a class and those under it may share one.
        assert any(all(issubclass(kind, top) for kind in kinds) for top in kinds), kinds


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_each_class_survives_a_pickle(kind: type[HansardError]) -> None:
    error = pickle.loads(pickle.dumps(kind("what happened")))
    assert type(error) is kind
    assert str(error) == "what happened"


@pytest.mark.parametrize("error", WITH_FACTS, ids=lambda error: type(error).__name__)
def test_facts_survive_a_pickle(error: HansardError) -> None:
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is type(error)
        assert str(again) == "x"
        assert again.details == error.details != {}


def test_the_standard_classes_catch_them_too() -> None:
    assert issubclass(errors.ValidationError, ValueError)
    assert issubclass(errors.NotFound, LookupError)
    assert not issubclass(errors.NotFound, ValueError)


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    drawn = errors.__doc__ or ""
    for kind in CLASSES:
        assert kind.__name__ in drawn


def test_unavailable_says_what_is_known() -> None:
    assert Unavailable("x").details == {"retryable": True, "outcome": "not_applied"}
