"""Ranks what matches: the postings of the index and of the tail, on one snapshot."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from itertools import chain, islice
from operator import index as integer
from operator import itemgetter
from typing import Any, TypeVar

import msgspec
from msgspec import structs

from hansard import rules
from hansard.analysis import (
    Clause,
    Lookup,
    Position,
    Query,
    RankedMatch,
    Ranking,
    Sieve,
    Terms,
    analyse,
    relevance,
)
from hansard.analysis.formula import Posting
from hansard.backends.shared.full_text import clause_expression, expression
from hansard.backends.shared.vocabulary import with_pieces
from hansard.backends.sqlite import index, rows, search
from hansard.backends.sqlite.errors import decodes
from hansard.backends.sqlite.queries import QUERIES
from hansard.backends.sqlite.read_cache import ReadConnection
from hansard.backends.sqlite.rows import Row, pack, unpack
from hansard.backends.sqlite.search import SqliteSearch, is_unfiltered
from hansard.blocking import run_to_end
from hansard.contract.types import Context, MessageQuery

T = TypeVar("T")

_ENTRIES = "FROM search s CROSS JOIN search_entries e ON e.entry = s.rowid "
_MESSAGES = "CROSS JOIN messages m ON m.key = e.message "
_AS_JSON = "json_group_array(e.message), json_group_array(e.words)"
_first = itemgetter(0)
_numbers = msgspec.json.Decoder(list[int])
_FEW = 200
"""Messages that are read with their texts when their positions are asked for: most are returned."""


class SqlitePostings:
    """The postings of one search. The key of a message is that of its row.

    On a branch that begins on another segment, the key is that of its seq on the branch's own segment, so that the keys
    of neighbours are consecutive.
    """

    def __init__(self, search: SqliteSearch) -> None:
        self._search = search
        self._lookup = search.lookup
        self._connection = search.connection
        # Of conversations, `home_of` decides.
        self._filters = structs.replace(search.lookup, agent_id=None, below=None)
        self._is_filtered = not is_unfiltered(self._filters)
        self._is_plain = self._has_only_plain_conversations()
        """Every entry of the owner is searched, so none needs to be looked up."""
        self._places: dict[int, tuple[int, int] | None] = {}
        """For each segment: the segment of the keys, and up to which seq it is searched."""
        self._stored: dict[int, int] = {}
        """The real keys of messages on other segments than their branch's own."""
        self._read: dict[int, Row] = {}
        """Messages that were read already."""
        self._tail = self._in_tail()

    def _has_only_plain_conversations(self) -> bool:
        search, lookup = self._search, self._lookup
        if lookup.agent_id is not None or lookup.metadata or lookup.branch is not None:
            return False
        return not self._connection.has_odd(search.context.tenant)

    # What relevance reads

    async def count(self, clause: Clause, most: int) -> int:
        in_tail = sum(clause.is_in(terms) for _, terms in self._tail)
        if in_tail >= most or self._search.between is None:
            return min(in_tail, most)
        if not self._is_plain:
            return min(in_tail + sum(1 for _ in self._indexed(clause)), most)
        joined = "FROM search s " if self._search.pk is None else _ENTRIES
        if self._is_filtered:
            joined = _ENTRIES + _MESSAGES
        sql, values = self._select(joined, clause)
        found: int = self._connection.execute(
            f"SELECT count(*) FROM (SELECT 1 {sql} LIMIT ?)", [*values, most - in_tail]
        ).fetchone()[0]
        return in_tail + found

    async def of(self, clause: Clause) -> Iterable[Posting]:
        in_tail = [(key, len(terms.words)) for key, terms in self._tail if clause.is_in(terms)]
        if self._search.between is None:
            return in_tail
        return chain(self._indexed(clause), in_tail) if in_tail else self._indexed(clause)

    async def terms(self, keys: Collection[int]) -> dict[int, Terms]:
        return {key: analyse(index.text_of(row)) for key, row in self._rows(keys) if self._is_covered(row)}

    async def positions(self, all_of: Collection[int], newest_of: Iterable[int], count: int) -> dict[int, Position]:
        """Entries of the index are in the order of time, apart from the lag: see `SqliteSearch._found`."""
        if self._lookup.neighbours or len(self._lookup.query.wanted) > 1:
            return self._positions([*all_of, *newest_of])  # they are not in the order of entries
        rest = iter(newest_of)
        size = len(self._tail) + count + 1
        page = [*islice(rest, size)]
        positions = self._positions([*all_of, *page])
        found = {key: positions[key] for key in page}
        while len(page) == size and not _has_newer(found.values(), count, found[page[-1]][0] + self._search.state.lag):
            size *= 2
            page = [*islice(rest, size)]
            found |= self._positions(page)
            positions |= found
        return positions

    @decodes
    def _positions(self, keys: Collection[int]) -> dict[int, Position]:
        if len(keys) > _FEW:
            many = self._rows(keys, QUERIES["positions_by_key"])
            return {key: (integer(row[1]), row[0] & rows.SEQ_MASK, row[2]) for key, row in many}
        read = dict(self._rows(keys))
        self._read.update(read)
        homes = self._connection.homes_of({row[0] >> rows.SEQ_BITS for row in read.values()})
        return {
            key: (integer(row[5]), row[0] & rows.SEQ_MASK, homes[row[0] >> rows.SEQ_BITS].conversation.id)
            for key, row in read.items()
        }

    async def run(self, work: Callable[[], T]) -> T:
        return work()

    def matches(self, found: Iterable[relevance.ScoredKey]) -> list[RankedMatch]:
        scored = {each.key: each for each in found}
        by_key = self._read
        missing = [key for key in scored if key not in by_key]
        if missing:
            by_key.update(self._rows(missing))
        matches = self._search.matches_of([by_key[key] for key in scored])
        return [RankedMatch(match, each.score) for match, each in zip(matches, scored.values(), strict=True)]

    # The index

    def _indexed(self, clause: Clause) -> Iterator[Posting]:
        # Joined among branches, too: the index of a damaged file may list messages that are not there.
        joined = _ENTRIES + (_MESSAGES if self._is_filtered or not self._is_plain else "")
        sql, values = self._select(joined, clause)
        if self._is_plain:
            # One row of everything: a row for each takes longer, and takes turns with the event loop.
            found = self._connection.execute(f"SELECT {_AS_JSON} {sql}", values).fetchone()
            return zip(*map(_numbers.decode, found), strict=True)
        found = self._connection.execute(f"SELECT e.message, e.words {sql}", values)
        return ((key, words) for stored, words in found if (key := self._key(stored)) is not None)

    def _select(self, joined: str, clause: Clause) -> tuple[str, list[Any]]:
        search, query = self._search, self._lookup.query
        assert search.between is not None
        match = partial(clause_expression, query, clause)
        if len(query.groups) == 1:
            match = partial(expression, Query(query.text, ((clause,),), query.excluded))
        where, values = search.matching(search.between, match, self._filters)
        return joined + where, values

    # Where messages are

    def _key(self, stored: int) -> int | None:
        """Returns the key of a message; None if it is not searched."""
        segment = stored >> rows.SEQ_BITS
        if segment not in self._places:
            self._places[segment] = self._place(segment)
        place = self._places[segment]
        seq = stored & rows.SEQ_MASK
        if place is None or seq > place[1]:
            return None
        if place[0] == segment:
            return stored
        key = pack(place[0], seq)
        self._stored[key] = stored
        return key

    def _place(self, segment: int) -> tuple[int, int] | None:
        home = self._search.home_of(segment)
        if home is None:
            return None
        if self._lookup.all_branches:
            return segment, rows.SEQ_MASK
        for its_segment, upto in rules.segments(home.branch):
            if its_segment == segment:
                return home.branch.segment, upto
        return None

    def _rows(self, keys: Collection[int], select: str = QUERIES["messages_by_key"]) -> Iterator[tuple[int, Row]]:
        """Returns the stored messages of keys."""
        if self._is_plain:
            plain = self._connection.execute(select, (str([*keys]),)).fetchall()
            return zip(map(_first, plain), plain, strict=True)
        wanted = {stored: key for key in keys for stored in self._stored_keys(key)}
        found = self._connection.execute(select, (str([*wanted]),))
        return ((wanted[row[0]], row) for row in found if self._key(row[0]) == wanted[row[0]])

    def _stored_keys(self, key: int) -> list[int]:
        """Returns where the message of a key may be stored."""
        if key in self._stored:
            return [self._stored[key]]
        segment, seq = unpack(key)
        parents = [each for each, place in self._places.items() if place is not None and place[0] == segment]
        return [key, *(pack(each, seq) for each in parents if each != segment)]

    def _is_covered(self, row: Row) -> bool:
        """Returns whether a message passes the filters, whatever its words are."""
        if not self._is_filtered:
            return True
        lookup = self._lookup
        query = MessageQuery(
            roles=lookup.roles, participant_ids=lookup.participant_ids, since=lookup.since, until=lookup.until, limit=1
        )
        return rules.is_wanted(rows.message_of(row, ""), query)

    # The tail

    def _in_tail(self) -> list[tuple[int, Terms]]:
        """Returns the matching messages that are not indexed yet."""
        if not self._search.state.tail:
            return []
        found = []
        query = self._lookup.query
        sieve = Sieve(query)
        for row in self._search.tail_rows():
            text = index.text_of(row)
            if not (sieve.passes(text) and query.matches(terms := analyse(text))):
                continue
            # Only now: after every write, this reads a conversation again.
            key = self._key(row[0])
            if key is not None:
                found.append((key, terms))
        return found


def _has_newer(positions: Collection[Position], count: int, time: float) -> bool:
    """Returns whether so many positions are later than a time."""
    return sum(position[0] > time for position in positions) >= count


def rank(connection: ReadConnection, context: Context, lookup: Lookup, tail: int) -> Ranking | None:
    """Returns the best matches; None if the tail is longer than that, and must be indexed first."""
    if not search.is_ready(connection, tail):
        return None
    lookup, has_all = with_pieces(connection, lookup)
    where = SqliteSearch(connection, context, lookup)
    if not where.locate():
        return Ranking([])
    postings = SqlitePostings(where)
    best = relevance.best(lookup.query, postings, lookup.limit, neighbours=lookup.neighbours)
    return Ranking(postings.matches(run_to_end(best)), complete=has_all)
