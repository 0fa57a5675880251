"""Ranks what matches, from the postings of the index and of the messages that are not in it yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import structs

from hansard import rules
from hansard.analysis import Clause, Lookup, RankedMatch, Ranking, relevance
from hansard.backends.cassandra.entries import once
from hansard.backends.cassandra.search import ATTEMPTS, IndexSearch
from hansard.backends.shared.postings import EntryPostings, IndexEntry
from hansard.contract.storage import Placed, Run
from hansard.contract.types import Context

if TYPE_CHECKING:
    from hansard.backends.cassandra.storage import CassandraStorage


async def rank(storage: CassandraStorage, context: Context, lookup: Lookup) -> Ranking:
    for attempt in range(1, ATTEMPTS + 1):
        searched = IndexSearch(storage, context, structs.replace(lookup, below=None), is_ranked=True)
        if not await searched.locate():
            return Ranking([])
        postings = EntryPostings(RankedSearch(searched))
        best = await relevance.best(lookup.query, postings, lookup.limit, neighbours=lookup.neighbours)
        found = await searched.matches(postings.entries[each.key] for each in best)
        pairs = zip(found, best, strict=True)
        there = [RankedMatch(match, each.score) for match, each in pairs if match is not None]
        if len(there) == len(found) or attempt == ATTEMPTS:
            return Ranking(there, searched.is_complete)
    raise AssertionError


class RankedSearch:
    """A search, as `EntryPostings` asks it."""

    def __init__(self, searched: IndexSearch) -> None:
        self._search = searched
        self.lookup = searched.lookup

    async def having(self, clause: Clause) -> list[IndexEntry]:
        in_tail = [each for each in self._search.tail() if clause.is_in(each.terms)]
        return await self._search.filtered(once([*await self._search.having(clause), *in_tail]))

    async def all(self) -> list[IndexEntry]:
        return await self._search.filtered(await self._search.all())

    async def messages_at(self, id: str, segment: int, runs: Sequence[tuple[int, int]]) -> list[Placed]:
        search = self._search
        view = search.view(id)
        branch = view.state.branch(self.lookup.branch)
        segments = [segment] if self.lookup.all_branches else [each for each, _ in rules.segments(branch)]
        found: list[Placed] = []
        for first, last in runs:
            for each in segments:
                known = [row async for row in view.walk(Run(each, first - 1, last))]
                found += await view.placed(row for row in known if search.is_searched(id, each, row.seq))
        return [each for each in found if rules.is_wanted(each[1], search.wanted)]
