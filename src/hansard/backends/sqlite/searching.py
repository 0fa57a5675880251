"""Search in the index, and in the tail that is not indexed yet, on one snapshot."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

from hansard import rules
from hansard.analysis import VERSION, Clause, Lookup, Match, Matches, Query, analyse, searchable
from hansard.analysis.queries import Row as TermRow
from hansard.backends.sqlite import indexing, reading, rows
from hansard.backends.sqlite.indexing import State
from hansard.backends.sqlite.queries import QUERIES
from hansard.backends.sqlite.rows import Row, unpack
from hansard.errors import FormatMismatch
from hansard.model import Conversation, Message, to_micros
from hansard.requests import Context, Lane

TAIL = 100
"""Messages that are not indexed which a search looks at one by one; what is more is indexed first."""
_WALKED = 20_000
"""Hits that one search looks at, where filters or times out of order make it look at many."""
_COUNTED = 10_000
"""Up to here messages are counted for ranking."""
_COUNTED_CONVERSATIONS = 1000

_COLUMNS = "m.conversation, m.key, m.id, m.role, m.format, m.body, m.created_at, m.extra"
_INDEXED = (
    f"SELECT {_COLUMNS} FROM search s CROSS JOIN search_rows r ON r.n = (s.rowid & {indexing.N_MASK}) "
    "CROSS JOIN messages m ON m.key = r.message CROSS JOIN conversations c ON c.pk = m.conversation "
    "WHERE search MATCH ? AND s.rowid BETWEEN ? AND ?{more} ORDER BY s.rowid DESC"
)
_UNINDEXED = (
    f"SELECT {_COLUMNS} FROM search_rows r CROSS JOIN messages m ON m.key = r.message "
    "CROSS JOIN conversations c ON c.pk = m.conversation WHERE r.n > ?{more}"
)
_COUNT = f"SELECT count(*) FROM (SELECT 1 FROM search WHERE search MATCH ? AND rowid BETWEEN ? AND ? LIMIT {_COUNTED})"


class Search:
    """One search on one snapshot."""

    def __init__(self, connection: sqlite3.Connection, context: Context, lookup: Lookup, state: State) -> None:
        self.connection = connection
        self.context = context
        self.lookup = lookup
        self.state = state
        self.place: reading.Place | None = None
        self._homes: dict[int, tuple[Conversation, Lane] | None] = {}

    def run(self) -> Matches:
        if not self._locate():
            return Matches([])
        wanted = self.lookup.limit + 1
        found = [match for match in map(self._match, self._tail()) if match is not None]
        walked = self._walk(found, wanted)
        found.sort(key=lambda match: match.position, reverse=True)
        total, counts = self._counts() if self.lookup.counted else (0, ())
        return Matches(found[: wanted - 1], len(found) >= wanted, walked < _WALKED, total, counts)

    def _locate(self) -> bool:
        """Finds the conversation, where one is asked for; False when there is nothing to search."""
        id = self.lookup.conversation_id
        if id is None:
            return True
        self.place = reading.find_place(self.connection, self.context, id, self.lookup.branch)
        return self.place is not None and self._home(self.place.pk) is not None

    def _home(self, pk: int) -> tuple[Conversation, Lane] | None:
        """A conversation and the branch to search; None when it is not searched."""
        if pk not in self._homes:
            self._homes[pk] = self._find_home(pk)
        return self._homes[pk]

    def _find_home(self, pk: int) -> tuple[Conversation, Lane] | None:
        row = self.connection.execute(QUERIES["find_conversation_by_pk"], (pk,)).fetchone()
        conversation = rows.conversation_of(row[:-2], "the search")
        lookup = self.lookup
        if (
            not rules.is_visible(conversation, self.context)
            or lookup.user_id not in (None, conversation.user_id)
            or lookup.agent_id not in (None, conversation.agent_id)
            or not rules.has_metadata(conversation, lookup.metadata)
        ):
            return None
        if self.place is not None:
            return conversation, self.place.lane
        return conversation, Lane("", row[-2], rows.path_of(row[-1], f"conversation {conversation.id!r}"))

    def _match(self, row: Row) -> Match | None:
        """The match of a row, unless it lies on another branch or beyond the place to go on from."""
        home = self._home(row[0])
        if home is None:
            return None
        conversation, lane = home
        if not self.lookup.all_branches and not rules.sees(lane, *unpack(row[1])):
            return None
        match = Match(conversation, rows.message_of(row[1:], conversation.id))
        return match if self.lookup.below is None or match.position < self.lookup.below else None

    # The index

    def _walk(self, found: list[Match], wanted: int) -> int:
        """Adds what the index has, from the newest entry down, until no older one can be among the newest wanted.

        Entries are in the order of arrival, and no entry is newer than one before it by more than `lag`. So once that
        many are found, the walk ends when even the lag cannot make up for the distance.
        """
        times = sorted((to_micros(match.message.created_at) for match in found), reverse=True)
        walked = 0
        for row in self._entries():
            walked += 1
            if walked == _WALKED or (len(times) >= wanted and row[6] + self.state.lag < times[wanted - 1]):
                break
            match = self._match(row)
            if match is not None:
                found.append(match)
                times.append(row[6])
                if self.state.lag:
                    times.sort(reverse=True)
        return walked

    def _entries(self) -> Iterator[Row]:
        between = indexing.entry_range(self.connection, self.context.tenant)
        if between is None:
            return iter(())
        values: list[Any] = [expression(self.lookup.query, self._owner()), *between]
        sql = _INDEXED.format(more=_filters(self.lookup, values))
        return self.connection.execute(sql, values)

    def _owner(self) -> str | None:
        """The term that every entry of the owner has; None for all of the tenant."""
        if self.place is not None:
            return indexing.conversation_term(self.place.pk)
        user = self.context.user if self.lookup.user_id is None else self.lookup.user_id
        return None if user is None else indexing.user_term(user)

    # The tail

    def _tail(self) -> Iterator[Row]:
        """The messages behind the index that match."""
        if not self.state.tail:
            return
        for row in self._tail_rows():
            if self.lookup.query.matches(analyse(searchable(_message(row)))):
                yield row

    def _tail_rows(self) -> sqlite3.Cursor:
        values: list[Any] = [self.state.indexed]
        more = _filters(self.lookup, values) + " AND c.tenant = ?"
        values.append(self.context.tenant)
        if self.place is not None:
            more += " AND c.pk = ?"
            values.append(self.place.pk)
        return self.connection.execute(_UNINDEXED.format(more=more), values)

    # Counting

    def _counts(self) -> tuple[int, tuple[int, ...]]:
        """How many messages the owner has, and how many of them have each clause, both bounded."""
        clauses = self.lookup.query.wanted
        counts = [0] * len(clauses)
        between = indexing.entry_range(self.connection, self.context.tenant)
        if between is not None:
            for at, clause in enumerate(clauses):
                match = _and(_clause(clause), self._owner())
                counts[at] = self.connection.execute(_COUNT, (match, *between)).fetchone()[0]
        if self.state.tail:
            for row in self._tail_rows():
                terms = analyse(searchable(_message(row)))
                counts = [count + clause.is_in(terms) for count, clause in zip(counts, clauses, strict=True)]
        return min(self._total(), _COUNTED), tuple(min(count, _COUNTED) for count in counts)

    def _total(self) -> int:
        if self.place is not None:
            home = self._home(self.place.pk)
            return home[0].message_count if home else 0
        tenant, user = self.context.tenant, self.context.user if self.lookup.user_id is None else self.lookup.user_id
        if user is None:
            found = self.connection.execute(QUERIES["count_messages"], (tenant, _COUNTED_CONVERSATIONS))
        else:
            found = self.connection.execute(QUERIES["count_messages_of_user"], (tenant, user, _COUNTED_CONVERSATIONS))
        total: int = found.fetchone()[0]
        return total


def search(connection: sqlite3.Connection, context: Context, lookup: Lookup) -> Matches | None:
    """What matches; None when the tail must be indexed first."""
    state = indexing.state_of(connection)
    if state.version != VERSION:
        raise FormatMismatch(
            "the search index was built by another version: run `hansard reindex`",
            found=str(state.version),
            wanted=str(VERSION),
        )
    return None if state.tail > TAIL else Search(connection, context, lookup, state).run()


def is_quick(lookup: Lookup) -> bool:
    """Whether a search ends within a few pages of the index: one word, newest first, nothing to pass over."""
    narrow = (lookup.roles, lookup.participant_ids, lookup.since, lookup.until, lookup.agent_id, lookup.below)
    words = all(len(row.parts) == 1 and not row.prefix for clause in lookup.query.wanted for row in clause.rows)
    return (
        not lookup.counted
        and words
        and len(lookup.query.groups) == 1
        and not lookup.query.excluded
        and not lookup.metadata
        and all(each is None for each in narrow)
    )


def _message(row: Row) -> Message:
    return rows.message_of(row[1:], "")


def _filters(lookup: Lookup, values: list[Any]) -> str:
    """Conditions on a message and its conversation, from constant fragments only."""
    sql = ""
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


# The language of FTS5. Terms hold no character that it knows, and each stands in quotes.


def expression(query: Query, owner: str | None) -> str:
    wanted = " AND ".join(f"({_either(group)})" for group in query.groups)
    if query.excluded:
        wanted = f"({wanted}) NOT ({_either(query.excluded)})"
    return _and(wanted, owner)


def _and(wanted: str, owner: str | None) -> str:
    return wanted if owner is None else f'(owner: "{owner}") AND ({wanted})'


def _either(clauses: Sequence[Clause]) -> str:
    return " OR ".join(map(_clause, clauses))


def _clause(clause: Clause) -> str:
    return " OR ".join(map(_row, clause.rows))


def _row(row: TermRow) -> str:
    terms = " + ".join(f'"{term}"' for term in row.parts) + (" *" if row.prefix else "")
    return f"{{words more}}: {terms}" if len(row.parts) == 1 else f"{{words}}: ({terms})"
