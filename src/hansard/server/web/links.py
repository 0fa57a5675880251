"""Links: ids as path segments, and query strings."""

from __future__ import annotations

import re
from urllib.parse import quote, quote_plus

_is_plain = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*").fullmatch
"""Matches ids that are the same in a URL, as most are."""
_is_plain_value = re.compile(r"[A-Za-z0-9_.:-]*").fullmatch
"""Matches values that are the same in a query string: those ids, and cursors."""


def segment(id: str) -> str:
    """Returns an id as a path segment. Ids of dots only would change the path, so they get a tilde as a prefix."""
    if _is_plain(id):
        return id
    marked = f"~{id}" if id.startswith("~") or not id.strip(".") else id
    return quote(marked, safe="")


def unsegment(text: str) -> str:
    return text.removeprefix("~")


def query(**given: object) -> str:
    """Returns a query string of the values that are not empty, with its question mark."""
    pairs = [f"{name}={quoted(str(value))}" for name, value in given.items() if value not in (None, "", False)]
    return "?" + "&".join(pairs) if pairs else ""


def quoted(text: str) -> str:
    """Returns a text as a value in a query string."""
    return text if _is_plain_value(text) else quote_plus(text)
