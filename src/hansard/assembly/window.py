"""Windows that a model accepts: every tool call with its results, every result after its call."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from hansard import formats
from hansard.model import Message


def valid(messages: Sequence[Message]) -> list[Message]:
    """The messages without those that break a pair of call and result; groups go whole."""
    kept = list(messages)
    while broken := _broken(kept):
        kept = [message for index, message in enumerate(kept) if index not in broken]
    return kept


def _broken(messages: Sequence[Message]) -> set[int]:
    """Places of messages with a result that answers no call before it, or a call that nothing after it answers.

    Each result answers one call, the oldest open one of its id: some vocabularies know a call only by its tool's name.
    """
    broken: set[int] = set()
    waiting: dict[str, deque[int]] = {}
    for index, link in enumerate(map(formats.tool_links, messages)):
        for id in link.calls:
            waiting.setdefault(id, deque()).append(index)
        for id in link.results:
            if waiting.get(id):
                waiting[id].popleft()
            else:
                broken.add(index)
    return broken.union(*waiting.values())
