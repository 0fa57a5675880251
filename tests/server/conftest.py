"""A server over a store in memory, for one test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.shell import Shell
from tests.server.kit import Served, serving


@pytest.fixture
def api() -> Iterator[Served]:
    with serving() as served:
        yield served


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    yield made
    made.close()
