"""Ranks what matches: the postings of the index and of the queue, on one snapshot."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import chain
from typing import NamedTuple, TypeVar

from msgspec import structs

from hansard.analysis import (
    Clause,
    Lookup,
    Position,
    Query,
    RankedMatch,
    Ranking,
    Terms,
    analyse,
    relevance,
    searchable,
)
from hansard.analysis.formula import Posting
from hansard.analysis.relevance import ScoredKey
from hansard.backends.postgres import lexemes, read, search_sql
from hansard.backends.postgres.connection import PostgresConnection, Row
from hansard.backends.postgres.search import PostgresSearch, SearchScope, message_of, tail_of
from hansard.backends.postgres.vocabulary import with_pieces
from hansard.contract.types import Context
from hansard.executor import run_in_thread

T = TypeVar("T")

_SEQ_BITS = 40
_SEQ_MASK = (1 << _SEQ_BITS) - 1
_PAGE = 500
"""Messages that are read and analysed together."""

Place = tuple[str, int, int]
"""Conversation, segment and seq."""


class _Queued(NamedTuple):
    """A message of the queue that matches."""

    key: int
    terms: Terms


class PostgresPostings:
    """The postings of one search."""

    def __init__(self, search: PostgresSearch) -> None:
        self._search = search
        self._lookup = search.lookup
        self._groups: dict[tuple[str, int], int] = {}
        self._conversations: list[str] = [""]
        self._places: dict[int, Place] = {}
        self._created: dict[int, int] = {}
        self._segments: dict[str, set[int]] = {}
        self._queued: list[_Queued] = []
        self._read: dict[Clause, list[Posting]] = {}

    async def read_queue(self, size: int) -> None:
        async for page in self._search.tail(size):
            if self._lookup.metadata:
                await self._search.find_homes(page)
            there = [row for row in page if self._search.is_asked_for(row)]
            for row, terms in zip(there, await run_in_thread(_terms_of, there), strict=True):
                if self._lookup.query.matches(terms):
                    self._queued.append(_Queued(self._key_of_message(row), terms))

    # What relevance reads

    async def count(self, clause: Clause, most: int) -> int:
        expression = self._expression(clause)
        if expression.exact and not self._lookup.metadata:
            given = (self._search.context, self._lookup, expression, most)
            found = await self._search.fetch(*search_sql.count_postings(*given, walled=self._search.walled))
            searched, rows, is_loose = found[0]
            if not is_loose and (searched == rows or rows < most):
                total: int = searched + sum(clause.is_in(each.terms) for each in self._queued)
                return min(most, total)
        return min(len(await self.of(clause)), most)

    async def of(self, clause: Clause) -> list[Posting]:
        if clause not in self._read:
            in_queue = [(each.key, len(each.terms.words)) for each in self._queued if clause.is_in(each.terms)]
            self._read[clause] = [*in_queue, *await self._indexed(clause)]
        return self._read[clause]

    async def terms(self, keys: Collection[int]) -> dict[int, Terms]:
        found = await self._messages(keys)
        analysed = await run_in_thread(_terms_of, list(found.values()))
        return dict(zip(found, analysed, strict=True))

    async def positions(self, all_of: Collection[int], newest_of: Iterable[int], count: int) -> dict[int, Position]:
        keys = chain(all_of, newest_of)
        return {key: (self._created[key], key & _SEQ_MASK, self._places[key][0]) for key in keys}

    async def run(self, work: Callable[[], T]) -> T:
        return await run_in_thread(work)

    async def matches(self, found: Iterable[ScoredKey]) -> list[RankedMatch]:
        scored = {each.key: each for each in found}
        messages = await self._messages(scored)
        await self._search.find_homes(messages.values())
        matches = self._search.matches_of([messages[key] for key in scored])
        return [RankedMatch(match, each.score) for match, each in zip(matches, scored.values(), strict=True)]

    # The index

    def _expression(self, clause: Clause) -> lexemes.Expression:
        query = self._lookup.query
        groups = ((clause,),) if len(query.groups) == 1 else (*query.groups, (clause,))
        return self._search.expression_of(Query(query.text, groups, query.excluded))

    async def _indexed(self, clause: Clause) -> list[Posting]:
        expression = self._expression(clause)
        given = (self._search.context, self._lookup, expression)
        found = await self._search.fetch(*search_sql.select_postings(*given, walled=self._search.walled))
        found = await self._with_metadata(found)
        doubtful = [self._key(row[0], row[1], row[2], row[4]) for row in found if row[5] or not expression.exact]
        doubted = await self._unmatched(clause, doubtful) if doubtful else set()
        postings = [(self._key(row[0], row[1], row[2], row[4]), row[3]) for row in found]
        return [posting for posting in postings if posting[0] not in doubted] if doubted else postings

    async def _with_metadata(self, found: list[Row]) -> list[Row]:
        if not self._lookup.metadata:
            return found
        await self._search.find_conversations({row[0] for row in found})
        return [row for row in found if self._search.is_home(row[0])]

    async def _unmatched(self, clause: Clause, keys: list[int]) -> set[int]:
        """Returns the messages that the index takes for matches, and that are none."""
        matching = set()
        for at in range(0, len(keys), _PAGE):
            terms = await self.terms(keys[at : at + _PAGE])
            matching |= {key for key, one in terms.items() if clause.is_in(one) and self._lookup.query.matches(one)}
        return set(keys) - matching

    # Where messages are

    def _key(self, conversation: str, segment: int, seq: int, created_at: int) -> int:
        at = (conversation, segment if self._lookup.all_branches else 0)
        group = self._groups.get(at)
        if group is None:
            group = self._groups[at] = len(self._groups) + 1
            self._conversations.append(conversation)
        key = group << _SEQ_BITS | seq
        self._places[key] = (conversation, segment, seq)
        self._created[key] = created_at
        return key

    def _key_of_message(self, row: Row) -> int:
        return self._key(row[search_sql.CONVERSATION], row[0], row[search_sql.SEQ], row[search_sql.CREATED_AT])

    async def _messages(self, keys: Collection[int]) -> dict[int, Row]:
        """Returns the messages of keys, if they are searched."""
        unknown = {self._conversations[key >> _SEQ_BITS] for key in keys if key not in self._places}
        await self._find_segments(unknown)
        places = [place for key in keys for place in self._places_of(key)]
        given = ([place[at] for place in places] for at in range(3))
        sql, values = search_sql.select_places(self._search.context, self._lookup, *given)  # type: ignore[arg-type]
        found = {}
        for row in await self._search.fetch(sql, values) if places else []:
            if self._search.is_asked_for(row):
                found[self._key_of_message(row)] = row
        return {key: found[key] for key in keys if key in found}

    async def _find_segments(self, conversations: set[str]) -> None:
        missing = sorted(conversations - self._segments.keys())
        if not missing:
            return
        sql, values = search_sql.select_lines(self._search.context, missing)
        for conversation, line, lines in await self._search.fetch(sql, values):
            self._segments.setdefault(conversation, set()).update((line, *lines))

    def _places_of(self, key: int) -> list[Place]:
        """Returns where the message of a key may be."""
        if key in self._places:
            return [self._places[key]]
        conversation, seq = self._conversations[key >> _SEQ_BITS], key & _SEQ_MASK
        return [(conversation, segment, seq) for segment in self._segments.get(conversation, ())]


async def rank(
    link: PostgresConnection,
    context: Context,
    lookup: Lookup,
    scope: SearchScope,
    *,
    note_tail: Callable[[str], None],
    any_tail: bool = False,
) -> Ranking | None:
    """Returns the best matches, on one snapshot; None if the tail must be indexed first. See `search.search`."""
    tail = await tail_of(link, context.tenant, note_tail, any_tail=any_tail)
    if tail is None:
        return None
    lookup, has_all = await with_pieces(link, context, structs.replace(lookup, below=None))
    if lookup.conversation_id is not None:
        entry = await read.find_state(link, context, lookup.conversation_id)
        if entry is None:
            return Ranking([])
        entry.state.branch(lookup.branch)  # raises for an unknown branch
    postings = PostgresPostings(PostgresSearch(link, context, lookup, scope))
    await postings.read_queue(tail)
    best = await relevance.best(lookup.query, postings, lookup.limit, neighbours=lookup.neighbours)
    return Ranking(await postings.matches(best), complete=has_all)


def _terms_of(found: list[Row]) -> list[Terms]:
    return [analyse(searchable(message_of(row))) for row in found]
