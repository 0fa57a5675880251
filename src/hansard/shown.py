"""Values as error messages show them: short, and never an error of their own."""

from __future__ import annotations

import reprlib

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 80
_short.maxlong = 40


def shown(value: object) -> str:
    """A short `repr` of anything that a caller may pass: nested deeply, huge, or with a `repr` that fails."""
    try:
        return _short.repr(value)
    except Exception:
        return f"<{type(value).__name__}>"
