"""What an assembly reads: the newest messages that concern an agent, and the instructions that the history begins with.

The cost follows what is loaded, not what is stored: the limit counts messages that concern the agent, and noise between
them is read past, up to a bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from hansard.assembly import projection
from hansard.assembly.projection import Viewpoint
from hansard.model import Message

MOST_NOISE = 10
"""At most this many times the limit is read, to find as many messages as the limit among noise."""
HEAD = 10
"""How many messages at the beginning of a history are looked at for instructions and pinned messages."""


class Reader(Protocol):
    """A branch, read backwards from its end, and its beginning."""

    async def older(self, before: Message | None, limit: int) -> tuple[list[Message], bool]:
        """Up to `limit` messages before one (None: the newest), newest first, and whether there are more."""

    async def first(self, limit: int) -> list[Message]:
        """The first messages of the history, oldest first, whatever narrows the rest."""


class Loaded(Struct, frozen=True):
    messages: list[Message]
    """Oldest first."""
    has_older: bool


async def load(reader: Reader, view: Viewpoint, limit: int, *, addressed_only: bool) -> Loaded:
    found, more = await reader.older(None, limit)
    if more and addressed_only and projection.is_shared(found, view):
        found, more = await _past_noise(reader, view, limit, found)
    newest = found[::-1]
    if not more:
        return Loaded(newest, has_older=False)
    head = await _head(reader, newest)
    return Loaded([*head, *newest], has_older=True)


async def _past_noise(reader: Reader, view: Viewpoint, limit: int, found: list[Message]) -> tuple[list[Message], bool]:
    """Reads on until enough messages concern the agent."""
    found = list(found)
    more = True
    while more and len(found) < limit * MOST_NOISE and _concerning(found, view) < limit:
        chunk, more = await reader.older(found[-1], limit)
        found += chunk
    wanted = _first_of(found, view, limit)
    return found[:wanted], more or wanted < len(found)


def _concerning(newest_first: Sequence[Message], view: Viewpoint) -> int:
    return sum(projection.addressed(newest_first[::-1], view))


def _first_of(newest_first: Sequence[Message], view: Viewpoint, limit: int) -> int:
    """How many messages hold the first `limit` that concern the agent."""
    count = 0
    for index, concerned in enumerate(reversed(projection.addressed(newest_first[::-1], view))):
        count += concerned
        if count > limit:
            return index
    return len(newest_first)


async def _head(reader: Reader, loaded: Sequence[Message]) -> list[Message]:
    """Instructions and pinned messages at the beginning that are not among those loaded."""
    first_loaded = loaded[0].seq if loaded else 0
    head = await reader.first(HEAD)
    return [message for message in head if projection.always_stays(message) and message.seq < first_loaded]
