"""One request of a browser: where it is in the tree of pages, its cookies, and what its links begin with.

Links are relative, so that the pages work behind any prefix that a proxy puts before them, without being told. A
browser resolves them by the path as it was sent, and so are they made: an id with a slash in it is one segment.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cached_property
from urllib.parse import quote, quote_plus

from starlette.types import Scope, Send

from hansard.server import parameters
from hansard.server.exchanges import Exchange

TENANT = b"/t/"
OURS = "hansard_"
"""With which the names of our cookies begin."""
HOST = "__Host-"
"""Before the name of a cookie: browsers take it only by TLS, from the host itself, for all of its paths."""
COLOURS = OURS + "colours"


class Visit(Exchange):
    """What is known of a request. It is an exchange like those of the API, and so counted, logged and audited."""

    def __init__(self, scope: Scope, send: Send) -> None:
        super().__init__(scope, send, time.perf_counter())
        sent: bytes = scope.get("raw_path") or scope["path"].encode()
        self.path = sent[len(scope.get("root_path", "")) :] or b"/"
        self.root = "../" * (self.path.count(b"/") - 1) or "./"
        """The way to the first page."""
        self.home = self.root
        """The way to the first page of the tenant that was chosen."""
        self.chosen: str | None = None
        """The tenant that an operator has chosen, in the path."""
        self.entrance: str | None = None
        """`sign_in` or `sign_out`, which are no pages."""
        if self.path.startswith(TENANT):
            self._choose()

    def _choose(self) -> None:
        segment, slash, rest = self.path[len(TENANT) :].partition(b"/")
        self.chosen = unsegment(parameters.unquote(segment, "the tenant"))
        self.home = f"{self.root}t/{segment.decode('latin-1')}/"
        self.path = b"/" + rest if slash else b""

    @property
    def action(self) -> str | None:
        return self.entrance or super().action

    @property
    def here(self) -> str:
        """The path that was asked for, from the first page on."""
        sent: bytes = self.scope.get("raw_path") or self.scope["path"].encode()
        query = self.scope["query_string"]
        path = sent[len(self.scope.get("root_path", "")) :].lstrip(b"/")
        return (path + (b"?" + query if query else b"")).decode("latin-1")

    @cached_property
    def cookies(self) -> Mapping[str, str]:
        """Ours. Other applications on the same host set others, in any form that they like."""
        sent = (each.partition("=") for each in self.headers.get(b"cookie", b"").decode("latin-1").split(";"))
        found: dict[str, str] = {}
        for name, _, value in sent:
            if name.strip().removeprefix(HOST).startswith(OURS):
                # A browser sends the cookie with the longest path first.
                found.setdefault(name.strip(), value.strip())
        return found

    @property
    def colours(self) -> str | None:
        """`light` or `dark`, if the reader has chosen; else as the system has them."""
        chosen = self.cookies.get(COLOURS)
        return chosen if chosen in ("light", "dark") else None

    @property
    def is_https(self) -> bool:
        """Whether the browser came by TLS, as far as can be told: it only makes cookies stricter."""
        return self.scope.get("scheme") == "https" or self.headers.get(b"x-forwarded-proto") == b"https"

    @property
    def wants_piece(self) -> bool:
        """The script asks for what has changed, not for a whole page."""
        return self.headers.get(b"hansard-piece") == b"1"


def segment(id: str) -> str:
    """An id as a segment of a path. One that is made of dots would be taken for a way up, so a tilde goes before it."""
    marked = f"~{id}" if id.startswith("~") or not id.strip(".") else id
    return quote(marked, safe="")


def unsegment(text: str) -> str:
    return text.removeprefix("~")


def query(**given: object) -> str:
    """A query string of what is not empty, with its question mark."""
    pairs = [f"{name}={quote_plus(str(value))}" for name, value in given.items() if value not in (None, "", False)]
    return "?" + "&".join(pairs) if pairs else ""
