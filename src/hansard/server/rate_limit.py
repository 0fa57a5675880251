"""How much a key may ask: requests a minute, and bytes a day.

Counted in this process: with several workers, each allows as much.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from hansard.errors import RateLimited

_DAY = 86_400


class RateLimiter:
    """What one key has used."""

    def __init__(self, rate: int | None, daily_bytes: int | None, clock: Callable[[], float] = time.time) -> None:
        self.rate = rate
        self.daily_bytes = daily_bytes
        self._clock = clock
        self._left = float(rate or 0)
        self._filled_at = clock()
        self._day = 0
        self._bytes = 0

    def count_request(self) -> None:
        """One more request. A minute's worth may come at once."""
        if self.rate is None:
            return
        now = self._clock()
        self._left = min(self.rate, self._left + (now - self._filled_at) * self.rate / 60)
        self._filled_at = now
        if self._left < 1:
            wait = math.ceil((1 - self._left) * 60 / self.rate)
            raise RateLimited(f"this key may ask {self.rate} times a minute", retry_after=wait)
        self._left -= 1

    def count_bytes(self, size: int) -> None:
        """So many more bytes."""
        if self.daily_bytes is None:
            return
        day, second = divmod(int(self._clock()), _DAY)
        if day != self._day:
            self._day, self._bytes = day, 0
        if self._bytes + size > self.daily_bytes:
            raise RateLimited(f"this key may send {self.daily_bytes:,} bytes a day", retry_after=_DAY - second)
        self._bytes += size
