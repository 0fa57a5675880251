"""Chooses the storages that contract tests run on. `tiers.py` says which tests run on which of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.contract.backends import BACKENDS, KEEPING, quick_folder

from hansard.testing import Target


@pytest.fixture(params=KEEPING)
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    with quick_folder() as folder:
        yield BACKENDS[request.param](folder)
