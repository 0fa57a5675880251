"""A cache of the newest messages of the sessions used last, each at a version.

While a conversation has the version at which they were read, its messages are the same. Events are appended only at the
version that a session was loaded at, so this service's own appends extend what it has cached.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from hansard.cache import Cache
from hansard.model import Conversation, Message

_SESSIONS = 64
_LONGEST = 1_000
"""A session with more messages is read each time."""
_LARGEST = 2_000_000
"""So is one with more bytes of JSON: messages may hold files."""


class CachedWindow(NamedTuple):
    version: int
    created_at: datetime
    """The conversation's: one that was deleted and created again may have the same version."""
    wanted: int | None
    messages: Sequence[Message]
    size: int


class Windows:
    def __init__(self) -> None:
        self._windows: Cache[str, CachedWindow] = Cache(_SESSIONS)

    def get(self, conversation: Conversation, wanted: int | None) -> Sequence[Message] | None:
        """Returns the newest messages, or all, if they are cached at the current version."""
        window = self._windows.peek(conversation.id)
        if window is None or window[:3] != (conversation.version, conversation.created_at, wanted):
            return None
        return window.messages

    def keep(self, conversation: Conversation, wanted: int | None, messages: Sequence[Message]) -> None:
        size = sum(map(_size, messages)) if len(messages) <= _LONGEST else 0
        self._put(conversation.id, CachedWindow(conversation.version, conversation.created_at, wanted, messages, size))

    def extend(self, conversation_id: str, before: int, after: int, message: Message) -> None:
        """Extends the cached messages by one that was appended at the version `before` and made it `after`."""
        window = self._windows.peek(conversation_id)
        if window is not None and window.version == before:
            messages = [*window.messages, message]
            gone = messages[: -window.wanted] if window.wanted else []
            size = window.size + _size(message) - sum(map(_size, gone))
            window = window._replace(version=after, messages=messages[len(gone) :], size=size)
            self._put(conversation_id, window)

    def _put(self, id: str, window: CachedWindow) -> None:
        # A message in progress changes without a new version.
        is_small = len(window.messages) <= _LONGEST and window.size <= _LARGEST
        if is_small and all(message.status != "in_progress" for message in window.messages):
            self._windows.put(id, window)
        else:
            self._windows.pop(id)


def _size(message: Message) -> int:
    return len(msgspec.json.encode(message.content))
