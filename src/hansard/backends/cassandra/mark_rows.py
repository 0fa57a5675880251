"""The rows of the table `marks` that a store uses.

A row is used again once its mark is cleared. A row of its own for each mark would leave a tombstone for each write, and
every list and search of the tenant would pass over all of them.
"""

from __future__ import annotations

import secrets
import time


class MarkRows:
    def __init__(self) -> None:
        self._name = secrets.token_hex(8)
        self._free: list[str] = []
        self._made = 0
        self._last = 0

    def take(self) -> tuple[str, int]:
        """Returns a row without a mark, and the time for the next one. The microsecond after it is for its removal."""
        if not self._free:
            self._made += 1
            self._free.append(f"{self._name}/{self._made}")
        self._last = max(self._last + 2, time.time_ns() // 1000)
        return self._free.pop(), self._last

    def give_back(self, row: str) -> None:
        """After the mark was cleared. A row that is not given back is not used again: others settle its mark."""
        self._free.append(row)
