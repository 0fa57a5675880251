"""The parts of the Store are independent: each method is in one part, and no part hides another's."""

from __future__ import annotations

import inspect

from hansard import Store
from hansard.store.core import StorePart

PARTS = [base for base in Store.__bases__ if issubclass(base, StorePart)]


def test_no_part_inherits_from_another() -> None:
    assert [part for part in PARTS if part.__bases__ != (StorePart,)] == []


def test_no_two_parts_have_the_same_method() -> None:
    names = [name for part in PARTS for name in vars(part) if not name.startswith("__")]
    assert sorted(names) == sorted(set(names))


def test_every_method_is_documented_where_it_is_defined() -> None:
    methods = [
        member
        for part in PARTS
        for name, member in vars(part).items()
        if not name.startswith("_") and inspect.isfunction(member)
    ]
    assert len(methods) > 40
    assert [method.__name__ for method in methods if not method.__doc__] == []
