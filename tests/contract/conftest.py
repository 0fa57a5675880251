"""Which storage a contract test runs on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.contract.backends import BACKENDS, KEEPING, ONE_COLOUR, quick_folder

from hansard.testing import Target


@pytest.fixture(params=KEEPING)
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    with quick_folder() as folder:
        yield BACKENDS[request.param](folder)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    marks = tuple(f"[{name}-async" for name in ONE_COLOUR)
    twice = [item for item in items if any(mark in item.nodeid for mark in marks)]
    if twice:
        config.hook.pytest_deselected(items=twice)
        items[:] = [item for item in items if not any(mark in item.nodeid for mark in marks)]
