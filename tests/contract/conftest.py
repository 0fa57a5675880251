"""Chooses the storages and the APIs that contract tests run on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.contract.backends import BACKENDS, DURABLE, KEEPING, RACES_ONLY, SURVIVING, modes, quick_folder

from hansard.testing import Target
from hansard.testing.contract.base import Contract


@pytest.fixture(params=KEEPING)
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    with quick_folder() as folder:
        yield BACKENDS[request.param](folder)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    repeated = [item for item in items if isinstance(item, pytest.Function) and proves_nothing_new(item)]
    if repeated:
        config.hook.pytest_deselected(items=repeated)
        left_out = set(repeated)
        items[:] = [item for item in items if item not in left_out]


def proves_nothing_new(item: pytest.Function) -> bool:
    """Returns whether a test without concurrency runs on this backend in the other API already."""
    is_contract = isinstance(item.cls, type) and issubclass(item.cls, Contract) and hasattr(item, "callspec")
    if not is_contract or getattr(item.function, "races", getattr(item.cls, "races", False)):
        return False
    backend, mode = item.callspec.params.get("target"), item.callspec.params.get("mode")
    if backend not in BACKENDS:
        return False
    if backend in RACES_ONLY and backend in DURABLE and item.cls.__name__ in SURVIVING:
        return False
    return mode not in modes(backend)
