"""What the Store asks of a search index, and the result. Without an index, the scan answers the same."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct

from hansard.analysis.queries import Query
from hansard.model import Conversation, Message, to_micros

Position = tuple[int, int, str]
"""`(created_at in microseconds, seq, conversation id)`: the order of search results, newest first, on every backend."""


class Lookup(Struct, frozen=True, gc=False):
    """Which messages to search for, and where. The tenant, and the user of a view, are in the context."""

    query: Query
    conversation_id: str | None = None
    branch: str | None = None
    """None for the active branch of each conversation. Only with a conversation."""
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
    neighbours: bool = False
    """A ranking may also find messages next to those that match."""
    label: str | None = None
    rating: float | None = None
    """These two are for the Store, which filters what an index has found."""
    is_timed: bool = False
    """Its times were read from the query, relative to now: the next page has other ones."""


class Match(Struct, frozen=True, gc=False):
    """A message that was found. Its blobs are still references."""

    conversation: Conversation
    message: Message

    @property
    def position(self) -> Position:
        return position_of(self.message)


class Matches(Struct, frozen=True):
    """The newest matches, newest first."""

    found: list[Match]
    has_more: bool = False
    complete: bool = True
    """False if the search stopped at its limit before it had compared everything."""


class RankedMatch(Struct, frozen=True, gc=False):
    """A message that was found, and how well it matches."""

    match: Match
    score: float


class Ranking(Struct, frozen=True):
    """The best matches, the best first."""

    found: list[RankedMatch]
    complete: bool = True
    """False if not everything was compared."""


def position_of(message: Message) -> Position:
    return to_micros(message.created_at), message.seq, message.conversation_id
