"""A node for these tests, or the reason why there is none."""

from __future__ import annotations

import pytest
from tests.servers import cassandra


@pytest.fixture(autouse=True)
def _a_node_can_be_had() -> None:
    if reason := cassandra.why_absent():
        pytest.skip(reason)


@pytest.fixture
def url() -> str:
    """Of an empty store."""
    return cassandra.fresh()
