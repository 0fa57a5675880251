"""The order of a tenant's conversations, maintained on every change, so that a page costs what it shows."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

from hansard import cursors
from hansard.contract.types import ConversationQuery
from hansard.model import Conversation, ConversationSort, to_micros

Place = tuple[int, str]
"""The time that a listing sorts by, and the conversation's id."""
ListKey = tuple[str, str, str | None]
"""The key of a sorted list: its sort, whose it is (`all`, `user` or `agent`), and the owner's id."""

_SORTS: tuple[ConversationSort, ...] = ("last_message_at", "updated_at")


class Listing:
    def __init__(self) -> None:
        self._shelves: dict[ListKey, list[Place]] = {}

    def add(self, conversation: Conversation) -> None:
        for listing, place in _places(conversation):
            insort(self._shelves.setdefault(listing, []), place)

    def remove(self, conversation: Conversation) -> None:
        for listing, place in _places(conversation):
            places = self._shelves[listing]
            del places[bisect_left(places, place)]
            if not places:
                del self._shelves[listing]

    def walk(self, query: ConversationQuery, user: str | None) -> Iterator[str]:
        """Yields ids between the query's positions, in its order. Callers apply `rules.matches`."""
        places = self._shelves.get(_list_of(query, user), [])
        low = 0 if query.above is None else bisect_right(places, query.above)
        high = len(places) if query.below is None else bisect_left(places, query.below)
        for index in range(high - 1, low - 1, -1) if query.newest_first else range(low, high):
            yield places[index][1]


def _list_of(query: ConversationQuery, user: str | None) -> ListKey:
    owner = query.user_id if query.user_id is not None else user
    if owner is not None:
        return query.sort, "user", owner
    if query.agent_id is not None:
        return query.sort, "agent", query.agent_id
    return query.sort, "all", None


def _places(conversation: Conversation) -> Iterator[tuple[ListKey, Place]]:
    for sort in _SORTS:
        place = (to_micros(cursors.sort_time(conversation, sort)), conversation.id)
        yield (sort, "all", None), place
        if conversation.user_id is not None:
            yield (sort, "user", conversation.user_id), place
        if conversation.agent_id is not None:
            yield (sort, "agent", conversation.agent_id), place
