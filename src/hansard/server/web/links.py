"""Links: ids as path segments, and query strings."""

from __future__ import annotations

from urllib.parse import quote, quote_plus


def segment(id: str) -> str:
    """Returns an id as a path segment. Ids of dots only would change the path, so they get a tilde as a prefix."""
    marked = f"~{id}" if id.startswith("~") or not id.strip(".") else id
    return quote(marked, safe="")


def unsegment(text: str) -> str:
    return text.removeprefix("~")


def query(**given: object) -> str:
    """Returns a query string of the values that are not empty, with its question mark."""
    pairs = [f"{name}={quote_plus(str(value))}" for name, value in given.items() if value not in (None, "", False)]
    return "?" + "&".join(pairs) if pairs else ""
