"""Ranks the entries that an index finds: what `relevance` reads, for backends whose index knows words, and no places.

The entries of each word are found by the backend, in any order. A key is the number of a conversation, or of one of its
segments, and the seq.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain, groupby
from typing import NamedTuple, Protocol, TypeVar

from hansard.analysis import Clause, Lookup, Position, Terms, analyse, searchable
from hansard.analysis.formula import Posting
from hansard.contract.storage import Placed
from hansard.executor import run_in_thread
from hansard.model import to_micros

T = TypeVar("T")

_SEQ_BITS = 40
_SEQ_MASK = (1 << _SEQ_BITS) - 1

Place = tuple[str, int, int]
"""Conversation, segment and seq."""


class IndexEntry(NamedTuple):
    """A message in an index."""

    id: str
    """Of the conversation."""
    segment: int
    seq: int
    created: int
    length: int
    """Of the text, in words."""
    words: str = ""
    more: str = ""
    """The terms of `analysis.columns`; both may be left out if nobody compares them."""
    role: str = ""
    participant: str | None = None
    """Both for backends that choose by them after the index has answered."""

    @property
    def place(self) -> Place:
        return self.id, self.segment, self.seq

    @property
    def position(self) -> Position:
        return self.created, self.seq, self.id

    @property
    def terms(self) -> Terms:
        return Terms(self.words.split(), self.more.split())


class Searched(Protocol):
    """One search of an index."""

    @property
    def lookup(self) -> Lookup: ...

    async def having(self, clause: Clause) -> list[IndexEntry]:
        """Returns the entries that the search covers, that match its query and have the clause."""

    async def all(self) -> list[IndexEntry]:
        """Returns the entries that the search covers and that match its query, with their terms."""

    async def messages_at(self, id: str, segment: int, runs: Sequence[tuple[int, int]]) -> list[Placed]:
        """Returns the messages with these seqs, from the first to the last of each run, that the search covers.

        They are those of the branch that is searched; if all branches are, of this segment.
        """


class EntryPostings:
    def __init__(self, searched: Searched) -> None:
        self._search = searched
        self._groups: dict[tuple[str, int], int] = {}
        self._conversations: list[tuple[str, int]] = [("", 0)]
        self._read: dict[Clause, list[Posting]] = {}
        self._everything: list[tuple[int, IndexEntry]] | None = None
        self.entries: dict[int, IndexEntry] = {}

    async def count(self, clause: Clause, most: int) -> int:
        return min(len(await self.of(clause)), most)

    async def of(self, clause: Clause) -> list[Posting]:
        if clause not in self._read:
            self._read[clause] = await self._postings(clause)
        return self._read[clause]

    async def _postings(self, clause: Clause) -> list[Posting]:
        if len(self._search.lookup.query.groups) == 1:
            return [(self._key(each), each.length) for each in await self._search.having(clause)]
        if self._everything is None:
            self._everything = [(self._key(each), each) for each in await self._search.all()]
        everything = self._everything

        def having() -> list[Posting]:
            return [(key, each.length) for key, each in everything if clause.is_in(each.terms)]

        return await run_in_thread(having)

    async def terms(self, keys: Collection[int]) -> dict[int, Terms]:
        """Reads the messages themselves: neighbours need not match."""
        found: dict[int, Terms] = {}
        for group, some in groupby(sorted(keys), lambda key: key >> _SEQ_BITS):
            if 0 < group < len(self._conversations):
                runs = _runs(key & _SEQ_MASK for key in some)
                messages = await self._search.messages_at(*self._conversations[group], runs)
                for entry, terms in await run_in_thread(_analysed, messages):
                    found[self._key(entry)] = terms
        return {key: found[key] for key in keys if key in found}

    async def positions(self, all_of: Collection[int], newest_of: Iterable[int], count: int) -> dict[int, Position]:
        return {key: self.entries[key].position for key in chain(all_of, newest_of)}

    async def run(self, work: Callable[[], T]) -> T:
        return await run_in_thread(work)

    def _key(self, entry: IndexEntry) -> int:
        at = (entry.id, entry.segment if self._search.lookup.all_branches else 0)
        if at not in self._groups:
            self._groups[at] = len(self._conversations)
            self._conversations.append(at)
        key = self._groups[at] << _SEQ_BITS | entry.seq
        self.entries[key] = entry
        return key


def _analysed(messages: Sequence[Placed]) -> list[tuple[IndexEntry, Terms]]:
    found = []
    for segment, message in messages:
        terms = analyse(searchable(message))
        created = to_micros(message.created_at)
        found.append((IndexEntry(message.conversation_id, segment, message.seq, created, len(terms.words)), terms))
    return found


def _runs(seqs: Iterable[int]) -> list[tuple[int, int]]:
    """Returns the first and last of each run of consecutive numbers, which must be sorted."""
    found: list[tuple[int, int]] = []
    for seq in seqs:
        if found and seq == found[-1][1] + 1:
            found[-1] = (found[-1][0], seq)
        else:
            found.append((seq, seq))
    return found
