"""What a search finds, before the messages are read, and the periods of time in which it looks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from hansard.analysis import Position, Terms, columns, searchable
from hansard.model import Message, to_micros

Place = tuple[str, int, int]
"""Conversation, segment and seq."""

Period = tuple[int, int]
"""From a time to before another."""
EVER: Period = (-(2**62), 2**62)


class Entry(NamedTuple):
    """A row of the index, or a message that is not indexed yet."""

    id: str
    segment: int
    seq: int
    created: int
    role: str
    participant: str | None
    length: int
    words: str = ""
    more: str = ""

    @property
    def place(self) -> Place:
        return self.id, self.segment, self.seq

    @property
    def position(self) -> Position:
        return self.created, self.seq, self.id

    @property
    def terms(self) -> Terms:
        return Terms(self.words.split(), self.more.split())


def entry_of(segment: int, message: Message) -> Entry:
    words, more = columns(searchable(message))
    who = message.participant.id if message.participant else None
    created = to_micros(message.created_at)
    length = len(words.split())
    return Entry(message.conversation_id, segment, message.seq, created, message.role, who, length, words, more)


def once(entries: Iterable[Entry]) -> list[Entry]:
    return list({each.place: each for each in entries}.values())


class Crowded(Exception):
    """A period has more rows than are read at once. `times` has those of the rows that were read."""

    def __init__(self, times: list[int]) -> None:
        super().__init__()
        self.times = times


def split(period: Period, times: list[int]) -> list[Period]:
    """Two periods, the newer one last, which begins after nine tenths of these times."""
    low, high = period
    at = sorted(times)[-1 - len(times) // 10]
    at = at if at > low else min((each for each in times if each > low), default=low + 1)
    return [(low, at), (at, high)]
