"""The live sessions that this process relays to a model endpoint: their limit and their counters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hansard.errors import RateLimited

_COME_BACK = 5


class RelaySessions:
    """Counted per process: with several workers, each worker allows the full number."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.open = 0
        self.from_clients = 0
        """Events that were relayed to the endpoint."""
        self.from_models = 0
        """Events that were relayed to clients."""
        self.unrecorded = 0
        """Sessions that ended because they could not be recorded."""

    @contextmanager
    def open_session(self) -> Iterator[None]:
        """Counts a session while it is open. Refuses it above the limit."""
        if self.open >= self._most:
            raise RateLimited(f"this server relays at most {self._most} sessions at a time", retry_after=_COME_BACK)
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1
