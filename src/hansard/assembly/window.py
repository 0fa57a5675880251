"""Windows that a model accepts: every tool call with its results, every result after its call."""

from __future__ import annotations

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
    """Places of messages with a result whose call is not before it, or a call whose result is not after it."""
    links = [formats.tool_links(message) for message in messages]
    called = {id: index for index, link in enumerate(links) for id in link.calls}
    answered = {id: index for index, link in enumerate(links) for id in link.results}
    return {
        index
        for index, link in enumerate(links)
        if any(called.get(id, index + 1) > index for id in link.results)
        or any(answered.get(id, -1) < index for id in link.calls)
    }
