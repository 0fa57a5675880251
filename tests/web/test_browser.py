"""In a real Chromium, by click and by keyboard: no error in the console, and no request to other origins."""

from __future__ import annotations

import re
import time
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, Route, expect
from tests.web.browser import DESKTOP, PATHS, PATIENCE, PHONE, Visitor, behind_prefix, contrasts, needs_chromium
from tests.web.kit import Site, sited
from tests.web.test_conversation import calling
from tests.web.test_hostile import TEXTS

from hansard import Message, Participant, Source, Usage
from hansard.server.key_file import KeyFile
from hansard.server.settings import Settings
from hansard.server.web import static_files

pytestmark = needs_chromium
expect.set_options(timeout=PATIENCE)


def eventually(page: Page, condition: str) -> None:
    """Waits until it holds. The page's policy keeps the browser from asking itself."""
    deadline = time.monotonic() + PATIENCE / 1000
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, condition
        page.wait_for_timeout(50)


# The look of it


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_every_page_has_enough_contrast(sample: Site, visitor: Visitor, colours: str) -> None:
    visitor.expected = ("404",)
    page = visitor.open(sample.api.address, color_scheme=colours)
    for path in PATHS:
        page.goto(sample.api.address + path)
        page.wait_for_load_state("load")
        low = [each for each in contrasts(page) if each[1] < 4.5]
        assert low == [], path


def test_a_long_name_of_a_model_has_room(tmp_path: Path, visitor: Visitor) -> None:
    settings = Settings(upstream="http://127.0.0.1:9/v1", model="someone/a-model-of-2026-11-15-with-a-long-name")
    with sited(f"sqlite:///{tmp_path}/a.db", settings) as site:
        page = visitor.open(site.api.address, viewport=PHONE)
        site.store.append_message("c", "user", "Hello?")
        for path in ("/conversations", "/c/c"):
            assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, page.url
            page.goto(site.api.address + path)
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, page.url
        asks = page.get_by_role("button", name="Ask someone/").bounding_box()
        whom = page.get_by_text("Send as").bounding_box()
        assert asks is not None
        assert whom is not None
        assert whom["x"] + whom["width"] <= asks["x"]
        assert asks["x"] + asks["width"] <= PHONE["width"]
        for cut in ("button:has-text('Write')", "nav[aria-label=Pages]"):
            assert page.locator(cut).evaluate("each => each.scrollWidth - each.clientWidth") <= 0, cut


def test_every_page_has_landmarks_and_names(sample: Site, visitor: Visitor) -> None:
    page = visitor.open(sample.api.address, "/c/sample-parcel")
    for role in ("banner", "main", "contentinfo", "log", "complementary"):
        expect(page.get_by_role(role)).to_have_count(1)
    expect(page.get_by_role("log")).to_have_attribute("aria-live", "polite")
    expect(page.get_by_role("navigation", name="Pages")).to_be_visible()
    for path in PATHS[:-1]:
        page.goto(sample.api.address + path)
        unnamed = page.evaluate(
            "[...document.querySelectorAll('a, button, summary, input, textarea, select, img, audio')]"
            ".filter(each => each.type !== 'hidden')"
            ".filter(each => !(each.textContent.trim() || each.ariaLabel || each.alt || each.labels?.length || each.src"
            " || each.querySelector('img[alt]')))"
            ".filter(each => each.checkVisibility()).map(each => each.outerHTML)"
        )
        assert unnamed == [], path


def test_times_are_in_the_readers_time_zone(site: Site, visitor: Visitor) -> None:
    from datetime import UTC, datetime

    site.store.append("c", [Message("user", "x", created_at=datetime(2026, 1, 31, 20, 5, tzinfo=UTC))])
    page = visitor.open(site.api.address, "/c/c", timezone_id="Asia/Tokyo")
    expect(page.locator(".when")).to_have_text("05:05")
    expect(page.locator(".day")).to_have_text("1 February 2026")
    plain = visitor.open(site.api.address, "/c/c", java_script_enabled=False)
    expect(plain.get_by_role("button", name="Colours")).to_have_count(0)
    expect(plain.locator(".when")).to_have_text("2026-01-31 20:05 UTC")


def test_text_has_the_direction_of_its_script(sample: Site, visitor: Visitor) -> None:
    page = visitor.open(sample.api.address, "/c/sample-address-ar")
    direction = "each => getComputedStyle(each).direction"
    assert page.eval_on_selector("#m1 .said", direction) == "rtl"
    assert page.eval_on_selector("h1", direction) == "rtl"
    assert page.eval_on_selector("body", direction) == "ltr"


_SIDES = """(each) => {
  const box = each.getBoundingClientRect(), around = each.closest(".said").getBoundingClientRect();
  const words = document.createRange();
  words.selectNodeContents(each);
  const inside = words.getBoundingClientRect();
  return inside.left - around.left < around.right - inside.right ? "left" : "right";
}"""


def test_lists_quotes_and_tables_have_the_direction_of_their_text(site: Site, visitor: Visitor) -> None:
    """Their markers are on the side where a line begins, and within the message."""
    arabic = "مرحبا\n\n1. واحد\n2. اثنان\n\n> شكرا\n\n| الخطوة | الحالة |\n|---|---|\n| شحنت | تم |"
    mixed = "Look:\n\n> شكرا\n\n- one\n\nشكرا\n\n```python\nx = 1\n```"
    site.store.append("c", [Message("user", arabic), Message("user", mixed)])
    page = visitor.open(site.api.address, "/c/c")
    expect(page.locator("#m2 .code")).to_be_visible()

    def css(selector: str, name: str) -> str:
        return str(page.eval_on_selector(selector, f"each => getComputedStyle(each)['{name}']"))

    for selector in ("#m1 ol", "#m1 blockquote", "#m1 table", "#m2 blockquote"):
        assert css(selector, "direction") == "rtl", selector
    assert css("#m1 ol", "paddingRight") != "0px"
    assert css("#m1 blockquote", "borderRightWidth") == css("#m2 blockquote", "borderRightWidth") == "3px"
    assert (css("#m2 ul", "direction"), css("#m2 .code", "direction")) == ("ltr", "ltr")
    sides = {each: page.eval_on_selector(each, _SIDES) for each in ("#m1 li", "#m1 td", "#m2 p:last-of-type", "#m2 li")}
    assert sides == {"#m1 li": "right", "#m1 td": "right", "#m2 p:last-of-type": "right", "#m2 li": "left"}


def test_the_colour_scheme_can_be_chosen(sample: Site, visitor: Visitor) -> None:
    page = visitor.open(sample.api.address, color_scheme="light")
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(paper)
    expect(page.get_by_role("button", name="Colours: as your system")).to_be_visible()
    page.get_by_role("button", name="Colours").click()
    expect(page.get_by_role("button", name="Colours: light")).to_be_visible()
    page.keyboard.press("d")
    expect(page.get_by_role("button", name="Colours: dark")).to_be_visible()
    dark = page.evaluate(paper)
    assert dark != light
    # The server knows before the first paint: the page comes with it.
    for path in ("/conversations", "/nothing"):
        visitor.expected = ("404",)
        page.goto(sample.api.address + path)
        assert page.evaluate(paper) == dark
        assert 'data-colours="dark"' in page.request.get(sample.api.address + path).text()
    page.goto(sample.api.address)
    page.keyboard.press("d")
    expect(page.get_by_role("button", name="Colours: as your system")).to_be_visible()
    assert page.evaluate(paper) == light
    page.reload()
    assert page.evaluate(paper) == light
    assert page.evaluate("document.cookie") == ""


def test_both_definitions_of_dark_colours_are_equal() -> None:
    sheet = static_files.content("hansard.css").decode()
    by_system = sheet.partition(":root:not([data-colours=light]) {")[2].partition("}")[0].split()
    assert by_system == sheet.partition(":root[data-colours=dark] {")[2].partition("}")[0].split()


# Without a script


def test_reading_needs_no_script(sample: Site, visitor: Visitor) -> None:
    page = visitor.open(sample.api.address, java_script_enabled=False)
    page.get_by_role("link", name="Conversations", exact=True).click()
    page.get_by_label("Search titles and messages").fill("customs")
    page.get_by_role("button", name="Filter").click()
    page.get_by_role("link", name="A late parcel").first.click()
    expect(page.locator(".message")).to_have_count(6)
    page.locator("summary", has_text="track_parcel").click()
    expect(page.get_by_text("held at customs").first).to_be_visible()
    page.goto(sample.api.address + "/c/sample-long")
    page.get_by_role("link", name="Older messages").click()
    expect(page.locator("#m2350")).to_be_attached()


# The keyboard


def test_every_page_is_reached_by_keyboard(sample: Site, visitor: Visitor) -> None:
    page = visitor.open(sample.api.address)
    for key, path in (("c", "/conversations"), ("s", "/search"), ("a", "/admin"), ("o", "/")):
        page.keyboard.press("g")
        page.keyboard.press(key)
        page.wait_for_url(sample.api.address + path)
        if path == "/search":
            expect(page.locator("main input[type=search]")).to_be_focused()
            page.keyboard.press("Escape")  # out of the box that the search begins in
    page.keyboard.press("/")
    expect(page.locator("#find")).to_be_focused()
    page.keyboard.type("customs")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search?q=customs")
    expect(page.locator(".hits li").first).to_be_visible()
    page.locator("main input[type=search]").blur()
    page.keyboard.press("j")
    expect(page.locator("li.walked a.row")).to_be_focused()
    page.keyboard.press("j")
    page.keyboard.press("k")
    expect(page.locator(".hits li").first).to_have_class("walked")
    page.keyboard.press("Enter")
    page.wait_for_url("**/c/**")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()


def test_keys_move_between_messages(sample: Site, visitor: Visitor) -> None:
    page = visitor.open(sample.api.address, "/c/sample-parcel#m1")
    page.keyboard.press("g")
    page.keyboard.press("g")
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(page.locator(".message.walked")).to_have_count(1)
    expect(page.locator(".message.walked")).to_be_focused()
    page.keyboard.press("o")
    page.wait_for_url("**/m/**")


def test_the_beginning_is_the_first_message(sample: Site, visitor: Visitor) -> None:
    page = visitor.open(sample.api.address, "/c/sample-long")
    expect(page.locator("#m2400")).to_be_in_viewport()
    for keys in (("Home",), ("g", "g")):
        for key in keys:
            page.keyboard.press(key)
        page.wait_for_url("**/c/sample-long?at=log-1#m1")
        expect(page.locator("#m1")).to_be_in_viewport()
        expect(page.locator("#m2400")).to_have_count(0)
        page.keyboard.press("End")
        page.wait_for_url("**/c/sample-long#end")
        expect(page.locator("#m2400")).to_be_in_viewport()
    page.get_by_role("link", name="Beginning").click()
    expect(page.locator("#m1")).to_be_in_viewport()


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE])
def test_the_head_of_a_conversation_stays_visible(sample: Site, visitor: Visitor, viewport: dict[str, int]) -> None:
    page = visitor.open(sample.api.address, "/c/sample-long", viewport=viewport)
    expect(page.locator("#m2400")).to_be_in_viewport()
    expect(page.locator("h1")).to_be_in_viewport(ratio=1)
    expect(page.get_by_role("link", name="Why this prompt")).to_be_in_viewport(ratio=1)
    page.get_by_role("link", name="Beginning").click()  # nothing covers it
    page.wait_for_url("**/c/sample-long?at=log-1#m1")
    head, first = page.locator(".transcript > .head").bounding_box(), page.locator("#m1").bounding_box()
    assert head is not None
    assert first is not None
    assert first["y"] >= head["y"] + head["height"]


def test_a_fold_opens_by_keyboard(sample: Site, visitor: Visitor) -> None:
    page = visitor.open(sample.api.address, "/c/sample-parser")
    fold = page.locator("details.reasoning summary")
    fold.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("Run the one test first")).to_be_visible()


def test_code_wider_than_the_window_scrolls_by_keyboard(site: Site, visitor: Visitor) -> None:
    site.store.append("c", [Message("user", "```\n" + "wide " * 200 + "\n```")])
    page = visitor.open(site.api.address, "/c/c", viewport=PHONE)
    code = page.locator("pre.code")
    expect(code).to_have_attribute("tabindex", "0")
    code.focus()
    page.keyboard.press("ArrowRight")
    eventually(page, "document.querySelector('pre.code').scrollLeft > 0")


# Lists


def test_the_list_updates_while_typing_and_when_messages_arrive(site: Site, visitor: Visitor) -> None:
    site.store.append("c1", [Message("user", "about lighthouses")], title="First")
    site.store.append("c2", [Message("user", "about ferries")], title="Second")
    page = visitor.open(site.api.address, "/conversations")
    expect(page.locator(".row-title")).to_have_text(["Second", "First"])
    page.get_by_label("Search titles and messages").press_sequentially("lightho*", delay=20)
    expect(page.locator(".row-title")).to_have_text(["First"])
    expect(page.locator("mark")).to_have_text("lighthouses")
    page.wait_for_url("**/conversations?q=lightho*")
    page.reload()
    expect(page.locator(".row-title")).to_have_text(["First"])
    page.get_by_label("Search titles and messages").fill("")
    expect(page.locator(".row-title")).to_have_text(["Second", "First"])
    page.get_by_label("Search titles and messages").blur()
    site.store.append("c3", [Message("user", "about bridges")], title="Third")
    expect(page.locator(".row-title")).to_have_text(["Third", "Second", "First"])


@pytest.mark.parametrize("view", ["list", "table"])
def test_the_menu_of_a_row_opens_by_click_and_closes_by_key(site: Site, visitor: Visitor, view: str) -> None:
    site.store.append("a/b", [Message("user", "One")], user_id="ann")
    site.store.append("c", [Message("user", "Two")])
    page = visitor.open(site.api.address, f"/conversations?view={view}")
    more = page.get_by_role("link", name="More about One")
    more.click()
    shown = page.locator(".row-menu .card a")
    expect(shown).to_have_text(["Export", "Share", "Delete", "Erase the owner"])
    expect(shown.first).to_be_focused()
    expect(shown.nth(1)).to_have_attribute("href", f"{site.api.address}/c/a%2Fb/access")
    shown.last.click(trial=True)
    page.keyboard.press("Escape")
    expect(shown).to_have_count(0)
    expect(more).to_be_focused()
    page.get_by_role("link", name="More about Two").click()
    expect(shown).to_have_text(["Export", "Share", "Delete"])
    page.get_by_role("heading", name="Conversations").click()
    expect(shown).to_have_count(0)


def test_a_click_searches_older_titles(site: Site, visitor: Visitor) -> None:
    for number in range(205):
        site.store.create_conversation(f"c{number}", title="A lighthouse" if number == 2 else "Talk")
    page = visitor.open(site.api.address, "/conversations")
    page.get_by_label("Search titles and messages").press_sequentially("lighthouse")
    expect(page.get_by_text("200 newest titles searched")).to_be_visible()
    expect(page.locator(".row-title")).to_have_count(0)
    page.wait_for_url(re.compile("q=lighthouse($|&)"))
    page.get_by_role("link", name="Search older titles").press("Enter")
    expect(page.locator(".row-title")).to_have_text(["A lighthouse"])


def test_leaving_the_box_for_a_result_does_not_replace_it(site: Site, visitor: Visitor) -> None:
    site.store.append("c1", [Message("user", "about lighthouses")], title="First")
    page = visitor.open(site.api.address, "/conversations")
    page.get_by_label("Search titles and messages").press_sequentially("lighthouses")
    page.wait_for_url(re.compile("q=lighthouses($|&)"))
    row = page.locator("a.row")
    row.evaluate("each => { each.dataset.seen = '1' }")
    row.hover()
    page.mouse.down()  # the box says that it has changed
    page.wait_for_timeout(500)
    expect(page.locator("a.row[data-seen]")).to_have_count(1)
    page.mouse.up()
    page.wait_for_url("**/c/c1*")


def test_filters_work_by_keyboard(site: Site, visitor: Visitor) -> None:
    site.store.append("c1", [Message("user", "x")], title="First", user_id="ann", metadata={"shop": 1})
    site.store.append("c2", [Message("user", "x")], title="Second", user_id="ben")
    site.store.append("c3", [Message("user", "x")], title="Third", user_id="ann")
    site.store.update_conversation("c3", archived=True)
    page = visitor.open(site.api.address, "/conversations")
    page.get_by_text("More filters").press("Enter")
    page.locator("form.filters").get_by_label("User", exact=True).press_sequentially("ann")
    expect(page.locator(".row-title")).to_have_text(["First"])
    page.locator("select[name=archived]").press("ArrowDown")
    expect(page.locator(".row-title")).to_have_text(["Third"])
    page.locator("select[name=archived]").press("ArrowDown")
    expect(page.locator(".row-title")).to_have_text(["Third", "First"])
    page.locator("input[name=metadata]").fill("shop=1")
    expect(page.locator(".row-title")).to_have_text(["First"])


def test_filters_with_counts_follow_the_address(site: Site, visitor: Visitor) -> None:
    site.store.append("c1", [Message("user", "x")], title="First", user_id="ann")
    site.store.append("c2", [Message("user", "x")], title="Second", user_id="ben")
    page = visitor.open(site.api.address, "/conversations")
    page.get_by_role("link", name="ann 1", exact=True).click()
    page.wait_for_url("**/conversations?user=ann")
    expect(page.locator(".row-title")).to_have_text(["First"])
    page.get_by_role("link", name="Table", exact=True).click()
    expect(page.locator("td .to")).to_have_text(["First"])
    page.get_by_label("Search titles and messages").fill("sec")
    expect(page.locator("td .to")).to_have_count(0)
    page.get_by_label("Search titles and messages").fill("")
    expect(page.locator("td .to")).to_have_text(["First"])
    page.get_by_role("link", name="Remove the filter User ann").press("Enter")
    expect(page.locator("td .to")).to_have_text(["Second", "First"])
    page.keyboard.press("j")
    page.keyboard.press("o")
    page.wait_for_url("**/c/c2*")


def test_search_opens_from_anywhere(site: Site, visitor: Visitor) -> None:
    site.store.append("a/b", [Message("user", "about <b>lighthouses</b>", id="m1")], title="First")
    page = visitor.open(site.api.address, "/c/a%2Fb")
    page.keyboard.press("Control+k")
    box = page.locator("#palette input")
    expect(box).to_be_focused()
    box.press_sequentially("lighthouses")
    expect(page.locator("#palette mark")).to_have_text("lighthouses")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#palette a.row")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#palette")).to_be_hidden()
    page.locator(".write textarea").press("Meta+k")
    expect(box).to_be_focused()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url("**/c/a%2Fb?at=m1#m1")
    page.keyboard.press("Control+k")
    box.fill("ferries when?")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search?q=ferries*")


def test_search_from_anywhere_says_when_the_server_is_gone(site: Site, visitor: Visitor) -> None:
    visitor.expected = ("502", "hansard:")
    page = visitor.open(site.api.address, "/conversations")
    page.route("**/search*", lambda route: route.fulfill(status=502))
    page.keyboard.press("Control+k")
    page.locator("#palette input").fill("x")
    expect(page.locator("#palette .problem")).to_have_text("The server does not answer.")


# A conversation


def test_a_conversation_opens_at_its_end_and_scrolls_both_ways(sample: Site, visitor: Visitor) -> None:
    page = visitor.open(sample.api.address, "/c/sample-long")
    expect(page.locator("#m2400")).to_be_in_viewport()
    page.mouse.move(600, 400)
    seen = set()
    most = 0
    deadline = time.monotonic() + 240
    while "1900" not in seen and time.monotonic() < deadline:
        page.mouse.wheel(0, -3000)
        page.wait_for_timeout(60)
        found = page.eval_on_selector_all(".message", "all => all.map(each => each.dataset.seq)")
        seen.update(found)
        most = max(most, len(found))
    assert "1900" in seen
    assert most <= 300
    # Nothing was left out, and nothing came twice.
    numbers = sorted(
        int(each) for each in page.eval_on_selector_all(".message", "all => all.map(each => each.dataset.seq)")
    )
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
    # Neither do the spaces between messages stay when these go.
    assert page.evaluate("document.querySelector('#messages').childNodes.length") < 3 * most
    while not page.locator("#m2400").count() and time.monotonic() < deadline:
        page.mouse.wheel(0, 4000)
        page.wait_for_timeout(60)
    expect(page.locator("#m2400")).to_be_attached()
    expect(page.locator("#live")).to_be_visible()


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE])
@pytest.mark.parametrize("path", ["/c/sample-parser", "/c/sample-parcel#end"])
def test_the_last_message_is_above_the_text_box(
    sample: Site, visitor: Visitor, path: str, viewport: dict[str, int]
) -> None:
    page = visitor.open(sample.api.address, path, viewport=viewport)
    bottom = "[...document.querySelectorAll('.message')].at(-1).getBoundingClientRect().bottom"
    eventually(page, f"{bottom} > 0 && {bottom} <= document.querySelector('.write').getBoundingClientRect().top")


def test_links_lead_from_a_result_to_its_call_and_back(site: Site, visitor: Visitor) -> None:
    site.store.append("c", calling(31))
    page = visitor.open(site.api.address, "/c/c")
    # They load before they are reached, perhaps before any scrolling.
    eventually(page, "(scrollTo(0, 0), document.querySelector('#m11') !== null)")
    page.evaluate("window.stayed = true")
    page.get_by_role("link", name="look_up").click()
    expect(page.locator("#m11")).to_be_in_viewport()
    expect(page.locator("#m11")).to_be_focused()
    page.locator("#m11 summary").click()
    page.get_by_role("link", name="Its result").press("Enter")
    expect(page.locator("#m12")).to_be_focused()
    assert page.evaluate("window.stayed")


def test_messages_and_code_can_be_copied(site: Site, visitor: Visitor) -> None:
    words = "Use **this**:\n\n```python\nx = 1 < 2\n```\n"
    site.store.append("c", [Message("user", "How?"), Message("assistant", words)])
    page = visitor.open(site.api.address, "/c/c", permissions=["clipboard-read", "clipboard-write"])
    expect(page.locator("#live")).to_be_visible()
    page.locator("#m2").hover()
    page.locator("#m2").get_by_role("button", name="Copy this message").click()
    expect(page.locator("#m2 .by .copy")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == words
    page.locator("#m2").get_by_role("button", name="Copy this code").click()
    expect(page.locator("#m2 .copied-from .copy")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()").strip() == "x = 1 < 2"
    # A message that arrives has its buttons too, and the focus stays on one while the message grows.
    site.store.append_message("c", "assistant", "It", id="m3", status="in_progress")
    page.locator("#m3 .copy").focus()
    site.store.update_message("c", "m3", content="It grows", status="complete")
    expect(page.locator("#m3 .said")).to_have_text("It grows")
    expect(page.locator("#m3 .copy")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#m3 .copy")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == "It grows"


def test_a_permalink_opens_at_its_message(sample: Site, visitor: Visitor) -> None:
    page = visitor.open(sample.api.address, "/c/sample-long?at=log-700#m700")
    expect(page.locator("#m700")).to_be_in_viewport()
    assert page.eval_on_selector("#m700", "each => each.matches(':target')")


def test_new_messages_appear_without_reloading(site: Site, visitor: Visitor) -> None:
    site.store.append("c", [Message("user", "first", id="m1")])
    page = visitor.open(site.api.address, "/c/c")
    expect(page.locator("#live")).to_be_visible()
    site.store.append_message("c", "assistant", "It is", id="m2", status="in_progress")
    expect(page.locator("#m2 .said")).to_have_text("It is")
    expect(page.locator("#m2 .state")).to_have_text("in progress")
    site.store.update_message("c", "m2", content="It is **late**.", status="complete")
    expect(page.locator("#m2 .said")).to_have_text("It is late.")
    expect(page.locator("#m2 .state.live")).to_have_count(0)
    expect(page.locator(".message")).to_have_count(2)
    call = {"id": "t1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    site.store.append(
        "c", [Message("assistant", {"role": "assistant", "content": None, "tool_calls": [call]}, format="openai.chat")]
    )
    expect(page.locator("details.call .state")).to_have_text("no result yet")
    site.store.append(
        "c", [Message("tool", {"role": "tool", "tool_call_id": "t1", "content": "a whale"}, format="openai.chat")]
    )
    expect(page.locator("details.call .result")).to_contain_text("a whale")
    expect(page.locator(".message")).to_have_count(3)


def test_the_tail_reconnects_when_the_server_returns(tmp_path: Path, visitor: Visitor) -> None:
    """A page that was open while the server was down continues where it was."""
    site_url = f"sqlite:///{tmp_path}/chats.db"
    with sited(site_url) as site:
        site.store.append("c", [Message("user", "first")])
        page = visitor.open(site.api.address, "/c/c")
        expect(page.locator("#live")).to_be_visible()
        visitor.expected = ("Failed to load resource", "net::ERR", "503")
        page.context.set_offline(True)
        page.evaluate("window.dispatchEvent(new Event('offline'))")
        site.store.append("c", [Message("user", "while away")])
        page.context.set_offline(False)
        site.store.append("c", [Message("user", "back again")])
        expect(page.locator(".message .said")).to_have_text(["first", "while away", "back again"])


def test_a_refused_tail_is_requested_again(site: Site, visitor: Visitor) -> None:
    """As by a proxy while its server restarts: a browser does not reconnect by itself."""
    site.store.append("c", [Message("user", "first")])
    refused = []

    def answer(route: Route) -> None:
        refused.append(route.request.url)
        route.fulfill(status=502) if len(refused) == 1 else route.continue_()

    visitor.expected = ("502",)
    page = visitor.open(site.api.address, "/conversations")
    page.route("**/tail*", answer)
    page.goto(site.api.address + "/c/c")
    expect(page.locator("#live")).to_be_visible()
    assert len(refused) == 2
    site.store.append_message("c", "user", "back again")
    expect(page.locator(".message .said")).to_have_text(["first", "back again"])


def test_a_growing_message_keeps_its_folds_and_focus(site: Site, visitor: Visitor) -> None:
    def said(text: str) -> list[dict[str, str]]:
        return [{"type": "thinking", "thinking": "Let me see.", "signature": "s"}, {"type": "text", "text": text}]

    site.store.append("c", [Message("assistant", said("It"), id="m", format="anthropic", status="in_progress")])
    page = visitor.open(site.api.address, "/c/c")
    expect(page.locator("#live")).to_be_visible()
    page.locator("details.reasoning summary").press("Enter")
    expect(page.get_by_text("Let me see.")).to_be_visible()
    site.store.update_message("c", "m", content=said("It is late."), format="anthropic", status="complete")
    expect(page.locator("#m1 > .body > .said")).to_have_text("It is late.")
    expect(page.get_by_text("Let me see.")).to_be_visible()
    expect(page.locator("details.reasoning summary")).to_be_focused()


def test_unsent_text_stays_in_the_box(site: Site, visitor: Visitor) -> None:
    site.store.append("c", [Message("user", "the first")])
    visitor.expected = ("ERR_", "502")
    page = visitor.open(site.api.address, "/c/c")
    expect(page.locator("#live")).to_be_visible()
    page.route("**/say", lambda route: route.abort())
    page.get_by_label("Write a message").fill("the second")
    page.get_by_role("button", name="Write", exact=True).click()
    expect(page.get_by_role("alert")).to_have_text("The server does not answer. What you wrote is still here.")
    expect(page.get_by_label("Write a message")).to_have_value("the second")
    page.unroute("**/say")
    # Without a live tail it is sent all the same, and the page says that it has none.
    page.route("**/tail*", lambda route: route.fulfill(status=502))
    page.reload()
    expect(page.get_by_role("status").filter(has_text="Connection lost")).to_be_visible()
    expect(page.locator("#live")).to_be_hidden()
    page.get_by_label("Write a message").fill("the third")
    page.get_by_role("button", name="Write", exact=True).click()
    expect(page.locator(".message").get_by_text("the third")).to_be_visible()
    assert [each.text for each in site.store.get_messages("c")] == ["the first", "the third"]


def test_a_message_is_stored_once_though_its_response_was_lost(site: Site, visitor: Visitor) -> None:
    def lose_response(route: Route) -> None:
        route.fetch(max_redirects=0)
        route.abort()

    site.store.append("c", [Message("user", "the first")])
    visitor.expected = ("ERR_", "502")
    page = visitor.open(site.api.address, "/c/c")
    expect(page.locator("#live")).to_be_visible()
    box, send = page.get_by_label("Write a message"), page.get_by_role("button", name="Write", exact=True)
    page.route("**/say", lose_response)
    # The page has seen it arrive.
    box.fill("the second")
    send.click()
    expect(page.get_by_role("alert")).to_contain_text("Your message is stored")
    expect(box).to_have_value("")
    # The page has not, and its reader sends it again.
    page.route("**/tail*", lambda route: route.fulfill(status=502))
    page.reload()
    expect(page.get_by_role("status").filter(has_text="Connection lost")).to_be_visible()
    expect(box).to_have_value("")
    box.fill("the third")
    send.click()
    expect(page.get_by_role("alert")).to_have_text("The server does not answer. What you wrote is still here.")
    page.unroute("**/say")
    send.click()
    expect(page.locator(".message").get_by_text("the third")).to_be_visible()
    page.unroute("**/tail*")
    page.reload()
    expect(page.locator("#live")).to_be_visible()
    # The same words are another message once they were stored.
    for count in (4, 5):
        box.fill("the third")
        send.click()
        expect(page.locator(".message")).to_have_count(count)
    said = [each.text for each in site.store.get_messages("c")]
    assert said == ["the first", "the second", "the third", "the third", "the third"]


def test_what_a_lost_connection_says_goes_when_it_is_back(site: Site, visitor: Visitor) -> None:
    site.store.append("c", [Message("user", "the first")])
    visitor.expected = ("ERR_", "502")
    page = visitor.open(site.api.address, "/c/c")
    expect(page.locator("#live")).to_be_visible()
    page.route("**/say", lambda route: route.abort())
    page.route("**/tail*", lambda route: route.fulfill(status=502))
    page.reload()
    page.get_by_label("Write a message").fill("the second")
    page.get_by_role("button", name="Write", exact=True).click()
    expect(page.get_by_role("alert")).to_be_visible()
    page.unroute("**/tail*")
    expect(page.locator("#live")).to_be_visible(timeout=PATIENCE)
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.get_by_label("Write a message")).to_have_value("the second")


def test_writing_and_asking_do_not_reload_the_page(site: Site, visitor: Visitor) -> None:
    site.store.append("c", [Message("user", "first")])
    page = visitor.open(site.api.address, "/c/c")
    expect(page.locator("#live")).to_be_visible()
    page.evaluate("window.stayed = true")
    box = page.get_by_label("Write a message")
    box.fill("Is anybody there?")
    page.get_by_role("button", name="Ask echo").click()
    expect(page.locator(".message .said")).to_have_count(3)
    expect(page.locator(".message").last).to_contain_text("You said:")
    expect(box).to_have_value("")
    box.fill("Once more")
    box.press("Control+Enter")
    expect(page.locator(".message .said")).to_have_count(5)
    assert page.evaluate("window.stayed")
    expect(page.locator("#end")).to_be_in_viewport()


def test_branches_are_switched(site: Site, visitor: Visitor) -> None:
    site.store.append("c", [Message("user", "Where to?", id="q"), Message("assistant", "Rome.", id="a")])
    page = visitor.open(site.api.address, "/c/c/m/a")
    page.get_by_text("Edit", exact=True).click()
    page.get_by_label("Text of the message").fill("Naples.")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".message .said")).to_have_text(["Where to?", "Naples."])
    page.get_by_role("button", name="make active").click()
    expect(page.locator(".message .said")).to_have_text(["Where to?", "Rome."])
    page.locator(".left a").click()
    expect(page.locator(".message .said")).to_have_text(["Where to?", "Naples."])


def test_a_conversation_is_managed_by_keyboard(site: Site, visitor: Visitor) -> None:
    """Create, rename, archive, write as a participant, pin and branch: without a mouse."""
    page = visitor.open(site.api.address, "/conversations")
    page.get_by_role("link", name="New", exact=True).press("Enter")
    page.get_by_label("First message").press_sequentially("Hello there")
    page.get_by_role("button", name="Start").press("Enter")
    page.wait_for_url("**/c/**")
    expect(page.locator(".message .said")).to_have_count(2)
    title = page.get_by_label("Title")
    title.fill("Named")
    title.press("Enter")
    expect(page.get_by_role("heading", name="Named", level=1)).to_be_visible()
    page.get_by_role("button", name="Archive").press("Enter")
    expect(page.locator(".head .state")).to_have_text("archived")
    page.get_by_role("button", name="Unarchive").press("Enter")
    expect(page.locator(".head .state")).to_have_count(0)
    expect(page.locator("#live")).to_be_visible()
    page.get_by_text("Send as").press("Enter")
    page.get_by_label("Participant id").fill("kim")
    page.get_by_label("Name", exact=True).fill("Kim")
    page.get_by_label("Write a message").fill("I am here too")
    page.get_by_role("button", name="Write", exact=True).press("Enter")
    expect(page.locator(".message").last).to_contain_text("Kim")
    page.locator(".message .open").last.press("Enter")
    page.get_by_role("button", name="Pin").press("Enter")
    expect(page.locator(".message .state", has_text="pinned")).to_be_visible()
    page.locator(".message .open").first.press("Enter")
    page.get_by_role("button", name="Branch after it").press("Enter")
    expect(page.locator(".tree li")).to_have_count(2)
    expect(page.locator(".message .said")).to_have_count(1)


def test_deleting_shows_a_receipt(site: Site, visitor: Visitor) -> None:
    site.store.append("c", [Message("user", "x")], title="Doomed")
    page = visitor.open(site.api.address, "/c/c")
    page.get_by_text("Delete", exact=True).click()
    page.get_by_role("checkbox").check()
    page.get_by_role("button", name="Delete permanently").click()
    expect(page.get_by_role("heading", name="Deleted")).to_be_visible()
    expect(page.get_by_text("“Doomed”")).to_be_visible()


# Why


def test_the_why_page_updates_with_its_options(sample: Site, visitor: Visitor) -> None:
    page = visitor.open(
        sample.api.address, "/c/sample-team/why?agent=scout", permissions=["clipboard-read", "clipboard-write"]
    )
    expect(page.locator("tr.kept")).to_have_count(5)
    page.get_by_label("Only addressed messages").select_option("no")
    expect(page.locator("tr.kept")).to_have_count(11)
    page.get_by_label("Token budget").fill("60")
    expect(page.locator("tr.dropped").first).to_contain_text("no room left")
    page.get_by_label("Token budget").fill("3000")
    expect(page.locator("tr.kept")).to_have_count(11)
    page.evaluate(
        "() => { const now = setTimeout; window.later = [];"
        "window.setTimeout = (then, wait) => wait === 5000 ? later.push(then) : now(then, wait); }"
    )
    page.get_by_role("link", name="Copy as Anthropic JSON").click()
    expect(page.get_by_role("link", name="Copied")).to_be_visible()
    assert '"system"' in page.evaluate("navigator.clipboard.readText()")
    page.get_by_role("link", name="Copied").click()
    eventually(page, "later.length === 2")
    page.evaluate("later.forEach((then) => then())")
    expect(page.get_by_role("link", name="Copied")).to_have_count(0)


# Walls


def test_signing_in_and_out_works(tmp_path: Path, visitor: Visitor) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    token = keys.create("x", ["read", "write"], tenant="default")[1]
    with sited(f"sqlite:///{tmp_path}/chats.db", Settings(keys=keys.path)) as site:
        site.store.append("c", [Message("user", "behind the wall")])
        visitor.expected = ("401",)
        page = visitor.open(site.api.address, "/c/c")
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        expect(page.get_by_label("Key")).to_be_focused()
        page.keyboard.type("hsk_wrong_key")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_have_text("The key is not valid.")
        page.get_by_label("Key").fill(token)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url("**/c/c")
        expect(page.locator(".message").get_by_text("behind the wall")).to_be_visible()
        assert page.evaluate("document.cookie") == ""
        expect(page.locator("#live")).to_be_visible()
        expect(page.get_by_role("link", name="Admin")).to_have_count(0)
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_over_tls_no_other_host_can_set_the_key(tmp_path: Path, visitor: Visitor) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    token, other = (keys.create(name, ["read"], tenant=name)[1] for name in ("default", "another"))
    with sited(f"sqlite:///{tmp_path}/chats.db", Settings(keys=keys.path)) as site:
        site.store.append("c", [Message("user", "behind the wall")])
        visitor.expected = ("401",)
        by_tls = {"X-Forwarded-Proto": "https"}  # as a proxy says; a browser takes this machine for as safe
        page = visitor.open(site.api.address, "/c/c", extra_http_headers=by_tls)
        page.get_by_label("Key").fill(token)
        page.get_by_role("button", name="Sign in").click()
        expect(page.locator(".message").get_by_text("behind the wall")).to_be_visible()
        names = {str(each.get("name")) for each in page.context.cookies()}
        assert names == {"__Host-hansard_key", "hansard_seed"}
        page.context.add_cookies([{"name": "hansard_key", "value": other, "url": f"{site.api.address}/c/"}])
        page.reload()
        expect(page.locator(".message").get_by_text("behind the wall")).to_be_visible()
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        assert "__Host-hansard_key" not in {str(each.get("name")) for each in page.context.cookies()}


def test_revoking_a_key_takes_two_clicks(tmp_path: Path, visitor: Visitor) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    token = keys.create("boss", ["read", "write", "admin"], tenant=None)[1]
    other = keys.create("old", ["read"], tenant="default")[0]
    with sited(f"sqlite:///{tmp_path}/chats.db", Settings(keys=keys.path)) as site:
        visitor.expected = ("401",)
        page = visitor.open(site.api.address, "/admin")
        page.get_by_label("Key").fill(token)
        page.keyboard.press("Enter")
        page.locator("summary", has_text="Revoke").nth(1).click()
        assert all(each.revoked_at is None for each in keys.list())
        page.get_by_role("button", name="Revoke old permanently").click()
        expect(page.get_by_role("cell", name="revoked")).to_have_count(1)
        assert [each.id for each in keys.list() if each.revoked_at is not None] == [other.id]


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_pages_with_a_key_fit_a_phone(tmp_path: Path, visitor: Visitor, colours: str) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    token = keys.create("the first", ["read", "write", "admin"], tenant=None)[1]
    settings = Settings(keys=keys.path, audit_log=tmp_path / "audit.jsonl")
    with sited(f"sqlite:///{tmp_path}/chats.db", settings) as site:
        site.store.append("c", [Message("user", "x")], user_id="ann")
        visitor.expected = ("401",)
        page = visitor.open(site.api.address, "/admin/audit", viewport=PHONE, color_scheme=colours)

        def check() -> None:
            assert [each for each in contrasts(page) if each[1] < 4.5] == [], page.url
            assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, page.url

        check()
        page.get_by_label("Key").fill(token)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("cell", name="sign_in")).to_have_count(1)
        check()
        page.goto(site.api.address + "/admin")
        check()
        page.get_by_text("New key").click()
        page.get_by_label("Name").fill("the second")
        page.get_by_role("button", name="Create a key").click()
        expect(page.locator(".secret")).to_be_visible()
        check()
        erase = page.get_by_role("region", name="Erase a user")
        erase.get_by_label("User", exact=True).fill("ann")
        erase.get_by_label("Erase all data").check()
        erase.get_by_role("button").click()
        expect(page.get_by_text("The user ann")).to_be_visible()
        check()


def test_hostile_content_is_harmless(site: Site, visitor: Visitor) -> None:
    """A conversation full of it: nothing runs, nothing is loaded from other origins, and the page still works."""
    for at, text in enumerate(text for name, text in TEXTS.items() if name != "surrogate"):
        site.store.append(
            "c",
            [Message("user", text, id=f"m{at}"), Message("assistant", {"x": text}, format="json")],
            title=text[:200],
        )
    page = visitor.open(site.api.address, "/c/c")
    while page.locator("[data-older]").count():
        page.evaluate("document.querySelector('[data-older]')?.scrollIntoView()")
        page.wait_for_timeout(100)
    assert (
        page.evaluate(
            "document.querySelectorAll('script, style, iframe, object, embed, base, form[action^=http]').length"
        )
        == 1
    )
    assert page.evaluate("getComputedStyle(document.body).display") == "block"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for path in ("/conversations", "/search?q=alert", "/"):
        page.goto(site.api.address + path)
    # It also comes live.
    page.goto(site.api.address + "/c/c")
    expect(page.locator("#live")).to_be_visible()
    site.store.append_message("c", "user", TEXTS["image"] + TEXTS["svg"] + TEXTS["link"], id="last")
    expect(page.get_by_text("onerror=alert(1)").last).to_be_visible()
    page.wait_for_timeout(300)


def test_hostile_names_are_harmless(site: Site, visitor: Visitor) -> None:
    """Of conversations, messages, people, tools and documents, which appear in attributes, addresses and the title."""
    nasty = "\"'><img src=x onerror=alert(1)><script>alert(2)</script></title>`{{7*7}}"
    call = [{"type": "tool_use", "id": nasty, "name": nasty, "input": {nasty: nasty}}]
    result = [{"type": "tool_result", "tool_use_id": nasty, "content": nasty, "is_error": True}]
    who = Participant("agent", nasty, display_name=nasty)
    said = [
        Message("user", nasty, id=nasty, participant=who, sources=(Source(nasty, nasty, nasty, 0.5),)),
        Message("assistant", call, format="anthropic", usage=Usage(1, 2, model=nasty)),
        Message("tool", result, format="anthropic"),
        Message("assistant", "word", status="interrupted", metadata={"error": nasty}),
    ]
    site.store.append(nasty, said, user_id=nasty, agent_id=nasty, title=nasty)
    name, place = quote(nasty, safe=""), site.api.address
    page = visitor.open(place, "/")
    pages = (f"/c/{name}", f"/c/{name}/m/{name}", f"/c/{name}?at={name}", f"/c/{name}/why?agent={name}")
    lists = ("/search?q=word", "/search?q=onerror", f"/search?q={name}", "/conversations", f"/conversations?q={name}")
    for path in (*lists, *pages):
        page.goto(place + path)
        odd = "[...each.attributes].some(one => one.name.startsWith('on'))"
        assert page.evaluate(f"[...document.querySelectorAll('*')].filter(each => {odd}).length") == 0, path
        assert page.evaluate("document.querySelectorAll('script:not([src]), img').length") == 0, path
    page.goto(place + pages[0])
    assert page.title() == f"{nasty} · Hansard"
    assert page.locator("article").first.get_attribute("aria-label") == nasty
    assert page.locator("[data-call]").first.get_attribute("data-call") == nasty


def test_the_site_works_behind_a_prefix(sample: Site, visitor: Visitor) -> None:
    with behind_prefix(sample.api.address, "/some/prefix") as address:
        page = visitor.open(address)
        expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        page.get_by_role("link", name="Conversations", exact=True).click()
        page.locator("a.row", has_text="What the sales chart says").click()
        page.wait_for_url("**/some/prefix/c/sample-chart")
        eventually(page, "document.querySelector('.media img').naturalWidth > 100")
        expect(page.locator("#live")).to_be_visible()
        page.get_by_role("link", name="Why this prompt").click()
        expect(page.locator("tr.kept").first).to_be_visible()


def test_a_conversation_is_usable_on_a_phone(sample: Site, visitor: Visitor) -> None:
    page = visitor.open(sample.api.address, "/c/sample-parcel", viewport=PHONE, has_touch=True, is_mobile=True)
    page.get_by_role("link", name="About", exact=True).tap()
    expect(page.locator("#about")).to_be_in_viewport()
    page.get_by_role("link", name="Conversations", exact=True).tap()
    expect(page.get_by_role("heading", name="Conversations")).to_be_visible()


def test_one_click_stores_the_sample(site: Site, visitor: Visitor) -> None:
    page = visitor.open(site.api.address)
    page.get_by_role("button", name="Load the sample").click()
    expect(page.get_by_role("heading", name="Newest conversations")).to_be_visible()
    expect(page.locator("svg.chart")).to_have_count(4)
