"""Every page without findings of axe; in dark colours on a phone, one of each kind, or all with HANSARD_WIDTHS=all."""

from __future__ import annotations

import os
from typing import Any

import pytest
from playwright.sync_api import Page
from tests.web.browser import PATHS, Visitor, needs_chromium
from tests.web.kit import Site
from tools import axe

pytestmark = [
    needs_chromium,
    pytest.mark.skipif(axe.why_absent() is not None, reason=axe.why_absent() or ""),
]

MORE = (
    "/conversations?view=table&sort=cost&user=ann",
    "/conversations?view=table&density=compact",
    "/conversations#begin",
    "/filters",
    "/search",
    "/search-filters?q=parcel",
    "/errors",
    "/import",
    "/c/sample-kyoto",
)
FEW = ("/", "/conversations?view=table&sort=cost&user=ann", "/search?q=parcel", "/c/sample-parcel", "/admin", "/import")
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "light"},
    "dark phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"},
}
_RUN = """async () => {
  const found = await axe.run(document, { resultTypes: ["violations"] });
  return found.violations.map((each) => `${each.id}: ${each.nodes.slice(0, 3).map((node) => node.html).join(" | ")}`);
}"""


def findings(page: Page) -> list[str]:
    page.evaluate(axe.SCRIPT.read_text("utf-8"))
    found: list[str] = page.evaluate(_RUN)
    return found


@pytest.mark.parametrize("look", LOOKS)
def test_every_page_is_without_findings(sample: Site, visitor: Visitor, look: str, subtests: pytest.Subtests) -> None:
    visitor.expected = ("404",)
    page = visitor.open(sample.api.address, **LOOKS[look])
    few = look != "light" and os.environ.get("HANSARD_WIDTHS") != "all"
    for path in FEW if few else (*PATHS, *MORE):
        with subtests.test(path=path):
            page.goto(sample.api.address + path)
            assert findings(page) == []


def test_the_dialogs_are_without_findings(sample: Site, visitor: Visitor) -> None:
    page = visitor.open(sample.api.address, "/conversations")
    page.keyboard.press("Control+k")
    page.locator("#palette input").fill("parcel")
    page.locator("#palette a.row").first.wait_for()
    assert findings(page) == []
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    page.locator("#keys").wait_for()
    assert findings(page) == []


def test_a_finding_is_found(sample: Site, visitor: Visitor) -> None:
    page = visitor.open(sample.api.address, "/search")
    page.evaluate("document.querySelector('main').append(Object.assign(document.createElement('img'), { src: '' }))")
    assert any(each.startswith("image-alt") for each in findings(page))
