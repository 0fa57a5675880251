"""The layout holds with any font: nothing leaves its box or the window, and the navigation stays within reach.

Machines have different fonts, so these tests choose the width of the letters themselves: a monospaced font is 0.6 em
wide nearly everywhere, and letter spacing makes it narrow or wide. The page's own fonts are tested too.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route
from tests.web.browser import PATHS, Visitor, needs_chromium
from tests.web.kit import Site, sited

from hansard import Message
from hansard.server.key_file import KeyFile
from hansard.server.settings import Settings
from hansard.server.web import static_files

pytestmark = needs_chromium

ALL_WIDTHS = (320, 360, 375, 390, 414, 480, 600, 768, 820, 1024, 1280, 1440, 1920)
WIDTHS = ALL_WIDTHS if os.environ.get("HANSARD_WIDTHS") == "all" else (320, 390, 600, 768, 1024, 1280)
"""By default the narrowest window, a telephone, and one on either side of the widths at which the style changes."""
FONTS = {
    "own": "",
    "narrow": "* { font-family: monospace, monospace !important; letter-spacing: -.15em !important; }",
    "wide": "* { font-family: monospace, monospace !important; letter-spacing: .12em !important; }",
}
"""Rules to add to the style sheet. `monospace` alone would also make the letters smaller."""
WIDEST = FONTS if WIDTHS == ALL_WIDTHS else ("wide",)
"""Letters for pages that are like others, but fuller."""

# Only code and tables may scroll sideways: they have a width of their own.
_FAULTS = """() => {
  const scrolls = ".scroll, .code, .said table, textarea", hides = ".unseen, .skip, dialog, datalist, svg";
  const style = (each) => getComputedStyle(each);
  const shown = (each) => each.checkVisibility() && !each.closest(hides) && each.getClientRects().length;
  const scrolled = (each) => each.parentElement.closest(scrolls);
  const block = (each) => style(each).display === "inline" ? block(each.parentElement) : each;
  const ends = (each) => style(each).textOverflow === "ellipsis" && style(each).overflowX === "hidden";
  const shortened = (each) => each && (ends(each) || shortened(each.parentElement));
  const name = (each) => `${each.tagName.toLowerCase()}.${each.className} "${(each.innerText || "").slice(0, 30)}"`;
  const faults = new Set(), root = document.documentElement;

  if (root.scrollWidth > innerWidth) faults.add(`the page is ${root.scrollWidth} px wide`);
  for (const each of document.body.querySelectorAll("*")) {
    if (!shown(each) || scrolled(each)) continue;
    const box = each.getBoundingClientRect();
    if (box.left < -1 || box.right > innerWidth + 1) faults.add(`outside of the window: ${name(each)}`);
    const may = each.matches(`${scrolls}, input, select`) || shortened(each) && !each.matches("button");
    if (!may && style(each).overflowX !== "visible" && each.scrollWidth > each.clientWidth + 1)
      faults.add(`cuts: ${name(each)}`);
  }

  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), words = document.createRange();
  while (walker.nextNode()) {
    const text = walker.currentNode, parent = text.parentElement;
    if (!text.textContent.trim() || !shown(parent) || parent.closest(scrolls) || shortened(parent)) continue;
    words.selectNodeContents(text);
    const box = words.getBoundingClientRect(), around = block(parent).getBoundingClientRect();
    if (box.right > around.right + 1 || box.left < around.left - 1) faults.add(`leaves its box: ${name(parent)}`);
  }

  const controls = [...document.querySelectorAll(".top a, .top button, .top input, .write button, .write summary")]
    .filter((each) => shown(each) && each.type !== "hidden");
  for (const each of controls) {
    each.scrollIntoView({ block: "nearest" });
    const box = each.getBoundingClientRect();
    const found = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
    if (!each.contains(found)) faults.add(`cannot be clicked: ${name(each)}`);
    for (const other of controls.slice(0, controls.indexOf(each))) {
      const by = other.getBoundingClientRect();
      const wide = Math.min(box.right, by.right) - Math.max(box.left, by.left);
      const high = Math.min(box.bottom, by.bottom) - Math.max(box.top, by.top);
      if (wide > 1 && high > 1) faults.add(`overlap: ${name(each)} and ${name(other)}`);
    }
  }
  return [...faults];
}"""


def dress(page: Page, font: str) -> None:
    """Adds the font's rules to the page's style sheet."""
    if rules := FONTS[font]:
        sheet = static_files.content("hansard.css").decode() + rules

        def answer(route: Route) -> None:
            route.fulfill(body=sheet, content_type="text/css; charset=utf-8")

        page.route("**/hansard.css", answer)


def check(page: Page, widths: tuple[int, ...] = WIDTHS) -> None:
    """Looks at the page at each width, with everything on it unfolded."""
    page.evaluate("document.querySelectorAll('main details').forEach(each => { each.open = true; })")
    faults: dict[int, Any] = {}
    for width in widths:
        page.set_viewport_size({"width": width, "height": 800})
        if found := page.evaluate(_FAULTS):
            faults[width] = found
    assert faults == {}, page.url


@pytest.mark.parametrize("font", FONTS)
def test_everything_fits_every_window(sample: Site, visitor: Visitor, font: str) -> None:
    visitor.expected = ("404",)
    page = visitor.open(sample.api.address)
    dress(page, font)
    for path in PATHS:
        page.goto(sample.api.address + path)
        check(page)


@pytest.mark.parametrize("font", WIDEST)
def test_pages_with_a_key_fit_every_window(tmp_path: Path, visitor: Visitor, font: str) -> None:
    """The header is fullest here: it also names the tenant and the user, and has a button to sign out."""
    keys = KeyFile(tmp_path / "keys.json")
    operator = keys.create("the first", ["read", "write", "admin"], tenant=None)[1]
    somebody = keys.create(
        "the second", ["read", "write"], tenant="a-tenant-with-a-long-name", user="a-user-with-a-long-name"
    )[1]
    settings = Settings(keys=keys.path, audit_log=tmp_path / "audit.jsonl", model="someone/a-model-with-a-long-name")
    with sited(f"sqlite:///{tmp_path}/chats.db", settings) as site:
        view = site.store.tenant("a-tenant-with-a-long-name").user("a-user-with-a-long-name")
        view.append("c", [Message("user", "x")], title="A title")
        visitor.expected = ("401",)
        for key, paths in ((operator, ("/", "/admin", "/admin/audit")), (somebody, ("/", "/conversations", "/c/c"))):
            page = visitor.open(site.api.address, "/nothing")
            dress(page, font)
            page.goto(site.api.address)
            check(page)
            page.get_by_label("Key").fill(key)
            page.get_by_role("button", name="Sign in").click()
            page.wait_for_selector("header.top")
            for path in paths:
                page.goto(site.api.address + path)
                check(page)


@pytest.mark.parametrize("font", FONTS)
def test_the_list_of_keys_fits_every_window(site: Site, visitor: Visitor, font: str) -> None:
    page = visitor.open(site.api.address)
    dress(page, font)
    page.reload()
    check(page)  # the page of an empty store
    page.keyboard.press("?")
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        box = page.get_by_role("dialog").bounding_box()
        assert box is not None
        assert 0 <= box["x"] <= box["x"] + box["width"] <= width
        assert page.get_by_role("dialog").evaluate("each => each.scrollWidth - each.clientWidth") <= 0, width


@pytest.mark.parametrize("language", ["en", "de"])
def test_a_heading_is_not_broken_inside_a_word(sample: Site, visitor: Visitor, language: str) -> None:
    page = visitor.open(sample.api.address, f"/conversations?lang={language}", viewport={"width": 360, "height": 740})
    lines = page.locator("main h1").evaluate(
        "each => each.clientHeight / parseFloat(getComputedStyle(each).lineHeight)"
    )
    assert lines == pytest.approx(1, abs=0.2)


@pytest.mark.parametrize("place", ["why", "access", "compare", "m/deep"])
def test_a_long_title_takes_one_line_above_other_pages(site: Site, visitor: Visitor, place: str) -> None:
    site.store.append("c", [Message("user", "x", id="deep")], title="A title of many words " * 30)
    page = visitor.open(site.api.address, f"/c/c/{place}", viewport={"width": 360, "height": 740})
    box = page.locator(".crumbs").bounding_box()
    assert box is not None
    assert box["height"] < 40
    check(page, (360,))


@pytest.mark.parametrize(
    "beginnings", [[">" * level for level in range(1, 30)], ["  " * level + "-" for level in range(12)]]
)
def test_deep_quotes_and_lists_keep_room_for_words(site: Site, visitor: Visitor, beginnings: list[str]) -> None:
    lines = [f"{beginning} quoted" for beginning in beginnings]
    site.store.append("c", [Message("assistant", "\n".join(lines))])
    page = visitor.open(site.api.address, "/c/c", viewport={"width": 320, "height": 740})
    check(page, (320,))
    innermost = page.get_by_text("quoted").last.bounding_box()
    assert innermost is not None
    assert innermost["width"] > 50
    assert innermost["height"] < 60
