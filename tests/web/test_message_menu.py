"""What the script adds to a conversation and to the page Why, in a browser."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect
from tests.web.browser import Visitor, needs_chromium
from tests.web.kit import Site, sited

from hansard import Message
from hansard.server.web.chat import Echo

pytestmark = needs_chromium


def fill(site: Site) -> None:
    lines = [Message("user", "Where to?", id="q"), Message("assistant", "Rome.", id="a"), Message("user", {"a": 1})]
    site.store.append("c", lines)


def test_a_message_is_rated_labelled_and_edited_in_place(site: Site, visitor: Visitor) -> None:
    fill(site)
    page = visitor.open(site.api.address, "/c/c")
    page.evaluate("window.stays = true")
    answer = page.locator(".message").nth(1)
    answer.locator(".open").click()
    answer.get_by_role("button", name="Good").click()
    expect(answer.locator(".marks")).to_contain_text("rated good")
    answer.locator(".open").click()
    answer.get_by_label("Label").fill("fun")
    answer.get_by_role("button", name="Add").click()
    expect(answer.locator(".label")).to_have_text("fun")
    assert page.evaluate("window.stays"), "the page was not loaded again"
    answer.locator(".open").click()
    answer.get_by_role("button", name="Edit").click()
    expect(answer.get_by_label("Text of the message")).to_have_value("Rome.")
    answer.get_by_label("Text of the message").fill("Naples.")
    answer.get_by_role("button", name="Save").click()
    expect(page.locator(".tree li")).to_have_count(2)
    expect(page.locator(".message .said")).to_have_text(["Where to?", "Naples."])
    page.locator(".message").last.locator(".open").click()
    page.get_by_role("button", name="Answer again").click()
    expect(page.locator(".tree li")).to_have_count(3)
    expect(page.locator(".message .said").last).to_contain_text("You said:")


def test_answers_of_every_form_grow_before_the_readers_eyes(
    site: Site, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end = threading.Event()

    async def slowly(self: Echo, messages: Sequence[Any], text: str) -> AsyncIterator[str]:
        yield f"About {text}"
        await asyncio.to_thread(may_end.wait, 30)
        yield " the end."

    monkeypatch.setattr(Echo, "answer", slowly)
    fill(site)
    page = visitor.open(site.api.address, "/c/c?at=a")
    page.locator("#m2 .open").click()
    page.get_by_role("button", name="Answer again").click()
    last = page.locator(".message").last
    expect(last.locator(".said")).to_have_text("About Where to?")
    expect(last.locator(".state")).to_have_text("in progress")
    may_end.set()
    expect(last.locator(".said")).to_have_text("About Where to? the end.")
    expect(page.locator(".message")).to_have_count(2)
    page.reload()
    expect(page.locator(".message")).to_have_count(2)
    may_end.clear()
    page.goto(site.api.address + "/conversations#begin")
    page.get_by_label("First message").fill("Trains")
    page.get_by_role("button", name="Start").click()
    expect(page.locator(".message .said")).to_have_text(["Trains", "About Trains"])
    may_end.set()
    expect(page.locator(".message .said")).to_have_text(["Trains", "About Trains the end."])


def test_the_menu_offers_only_what_is_possible_and_closes(site: Site, visitor: Visitor) -> None:
    fill(site)
    page = visitor.open(site.api.address, "/c/c")
    question, odd = page.locator(".message").first, page.locator(".message").last
    question.locator(".open").click()
    expect(question.locator(".menu")).to_be_visible()
    expect(question.get_by_role("button", name="Answer again")).to_have_count(0)
    page.keyboard.press("Escape")
    expect(question.locator(".menu")).to_have_count(0)
    odd.locator(".open").click()
    odd.get_by_role("button", name="Edit").click()
    expect(odd.get_by_role("alert")).to_contain_text("Only plain text can be edited")


def test_nothing_that_was_typed_is_lost_when_the_server_goes_away(tmp_path: Path, visitor: Visitor) -> None:
    visitor.expected = ("net::ERR", "Failed to load resource", "hansard:")
    with sited(f"sqlite:///{tmp_path}/c.db") as site:
        fill(site)
        page = visitor.open(site.api.address, "/c/c")
        answer = page.locator(".message").nth(1)
        answer.locator(".open").click()
        answer.get_by_role("button", name="Edit").click()
        answer.get_by_label("Text of the message").fill("A long answer")
        page.get_by_label("Write a message").fill("A long question")
        page.reload()
        expect(page.get_by_label("Write a message")).to_have_value("A long question")
        answer.locator(".open").click()
        answer.get_by_role("button", name="Edit").click()
        answer.get_by_label("Text of the message").fill("A long answer")
    answer.get_by_role("button", name="Save").click()
    expect(answer.get_by_role("alert")).to_contain_text("The server does not answer")
    expect(answer.get_by_label("Text of the message")).to_have_value("A long answer")
    page.get_by_role("button", name="Write", exact=True).click()
    expect(page.get_by_label("Write a message")).to_have_value("A long question")


def test_the_slider_redraws_the_prompt(site: Site, visitor: Visitor) -> None:
    site.store.append("c", [Message("user", f"This is number {at}.") for at in range(40)])
    page = visitor.open(site.api.address, "/c/c/why?budget=100")
    kept = page.locator("tr.kept")
    expect(kept).to_have_count(11)
    folded = page.get_by_role("button", name="messages dropped")
    expect(page.get_by_text("This is number 1.")).to_be_hidden()
    folded.click()
    expect(page.get_by_text("This is number 1.")).to_be_visible()
    slider = page.get_by_role("slider", name="Slide the budget")
    slider.evaluate("each => { each.value = 100; each.dispatchEvent(new Event('input', {bubbles: true})); }")
    expect(page.get_by_role("spinbutton", name="Token budget")).to_have_value("10000")
    expect(kept).to_have_count(40)
    assert "budget=10000" in page.url
