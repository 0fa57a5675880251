"""The exported page in a real browser: readable without a network, and hostile content does nothing."""

from __future__ import annotations

from pathlib import Path

from tests.exporters.test_exporters import CALL, PNG
from tests.servers import chromium
from tests.web.browser import needs_chromium

from hansard import Message, sync

pytestmark = needs_chromium

ATTACK = (
    "<script>document.title = 'taken'</script><img src=x onerror=\"document.title='taken'\">"
    "<iframe src='https://tracker.example'></iframe> ![](https://tracker.example/x.png) [x](javascript:alert(1))"
)


def exported(folder: Path) -> Path:
    with sync.connect("memory://") as store:
        picture = {"type": "image", "media_type": "image/png", "data": PNG}
        store.append(
            "evil",
            [
                Message("user", f"**Bold** question {ATTACK}"),
                Message("assistant", [{**CALL, "arguments": {"x": ATTACK}}, picture], format="parts"),
            ],
            title=f"Herons {ATTACK}",
        )
        path = folder / "page.html"
        path.write_bytes(b"".join(store.export(format="html")))
    return path


def test_a_page_of_hostile_content_runs_nothing_and_fetches_nothing(tmp_path: Path) -> None:
    path = exported(tmp_path)
    with chromium.running() as browser:
        page = browser.new_page()
        fetched: list[str] = []
        page.on("request", lambda request: fetched.append(request.url))
        page.goto(path.as_uri())
        assert page.title() == "Conversations"
        assert [url for url in fetched if not url.startswith(("file:", "data:"))] == []
        assert page.locator("strong").inner_text() == "Bold"
        assert "<script>" in page.locator("h1").inner_text()
        assert page.locator("script, iframe").count() == 0
        assert page.locator("a[href^=javascript]").count() == 0
        # As much room below a text as above its speaker.
        above, below = page.evaluate(
            """() => {
                const [card, who, text] = ["article", "article header", "article p"].map(
                    (each) => document.querySelector(each).getBoundingClientRect());
                return [who.top - card.top, card.bottom - text.bottom];
            }"""
        )
        assert abs(above - below) < 1
        page.locator("summary").first.click()
        assert "onerror" in page.locator("details pre").first.inner_text()
        page.close()
