"""Asking before something is deleted."""

from __future__ import annotations

import sys

from hansard.cli.values import visible
from hansard.errors import Denied, ValidationError


def confirm(question: str, *, yes: bool) -> None:
    """Goes on when the answer is yes. Without a terminal there is nobody to ask, so nothing is deleted."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise ValidationError("this deletes for good, and there is no terminal to ask: pass --yes to do it")
    print(f"{visible(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Denied("stopped: nothing was deleted")
