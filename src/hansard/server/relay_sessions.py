"""The live sessions that this process passes on to a model endpoint: how many there may be, and what went through."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hansard.errors import RateLimited

_COME_BACK = 5


class RelaySessions:
    """Counted in this process: with several workers, each allows as many."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.open = 0
        self.from_clients = 0
        """Events that were passed on to the endpoint."""
        self.from_models = 0
        """Events that were passed on to clients."""
        self.unrecorded = 0
        """Sessions that ended because the store did not take what was said."""

    @contextmanager
    def open_session(self) -> Iterator[None]:
        """One more session, as long as it lasts."""
        if self.open >= self._most:
            raise RateLimited(f"this server passes on {self._most} sessions at a time", retry_after=_COME_BACK)
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1
