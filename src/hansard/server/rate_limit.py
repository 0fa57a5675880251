"""Rate limits of a key: requests per minute and bytes per day.

Counted per process: with several workers, each worker allows the full rate.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from hansard.errors import RateLimited

_DAY = 86_400


class RateLimiter:
    """The limits of one key, and what it has used."""

    def __init__(self, rate: int | None, daily_bytes: int | None, clock: Callable[[], float] = time.time) -> None:
        self.rate = rate
        self.daily_bytes = daily_bytes
        self._clock = clock
        self._left = float(rate or 0)
        self._filled_at = clock()
        self._day = 0
        self._bytes = 0

    def count_request(self) -> None:
        """Counts a request. A full minute's requests may arrive at once."""
        if self.rate is None:
            return
        now = self._clock()
        self._left = min(self.rate, self._left + (now - self._filled_at) * self.rate / 60)
        self._filled_at = now
        if self._left < 1:
            wait = math.ceil((1 - self._left) * 60 / self.rate)
            raise RateLimited(f"this key may send {self.rate} requests a minute", retry_after=wait)
        self._left -= 1

    def count_bytes(self, size: int) -> None:
        """Counts bytes that were sent."""
        if self.daily_bytes is None:
            return
        day, second = divmod(int(self._clock()), _DAY)
        if day != self._day:
            self._day, self._bytes = day, 0
        if self._bytes + size > self.daily_bytes:
            raise RateLimited(f"this key may send {self.daily_bytes:,} bytes a day", retry_after=_DAY - second)
        self._bytes += size
