"""Takes the screenshots in the README and the docs, from the sample data, so that they stay up to date.

Needs Chromium: `.venv/bin/python -m tools.screenshots docs/images`.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright
from tools import browser

import hansard
from hansard.server.web.sample_data import load_sample

DESKTOP, PHONE = {"width": 1280, "height": 860}, {"width": 390, "height": 780}
SHOTS: dict[str, tuple[str, dict[str, int], str]] = {
    "overview": ("", DESKTOP, "light"),
    "conversations": ("conversations?view=table&sort=cost&density=compact", DESKTOP, "light"),
    "conversation": ("c/sample-parcel", DESKTOP, "light"),
    "conversation-dark": ("c/sample-parser", DESKTOP, "dark"),
    "branches": ("c/sample-kyoto", DESKTOP, "light"),
    "search": ("search?q=Why+is+the+parcel+late%3F", DESKTOP, "light"),
    "why": ("c/sample-team/why?agent=scout&budget=160", DESKTOP, "light"),
    "admin": ("admin", DESKTOP, "light"),
    "phone": ("c/sample-chart", PHONE, "light"),
    "phone-dark": ("", PHONE, "dark"),
}
_SETTLED = """async () => {
  for (let frame = 0; frame < 12; frame++) await new Promise((done) => requestAnimationFrame(done));
}"""


async def fill_with_sample(url: str) -> None:
    async with hansard.connect(url) as store:
        await load_sample(store)


@contextmanager
def serving(folder: Path, fill: Callable[[str], Coroutine[Any, Any, None]] = fill_with_sample) -> Iterator[str]:
    """Serves a store that `fill` has filled, and yields its address."""
    url = f"sqlite:///{folder}/sample.db"
    asyncio.run(fill(url))
    command = [sys.executable, "-m", "hansard.cli", "serve", url, "--port", "0"]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        found = re.search(r"http://\S+:\d+", process.stderr.readline())
        assert found is not None
        yield found[0] + "/"
    finally:
        process.terminate()
        process.communicate()


def take(page: Page, address: str, into: Path, *, whole: bool) -> None:
    page.goto(address)
    page.wait_for_load_state("load")
    page.evaluate("document.activeElement.blur(); document.querySelector('details.call')?.setAttribute('open', '')")
    page.wait_for_load_state("networkidle") if "/c/" not in address else None
    page.evaluate(_SETTLED)  # the page scrolls to its end for some frames, and must not interfere
    page.evaluate("scrollTo(0, 0)")
    page.wait_for_timeout(200)
    page.screenshot(path=into, full_page=whole)


def main(into: Path, names: list[str], *, whole: bool = False) -> None:
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name, serving(Path(name)) as address, sync_playwright() as playwright:
        path = browser.path()
        if path is None:
            sys.exit("no Chromium found: install it, or name it in HANSARD_TEST_CHROMIUM")
        chromium: Browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for shot in names or list(SHOTS):
            where, size, colours = SHOTS[shot]
            page = chromium.new_page(viewport=size, color_scheme=colours, timezone_id="Europe/Oslo", locale="en-GB")  # type: ignore[arg-type]
            take(page, address + where, into / f"{shot}.png", whole=whole)
            page.close()
        chromium.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), [each for each in sys.argv[2:] if each != "--whole"], whole="--whole" in sys.argv)
