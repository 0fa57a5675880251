"""What a search finds, before the messages are read, and the periods of time in which it looks."""

from __future__ import annotations

from collections.abc import Iterable

from hansard.analysis import columns, searchable
from hansard.backends.cassandra.connection import Row
from hansard.backends.shared.postings import IndexEntry
from hansard.model import Message, to_micros

Period = tuple[int, int]
"""From a time to before another."""
EVER: Period = (-(2**62), 2**62)


def entry_of(segment: int, message: Message) -> IndexEntry:
    words, more = columns(searchable(message))
    who = message.participant.id if message.participant else None
    created, length = to_micros(message.created_at), len(words.split())
    return IndexEntry(message.conversation_id, segment, message.seq, created, length, words, more, message.role, who)


def entry_from(row: Row) -> IndexEntry:
    """Of a row of the table; some are read without their words."""
    _, id, segment, seq, created, length, role, participant, *text = row
    words, more = text or ("", "")
    return IndexEntry(id, segment, seq, created, length, words, more, role, participant)


def once(entries: Iterable[IndexEntry]) -> list[IndexEntry]:
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
