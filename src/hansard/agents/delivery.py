"""Delivery to a store that may be away: when to retry, what it will never accept, and how to complete a message.

Capture writes to a spool meanwhile, a chat continues in its fallback, and a recorder holds the items in memory. All of
them ask a `Retry` whether the store is behind and whether another attempt is due.
"""

from __future__ import annotations

import time

from msgspec import UNSET

from hansard.errors import Closed, HansardError, Unavailable
from hansard.model import Message
from hansard.store import Store


class Retry:
    """Attempts to reach a store that was away. The pause between two doubles from `first` to `longest` seconds."""

    def __init__(self, first: float, longest: float | None = None, *, is_behind: bool = False) -> None:
        self.is_behind = is_behind
        """The store lacks some messages."""
        self._first = first
        self._longest = first if longest is None else longest
        self._pause = 0.0
        self._next = 0.0

    @property
    def seconds_left(self) -> float:
        """Seconds until the next attempt is due."""
        return max(self._next - time.monotonic(), 0.0)

    @property
    def is_due(self) -> bool:
        return time.monotonic() >= self._next

    def failed(self) -> None:
        self.is_behind = True
        self._pause = min(max(self._pause * 2, self._first), self._longest)
        self._next = time.monotonic() + self._pause

    def succeeded(self) -> None:
        self.is_behind = False
        self._pause = self._next = 0.0


def is_refusal(error: Exception) -> bool:
    """Whether another attempt would fail in the same way."""
    return isinstance(error, HansardError) and not isinstance(error, Unavailable | Closed)


def reason(error: Exception) -> str:
    """Returns why a write failed, for a log. A time-out has no message of its own."""
    return "it took too long" if isinstance(error, TimeoutError) else str(error)


async def complete(store: Store, conversation_id: str, message: Message) -> Message:
    """Brings the stored message of that id into the state of this one."""
    return await store.update_message(
        conversation_id,
        message.id,
        content=message.content,
        format=message.format or None,
        status=message.status,
        metadata=message.metadata,
        usage=message.usage,
        sources=message.sources or UNSET,
    )
