"""Windows that a model accepts: every tool call with its results, every result after its call.

Use `valid` for stored messages, `links` and `groups` to decide message by message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct

from hansard import formats
from hansard.assembly import budget
from hansard.formats import ToolLinks
from hansard.formats.dialogue import CLOSED
from hansard.model import Message

Closing = Literal["drop", "close"]


class ToolPairs(Struct, frozen=True):
    """Which messages of a list answer each other, by index."""

    pairs: list[tuple[int, int]]
    """A call's index and its result's."""
    orphans: set[int]
    """Indexes of messages with a result that answers no call before it."""
    dangling: dict[int, list[str]]
    """Indexes of messages with calls that no later message answers, and the ids of those calls."""


def links(linked: Sequence[ToolLinks]) -> ToolPairs:
    """Each result answers one call, the oldest open one of its id: some formats identify a call only by its name."""
    found = ToolPairs([], set(), {})
    waiting: dict[str, deque[int]] = {}
    for index, link in enumerate(linked):
        for id in link.calls:
            waiting.setdefault(id, deque()).append(index)
        for id in link.results:
            if waiting.get(id):
                found.pairs.append((waiting[id].popleft(), index))
            else:
                found.orphans.add(index)
    for id, places in waiting.items():
        for index in places:
            found.dangling.setdefault(index, []).append(id)
    return found


def valid(messages: Sequence[Message], dangling: Closing = "drop") -> list[Message]:
    """Returns the messages without those that break a pair of call and result; groups are removed as a whole.

    With `close`, a call without a result gets a result that says so instead of being removed.
    """
    kept = list(messages)
    while True:
        found = links([formats.tool_links(message) for message in kept])
        broken = found.orphans if dangling == "close" else found.orphans.union(found.dangling)
        if not broken:
            return _closed(kept, found) if dangling == "close" else kept
        kept = [message for index, message in enumerate(kept) if index not in broken]


def _closed(messages: list[Message], found: ToolPairs) -> list[Message]:
    """Returns the messages, each with dangling calls followed by a result for every one of them."""
    closed: list[Message] = []
    for index, message in enumerate(messages):
        closed.append(message)
        for id in found.dangling.get(index, ()):
            result = {"type": "tool_result", "id": id, "output": CLOSED, "is_error": True}
            closed.append(
                Message("tool", [result], format="parts", conversation_id=message.conversation_id, seq=message.seq)
            )
    return closed


def groups(size: int, pairs: Sequence[tuple[int, int]]) -> list[int]:
    """Returns a group number for each message; those that answer each other, directly or indirectly, have the same."""
    group = list(range(size))

    def root(index: int) -> int:
        while group[index] != index:
            group[index] = group[group[index]]
            index = group[index]
        return index

    for call, result in pairs:
        one, other = root(call), root(result)
        group[max(one, other)] = min(one, other)
    return [root(index) for index in range(size)]


def within(
    messages: Sequence[Message],
    tokens: int,
    cost: Callable[[Message], int],
    stays: Callable[[Message], bool],
    dangling: Closing = "drop",
) -> list[Message]:
    """Returns the newest of the messages within a number of tokens; those that `stays` selects are kept first.

    Groups are kept or dropped as a whole, and the newest one is kept whatever it costs.
    """
    whole = valid(messages, dangling)
    group = groups(len(whole), links([formats.tool_links(message) for message in whole]).pairs)
    candidates = [
        budget.Candidate(cost(message), group[index], "pinned" if stays(message) else None)
        for index, message in enumerate(whole)
    ]
    why = budget.chosen(candidates, tokens)
    return [message for message, reason in zip(whole, why, strict=True) if reason != "over_budget"]
