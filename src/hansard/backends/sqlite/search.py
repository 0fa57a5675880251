"""Searches the index, and the tail that is not indexed yet, on one snapshot."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import repeat
from operator import attrgetter, itemgetter
from typing import Any

from msgspec import structs

from hansard import rules
from hansard.analysis import VERSION, Lookup, Match, Matches, Position, Query, Sieve, analyse
from hansard.backends.shared.full_text import conversation_term, expression, user_term
from hansard.backends.shared.vocabulary import with_pieces
from hansard.backends.sqlite import index, read, rows
from hansard.backends.sqlite.read_cache import ConversationBranch, ReadConnection, own
from hansard.backends.sqlite.rows import SEQ_BITS, Row, unpack
from hansard.contract.types import Context, StoredBranch
from hansard.errors import FormatMismatch
from hansard.model import Conversation, to_micros

TAIL = 100
"""Messages of the tail that a search checks one by one; a longer tail is indexed first. While the async API writes, it
is indexed only if it is ten times as long. If others write so fast that it is longer again after that, the search
checks ten times as many, so that it ends."""
_MORE = 10
"""Entries that are read at once beyond those wanted, if some have the same time, or may be out of order by the lag."""
_FEW = 100
"""Hits that may be looked up in the calling thread."""
_NOTHING = (None,) * 6
_END = 1 << 63
"""Later than any time, in microseconds."""

# The columns of a row: those of `tail`. The segment in its key tells the conversation.
_COLUMNS = "m.key, m.id, m.role, m.format, m.body, m.created_at, m.extra"
_KEY, _CREATED_AT = 0, 5
_OWNERS = "CROSS JOIN conversations c ON c.pk = m.conversation"
_INDEXED = (
    f"SELECT {_COLUMNS} FROM search s CROSS JOIN search_entries e ON e.entry = s.rowid "
    "CROSS JOIN messages m ON m.key = e.message {owners} "
    "{more} ORDER BY s.rowid DESC"
)
_MATCHING = "WHERE search MATCH ? AND s.rowid BETWEEN ? AND ?"
_NEWEST = _INDEXED.format(owners="", more=_MATCHING)
"""Every match of a word, in all conversations."""
_OF_SEGMENT = " AND e.message > ? AND e.message < ?"
_UNINDEXED = (
    f"SELECT {_COLUMNS} FROM search_rows r CROSS JOIN messages m ON m.key = r.message {_OWNERS} WHERE r.n > ?{{more}}"
)
_created_at = itemgetter(_CREATED_AT)
_id = attrgetter("id")
_UNKNOWN = ConversationBranch(Conversation(""), StoredBranch("", 0))


class SqliteSearch:
    """One search on one snapshot. It works on rows, and creates messages only of those that it returns."""

    def __init__(self, connection: ReadConnection, context: Context, lookup: Lookup) -> None:
        self.connection = connection
        self.context = context
        self.lookup = lookup
        self.state = connection.state()
        self.home: ConversationBranch | None = None
        """The conversation, if the lookup names one."""
        self.pk: int | None = None
        self.user = context.user if lookup.user_id is None else lookup.user_id
        self.between = connection.entries_of(context.tenant)
        self._homes: dict[int, ConversationBranch | None] = {}
        self._whole: set[int] = set()
        """The segments of active branches of conversations that are searched: every message there counts."""
        self.is_open = self.user is None and lookup.agent_id is None and not lookup.metadata
        """True if every conversation of the tenant is searched, unless it has expired."""

    def find(self) -> Matches:
        if self.lookup.conversation_id is not None and not self.locate():
            return Matches([])
        limit = self.lookup.limit
        found = self._found(limit)
        return Matches(self.matches_of(found[:limit]), len(found) > limit)

    def matches_of(self, found: Sequence[Row]) -> list[Match]:
        if self.home is not None:
            conversation = own(self.home.conversation)
            return list(map(Match, repeat(conversation), rows.messages_of(found, conversation.id)))
        segments = [row[_KEY] >> SEQ_BITS for row in found]
        distinct = set(segments)
        homes = self.connection.homes_of(distinct)
        given = {segment: own(homes[segment].conversation) for segment in distinct}
        conversations = list(map(given.__getitem__, segments))
        return list(map(Match, conversations, rows.messages_from(found, map(_id, conversations))))

    # Where to search

    def locate(self) -> bool:
        """Finds the conversation, if the lookup names one; False if there is nothing to search."""
        id = self.lookup.conversation_id
        if id is None:
            return True
        place = self.connection.place_of(self.context.tenant, id)
        home = None if place is None else self.home_of(place[1])
        if place is None or home is None:
            return False
        if self.lookup.branch is not None:
            named = read.find_place(self.connection, self.context, id, self.lookup.branch)
            assert named is not None
            home = structs.replace(home, branch=named.branch)
        self.pk, self.home = place[0], home
        self._whole, self.is_open = {home.branch.segment}, False
        return True

    def home_of(self, segment: int) -> ConversationBranch | None:
        """Returns the conversation of a segment; None if it is not searched."""
        if self.home is not None:
            return self.home
        home = self._homes.get(segment, _UNKNOWN)
        if home is _UNKNOWN:
            home = self.connection.home_of(segment)
            home = self._homes[segment] = home if self._is_searched(home.conversation) else None
            if home is not None and home.branch.segment == segment:
                self._whole.add(segment)
        return home

    def _is_searched(self, conversation: Conversation) -> bool:
        lookup = self.lookup
        return (
            rules.is_visible(conversation, self.context)
            and (lookup.user_id is None or lookup.user_id == conversation.user_id)
            and (lookup.agent_id is None or lookup.agent_id == conversation.agent_id)
            and (not lookup.metadata or rules.has_metadata(conversation, lookup.metadata))
        )

    def _searched(self, found: list[Row]) -> list[Row]:
        """Returns the matching rows on searched branches, below the position to continue from."""
        # Most rows are on the own segments of active branches.
        whole = self.connection.active if self.is_open else self._whole
        there = [row for row in found if row[_KEY] >> SEQ_BITS in whole]
        if len(there) < len(found):
            if self.home is None:
                self.connection.homes_of({row[_KEY] >> SEQ_BITS for row in found})
            there = [row for row in found if self._is_searched_row(row)]
        below = self.lookup.below
        return there if below is None else [row for row in there if self._position(row) < below]

    def _is_searched_row(self, row: Row) -> bool:
        """Rows on other segments than the branch's own count only as far as the branch shares them."""
        segment, seq = unpack(row[_KEY])
        home = self.home_of(segment)
        return home is not None and (self.lookup.all_branches or rules.sees(home.branch, segment, seq))

    def _position(self, row: Row) -> Position:
        segment, seq = unpack(row[_KEY])
        home = self.home or self.connection.home_of(segment)
        return row[_CREATED_AT], seq, home.conversation.id

    # The index

    def _found(self, wanted: int) -> list[Row]:
        """Returns the newest matches, in order, and at least one more if there is one.

        Entries are in the order of time, but a lower one may be newer than a higher one by up to `lag`. So they are
        read until one is older than the last match that is wanted, by more than the lag.
        """
        found = self._searched([*self._tail()]) if self.state.tail else []
        is_sorted = not found
        entries = self._entries()
        size = wanted + 1
        while page := entries.fetchmany(size):
            found += self._searched(page)
            is_sorted = _is_sorted(found)
            if not is_sorted:
                found.sort(key=_created_at, reverse=True)
            if len(found) > wanted and page[-1][_CREATED_AT] + self.state.lag < found[wanted - 1][_CREATED_AT]:
                break
            size = _MORE + len(found) // 4
        if not is_sorted:  # some may have the same time
            found.sort(key=self._position, reverse=True)
        return found

    def _entries(self) -> sqlite3.Cursor:
        if self.between is None:
            return self.connection.execute("SELECT 1 WHERE 0")
        if self.home is None and is_unfiltered(self.lookup):
            # The most common search. Its bar in W6 is twice a plain FTS5 table, and `matching` costs as much as a hit.
            return self.connection.execute(_NEWEST, (expression(self.lookup.query, self.owner()), *self.between))
        more, values = self.matching(self.between, partial(expression, self.lookup.query), self.lookup)
        owners = _OWNERS if self.lookup.agent_id is not None else ""
        return self.connection.execute(_sql(_INDEXED, owners, more), values)

    def matching(
        self, between: tuple[int, int], match: Callable[[str | None], str], lookup: Lookup
    ) -> tuple[str, list[Any]]:
        """Returns conditions, from constant fragments only, and their values: of entries that match and pass filters.

        - `match`: returns the expression for an owner.
        """
        segment = self._only_segment()
        if segment is not None and self.connection.is_rare(everybodys := match(None), between):
            # Selects those of one conversation from a few: faster for rare words.
            values: list[Any] = [everybodys, *self.range_of(between)]
            conditions = _MATCHING + filters(lookup, values) + _OF_SEGMENT
            return conditions, [*values, *rows.key_range(segment)]
        values = [match(self.owner()), *self.range_of(between)]
        return _MATCHING + filters(lookup, values), values

    def _only_segment(self) -> int | None:
        """Returns the segment of all that is searched, if it is one."""
        if self.home is None or self.home.branch.path or self.lookup.all_branches:
            return None
        return self.home.branch.segment

    def range_of(self, between: tuple[int, int]) -> tuple[int, int]:
        """Returns the entries of the times that are searched: a late page costs what the first does."""
        lookup = self.lookup
        if lookup.since is None and lookup.until is None and lookup.below is None:
            return between
        since = None if lookup.since is None else to_micros(lookup.since)
        until = None if lookup.until is None else to_micros(lookup.until)
        if lookup.below is not None:
            until = lookup.below[0] if until is None else min(until, lookup.below[0])
        return index.narrowed(between, since, until, self.state.moved)

    def owner(self) -> str | None:
        """Returns the term of every entry of the owner; None for the whole tenant."""
        if self.pk is not None:
            return conversation_term(self.pk)
        return None if self.user is None else user_term(self.user)

    # The tail

    def _tail(self) -> Iterator[Row]:
        """Yields the matching messages that are not indexed yet."""
        query = self.lookup.query
        sieve = Sieve(query)
        for row in self.tail_rows():
            text = index.text_of(row)
            if sieve.passes(text) and query.matches(analyse(text)):
                yield row

    def tail_rows(self) -> sqlite3.Cursor:
        values: list[Any] = [self.state.indexed]
        more = filters(self.lookup, values) + " AND c.tenant = ?"
        values.append(self.context.tenant)
        for value, condition in ((self.pk, "c.pk = ?"), (self.user, "c.user_id = ?")):
            if value is not None:
                more += f" AND {condition}"
                values.append(value)
        return self.connection.execute(_sql(_UNINDEXED, "", more), values)


def search(connection: ReadConnection, context: Context, lookup: Lookup, tail: int) -> Matches | None:
    """Returns the matches; None if the tail is longer than that, and must be indexed first."""
    if not is_ready(connection, tail):
        return None
    if not lookup.query.in_pieces:
        return SqliteSearch(connection, context, lookup).find()
    filled, has_all = with_pieces(connection, lookup)
    found = SqliteSearch(connection, context, filled).find()
    return found if has_all else structs.replace(found, complete=False)


def is_ready(connection: ReadConnection, tail: int) -> bool:
    """Returns whether the index can be searched; False if the tail is longer than that."""
    connection.refresh()
    state = connection.state()
    if not state.is_ours:
        raise FormatMismatch(
            "the search index was built by another version: run `hansard reindex`",
            found=str(state.version),
            wanted=str(VERSION),
        )
    return state.tail <= tail


def is_quick(lookup: Lookup) -> bool:
    """Returns whether a search ends within a few pages of the index: one word, newest first, no filters."""
    return lookup.limit <= _FEW and not lookup.metadata and is_unfiltered(lookup) and _is_word(lookup.query)


def is_unfiltered(lookup: Lookup) -> bool:
    narrow = (lookup.roles, lookup.participant_ids, lookup.since, lookup.until, lookup.agent_id, lookup.below)
    return narrow == _NOTHING


def _is_sorted(found: Sequence[Row]) -> bool:
    """Returns whether each match is older than the one before it, as most are."""
    last = _END
    for row in found:
        if row[_CREATED_AT] >= last:
            return False
        last = row[_CREATED_AT]
    return True


@lru_cache(1024)
def _is_word(query: Query) -> bool:
    words = all(
        len(row.parts) == 1 and not row.prefix and not row.inside for clause in query.wanted for row in clause.rows
    )
    return words and len(query.groups) == 1 and not query.excluded


@lru_cache(64)
def _sql(text: str, owners: str, more: str) -> str:
    return text.format(owners=owners, more=more)


def filters(lookup: Lookup, values: list[Any]) -> str:
    """Returns conditions on a message and its conversation, from constant fragments only."""
    sql = ""
    if is_unfiltered(lookup):
        return sql
    for names, column in ((lookup.roles, "m.role"), (lookup.participant_ids, "m.participant")):
        if names is not None:
            values += sorted(names)
            sql += f" AND {column} IN ({', '.join('?' * len(names))})"
    for value, condition in (
        (lookup.since and to_micros(lookup.since), "m.created_at >= ?"),
        (lookup.until and to_micros(lookup.until), "m.created_at < ?"),
        (lookup.below and lookup.below[0], "m.created_at <= ?"),
        (lookup.agent_id, "c.agent_id = ?"),
    ):
        if value is not None:
            values.append(value)
            sql += f" AND {condition}"
    return sql
