"""Fewer garbage collections while much is loaded.

A load holds thousands of values for a moment and drops them without cycles. The collector would look at all of them
again and again, for up to a tenth of the whole time, and find nothing.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_THRESHOLDS = (250_000, 20, 100)
"""Of `gc.set_threshold`. What is in cycles is still collected, so memory stays bounded."""

_lock = threading.Lock()
_loads = 0
_usual = (0, 0, 0)


@contextmanager
def rare_collections() -> Iterator[None]:
    """Loads may overlap, in any thread: the last one restores the thresholds."""
    _begin()
    try:
        yield
    finally:
        _end()


def _begin() -> None:
    global _loads, _usual  # noqa: PLW0603  (the collector is global)
    with _lock:
        if not _loads:
            _usual = gc.get_threshold()
            # 0 means that the program has turned the collector off.
            if _usual[0]:
                gc.set_threshold(*map(max, _usual, _THRESHOLDS))
        _loads += 1


def _end() -> None:
    global _loads  # noqa: PLW0603
    with _lock:
        _loads -= 1
        if not _loads:
            gc.set_threshold(*_usual)
