"""Formats values for error messages: short, and without raising."""

from __future__ import annotations

import reprlib

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 80
_short.maxlong = 40


def shown(value: object) -> str:
    """Returns a short `repr` of any value: deeply nested, huge, or with a failing `__repr__`."""
    try:
        return _short.repr(value)
    except Exception:
        return f"<{type(value).__name__}>"
