"""Search in the index. Messages are indexed by the first search after them, or by `catch_up`.

Writers only number the messages that they add. A search first indexes the messages with newer numbers, so it misses
none; a changed message gets a new number. A deleted message is removed together with its row.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

from hansard import rules
from hansard.analysis import VERSION, Lookup, Match, Matches, analyse, searchable
from hansard.backends.files import names, rows
from hansard.backends.files.journals import OpenJournal
from hansard.backends.files.rows import QUERIES, MessagePosition
from hansard.backends.files.state import decode_core
from hansard.backends.files.tenant import Tenant
from hansard.backends.shared import lists
from hansard.backends.shared.full_text import columns_of, conversation_term, expression
from hansard.backends.shared.vocabulary import with_pieces
from hansard.contract.types import Context, StoredBranch
from hansard.model import Conversation, Message, to_micros

T = TypeVar("T")

PASS = 1000
"""Messages that are indexed in one transaction."""
PASS_BYTES = 8_000_000
"""Bytes of those messages: their texts and words are held until the transaction."""
_ATTEMPTS = 3
"""Attempts of a search whose hits were changed before they could be read."""

_FOUND = (
    "SELECT m.n, m.conversation, m.segment, m.seq, m.id, m.created, c.name, c.head FROM search s "
    "CROSS JOIN messages m INDEXED BY messages_by_number ON m.n = s.rowid "
    "CROSS JOIN conversations c ON c.pk = m.conversation "
    "WHERE search MATCH ? AND c.live{more} ORDER BY m.created DESC, m.seq DESC, c.id DESC"
)

Terms = tuple[int, str, str, str, int]
"""A message's number and its columns in the search index."""


class IndexHit(NamedTuple):
    """A message that matches, before it is read."""

    n: int
    name: str
    id: str
    conversation: Conversation


def search(tenant: Tenant, context: Context, lookup: Lookup) -> Matches:
    def find(connection: sqlite3.Connection) -> tuple[list[IndexHit], tuple[bool, bool]]:
        filled, has_all = with_pieces(connection, lookup)
        hits = _hits(connection, context, filled)
        return hits[: lookup.limit], (len(hits) > lookup.limit, has_all)

    hits, messages, (has_more, has_all) = found_and_read(tenant, lookup, find)
    found = [Match(hit.conversation, messages[hit.n]) for hit in hits if hit.n in messages]
    return Matches(found, has_more, has_all)


def found_and_read(
    tenant: Tenant, lookup: Lookup, find: Callable[[sqlite3.Connection], tuple[list[IndexHit], T]]
) -> tuple[list[IndexHit], dict[int, Message], T]:
    """Finds hits and reads their messages; again, if some were changed in between."""
    tenant.catalog()
    for attempt in range(1, _ATTEMPTS + 1):
        while index_some(tenant):
            pass
        with tenant.index.reading() as connection:
            hits, more = find(connection)
        messages = _read(tenant, lookup, hits)
        if len(messages) == len(hits) or attempt == _ATTEMPTS:
            return hits, messages, more
    raise AssertionError("the last attempt returns")


# --- filling ----------------------------------------------------------------------------------------------------------


def index_some(tenant: Tenant) -> int:
    """Indexes the next messages; returns how many, or 0 when there are none."""
    index = tenant.index
    with index.connection(current=True) as connection:
        indexed, version, _ = connection.execute(QUERIES["search_state"]).fetchone()
        waiting = connection.execute(QUERIES["to_index"], (indexed, PASS)) if version == VERSION else ()
        found, _ = lists.take(waiting, PASS, PASS_BYTES, _length)
    if version != VERSION:
        # The terms were made by another version of the analysis.
        with index.writing() as connection:
            connection.execute(QUERIES["empty_search"])
            connection.execute(QUERIES["set_search_state"], (0, VERSION))
        return index_some(tenant)
    if not found:
        return 0
    terms = sorted(_terms(tenant, found), key=itemgetter(0))
    with index.writing() as connection:
        if connection.execute(QUERIES["search_state"]).fetchone()[:2] == (indexed, version):
            # The number may belong to another message now.
            new = [
                values
                for values, row in terms
                if connection.execute(QUERIES["bytes_of_number"], values[:1]).fetchone() == (row.length, row.crc)
            ]
            connection.executemany(QUERIES["add_terms"], new)
            connection.execute(QUERIES["set_search_state"], (found[-1][0], VERSION))
    return len(found)


_length: Callable[[tuple[int, str, int]], int] = itemgetter(2)


def _terms(tenant: Tenant, found: Sequence[tuple[int, str, int]]) -> Iterator[tuple[Terms, MessagePosition]]:
    for name, group in groupby(sorted(found, key=itemgetter(1)), itemgetter(1)):
        numbers = [n for n, *_ in group]
        with tenant.journals.opened(name, indexed=True) as opened:
            if opened is None or not opened[1].state.is_live:
                continue
            journal, pk = OpenJournal(tenant.index, *opened), opened[1].pk
            with journal.rows() as known:
                places = [(n, known.at_number(n)) for n in numbers]
            here = [(n, row) for n, row in places if row is not None]
            for (n, row), message in zip(here, journal.read([row for _, row in here]), strict=True):
                words, more, owner = columns_of(searchable(message), None, pk)
                yield (n, words, more, owner, len(words.split())), row


def restart(tenant: Tenant) -> None:
    """Rebuilds the index from the journals, without the search terms."""
    tenant.index.rebuild()
    tenant.catalog()


# --- finding ----------------------------------------------------------------------------------------------------------


def _hits(connection: sqlite3.Connection, context: Context, lookup: Lookup) -> list[IndexHit]:
    """Returns the newest matches, up to one more than the limit."""
    owner = owner_of(connection, context, lookup)
    if owner is None:
        return []
    values: list[Any] = [expression(lookup.query, owner or None)]
    sql = _sql(filters(context, lookup, values))
    home_of = BranchFilter(context, lookup).home
    found = (
        IndexHit(row[0], row[6], row[4], home) for row in connection.execute(sql, values) if (home := home_of(row))
    )
    return list(islice(found, lookup.limit + 1))


def owner_of(connection: sqlite3.Connection, context: Context, lookup: Lookup) -> str | None:
    """Returns the term of the conversation that is searched, nothing for all; None if it does not exist."""
    if lookup.conversation_id is None:
        return ""
    only = rows.load(connection, names.escape(lookup.conversation_id))
    head = only.state.conversation_state if only and only.state.is_live else None
    if only is None or head is None or not rules.is_visible(head.conversation, context):
        return None
    head.branch(lookup.branch)  # raises if the branch does not exist
    return conversation_term(only.pk)


def filters(context: Context, lookup: Lookup, values: list[Any]) -> str:
    """Builds conditions on a message and its conversation from constant fragments only."""
    sql = ""
    for ids, column in ((lookup.roles, "m.role"), (lookup.participant_ids, "m.participant")):
        if ids is not None:
            values += sorted(ids)
            sql += f" AND {column} IN ({', '.join('?' * len(ids))})"
    for value, condition in (
        (lookup.since and to_micros(lookup.since), "m.created >= ?"),
        (lookup.until and to_micros(lookup.until), "m.created < ?"),
        (context.user if lookup.user_id is None else lookup.user_id, "c.user_id = ?"),
        (lookup.agent_id, "c.agent_id = ?"),
    ):
        if value is not None:
            values.append(value)
            sql += f" AND {condition}"
    if lookup.below is not None:
        values += lookup.below
        sql += " AND (m.created, m.seq, c.id) < (?, ?, ?)"
    return sql


@lru_cache(64)
def _sql(more: str) -> str:
    return _FOUND.format(more=more)


class BranchFilter:
    """Selects the matching rows whose conversation and branch are searched."""

    def __init__(self, context: Context, lookup: Lookup) -> None:
        self._context = context
        self._lookup = lookup
        self._homes: dict[int, tuple[Conversation, StoredBranch] | None] = {}

    def home(self, row: Sequence[Any]) -> Conversation | None:
        """Returns the conversation of a row; None if the row is not wanted."""
        _, pk, segment, seq, *_, head = row
        if pk not in self._homes:
            self._homes[pk] = self._home(head)
        home = self._homes[pk]
        if home is None or not (self._lookup.all_branches or rules.sees(home[1], segment, seq)):
            return None
        return home[0]

    def _home(self, data: bytes) -> tuple[Conversation, StoredBranch] | None:
        core = decode_core(data)
        conversation, lookup = core.conversation, self._lookup
        if conversation is None or not rules.is_visible(conversation, self._context):
            return None
        if lookup.metadata and not rules.has_metadata(conversation, lookup.metadata):
            return None
        branch = conversation.branch if lookup.branch is None else lookup.branch
        stored_branch = next((stored_branch for stored_branch in core.branches if stored_branch.id == branch), None)
        return (conversation, stored_branch) if stored_branch is not None else None


# --- reading ----------------------------------------------------------------------------------------------------------


def _read(tenant: Tenant, lookup: Lookup, hits: Sequence[IndexHit]) -> dict[int, Message]:
    """Returns the messages of the hits by their numbers, without those that were removed or no longer match."""
    messages: dict[int, Message] = {}
    for name, group in groupby(sorted(hits, key=_name), _name):
        with tenant.journals.opened(name, indexed=True) as opened:
            if opened is not None and opened[1].state.is_live:
                messages |= _read_some(OpenJournal(tenant.index, *opened), lookup, list(group))
    return messages


def _read_some(journal: OpenJournal, lookup: Lookup, hits: list[IndexHit]) -> dict[int, Message]:
    with journal.rows() as known:
        found = [(hit, at) for hit in hits if (at := known.numbered(hit.id))]
    read = journal.read([row for _, (row, _) in found])
    return {
        hit.n: message
        for (hit, (_, n)), message in zip(found, read, strict=True)
        if n == hit.n or lookup.query.matches(analyse(searchable(message)))
    }


def _name(hit: IndexHit) -> str:
    return hit.name
