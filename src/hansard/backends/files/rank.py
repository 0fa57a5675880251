"""Ranks what matches, from the postings of the index."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, TypeVar

from msgspec import structs

from hansard.analysis import Clause, Lookup, Match, Position, Query, RankedMatch, Ranking, Terms, relevance
from hansard.analysis.formula import Posting
from hansard.analysis.relevance import ScoredKey
from hansard.backends.files.rows import QUERIES
from hansard.backends.files.search import BranchFilter, IndexHit, filters, found_and_read, owner_of
from hansard.backends.files.tenant import Tenant
from hansard.backends.shared.full_text import clause_expression, expression
from hansard.backends.shared.vocabulary import with_pieces
from hansard.blocking import run_to_end
from hansard.contract.types import Context

T = TypeVar("T")

_SEQ_BITS = 40
_COLUMNS = "m.n, m.conversation, m.segment, m.seq, m.id, m.created, c.name, c.head, c.id"
_POSTINGS = (
    f"SELECT {_COLUMNS}, s.length FROM search s "
    "CROSS JOIN messages m INDEXED BY messages_by_number ON m.n = s.rowid "
    "CROSS JOIN conversations c ON c.pk = m.conversation WHERE search MATCH ? AND c.live{more}"
)


class FilePostings:
    """The postings of one search."""

    def __init__(self, connection: sqlite3.Connection, context: Context, lookup: Lookup, owner: str) -> None:
        self._connection = connection
        self._context = context
        self._lookup = structs.replace(lookup, below=None)
        self._owner = owner or None
        self._branches = BranchFilter(context, lookup)
        self._groups: dict[tuple[int, int], int] = {}
        self._read: dict[Clause, list[Posting]] = {}
        self._conversations: dict[int, int] = {}
        self.hits: dict[int, IndexHit] = {}
        self._positions: dict[int, Position] = {}

    async def count(self, clause: Clause, most: int) -> int:
        return min(len(await self.of(clause)), most)

    async def of(self, clause: Clause) -> list[Posting]:
        if clause not in self._read:
            query = self._lookup.query
            if len(query.groups) == 1:
                match = expression(Query(query.text, ((clause,),), query.excluded), self._owner)
            else:
                match = clause_expression(query, clause, self._owner)
            values: list[Any] = [match]
            sql = _sql(filters(self._context, self._lookup, values))
            found = self._connection.execute(sql, values)
            self._read[clause] = [(key, row[-1]) for row in found if (key := self._key(row)) is not None]
        return self._read[clause]

    async def terms(self, keys: Collection[int]) -> dict[int, Terms]:
        wanted: dict[int, list[int]] = {}
        for key in keys:
            if (conversation := self._conversations.get(key >> _SEQ_BITS)) is not None:
                wanted.setdefault(conversation, []).append(key & ((1 << _SEQ_BITS) - 1))
        values: list[Any] = []
        sql = QUERIES["terms_of_messages"] + filters(self._context, self._lookup, values)
        found: dict[int, Terms] = {}
        for conversation, seqs in wanted.items():
            for row in self._connection.execute(sql, (conversation, json.dumps(seqs), *values)):
                place = self._key(row)
                if place is not None and place in keys:
                    found[place] = Terms(row[-2].split(), row[-1].split())
        return found

    async def positions(self, all_of: Collection[int], newest_of: Iterable[int], count: int) -> dict[int, Position]:
        return {key: self._positions[key] for key in chain(all_of, newest_of)}

    async def run(self, work: Callable[[], T]) -> T:
        return work()

    def _key(self, row: Sequence[Any]) -> int | None:
        """Returns the key of a message; None if it is not searched."""
        n, pk, segment, seq, id, created, name, _, conversation_id = row[:9]
        home = self._branches.home(row[:8])
        if home is None:
            return None
        at = (pk, segment if self._lookup.all_branches else 0)
        group = self._groups.setdefault(at, len(self._groups) + 1)
        self._conversations[group] = pk
        key: int = group << _SEQ_BITS | seq
        self.hits[key] = IndexHit(n, name, id, home)
        self._positions[key] = (created, seq, conversation_id)
        return key


def rank(tenant: Tenant, context: Context, lookup: Lookup) -> Ranking:
    def find(connection: sqlite3.Connection) -> tuple[list[IndexHit], tuple[list[ScoredKey], bool]]:
        owner = owner_of(connection, context, lookup)
        if owner is None:
            return [], ([], True)
        filled, has_all = with_pieces(connection, lookup)
        postings = FilePostings(connection, context, filled, owner)
        best = relevance.best(filled.query, postings, lookup.limit, neighbours=lookup.neighbours)
        scored = run_to_end(best)
        return [postings.hits[each.key] for each in scored], (scored, has_all)

    hits, messages, (scored, has_all) = found_and_read(tenant, lookup, find)
    return Ranking(_ranked(zip(hits, scored, strict=True), messages), complete=has_all)


def _ranked(found: Iterable[tuple[IndexHit, ScoredKey]], messages: dict[int, Any]) -> list[RankedMatch]:
    return [
        RankedMatch(Match(hit.conversation, messages[hit.n]), each.score) for hit, each in found if hit.n in messages
    ]


@lru_cache(64)
def _sql(more: str) -> str:
    return _POSTINGS.format(more=more)
