"""A clock that tests set, so that they need not wait for time to pass."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
STEP = timedelta(milliseconds=1)


class Clock:
    """Advances by `step` at each call; a step of 0 stops it."""

    def __init__(self, now: datetime = START, step: timedelta = STEP) -> None:
        self.now = now
        self.step = step

    def __call__(self) -> datetime:
        now = self.now
        self.now = now + self.step
        return now

    def advance(self, by: timedelta) -> datetime:
        """Moves the clock forwards, or backwards by a negative difference; returns the new time."""
        self.now += by
        return self.now

    def stop(self) -> None:
        self.step = timedelta(0)
