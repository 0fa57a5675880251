"""The live tail of a conversation, which also sees what other processes write."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime

from msgspec import structs

from hansard import cursors, rules
from hansard.contract.types import MessageQuery
from hansard.model import Message
from hansard.store import read_query
from hansard.store.core import View

_CHUNK = 100
_WAIT = 30.0
_MARGIN = 0.01
"""Seconds added to the end of a lease, so that it has certainly ended."""


Growing = dict[str, int | None]
"""Messages that may still change, with the revision of each that was last seen; None if none was.

The complement of a revision means that the message was yielded as interrupted, because its lease had run out.
"""


async def watch(view: View, conversation_id: str, after: str | None, branch: str | None) -> AsyncIterator[Message]:
    """Yields the messages after a position, then each new one as it arrives, without end.

    A message in progress is yielded again each time it has grown, until it ends: also the one at `after`, so that a
    tail that was cut off in the middle of it can continue. Without `after`, the tail starts now. The backend's `wait`
    is only a hint: every round reads again what follows the last position.
    """
    context = view.context()
    place = await read_query.position(view, context, conversation_id, after)
    if after is None:
        place = await _end(view, conversation_id, branch)
    base = MessageQuery(branch=branch, limit=_CHUNK, max_bytes=view.limits.page_bytes)
    growing = await _growing_at(view, conversation_id, branch, place, after)
    mark = 0
    patience = _WAIT
    born = await _birth(view, conversation_id)
    while True:
        mark = await view.backend.wait(view.context(), conversation_id, mark, patience)
        again = await _birth(view, conversation_id)
        if again != born and again is not None:
            # It was deleted and created again: start from its beginning.
            place, born = None if born is not None else place, again
            growing.clear()
        for message in await _grown(view, conversation_id, growing):
            yield message
        more = True
        while more:
            context = view.context()
            taken = await view.backend.get_messages(context, conversation_id, structs.replace(base, above=place))
            more = taken.has_more
            for message in taken.messages:
                if message.status == "in_progress":
                    growing[message.id] = _seen(message, context.now)
            for message in await read_query.with_blobs(view, context, taken.messages, "inline"):
                place = rules.position(message)
                yield message
        patience = await _patience(view, conversation_id, growing)


async def _birth(view: View, conversation_id: str) -> datetime | None:
    conversation = await view.backend.get_conversation(view.context(), conversation_id)
    return conversation.created_at if conversation else None


async def _end(view: View, conversation_id: str, branch: str | None) -> tuple[int, int] | None:
    newest = MessageQuery(branch=branch, newest_first=True, limit=1)
    taken = await view.backend.get_messages(view.context(), conversation_id, newest)
    return rules.position(taken.messages[0]) if taken.messages else None


async def _growing_at(
    view: View, conversation_id: str, branch: str | None, place: tuple[int, int] | None, after: str | None
) -> Growing:
    """Returns the message at the position, if it is in progress or was when the cursor was made.

    An id does not tell what was seen of its message, so a message in progress counts as grown, and one that has ended
    counts as seen. A cursor tells.
    """
    if place is None:
        return {}
    at = MessageQuery(branch=branch, above=(0, place[1] - 1), below=(0, place[1] + 1), limit=1)
    found = (await view.backend.get_messages(view.context(), conversation_id, at)).messages
    if after is None:
        return {message.id: cursors.revision(message) for message in found if message.status == "in_progress"}
    seen = cursors.message_seen(after, conversation_id) if cursors.is_cursor(after) else None
    return {message.id: seen for message in found if message.status == "in_progress" or seen is not None}


async def _grown(view: View, conversation_id: str, growing: Growing) -> list[Message]:
    """Returns the messages in progress that have changed since they were last seen."""
    if not growing:
        return []
    context = view.context()
    now = {each.id: each for each in await view.backend.find_messages(context, conversation_id, list(growing))}
    seen = {id: _seen(message, context.now) for id, message in now.items()}
    changed = [message for id, message in now.items() if seen[id] != growing[id]]
    for id in list(growing):
        if id not in now or now[id].status != "in_progress":
            del growing[id]
        else:
            growing[id] = seen[id]
    return await read_query.with_blobs(view, context, changed, "inline")


def _seen(message: Message, now: datetime) -> int:
    revision = cursors.revision(message)
    return ~revision if rules.is_lapsed(message, now) else revision


async def _patience(view: View, conversation_id: str, growing: Growing) -> float:
    """Returns how long to wait for news: until the first lease runs out that is not renewed."""
    if not growing:
        return _WAIT
    context = view.context()
    now = await view.backend.find_messages(context, conversation_id, list(growing))
    if any(_seen(message, context.now) != growing[message.id] for message in now):
        return 0.0
    left = [each for message in now if (each := rules.time_left(message, context.now)) is not None]
    return min([_WAIT, *(each.total_seconds() + _MARGIN for each in left)])
