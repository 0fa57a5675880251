"""The table of `tiers.py` names what exists, and leaves no test of the contract without a backend."""

from __future__ import annotations

import inspect

from tests.contract import tiers
from tests.contract.backends import BACKENDS

from hansard.testing import contract
from hansard.testing.contract.base import Contract

CLASSES = [each for _, each in inspect.getmembers(contract, inspect.isclass) if issubclass(each, Contract)]
TESTS = {name for each in CLASSES for name in vars(each) if name.startswith("test")}
NAMES = TESTS | {each.__name__ for each in CLASSES}
MIRRORS = {f"{api}-{mode}" for api in ("conversations", "threads") for mode in ("delta", "snapshot")}


def test_every_class_and_test_in_the_table_exists() -> None:
    scopes = [scope for modes in tiers.SCOPES.values() for scope in modes.values()]
    named = {name for scope in scopes for name in (scope.only or frozenset()) | scope.without}
    assert named, "the table leaves something out"
    assert named - NAMES == set()


def test_the_table_names_only_backends_of_ours() -> None:
    assert set(tiers.SCOPES) - MIRRORS <= set(BACKENDS)


def test_two_backends_run_the_whole_contract() -> None:
    """So what the table leaves out elsewhere is tested in every run."""
    assert [name for name, modes in tiers.SCOPES.items() if modes["async"] == tiers.ALL] == ["memory", "sqlite"]
    assert tiers.NEW["async"] == tiers.ALL
