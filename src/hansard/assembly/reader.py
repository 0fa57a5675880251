"""What an assembly reads: the newest messages that concern an agent, and earlier ones that stay in every prompt.

Those are the instructions at the beginning, and pinned messages. The cost follows what is loaded, not what is stored:
the limit counts messages that concern the agent, and others between them are skipped, up to a bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from hansard import formats
from hansard.assembly import projection, window
from hansard.assembly.projection import Viewpoint
from hansard.model import Message

MOST_NOISE = 10
"""At most this many times the limit is read, to find as many messages that concern the agent."""
HEAD = 10
"""How many messages at the beginning of a history are searched for instructions."""
MOST_PINNED = 100
"""The most pinned messages, the newest ones, that are included: each costs tokens."""
NEAR = 20
"""How many messages before and after a pinned call or result are searched for the rest of its group."""


class HistoryReader(Protocol):
    """Reads a branch: backwards from its end, its beginning, and its pinned messages."""

    @property
    def has_past(self) -> bool:
        """Whether there may be messages older than `older` returns: it is restricted in time."""

    async def older(self, before: Message | None, limit: int) -> tuple[list[Message], bool]:
        """Returns up to `limit` messages before one (None: the newest), newest first, and whether there are more."""

    async def first(self, limit: int) -> list[Message]:
        """Returns the first messages of the history, oldest first, without the other restrictions."""

    async def pinned(self, limit: int) -> list[Message]:
        """Returns the newest pinned messages, oldest first, however old."""

    async def around(self, message: Message, limit: int) -> list[Message]:
        """Returns a message and up to `limit` on either side of it, oldest first, without the other restrictions."""


class Loaded(Struct, frozen=True):
    messages: list[Message]
    """Oldest first."""
    has_older: bool
    """There are more before the newest run of messages."""
    first_seq: int
    """The first seq of that run; earlier messages were selected one by one."""


async def load(reader: HistoryReader, view: Viewpoint, limit: int, *, addressed_only: bool) -> Loaded:
    found, more = await reader.older(None, limit)
    if more and addressed_only and projection.is_shared(found, view):
        found, more = await _past_noise(reader, view, limit, found)
    newest = found[::-1]
    everything = await with_staying(reader, newest) if more or reader.has_past else newest
    return Loaded(everything, has_older=more, first_seq=newest[0].seq if newest else 0)


async def _past_noise(
    reader: HistoryReader, view: Viewpoint, limit: int, found: list[Message]
) -> tuple[list[Message], bool]:
    """Continues reading until enough messages concern the agent."""
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
    """Returns how many messages contain the first `limit` that concern the agent."""
    count = 0
    for index, concerned in enumerate(reversed(projection.addressed(newest_first[::-1], view))):
        count += concerned
        if count > limit:
            return index
    return len(newest_first)


async def with_staying(reader: HistoryReader, newest: Sequence[Message]) -> list[Message]:
    """Returns the newest messages, and earlier ones that stay: initial instructions, pinned ones with their groups."""
    found = {message.seq: message for message in newest}
    for message in await reader.first(HEAD):
        if projection.instructs(message):
            found.setdefault(message.seq, message)
    for message in await reader.pinned(MOST_PINNED):
        if message.seq not in found:
            for each in await _group(reader, message):
                found.setdefault(each.seq, each)
    return [found[seq] for seq in sorted(found)]


async def _group(reader: HistoryReader, message: Message) -> list[Message]:
    """Returns a message with the calls and results that it needs."""
    links = formats.tool_links(message)
    if not links.calls and not links.results:
        return [message]
    near = await reader.around(message, NEAR)
    group = window.groups(len(near), window.links([formats.tool_links(each) for each in near]).pairs)
    own = next((group[at] for at, each in enumerate(near) if each.seq == message.seq), None)
    return [each for at, each in enumerate(near) if group[at] == own]
