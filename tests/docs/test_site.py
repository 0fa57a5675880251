"""The site of the documentation is built without a warning, can be searched, and needs no other site."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeout
from tests.docs import pages
from tests.wait import until
from tests.web.browser import Visitor, needs_chromium
from tests.web.conftest import browser, visitor  # noqa: F401  # fixtures
from tools import site

from hansard.server.app import PUBLIC
from hansard.store import Store
from hansard.version import VERSION


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    site.stage(folder / "source")
    target = folder / "public"
    # An older version, which must stay.
    (target / "0.0.9").mkdir(parents=True)
    (target / "0.0.9/index.html").write_text("old", encoding="utf-8")
    site.publish(site.build(folder / "source"), target)
    return target


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def published(folder: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_every_page_is_on_the_site(built: Path) -> None:
    for page in pages.DOCS.rglob("*.md"):
        path = page.relative_to(pages.DOCS).with_suffix("")
        folder = path.parent if path.name == "index" else path
        assert (built / VERSION / folder / "index.html").exists(), page


def test_the_python_api_is_generated_from_docstrings(built: Path) -> None:
    text = (built / VERSION / "reference/python/store/index.html").read_text("utf-8")
    methods = {name for name in vars(Store) | vars(Store.__mro__[1]) if not name.startswith("_")}
    assert {"append", "get_messages"} <= set(re.findall(r'id="hansard\.store\.store\.Store\.(\w+)"', text))
    for name in methods:
        assert f'id="hansard.store.store.Store.{name}"' in text, name
    for name, (_, things) in site.PYTHON_API.items():
        text = (built / VERSION / f"reference/python/{name}/index.html").read_text("utf-8")
        for thing in things:
            assert f'id="{thing}' in text, thing


def test_every_route_is_on_the_site(built: Path) -> None:
    text = (built / VERSION / "reference/rest/index.html").read_text("utf-8")
    for endpoint in PUBLIC:
        assert f'id="{endpoint.name}"' in text


def test_versions_are_kept_side_by_side(built: Path) -> None:
    listed = json.loads((built / "versions.json").read_text("utf-8"))
    assert [each["version"] for each in listed] == [VERSION, "0.0.9"]
    assert f"url={VERSION}/" in (built / "index.html").read_text("utf-8")


def test_a_link_that_leads_nowhere_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text("# One\n\n[other](other.md#nowhere)\n", encoding="utf-8")
    (tmp_path / "docs/other.md").write_text("# Other\n", encoding="utf-8")
    (tmp_path / "zensical.toml").write_text('[project]\nsite_name = "x"\n', encoding="utf-8")
    with pytest.raises(SystemExit, match="anchor does not exist"):
        site.build(tmp_path)


def _finds(page: Page) -> bool:
    """Searches by the keyboard; on a new page if its script did not listen yet."""
    page.keyboard.press("/")
    page.keyboard.type("erase a user")
    try:
        page.locator("mark").get_by_text("erase").first.wait_for(timeout=10_000)
    except PlaywrightTimeout:
        page.reload()
        return False
    return True


@needs_chromium
def test_the_site_works_in_a_browser(built: Path, visitor: Visitor) -> None:  # noqa: F811
    with published(built) as address:
        page = visitor.open(address, f"/{VERSION}/")
        expect(page.locator("h1").first).to_contain_text("Documentation")
        until(lambda: _finds(page))
        page.goto(f"{address}/{VERSION}/reference/rest/")
        page.locator("#append_messages summary").first.click()
        expect(page.locator("#append_messages")).to_contain_text("Responses")
