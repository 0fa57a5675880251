"""What a session service remembers of the sessions that it used last: their newest messages, at a version.

While a conversation has the version at which they were read, its messages are the same. Events are appended only at the
version that a session was loaded at, so what this service appends itself continues what it remembers.
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
"""Messages beyond which a session is read anew each time."""
_LARGEST = 2_000_000
"""Bytes of JSON beyond which it is, too: messages may hold files."""


class CachedWindow(NamedTuple):
    version: int
    created_at: datetime
    """The conversation's: one that was deleted and begun anew may have the same version."""
    wanted: int | None
    messages: Sequence[Message]
    size: int


class Windows:
    def __init__(self) -> None:
        self._windows: Cache[str, CachedWindow] = Cache(_SESSIONS)

    def get(self, conversation: Conversation, wanted: int | None) -> Sequence[Message] | None:
        """The newest messages, or all, if they are known as they are now."""
        window = self._windows.peek(conversation.id)
        if window is None or window[:3] != (conversation.version, conversation.created_at, wanted):
            return None
        return window.messages

    def keep(self, conversation: Conversation, wanted: int | None, messages: Sequence[Message]) -> None:
        size = sum(map(_size, messages)) if len(messages) <= _LONGEST else 0
        self._put(conversation.id, CachedWindow(conversation.version, conversation.created_at, wanted, messages, size))

    def go_on(self, conversation_id: str, before: int, after: int, message: Message) -> None:
        """A message was appended at the version `before`, and made it `after`."""
        window = self._windows.peek(conversation_id)
        if window is not None and window.version == before:
            messages = [*window.messages, message]
            gone = messages[: -window.wanted] if window.wanted else []
            size = window.size + _size(message) - sum(map(_size, gone))
            window = window._replace(version=after, messages=messages[len(gone) :], size=size)
            self._put(conversation_id, window)

    def _put(self, id: str, window: CachedWindow) -> None:
        # What is still being written changes without a new version.
        is_small = len(window.messages) <= _LONGEST and window.size <= _LARGEST
        if is_small and all(message.status != "in_progress" for message in window.messages):
            self._windows.put(id, window)
        else:
            self._windows.pop(id)


def _size(message: Message) -> int:
    return len(msgspec.json.encode(message.content))
