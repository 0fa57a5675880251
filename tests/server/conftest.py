"""A server over a store in memory, for one test."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.cli.shell import Shell
from tests.server.kit import Served, serving

from hansard.server import auth
from hansard.server.rate_limit import RateLimiter


@pytest.fixture(autouse=True)
def noon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a key may send in a minute or a day does not come back while a busy machine runs a test, nor at midnight."""
    monkeypatch.setattr(auth, "RateLimiter", partial(RateLimiter, clock=lambda: 43_200.0))


@pytest.fixture
def api() -> Iterator[Served]:
    with serving() as served:
        yield served


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    yield made
    made.close()
