"""What the Store asks of an index, and what it gets back. The scan answers the same questions where there is none."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct

from hansard.analysis.queries import Query
from hansard.model import Conversation, Message, to_micros

Position = tuple[int, int, str]
"""`(created_at in microseconds, seq, conversation id)`: the order of search, newest first, the same everywhere."""


class Lookup(Struct, frozen=True, gc=False):
    """Which messages to look for, and where. The tenant, and the user of a view, are in the context."""

    query: Query
    conversation_id: str | None = None
    branch: str | None = None
    """None: the active one of each conversation. Only with a conversation."""
    all_branches: bool = False
    user_id: str | None = None
    agent_id: str | None = None
    metadata: dict[str, Any] = {}
    """Of the conversation."""
    roles: frozenset[str] | None = None
    participant_ids: frozenset[str] | None = None
    since: datetime | None = None
    until: datetime | None = None
    below: Position | None = None
    limit: int = 10


class Match(Struct, frozen=True, gc=False):
    """A message that was found. Its blobs are references still."""

    conversation: Conversation
    message: Message

    @property
    def position(self) -> Position:
        return position_of(self.message)


class Matches(Struct, frozen=True):
    """The newest that match, newest first."""

    found: list[Match]
    has_more: bool = False
    complete: bool = True
    """False when the search stopped at its bound before it had looked at everything."""


def position_of(message: Message) -> Position:
    return to_micros(message.created_at), message.seq, message.conversation_id
