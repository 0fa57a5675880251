"""The page of the server: `python -m benchmarks.page`. Needs the extras `server` and `cli`; `--browser` needs Chromium.

Each page is requested without a network, and its calls of the Store are recorded. Then the page, and those calls alone,
are timed in turn. CPU time is measured, so that other load matters little. "cold" is a page whose messages were never
rendered before, "warm" one that is rendered again.

With `--browser`, Chromium scrolls through a long conversation: its memory must not grow with the scrolled distance.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

from benchmarks.server import started
from hansard import Message, connect
from hansard.contract.backend import Indexed
from hansard.model import Participant, Usage
from hansard.server.app import create_app
from hansard.server.web import markup
from hansard.store import Store

LIMIT, COLD_LIMIT = 3.0, 6.0
"""How many times as long as its calls of the Store a page may take."""
METHODS = (
    *("get_conversation", "list_conversations", "get_messages", "get_message", "list_branches", "list_summaries"),
    *("search", "assemble_prompt", "get_prompt", "stats", "usage", "list_shares"),
)
_TABLE = "| step | state |\n|---|---|\n| shipped | done |\n| customs | done |"
_STEPS = "1. open *Orders*\n2. choose the order\n3. press **Invoice**"
_CODE = "```python\nprint(order.invoice.url)\n```"
SAID = (
    "Where is my order? I have been waiting for a **week**, and nobody answers.",
    f"It left this morning. The carrier says `tomorrow`:\n\n{_TABLE}",
    "Thanks! And the invoice?",
    f"Here is how to get it:\n\n{_STEPS}\n\n{_CODE}",
)
Call = tuple[str, tuple[Any, ...], dict[str, Any]]


# --- the store --------------------------------------------------------------------------------------------------------


def message(number: int, at: datetime) -> Message:
    if number % 2 == 0:
        return Message("user", f"{SAID[number % 4]} ({number})", created_at=at)
    usage = Usage(input_tokens=300 + number % 700, output_tokens=40, cost=0.002, model=f"m{number % 6}")
    said = f"{SAID[number % 4]}\n\nNumber {number}."
    return Message("assistant", said, participant=Participant("agent", "support"), usage=usage, created_at=at)


async def fill(store: Store, conversations: int, messages: int, long: int) -> None:
    """Stores a conversation of `long` messages, which is the newest, and the other messages in others, over 60 days."""
    now = datetime.now(UTC).replace(microsecond=0)
    before = now - timedelta(seconds=long + 3600)
    each = max(1, (messages - long) // max(1, conversations - 1))

    async def talk(name: int) -> None:
        begin = before - timedelta(days=60) * (1 - name / conversations)
        said = [message(name * each + at, begin + timedelta(seconds=at)) for at in range(each)]
        owners: dict[str, Any] = {"user_id": f"u{name % 997}", "agent_id": f"a{name % 7}"}
        facts: dict[str, Any] = {"title": f"Talk {name}", "metadata": {"shelf": name % 50}}
        await store.append(f"c{name}", said, **owners, **facts)

    for first in range(0, conversations - 1, 64):
        last = min(first + 64, conversations - 1)
        await asyncio.gather(*(talk(name) for name in range(first, last)))
        if first % 6400 == 0:
            print(f"{last:,} conversations", file=sys.stderr)
    begin = now - timedelta(seconds=long)
    for first in range(0, long, 1000):
        said = [message(at, begin + timedelta(seconds=at)) for at in range(first, min(first + 1000, long))]
        await store.append("long", said, user_id="u1", title="Long")
    await cast(Indexed, store.backend).catch_up()


async def filled(options: argparse.Namespace) -> str:
    """Returns the URL of such a store. It is created once under `build/`, because that takes minutes."""
    name = f"page-{options.conversations}-{options.messages}-{options.long}.db"
    path = options.folder / name
    if not path.exists():
        options.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            async with connect(f"sqlite:///{folder}/{name}") as store:
                await fill(store, options.conversations, options.messages, options.long)
            Path(folder, name).rename(path)
    return f"sqlite:///{path}"


# --- requests and calls -----------------------------------------------------------------------------------------------


async def ask(app: Any, path: str) -> bytes:
    """Returns a page, without a network."""
    where, _, query = path.partition("?")
    scope = {
        "type": "http",
        "method": "GET",
        "path": where,
        "raw_path": where.encode(),
        "root_path": "",
        "scheme": "http",
        "query_string": query.encode(),
        "headers": [(b"host", b"localhost"), (b"cookie", b"hansard_seed=" + b"s" * 43)],
        "client": ("127.0.0.1", 1),
    }
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(event: Any) -> None:
        sent.append(event)

    await app(scope, receive, send)
    assert sent[0]["status"] == 200, (path, sent)
    return b"".join(event.get("body", b"") for event in sent)


_inside: ContextVar[bool] = ContextVar("inside", default=False)


@contextmanager
def recording() -> Iterator[list[Call]]:
    """Records calls of the Store, without those that it makes itself."""
    calls: list[Call] = []
    before = {name: getattr(Store, name) for name in METHODS}

    def recorded(name: str, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        @functools.wraps(method)
        async def call(self: Store, *arguments: Any, **options: Any) -> Any:
            if not _inside.get():
                calls.append((name, arguments, options))
            token = _inside.set(True)
            try:
                return await method(self, *arguments, **options)
            finally:
                _inside.reset(token)

        return call

    for name, method in before.items():
        setattr(Store, name, recorded(name, method))
    try:
        yield calls
    finally:
        for name, method in before.items():
            setattr(Store, name, method)


async def replay(store: Store, calls: list[Call]) -> None:
    for name, arguments, options in calls:
        await getattr(store, name)(*arguments, **options)


def clear_html_cache() -> None:
    """Clears the cache of rendered messages."""
    markup.html_cache.clear()


async def measure(store: Store, path: str, rounds: int, *, cold: bool) -> dict[str, Any]:
    app = create_app(store)
    if not cold:
        await ask(app, path)
    with recording() as calls:
        page = await ask(app, path)
    assert calls, path
    pages, stores, ratios = [], [], []
    for _ in range(rounds):
        if cold:
            clear_html_cache()
            app = create_app(store)
            await ask(app, "/healthz")  # what the server does once is no part of the page
        begin = time.process_time()
        await ask(app, path)
        middle = time.process_time()
        await replay(store, calls)
        end = time.process_time()
        pages.append(middle - begin)
        stores.append(end - middle)
        ratios.append((middle - begin) / (end - middle))
    return {
        "path": path,
        "cold": cold,
        "calls": len(calls),
        "bytes": len(page),
        "page_ms": round(statistics.median(pages) * 1000, 2),
        "store_ms": round(statistics.median(stores) * 1000, 2),
        "ratio": round(statistics.median(ratios), 2),
    }


async def pages(url: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    async with connect(url) as store:
        week = (datetime.now(UTC) - timedelta(days=7)).date().isoformat()
        middle = (await store.get_messages("long", last=options.long // 2, blobs="refs"))[0].id
        paths = (
            "/",
            "/conversations",
            "/conversations?view=table",
            "/conversations?user=u5",
            "/conversations?agent=a3",
            "/conversations?metadata=shelf=7",
            f"/conversations?since={week}&until={week}",
            "/conversations?archived=yes",
            "/conversations?sort=updated_at",
            "/conversations?q=invoice",
            "/conversations?q=inv*",
            "/conversations?q=Talk+99",
            "/c/long",
            f"/c/long?at={middle}",
            "/c/c7",
            "/c/c7/access",
            "/c/long/why",
            "/c/long/why?budget=1000&other_budget=4000",
            "/search?q=customs",
            "/search?q=customs&order=newest",
            "/search?q=number+54321",
        )
        return [await measure(store, path, options.rounds, cold=cold) for path in paths for cold in (True, False)]


# --- the browser ------------------------------------------------------------------------------------------------------


_SCROLL = """async ([kind, stretches]) => {
  const edge = () => +[...document.querySelectorAll(".message")].at(kind === "older" ? 0 : -1).dataset.seq;
  for (let at = 0; at < stretches && document.querySelector(`.further[data-${kind}]`); at++) {
    const before = edge(), end = Date.now() + 60000;
    while (edge() === before) {
      scrollTo(0, kind === "older" ? 0 : document.documentElement.scrollHeight);
      if (Date.now() > end) throw new Error(`nothing ${kind} came after ${before}`);
      await new Promise((done) => setTimeout(done, 5));
    }
  }
  return edge();
}"""


_PAINT = """() => new Promise((done) => new PerformanceObserver((seen) => {
  for (const each of seen.getEntriesByName("first-contentful-paint")) done(each.startTime);
}).observe({ type: "paint", buffered: true }))"""


def scrolled(url: str, stretches: int) -> dict[str, Any]:
    """Measures Chromium's memory while it scrolls up in the long conversation, and down again."""
    from playwright.sync_api import sync_playwright
    from tools import browser as chromium

    held = []
    with started("-m", "hansard.cli", "serve", url, "--port", "0") as (address, _), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium.path(), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        sizes: dict[str, int] = {}
        page.on("response", lambda answer: sizes.update({answer.url: int(answer.headers.get("content-length", 0))}))
        page.goto(address + "/c/long")
        paint = page.evaluate(_PAINT)
        needed = {url.rpartition("/")[2]: size for url, size in sizes.items() if "/tail" not in url}
        session = page.context.new_cdp_session(page)
        for kind in ("older", "newer"):
            for _ in range(5):
                at = page.evaluate(_SCROLL, [kind, max(1, stretches // 5)])
                session.send("HeapProfiler.collectGarbage")
                counts = session.send("Memory.getDOMCounters")
                heap = session.send("Runtime.getHeapUsage")["usedSize"]
                held.append({"to": kind, "seq": at, "nodes": counts["nodes"], "heap_mb": round(heap / 1e6, 2)})
                print(held[-1], file=sys.stderr)
        browser.close()
    return {"first_paint_ms": round(paint, 1), "loaded": needed, "held": held}


def line(each: dict[str, Any]) -> str:
    verdict = "ok" if each["ratio"] <= (COLD_LIMIT if each["cold"] else LIMIT) else "MISS"
    kind = "cold" if each["cold"] else "warm"
    times = f"store {each['store_ms']:8.2f} ms  page {each['page_ms']:8.2f} ms  {each['ratio']:5.2f} x"
    return f"{each['path']:34.34} {kind} {each['calls']:3} calls  {times}  {verdict}"


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.page", description=__doc__)
    parser.add_argument("--conversations", type=int, default=100_000)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--long", type=int, default=100_000, help="messages of the one long conversation")
    parser.add_argument("--folder", type=Path, default=Path("build"), help="the folder of the store")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--browser", action="store_true")
    parser.add_argument("--stretches", type=int, default=250, help="how often to scroll by 40 messages, both ways")
    parser.add_argument("--only-browser", action="store_true")
    parser.add_argument("--json", type=Path, default=Path("build/page.json"))
    options = parser.parse_args()
    url = asyncio.run(filled(options))
    results: dict[str, Any] = {"pages": [] if options.only_browser else asyncio.run(pages(url, options))}
    for each in results["pages"]:
        print(line(each))
    if options.browser or options.only_browser:
        results["browser"] = scrolled(url, options.stretches)
        print(json.dumps(results["browser"], indent=2))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
