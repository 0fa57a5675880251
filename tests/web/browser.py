"""A visitor with a browser: pages must run without an error, and load nothing from other origins."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page, Request
from tests.servers import chromium

PATIENCE = 90_000
"""Milliseconds to wait for an expected event, even on a busy machine."""

needs_chromium = pytest.mark.skipif(chromium.why_absent() is not None, reason=chromium.why_absent() or "")
DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 360, "height": 740}

PATHS = (
    "/",
    "/conversations",
    "/conversations?view=table&user=ann",
    "/search?q=parcel",
    "/c/sample-parcel",
    "/c/sample-parser",
    "/c/sample-chart",
    "/c/sample-address-ar",
    "/c/sample-heating",
    "/c/sample-team/why?agent=scout",
    "/c/sample-parcel/m/sample-parcel-2",
    "/c/sample-parcel/why?answer=sample-parcel-2",
    "/c/sample-parcel/access",
    "/c/sample-parcel/compare",
    "/import",
    "/admin",
    "/nothing",
)
"""Every kind of page, on a site that is filled with the sample."""


class Visitor:
    """Opens pages, and records their errors."""

    def __init__(self, browser: Browser, elsewhere: str | None = None) -> None:
        """`elsewhere` is another origin that pages may lead to."""
        self._browser = browser
        self._elsewhere = elsewhere
        self._pages: list[Page] = []
        self.wrong: list[str] = []
        self.expected: tuple[str, ...] = ()
        """Console errors that the test expects."""

    def open(self, address: str, path: str = "/", **options: Any) -> Page:
        """Opens a page in a new window."""
        given = {"viewport": DESKTOP, "locale": "en-GB", "timezone_id": "Europe/Oslo", **options}
        page = self._browser.new_context(**given).new_page()
        page.set_default_timeout(PATIENCE)
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        page.on("dialog", self._asked_aloud)
        page.on("request", lambda request: self._asked(request, address))
        self._pages.append(page)
        page.goto(address + path)
        return page

    def _asked_aloud(self, dialog: Dialog) -> None:
        self.wrong.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not any(each in message.text for each in self.expected):
            self.wrong.append(f"console: {message.text}")

    def _asked(self, request: Request, address: str) -> None:
        if not request.url.startswith((address, self._elsewhere or address)):
            self.wrong.append(f"asked elsewhere: {request.url}")

    def close(self) -> None:
        for page in self._pages:
            page.context.close()
        assert self.wrong == [], self.wrong


@contextmanager
def behind_prefix(address: str, prefix: str) -> Iterator[str]:
    """A proxy that serves a server under a prefix."""

    class Proxy(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.0"  # the end of the answer is the end of the connection

        def do_GET(self) -> None:
            self._pass_on(b"")

        def do_POST(self) -> None:
            self._pass_on(self.rfile.read(int(self.headers.get("content-length", 0))))

        def _pass_on(self, body: bytes) -> None:
            if not self.path.startswith(prefix + "/"):
                self.send_error(404)
                return
            headers = {
                name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")
            }
            headers["host"] = address.removeprefix("http://")
            headers.pop("Origin", None)
            url = address + self.path.removeprefix(prefix)
            with httpx.stream(self.command, url, headers=headers, content=body, timeout=60) as answer:
                self.send_response(answer.status_code)
                for name, value in answer.headers.multi_items():
                    if name not in ("transfer-encoding", "connection", "content-length"):
                        self.send_header(name, value)
                self.end_headers()
                self._copy(answer)

        def _copy(self, answer: httpx.Response) -> None:
            try:
                for piece in answer.iter_raw():
                    self.wfile.write(piece)
                    self.wfile.flush()
            except (BrokenPipeError, ConnectionResetError, httpx.HTTPError):
                self.close_connection = True

        def log_message(self, format: str, *arguments: Any) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}{prefix}"
        finally:
            server.shutdown()
            thread.join(60)


def contrasts(page: Page) -> list[tuple[str, float]]:
    """Returns the contrast of every visible text with its background, the lowest first."""
    found: list[list[Any]] = page.evaluate(_CONTRASTS)
    return [(str(words), float(ratio)) for words, ratio in found]


_CONTRASTS = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const over = ([r, g, b, a], below) => [r, g, b].map((value, at) => value * a / 255 + below[at] * (1 - a / 255));
  const behind = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) layers.push(rgb(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
  };
  const light = (colour) => {
    const linear = (c) => c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4;
    const [r, g, b] = colour.map((value) => linear(value / 255));
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim(), element = walker.currentNode.parentElement;
    if (!text || !element.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
    const box = element.getBoundingClientRect();
    if (box.width < 2 || box.height < 2 || element.closest("dialog, .unseen, .skip, svg, [aria-hidden=true]")) continue;
    const back = behind(element), front = over(rgb(getComputedStyle(element).color), back);
    const [high, low] = [light(front), light(back)].sort((a, b) => b - a);
    found.push([`${element.className || element.tagName}: ${text.slice(0, 40)}`, (high + .05) / (low + .05)]);
  }
  return found.sort((a, b) => a[1] - b[1]);
}"""
