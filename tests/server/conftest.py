"""A server over a store in memory, for one test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.server.kit import Served, serving


@pytest.fixture
def api() -> Iterator[Served]:
    with serving() as served:
        yield served
