"""A site with its own store for one test; and a shared site with the sample, for tests that only read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser
from tests.servers import chromium
from tests.web.browser import Visitor
from tests.web.kit import Site, sited


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with sited(f"sqlite:///{tmp_path}/chats.db") as made:
        yield made


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The sample. Tests that change something take `site` instead."""
    folder = tmp_path_factory.mktemp("sample")
    with sited(f"sqlite:///{folder}/sample.db") as made:
        assert made.get("/").send("sample").status == 200
        yield made


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium.running() as running:
        yield running


@pytest.fixture
def visitor(browser: Browser) -> Iterator[Visitor]:
    visitor = Visitor(browser)
    yield visitor
    visitor.close()
