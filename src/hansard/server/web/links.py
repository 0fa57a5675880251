"""Links of the page: ids as segments of a path, and query strings."""

from __future__ import annotations

from urllib.parse import quote, quote_plus


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
