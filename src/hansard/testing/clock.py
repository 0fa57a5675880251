"""A clock that a test sets, so that what depends on time is tested without waiting."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
STEP = timedelta(milliseconds=1)


class Clock:
    """Moves on by `step` each time somebody looks; stands still when it is 0."""

    def __init__(self, now: datetime = START, step: timedelta = STEP) -> None:
        self.now = now
        self.step = step

    def __call__(self) -> datetime:
        now = self.now
        self.now = now + self.step
        return now

    def advance(self, by: timedelta) -> datetime:
        """Jumps; backwards as well, as clocks do."""
        self.now += by
        return self.now

    def stop(self) -> None:
        self.step = timedelta(0)
