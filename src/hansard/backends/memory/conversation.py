"""One conversation in memory: its head, and for each line its messages in the order of seq."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from heapq import merge
from operator import attrgetter

from msgspec import structs

from hansard import rules
from hansard.model import Message, Summary
from hansard.requests import MessageQuery, NewBranch
from hansard.rules import Head

_seq = attrgetter("seq")
Place = tuple[int, int]
"""The line and seq of a message."""


class Kept:
    """One conversation: its head, and for each line its messages in the order of seq."""

    def __init__(self, head: Head) -> None:
        self.head = head
        self.lines: dict[int, list[Message]] = {}
        self.places: dict[str, Place] = {}
        self.summaries: list[Summary] = []
        self.sizes: dict[str, int] = {}

    def insert(self, line: int, message: Message, size: int) -> None:
        self.lines.setdefault(line, []).append(message)
        self.places[message.id] = (line, message.seq)
        self.sizes[message.id] = size

    def at(self, place: Place) -> Message:
        line, seq = place
        messages = self.lines[line]
        return messages[bisect_left(messages, seq, key=_seq)]

    def find(self, message_id: str) -> Message | None:
        place = self.places.get(message_id)
        return self.at(place) if place else None

    def put(self, message: Message, size: int | None = None) -> None:
        line, seq = self.places[message.id]
        messages = self.lines[line]
        messages[bisect_left(messages, seq, key=_seq)] = message
        if size is not None:
            self.sizes[message.id] = size

    def remove(self, message_id: str) -> None:
        line, seq = self.places.pop(message_id)
        messages = self.lines[line]
        del messages[bisect_left(messages, seq, key=_seq)]
        del self.sizes[message_id]

    def remove_beyond(self, doomed: Sequence[Place]) -> list[Message]:
        gone = []
        for line, seq in doomed:
            messages = self.lines.get(line, [])
            gone += messages[bisect_right(messages, seq, key=_seq) :]
        for message in gone:
            self.remove(message.id)
        self.forget_summaries(gone)
        return gone

    def forget_summaries(self, gone: Sequence[Message]) -> int:
        """A deleted message takes every summary that covers it or builds on one that does."""
        if not gone:
            return 0
        first = min(message.seq for message in gone)
        kept = [summary for summary in self.summaries if summary.to_seq < first]
        lost = len(self.summaries) - len(kept)
        self.summaries = kept
        if lost:
            text = kept[-1].text if kept else None
            self.head = structs.replace(self.head, conversation=structs.replace(self.head.conversation, summary=text))
        return lost

    def newest(self) -> datetime | None:
        last = max((messages[-1] for messages in self.lines.values() if messages), key=_seq, default=None)
        return last.created_at if last else None

    def read(self, branch: str | None, *, newest_first: bool = False) -> Iterator[tuple[int, Message]]:
        """The messages of a branch with their lines, from either end."""
        parts = rules.segments(self.head.lane(branch))
        for line, upto in reversed(parts) if newest_first else parts:
            messages = self.lines.get(line, [])
            visible = messages[: bisect_right(messages, upto, key=_seq)]
            for message in reversed(visible) if newest_first else visible:
                yield line, message

    def cut(self, new: NewBranch) -> rules.Cut:
        """Where a new branch leaves its source."""
        if new.empty:
            return rules.Cut()
        places = [(line, message.seq, message.id) for line, message in self.read(new.source)]
        wanted = new.at or new.before
        if wanted is not None:
            index = next((index for index, place in enumerate(places) if place[2] == wanted), None)
            if index is None:
                raise rules.no_message(self.head.conversation.id, wanted)
            places = places[: index + 1 if new.at else index]
        return rules.Cut(places[-1][:2], len(places)) if places else rules.Cut()

    def fresh_line(self) -> int:
        return 1 + max([*self.lines, *(lane.line for lane in self.head.lanes.values())])

    def all_messages(self) -> Iterator[tuple[int, Message]]:
        lines = ([(line, message) for message in messages] for line, messages in self.lines.items())
        return merge(*lines, key=lambda pair: pair[1].seq)


def beyond(kept: Kept, doomed: Sequence[Place]) -> list[Message]:
    return [message for line, seq in doomed for message in kept.lines.get(line, []) if message.seq > seq]


def with_summary(head: Head, summary: str | None) -> Head:
    if head.conversation.summary == summary:
        return head
    return structs.replace(head, conversation=structs.replace(head.conversation, summary=summary))


def is_by(message: Message, participant_id: str) -> bool:
    who = message.participant
    return who is not None and who.kind == "user" and who.id == participant_id


def digests(messages: Iterable[Message]) -> set[str]:
    return {ref.sha256 for message in messages for ref in message.blobs}


def bounded(found: list[Message], query: MessageQuery, sizes: Mapping[str, int]) -> list[Message]:
    """As many as the limit and the bound in bytes allow, but always one."""
    taken: list[Message] = []
    total = 0
    for message in found if query.limit is None else found[: query.limit]:
        taken.append(message)
        total += sizes[message.id]
        if query.max_bytes is not None and total >= query.max_bytes:
            break
    return taken
