"""One conversation in memory: its state, and for each segment its messages ordered by seq."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from heapq import merge
from operator import attrgetter

from hansard import rules
from hansard.backends.memory.listing import Listing
from hansard.contract.storage import Placed, Run, Span, Without
from hansard.contract.types import ConversationState, MessageQuery
from hansard.model import Message, Summary

_seq = attrgetter("seq")
Place = tuple[int, int]
"""The segment and seq of a message."""


class MemoryConversation:
    """One conversation: its state, and for each segment its messages ordered by seq."""

    def __init__(self, state: ConversationState) -> None:
        self._head = state
        self._listing: Listing | None = None
        self.segments: dict[int, list[Message]] = {}
        self.places: dict[str, Place] = {}
        self.summaries: list[Summary] = []
        self.sizes: dict[str, int] = {}
        self.pinned: set[Place] = set()

    @property
    def state(self) -> ConversationState:
        return self._head

    @state.setter
    def state(self, state: ConversationState) -> None:
        before, self._head = self._head, state
        if self._listing is not None and state.conversation is not before.conversation:
            self._listing.remove(before.conversation)
            self._listing.add(state.conversation)

    def enlist(self, listing: Listing) -> None:
        """Adds the conversation to the listing, which then follows every change of the state."""
        self._listing = listing
        listing.add(self._head.conversation)

    def delist(self) -> None:
        if self._listing is not None:
            self._listing.remove(self._head.conversation)
            self._listing = None

    def insert(self, segment: int, message: Message, size: int) -> None:
        self.segments.setdefault(segment, []).append(message)
        self.places[message.id] = (segment, message.seq)
        self.sizes[message.id] = size
        if message.pinned:
            self.pinned.add((segment, message.seq))

    def size_of(self, message: Message) -> int:
        return self.sizes[message.id]

    def at(self, place: Place) -> Message:
        segment, seq = place
        messages = self.segments[segment]
        return messages[bisect_left(messages, seq, key=_seq)]

    def find(self, message_id: str) -> Message | None:
        place = self.places.get(message_id)
        return self.at(place) if place else None

    def put(self, message: Message, size: int | None = None) -> None:
        segment, seq = self.places[message.id]
        messages = self.segments[segment]
        messages[bisect_left(messages, seq, key=_seq)] = message
        (self.pinned.add if message.pinned else self.pinned.discard)((segment, seq))
        if size is not None:
            self.sizes[message.id] = size

    def remove(self, message_id: str) -> None:
        segment, seq = self.places.pop(message_id)
        messages = self.segments[segment]
        del messages[bisect_left(messages, seq, key=_seq)]
        self.pinned.discard((segment, seq))
        del self.sizes[message_id]

    def clear(self) -> None:
        """Removes all messages and summaries."""
        self.segments, self.places, self.sizes, self.pinned, self.summaries = {}, {}, {}, set(), []

    # Answers to operations

    def between(self, runs: Iterable[Run]) -> Iterator[Placed]:
        """Yields the messages of these runs, in order."""
        for run in runs:
            messages, low, high = self._bounds(run)
            yield from ((run.segment, message) for message in messages[low:high])

    def newest(self, runs: Sequence[Run], count: int) -> list[Placed]:
        """Returns the last `count` messages of all runs taken together, in order."""
        found: list[Placed] = []
        for run in reversed(runs):
            messages, low, high = self._bounds(run)
            first = max(low, high - count + len(found))
            found = [*((run.segment, message) for message in messages[first:high]), *found]
        return found

    def span(self, run: Run) -> Span:
        messages, low, high = self._bounds(run)
        return Span(high - low, messages[low].seq, messages[high - 1].seq) if low < high else Span()

    def last_time(self, without: Without) -> datetime | None:
        """Returns the time of the newest message that would be left without these."""
        left = (self._last_left(segment, without) for segment in self.segments)
        last = max((message for message in left if message), key=_seq, default=None)
        return last.created_at if last else None

    def _last_left(self, segment: int, without: Without) -> Message | None:
        runs = [run for run in without.runs if run.segment == segment]
        for message in reversed(self.segments[segment]):
            if message.id not in without.ids and not any(run.after < message.seq <= run.upto for run in runs):
                return message
        return None

    def _bounds(self, run: Run) -> tuple[list[Message], int, int]:
        """Returns the messages of a segment, and where the run begins and ends in that list."""
        messages = self.segments.get(run.segment, [])
        low = bisect_right(messages, run.after, key=_seq)
        return messages, low, max(low, bisect_right(messages, run.upto, key=_seq))

    # Reads

    def read(
        self, branch: str | None, *, newest_first: bool = False, above: int = 0, below: int = rules.NO_END
    ) -> Iterator[tuple[int, Message]]:
        """Yields the messages of a branch with their segments, from either end, between two seqs."""
        parts = rules.segments(self.state.branch(branch))
        for segment, upto in reversed(parts) if newest_first else parts:
            messages = self.segments.get(segment, [])
            low = bisect_right(messages, above, key=_seq)
            high = bisect_right(messages, min(upto, below - 1), key=_seq)
            for index in range(high - 1, low - 1, -1) if newest_first else range(low, high):
                yield segment, messages[index]

    def read_pinned(self, branch: str | None, *, newest_first: bool = False) -> Iterator[Message]:
        """Yields the pinned messages of a branch. The cost follows their number."""
        stored_branch = self.state.branch(branch)
        for place in sorted(self.pinned, key=lambda place: place[1], reverse=newest_first):
            if rules.sees(stored_branch, *place):
                yield self.at(place)

    def last_segment(self) -> int:
        """Returns the highest segment number of this conversation."""
        branches = self.state.branches.values()
        return max([*self.segments, *(segment for branch in branches for segment, _ in rules.segments(branch))])

    def all_messages(self, after_seq: int = 0) -> Iterator[tuple[int, Message]]:
        """Yields every message after a seq with its segment, on any branch, ordered by seq."""
        return merge(*(self._segment(segment, after_seq) for segment in self.segments), key=lambda pair: pair[1].seq)

    def _segment(self, segment: int, after_seq: int) -> Iterator[tuple[int, Message]]:
        messages = self.segments[segment]
        for index in range(bisect_right(messages, after_seq, key=_seq), len(messages)):
            yield segment, messages[index]


def select(stored: MemoryConversation, query: MessageQuery) -> Iterator[Message]:
    """Yields the messages that a query selects, in its order: sorted by time, or walked by seq."""
    if query.pinned and query.sort == "seq":
        return filter_by(stored.read_pinned(query.branch, newest_first=query.newest_first), query)
    if query.sort == "time":
        everything = (message for _, message in stored.read(query.branch))
        return iter(sorted(filter_by(everything, query), key=rules.position, reverse=query.newest_first))
    above = query.above[1] if query.above else 0
    below = query.below[1] if query.below else rules.NO_END
    walked = stored.read(query.branch, newest_first=query.newest_first, above=above, below=below)
    return filter_by((message for _, message in walked), query)


def filter_by(messages: Iterable[Message], query: MessageQuery) -> Iterator[Message]:
    return (each for each in messages if rules.is_between(each, query) and rules.is_wanted(each, query))


def is_by(message: Message, participant_id: str) -> bool:
    who = message.participant
    return who is not None and who.kind == "user" and who.id == participant_id
