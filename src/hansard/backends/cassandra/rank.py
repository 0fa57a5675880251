"""Ranks what matches, from the postings of the index and of the messages that are not in it yet."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import groupby
from typing import TYPE_CHECKING, TypeVar

from msgspec import structs

from hansard import rules
from hansard.analysis import (
    Clause,
    Lookup,
    Position,
    RankedMatch,
    Ranking,
    Terms,
    analyse,
    relevance,
    searchable,
)
from hansard.analysis.formula import Posting
from hansard.backends.cassandra.entries import Entry, entry_of, once
from hansard.backends.cassandra.search import ATTEMPTS, IndexSearch
from hansard.contract.storage import Run
from hansard.contract.types import Context
from hansard.executor import run_in_thread
from hansard.model import Message

if TYPE_CHECKING:
    from hansard.backends.cassandra.storage import CassandraStorage

T = TypeVar("T")

_SEQ_BITS = 40
_SEQ_MASK = (1 << _SEQ_BITS) - 1


async def rank(storage: CassandraStorage, context: Context, lookup: Lookup) -> Ranking:
    for attempt in range(1, ATTEMPTS + 1):
        searched = IndexSearch(storage, context, structs.replace(lookup, below=None), is_ranked=True)
        if not await searched.locate():
            return Ranking([])
        postings = CassandraPostings(searched)
        best = await relevance.best(lookup.query, postings, lookup.limit, neighbours=lookup.neighbours)
        messages = await searched.read([postings.entries[each.key] for each in best])
        found = [(searched.match(postings.entries[each.key], messages), each) for each in best]
        there = [RankedMatch(match, each.score, each.covered) for match, each in found if match is not None]
        if len(there) == len(found) or attempt == ATTEMPTS:
            return Ranking(there, searched.is_complete)
    raise AssertionError


class CassandraPostings:
    """What relevance reads. A key is the number of a conversation, or of one of its segments, and the seq."""

    def __init__(self, searched: IndexSearch) -> None:
        self._search = searched
        self._groups: dict[tuple[str, int], int] = {}
        self._conversations: list[tuple[str, int]] = [("", 0)]
        self._read: dict[Clause, list[Posting]] = {}
        self._everything: list[tuple[Entry, int]] | None = None
        self.entries: dict[int, Entry] = {}

    async def count(self, clause: Clause, most: int) -> int:
        return min(len(await self.of(clause)), most)

    async def of(self, clause: Clause) -> list[Posting]:
        if clause not in self._read:
            self._read[clause] = await self._postings(clause)
        return self._read[clause]

    async def _postings(self, clause: Clause) -> list[Posting]:
        search = self._search
        if len(search.lookup.query.groups) == 1:
            in_tail = [each for each in search.tail() if clause.is_in(each.terms)]
            found = await search.filtered(once([*await search.having(clause), *in_tail]))
            return [(self._key(each), each.length) for each in found]
        if self._everything is None:
            self._everything = [(each, self._key(each)) for each in await search.filtered(await search.all())]
        everything = self._everything

        def having() -> list[Posting]:
            return [(key, each.length) for each, key in everything if clause.is_in(each.terms)]

        return await run_in_thread(having)

    async def terms(self, keys: Collection[int]) -> dict[int, Terms]:
        """Of the messages themselves: neighbours need not match."""
        found: dict[int, Terms] = {}
        for group, some in groupby(sorted(keys), lambda key: key >> _SEQ_BITS):
            if not 0 < group < len(self._conversations):
                continue
            seqs = {key & _SEQ_MASK for key in some}
            messages = await self._messages(*self._conversations[group], seqs)
            texts = await run_in_thread(lambda: [analyse(searchable(each)) for _, each in messages])  # noqa: B023
            for (segment, message), terms in zip(messages, texts, strict=True):
                found[self._key(entry_of(segment, message))] = terms
        return {key: found[key] for key in keys if key in found}

    async def _messages(self, id: str, segment: int, seqs: set[int]) -> list[tuple[int, Message]]:
        search = self._search
        view, branch = search.view(id), search.branch_of(search.head(id))
        segments = [segment] if search.lookup.all_branches else [each for each, _ in rules.segments(branch)]
        found: list[tuple[int, Message]] = []
        for first, last in _runs(seqs):
            for each in segments:
                known = [row async for row in view.walk(Run(each, first - 1, last))]
                wanted = [row for row in known if row.seq in seqs and search.is_searched(id, each, row.seq)]
                found += [(each, message) for message in await view.messages_of(wanted)]
        return [each for each in found if rules.is_wanted(each[1], search.wanted)]

    async def newest(self, keys: Iterable[int], count: int) -> dict[int, Position]:
        return {key: self.entries[key].position for key in keys}

    async def run(self, work: Callable[[], T]) -> T:
        return await run_in_thread(work)

    def _key(self, entry: Entry) -> int:
        at = (entry.id, entry.segment if self._search.lookup.all_branches else 0)
        if at not in self._groups:
            self._groups[at] = len(self._conversations)
            self._conversations.append(at)
        key = self._groups[at] << _SEQ_BITS | entry.seq
        self.entries[key] = entry
        return key


def _runs(seqs: Iterable[int]) -> list[tuple[int, int]]:
    """Neighbouring numbers as ranges."""
    found: list[tuple[int, int]] = []
    for seq in sorted(seqs):
        if found and seq <= found[-1][1] + 1:
            found[-1] = (found[-1][0], seq)
        else:
            found.append((seq, seq))
    return found
