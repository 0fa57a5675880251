"""Searches the index and the queue of messages that are not indexed yet, on one snapshot.

The index of terms is unordered, and the index of times has no terms. So a search takes three steps. It walks over the
newest messages in order, which finds a common word. It looks a rarer word up by its terms, and sorts the hits. If there
are too many, the word is common among older messages: then the walk continues. So a common word sorts nothing, and a
rare one scans nothing. A word that the statistics of the server know to be common is not looked up by its terms: that
would read the list of all its messages.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Container, Iterable, Sequence
from heapq import nlargest
from typing import Any, NamedTuple, TypeVar

from msgspec import structs

from hansard import rules
from hansard.analysis import VERSION, Lookup, Match, Matches, Position, Query, Sieve, analyse, searchable
from hansard.backends.postgres import lexemes, read, rows, search_sql
from hansard.backends.postgres.connection import PostgresConnection, Row
from hansard.backends.postgres.index_statistics import MOST, Known
from hansard.backends.postgres.lexemes import Expression
from hansard.backends.postgres.vocabulary import with_pieces
from hansard.contract.types import Context
from hansard.errors import FormatMismatch
from hansard.executor import run_in_thread
from hansard.model import Conversation, Message, to_micros

T = TypeVar("T")

TAIL = 100
"""Messages of the tail that a search checks one by one; a longer tail is indexed first."""
_ANY_TAIL = 1 << 40
_PAGE = 200
"""Messages of a longer tail that are checked together."""
_WALKED = 500
"""Messages that are walked over before the terms are looked up; `_WALKED_EACH` as many for each hit."""
_WALKED_EACH = 10
_SORTED = MOST
"""Hits of the terms that are sorted; `_SORTED_EACH` as many for each wanted one."""
_SORTED_EACH = 40
_LONG = 1_000_000
"""Bytes of bodies that are checked on the event loop; more go to a thread."""


class SearchScope(NamedTuple):
    """What is known about the store of a search."""

    walled: bool
    """Whether the second wall is active."""
    known: Known


class PostgresSearch:
    """One search on one snapshot."""

    def __init__(self, link: PostgresConnection, context: Context, lookup: Lookup, scope: SearchScope) -> None:
        self.link = link
        self.context = context
        self.lookup = lookup
        self.walled = scope.walled
        self.user = context.user if lookup.user_id is None else lookup.user_id
        self.owner = lexemes.owner_of(context.tenant, self.user, lookup.conversation_id)
        is_whole = self.user is None and lookup.conversation_id is None
        self.has_most = is_whole and scope.known.largest == context.tenant
        self.is_common = self.has_most and _is_common(lookup.query, scope.known.common)
        self.expression = self.expression_of(lookup.query)
        self._homes: dict[str, Conversation] = {}

    def expression_of(self, query: Query) -> Expression:
        return lexemes.expression_of(query, self.owner, has_most=self.has_most)

    async def quick(self) -> Matches | None:
        """Searches in one statement; None if that is not sufficient."""
        lookup, size = self.lookup, self.lookup.limit + 1
        if (
            lookup.query.in_pieces
            or self.walled
            or lookup.metadata
            or lookup.branch is not None
            or not self.expression.exact
        ):
            return None
        most = _most(size)
        walked = 0 if lookup.conversation_id is not None else _walked(size)
        given = (self.context, lookup, self.expression, size, walked, most)
        found = await self.fetch(*search_sql.select_quick(*given, is_common=self.is_common))
        state = found[0] if found else None
        check_version(state[0] if state else None)
        if state is None or state[1] or state[2] > most:
            return None
        page = [row[3:] for row in found if row[3] is not None]
        if self.is_common and len(page) < size:
            return None
        if any(row[search_sql.LOOSE] for row in page):
            return None
        for row in page:
            if row[search_sql.CONVERSATION] not in self._homes:
                self._homes[row[search_sql.CONVERSATION]] = rows.conversation_of(row[search_sql.WIDTH :], "the search")
        page.sort(key=_position, reverse=True)
        made = await _in_thread_if_large(self.matches_of, page[: lookup.limit])
        return Matches(made, len(page) > lookup.limit, True)

    async def run(self, tail: int) -> Matches:
        lookup = self.lookup
        if lookup.conversation_id is not None:
            entry = await read.find_state(self.link, self.context, lookup.conversation_id)
            if entry is None:
                return Matches([])
            entry.state.branch(lookup.branch)  # raises for an unknown branch
        wanted = lookup.limit + 1
        in_tail = await self._look_at_tail(tail, wanted)
        found = in_tail + await self._walk(wanted)
        found.sort(key=_position, reverse=True)
        await self.find_homes(found[: lookup.limit])
        made = await _in_thread_if_large(self.matches_of, found[: lookup.limit])
        return Matches(made, len(found) > lookup.limit)

    async def fetch(self, sql: str, values: Sequence[Any]) -> list[Row]:
        return await self.link.fetch(self.link.in_schema(sql), values)

    def matches_of(self, found: Iterable[Row]) -> list[Match]:
        return [Match(self._homes[row[search_sql.CONVERSATION]], message_of(row)) for row in found]

    # The tail

    async def _look_at_tail(self, size: int, wanted: int) -> list[Row]:
        """Returns the newest matches of the tail."""
        found: list[Row] = []
        async for page in self.tail(size):
            matching = await self._matching(page)
            if self.lookup.metadata:
                await self.find_homes(matching)
            found = nlargest(wanted, [*found, *filter(self.is_asked_for, matching)], key=_position)
        return found

    async def tail(self, size: int) -> AsyncIterator[list[Row]]:
        """Yields the tail page by page, however long it is."""
        sql, values = search_sql.select_tail(self.context, self.lookup)
        if size <= TAIL:
            yield await self.fetch(sql, values) if size else []
            return
        page: list[Row] = []
        length = 0
        async for row in self.link.each(self.link.in_schema(sql), values):
            page.append(row)
            length += len(row[search_sql.BODY])
            if len(page) == _PAGE or length > _LONG:
                yield page
                page, length = [], 0
        yield page

    async def _matching(self, found: list[Row]) -> list[Row]:
        """Returns the rows that match, checked one by one."""
        sieve = Sieve(self.lookup.query)

        def matching(at: list[Row]) -> list[Row]:
            return [row for row in at if _has(row, self.lookup.query, sieve)]

        return await _in_thread_if_large(matching, found)

    def is_asked_for(self, row: Row) -> bool:
        lookup, created_at = self.lookup, row[search_sql.CREATED_AT]
        return (
            (lookup.since is None or created_at >= to_micros(lookup.since))
            and (lookup.until is None or created_at < to_micros(lookup.until))
            and (lookup.below is None or _position(row) < lookup.below)
            and self.is_home(row[search_sql.CONVERSATION])
        )

    # The index

    async def _walk(self, wanted: int) -> list[Row]:
        """Returns the newest matches of the index."""
        found: list[Row] = []
        below, size = self.lookup.below, wanted
        while len(found) < wanted:
            page = await self._page(below, size)
            await self.find_homes(page)
            found += await self._sifted(page)
            if len(page) < size:
                break
            below, size = _position(page[-1]), min(2 * size, 1000)
        return found

    async def _sifted(self, page: list[Row]) -> list[Row]:
        """Applies the conditions that SQL cannot: metadata of conversations, and messages whose terms are inexact."""
        page = [row for row in page if self.is_home(row[search_sql.CONVERSATION])]
        doubtful = [row for row in page if row[search_sql.LOOSE] or not self.expression.exact]
        if not doubtful:
            return page
        believed = set(map(_position, await self._matching(doubtful)))
        doubted = set(map(_position, doubtful)) - believed
        return [row for row in page if _position(row) not in doubted]

    async def _page(self, below: Position | None, size: int) -> list[Row]:
        """Returns the newest rows with the terms, in order."""
        given = (self.context, self.lookup, self.expression, below, size)
        if not self.walled and not self.is_common:
            if self.lookup.conversation_id is None:
                page = await self.fetch(*search_sql.select_walked(*given, _walked(size)))
                if len(page) == size:
                    return page
            most = _most(size)
            counted = await self.fetch(*search_sql.select_sorted(*given, most))
            if counted[0][0] <= most:
                return [row[1:] for row in counted if row[1] is not None]
        # Behind the second wall PostgreSQL does not use the index of terms: it would have to read those of other
        # tenants.
        return await self.fetch(*search_sql.select_walked(*given, None))

    # Conversations

    async def find_homes(self, found: Iterable[Row]) -> None:
        await self.find_conversations({row[search_sql.CONVERSATION] for row in found})

    async def find_conversations(self, ids: set[str]) -> None:
        missing = sorted(ids - self._homes.keys())
        if missing:
            for row in await self.link.all("conversations_by_id", self.context.tenant, missing):
                self._homes[row[0]] = rows.conversation_of(row, "the search")

    def is_home(self, id: str) -> bool:
        """Returns whether a conversation has the requested metadata."""
        return not self.lookup.metadata or rules.has_metadata(self._homes[id], self.lookup.metadata)


async def search_quickly(
    link: PostgresConnection, context: Context, lookup: Lookup, scope: SearchScope
) -> Matches | None:
    """Returns the matches, in one statement; None if it takes more."""
    return await PostgresSearch(link, context, lookup, scope).quick()


async def search(
    link: PostgresConnection,
    context: Context,
    lookup: Lookup,
    scope: SearchScope,
    *,
    note_tail: Callable[[str], None],
    any_tail: bool = False,
) -> Matches | None:
    """Returns the matches, on one snapshot; None if the tail must be indexed first.

    Calls `note_tail` if there is one.
    """
    tail = await tail_of(link, context.tenant, note_tail, any_tail=any_tail)
    if tail is None:
        return None
    lookup, has_all = await with_pieces(link, context, lookup)
    found = await PostgresSearch(link, context, lookup, scope).run(tail)
    return found if has_all else structs.replace(found, complete=False)


async def tail_of(
    link: PostgresConnection, tenant: str, note_tail: Callable[[str], None], *, any_tail: bool
) -> int | None:
    """Returns the length of the tail; None if it must be indexed first. `FormatMismatch` for an unusable index."""
    most = _ANY_TAIL if any_tail else TAIL
    state = await link.one("search_state", tenant, most + 1)
    check_version(state[0] if state else None)
    assert state is not None
    if state[1]:
        note_tail(tenant)
    size: int = state[1]
    return None if size > most else size


def check_version(found: int | None) -> None:
    if found != VERSION:
        raise FormatMismatch(
            "the search index was built by another version: run `hansard reindex`",
            found=str(found),
            wanted=str(VERSION),
        )


def _is_common(query: Query, common: Container[str]) -> bool:
    """Returns whether a query has so many hits that they are not sorted: one word, or one of several, is common."""
    if len(query.groups) != 1 or query.excluded:
        return False
    return any(len(row.parts) == 1 and row.parts[0] in common for clause in query.groups[0] for row in clause.rows)


def _walked(size: int) -> int:
    return max(_WALKED, _WALKED_EACH * size)


def _most(size: int) -> int:
    return max(_SORTED, _SORTED_EACH * size)


def _position(row: Row) -> Position:
    return row[search_sql.CREATED_AT], row[search_sql.SEQ], row[search_sql.CONVERSATION]


def message_of(row: Row) -> Message:
    return rows.message_of(row, row[search_sql.CONVERSATION])


def _has(row: Row, query: Query, sieve: Sieve) -> bool:
    text = searchable(message_of(row))
    return sieve.passes(text) and query.matches(analyse(text))


async def _in_thread_if_large(run: Callable[[list[Row]], list[T]], found: list[Row]) -> list[T]:
    """Runs in a thread if the bodies are large."""
    if sum(len(row[search_sql.BODY]) for row in found) > _LONG:
        return await run_in_thread(run, found)
    return run(found)
