"""Which storage a contract test runs on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.contract.backends import BACKENDS, KEEPING, quick_folder

from hansard.testing import Target


@pytest.fixture(params=KEEPING)
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    with quick_folder() as folder:
        yield BACKENDS[request.param](folder)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The two modes of `files` differ in how they write, not in how they are called: one colour is enough for one."""
    twice = [item for item in items if "[files-snapshot-async" in item.nodeid]
    if twice:
        config.hook.pytest_deselected(items=twice)
        items[:] = [item for item in items if "[files-snapshot-async" not in item.nodeid]
