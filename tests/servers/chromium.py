"""The Chromium that is installed, for the tests of the page: without windows where that is installed too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright
from tools.browser import path


def why_absent() -> str | None:
    """Why there can be no browser here."""
    if path():
        return None
    return "no Chromium is installed: apt-get install chromium-headless-shell, or name one in HANSARD_TEST_CHROMIUM"


@contextmanager
def running() -> Iterator[Browser]:
    """A browser. While it runs, this thread has an event loop: keep it to one module of tests."""
    with sync_playwright() as playwright:
        # As root, and in many containers, there is no sandbox to be had. The pages are our own.
        browser = playwright.chromium.launch(executable_path=path(), args=["--no-sandbox", "--disable-dev-shm-usage"])
        try:
            yield browser
        finally:
            browser.close()
