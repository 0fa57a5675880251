"""Search in the index, and in the queue of what is not indexed yet, on one snapshot.

The index of terms knows no order, and the order knows no terms. So a page is looked for in three steps. The newest
messages are walked over in order: a common word is found among them. A rarer one is looked up by its terms, and what is
found is sorted. Where that would be too much, the word is common somewhere below: then the walk goes on. So a common
word sorts nothing, and a rare one scans nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from hansard import rules
from hansard.analysis import VERSION, Lookup, Match, Matches, Position, Query, analyse, searchable
from hansard.backends.postgres import lexemes, reading, rows
from hansard.backends.postgres.lexemes import Expression
from hansard.backends.postgres.link import Link, Row
from hansard.errors import FormatMismatch
from hansard.model import Conversation, Message, to_micros
from hansard.requests import Context

T = TypeVar("T")

TAIL = 100
"""Messages that are not indexed which a search looks at one by one; what is more is indexed first."""
_ANY_TAIL = 1 << 40
_WALKED = 500
"""Messages that are walked over before the terms are looked up, and as many for each hit as `_WALKED_EACH`."""
_WALKED_EACH = 10
_SORTED = 5000
"""Hits of the terms that are sorted, and as many for each one that is wanted as `_SORTED_EACH`."""
_SORTED_EACH = 40
_LOOKED_AT = 20_000
"""Hits that are looked at one by one, where what is asked for is not in the database's words."""
_COUNTED = 10_000
"""Up to here messages are counted for ranking."""
_COUNTED_CONVERSATIONS = 1000
_LONG = 1_000_000
"""Bytes of bodies that are looked at on the event loop; more go to a thread."""

_ORDER = "created_at DESC, seq DESC, conversation DESC"
_OF_S = "s.created_at DESC, s.seq DESC, s.conversation DESC"
# The columns of a row here: those of a message, then its conversation, and whether it has to be looked at.
_COLUMNS = "m.line, m.seq, m.id, m.role, m.format, m.body, m.created_at, m.extra, s.conversation, s.loose"
_SEQ, _BODY, _CREATED_AT, _CONVERSATION, _LOOSE = 1, 5, 6, 8, 9
_WIDTH = 10
_CONVERSATION_COLUMNS = (
    "id, user_id, agent_id, audit_id, title, metadata, summary, created_at, updated_at, last_message_at, "
    "message_count, version, branch, expires_at, archived_at"
)


class Statement:
    """SQL made of constant fragments, and its values."""

    def __init__(self, context: Context, lookup: Lookup) -> None:
        self.values: list[Any] = [context.tenant]
        self.context = context
        self.lookup = lookup

    def value(self, value: Any, kind: str) -> str:
        self.values.append(value)
        return f"${len(self.values)}::{kind}"

    def between(self, below: Position | None) -> str:
        """Conditions that the index of times knows, too."""
        return "".join(f" AND {condition}" for condition in self._between(below))

    def _between(self, below: Position | None) -> Iterator[str]:
        if self.lookup.since is not None:
            yield f"created_at >= {self.value(to_micros(self.lookup.since), 'bigint')}"
        if self.lookup.until is not None:
            yield f"created_at < {self.value(to_micros(self.lookup.until), 'bigint')}"
        if below is not None:
            created_at, seq, id = below
            place = f"{self.value(created_at, 'bigint')}, {self.value(seq, 'bigint')}, {self.value(id, 'text')}"
            yield f"(created_at, seq, conversation) < ({place})"

    def owned(self, table: str = "") -> str:
        if self.lookup.conversation_id is None:
            return ""
        return f" AND {table}conversation = {self.value(self.lookup.conversation_id, 'text')}"

    def terms(self, expression: str) -> str:
        return f"terms @@ {self.value(expression, 'text')}::tsquery"

    def joined(self) -> str:
        """What of `s` can be seen, and is asked for. The OFFSETs keep the planner to one look into an index a row."""
        return (
            f"CROSS JOIN LATERAL (SELECT branch FROM hansard.conversations WHERE tenant = $1 AND id = s.conversation"
            f"{''.join(self._conversation())} OFFSET 0) AS c "
            f"{self._branch()}"
            f"CROSS JOIN LATERAL (SELECT * FROM hansard.messages WHERE tenant = $1 AND conversation = s.conversation "
            f"AND line = s.line AND seq = s.seq{''.join(self._message())} OFFSET 0) AS m "
        )

    def _conversation(self) -> Iterator[str]:
        yield f" AND (expires_at IS NULL OR expires_at > {self.value(to_micros(self.context.now), 'bigint')})"
        names = {"user_id": self.lookup.user_id, "agent_id": self.lookup.agent_id}
        for column, value in (*names.items(), ("user_id", self.context.user)):
            if value is not None:
                yield f" AND {column} = {self.value(value, 'text')}"

    def _branch(self) -> str:
        if self.lookup.all_branches:
            return ""
        branch = "c.branch" if self.lookup.branch is None else self.value(self.lookup.branch, "text")
        return (
            f"CROSS JOIN LATERAL (SELECT 1 FROM hansard.branches AS b WHERE tenant = $1 "
            f"AND conversation = s.conversation AND id = {branch} AND (b.line = s.line OR EXISTS ("
            f"SELECT 1 FROM unnest(b.lines, b.uptos) AS part (line, upto) "
            f"WHERE part.line = s.line AND s.seq <= part.upto)) OFFSET 0) AS b "
        )

    def _message(self) -> Iterator[str]:
        lookup = self.lookup
        for names, column in ((lookup.roles, "role"), (lookup.participant_ids, "participant")):
            if names is not None:
                yield f" AND {column} = ANY({self.value([rows.escaped(name) for name in sorted(names)], 'text[]')})"

    def walked(self, terms: str, below: Position | None, limit: int, walked: int | None) -> str:
        """The newest that match, of so many messages that are walked over in order."""
        return (
            f"SELECT {_COLUMNS} FROM (SELECT * FROM hansard.search WHERE tenant = $1{self.between(below)} "
            f"ORDER BY {_ORDER} LIMIT {self.value(walked, 'bigint')}) AS s {self.joined()}"
            f"WHERE s.{self.terms(terms)}{self.owned('s.')} ORDER BY {_OF_S} LIMIT {self.value(limit, 'bigint')}"
        )

    def found(self, terms: str, below: Position | None, bound: str) -> str:
        """What has the terms, as far as a bound, and one more where there is more.

        The tenant is one of the terms. That the columns are compared in another way than an index could leaves the
        planner no choice but the index of terms.
        """
        return (
            f"SELECT conversation, line, seq, created_at, loose FROM hansard.search WHERE {self.terms(terms)} "
            f"AND (tenant = $1{self.between(below)}{self.owned()}) IS TRUE LIMIT {bound} + 1"
        )

    def sorted(self, bound: str, limit: int) -> str:
        """The newest of `found`, unless it is beyond the bound."""
        return (
            f"SELECT {_COLUMNS} FROM (SELECT * FROM found WHERE counted.number <= {bound} ORDER BY {_ORDER}) AS s "
            f"{self.joined()}ORDER BY {_OF_S} LIMIT {self.value(limit, 'bigint')}"
        )


def select_walked(
    context: Context, lookup: Lookup, terms: str, below: Position | None, limit: int, walked: int | None
) -> tuple[str, list[Any]]:
    """A page by the index of times."""
    one = Statement(context, lookup)
    return one.walked(terms, below, limit, walked), one.values


def select_sorted(
    context: Context, lookup: Lookup, terms: str, below: Position | None, limit: int, most: int
) -> tuple[str, list[Any]]:
    """A page by the index of terms, behind the number of what has them; more than `most` are not looked at."""
    one = Statement(context, lookup)
    bound = one.value(most, "bigint")
    sql = (
        f"WITH found AS MATERIALIZED ({one.found(terms, below, bound)}), "
        f"counted AS MATERIALIZED (SELECT count(*) AS number FROM found) "
        f"SELECT counted.number, page.* FROM counted LEFT JOIN LATERAL ({one.sorted(bound, limit)}) AS page ON true"
    )
    return sql, one.values


def select_quick(context: Context, lookup: Lookup, terms: str, limit: int, most: int) -> tuple[str, list[Any]]:
    """The first two steps in one, with the conversations: what most searches need, on the snapshot of one statement.

    Behind the version of the index, whether there is a tail, and the number of what has the terms, if it was counted.
    """
    one = Statement(context, lookup)
    bound, size = one.value(most, "bigint"), one.value(limit, "bigint")
    walked = one.walked(terms, lookup.below, limit, _walked(limit) if lookup.conversation_id is None else 0)
    found = one.found(terms, lookup.below, bound).replace(
        " LIMIT ", f" AND (SELECT count(*) FROM walked) < {size} LIMIT "
    )
    sql = (
        f"WITH walked AS MATERIALIZED ({walked}), found AS MATERIALIZED ({found}), "
        f"counted AS MATERIALIZED (SELECT count(*) AS number FROM found) "
        f"SELECT state.version, EXISTS (SELECT 1 FROM hansard.search_queue WHERE tenant = $1), counted.number, page.*, "
        f"c.* FROM hansard.search_state AS state CROSS JOIN counted LEFT JOIN LATERAL ("
        f"SELECT * FROM walked WHERE (SELECT count(*) FROM walked) = {size} "
        f"UNION ALL SELECT * FROM ({one.sorted(bound, limit)}) AS sorted) AS page ON true "
        f"LEFT JOIN LATERAL (SELECT {_CONVERSATION_COLUMNS} FROM hansard.conversations "
        f"WHERE tenant = $1 AND id = page.conversation OFFSET 0) AS c ON true"
    )
    return sql, one.values


def select_tail(context: Context, lookup: Lookup) -> tuple[str, list[Any]]:
    """What is not indexed yet."""
    one = Statement(context, lookup)
    sql = (
        f"SELECT {_COLUMNS} FROM (SELECT conversation, line, seq, true AS loose FROM hansard.search_queue "
        f"WHERE tenant = $1{one.owned()} OFFSET 0) AS s {one.joined()}"
    )
    return sql, one.values


def select_count(tenant: str, terms: str, most: int, *, walled: bool) -> tuple[str, list[Any]]:
    if walled:
        source = f"(SELECT terms FROM hansard.search WHERE tenant = $2 ORDER BY {_ORDER} OFFSET 0) AS s WHERE "
    else:
        source = "hansard.search WHERE (tenant = $2) IS TRUE AND "
    sql = f"SELECT count(*) FROM (SELECT 1 FROM {source}terms @@ $1::text::tsquery LIMIT $3) AS counted"
    return sql, [terms, tenant, most]


class Search:
    """One search on one snapshot."""

    def __init__(self, link: Link, context: Context, lookup: Lookup, *, walled: bool) -> None:
        self.link = link
        self.context = context
        self.lookup = lookup
        self.walled = walled
        self.user = context.user if lookup.user_id is None else lookup.user_id
        self.owner = self._owner()
        self.expression: Expression = lexemes.expression_of(lookup.query, self.owner)
        self._homes: dict[str, Conversation] = {}

    async def quick(self) -> Matches | None:
        """In one statement; None when that does not serve."""
        lookup, size = self.lookup, self.lookup.limit + 1
        if self.walled or lookup.metadata or lookup.branch is not None or not self.expression.exact:
            return None
        most = _most(size)
        found = await self._fetch(*select_quick(self.context, lookup, self.expression.text, size, most))
        state = found[0] if found else None
        check_version(state[0] if state else None)
        if state is None or state[1] or state[2] > most:
            return None
        page = [row[3:] for row in found if row[3] is not None]
        if any(row[_LOOSE] for row in page):
            return None
        for row in page:
            if row[_CONVERSATION] not in self._homes:
                self._homes[row[_CONVERSATION]] = rows.conversation_of(row[_WIDTH:], "the search")
        page.sort(key=_position, reverse=True)
        # How common a word is need not be of the very same moment.
        total, counts = await self._counts([]) if lookup.counted else (0, ())
        made = await _off_the_loop(self._made, page[: lookup.limit])
        return Matches(made, len(page) > lookup.limit, True, total, counts)

    async def run(self, tail: int) -> Matches:
        lookup = self.lookup
        if lookup.conversation_id is not None:
            entry = await reading.find_entry(self.link, self.context, lookup.conversation_id)
            if entry is None:
                return Matches([])
            entry.head.lane(lookup.branch)  # an unknown one is an error
        rest = await self._fetch(*select_tail(self.context, lookup)) if tail else []
        wanted = lookup.limit + 1
        in_tail = await self._matching(rest)
        await self._find_homes(in_tail)
        indexed, complete = await self._walk(wanted)
        found = [row for row in in_tail if self._is_asked_for(row)] + indexed
        found.sort(key=_position, reverse=True)
        await self._find_homes(found[: lookup.limit])
        total, counts = await self._counts(rest) if lookup.counted else (0, ())
        made = await _off_the_loop(self._made, found[: lookup.limit])
        return Matches(made, len(found) > lookup.limit, complete, total, counts)

    def _owner(self) -> str:
        tenant, user = self.context.tenant, self.user
        if self.lookup.conversation_id is not None:
            return lexemes.of_conversation(tenant, self.lookup.conversation_id)
        return lexemes.of_tenant(tenant) if user is None else lexemes.of_user(tenant, user)

    async def _fetch(self, sql: str, values: Sequence[Any]) -> list[Row]:
        return await self.link.fetch(self.link.in_schema(sql), values)

    def _made(self, found: Iterable[Row]) -> list[Match]:
        return [Match(self._homes[row[_CONVERSATION]], _message(row)) for row in found]

    # The tail

    async def _matching(self, found: list[Row]) -> list[Row]:
        """Those that match, by a look at each."""
        return await _off_the_loop(lambda looked_at: [row for row in looked_at if _has(row, self.lookup.query)], found)

    def _is_asked_for(self, row: Row) -> bool:
        lookup, created_at = self.lookup, row[_CREATED_AT]
        return (
            (lookup.since is None or created_at >= to_micros(lookup.since))
            and (lookup.until is None or created_at < to_micros(lookup.until))
            and (lookup.below is None or _position(row) < lookup.below)
            and self._is_home(row[_CONVERSATION])
        )

    # The index

    async def _walk(self, wanted: int) -> tuple[list[Row], bool]:
        """The newest that the index has, and whether that is all that can be said."""
        found: list[Row] = []
        below, looked_at, size = self.lookup.below, 0, wanted
        while len(found) < wanted:
            page = await self._page(below, size)
            looked_at += len(page)
            await self._find_homes(page)
            found += await self._sifted(page)
            if len(page) < size:
                return found, True
            if looked_at >= _LOOKED_AT:
                return found, False
            below, size = _position(page[-1]), min(2 * size, 1000)
        return found, True

    async def _sifted(self, page: list[Row]) -> list[Row]:
        """What the database could not tell: the metadata of conversations, and messages whose terms tell too little."""
        page = [row for row in page if self._is_home(row[_CONVERSATION])]
        doubtful = [row for row in page if row[_LOOSE] or not self.expression.exact]
        if not doubtful:
            return page
        believed = set(map(_position, await self._matching(doubtful)))
        doubted = set(map(_position, doubtful)) - believed
        return [row for row in page if _position(row) not in doubted]

    async def _page(self, below: Position | None, size: int) -> list[Row]:
        """The newest that have the terms, in order."""
        given = (self.context, self.lookup, self.expression.text, below, size)
        if not self.walled:
            if self.lookup.conversation_id is None:
                page = await self._fetch(*select_walked(*given, _walked(size)))
                if len(page) == size:
                    return page
            most = _most(size)
            counted = await self._fetch(*select_sorted(*given, most))
            if counted[0][0] <= most:
                return [row[1:] for row in counted if row[1] is not None]
        # Behind the second wall PostgreSQL uses no index of terms: it would have to look at those of others.
        return await self._fetch(*select_walked(*given, None))

    # Conversations

    async def _find_homes(self, found: Iterable[Row]) -> None:
        ids = {row[_CONVERSATION] for row in found} - self._homes.keys()
        if ids:
            for row in await self.link.all("conversations_by_id", self.context.tenant, sorted(ids)):
                self._homes[row[0]] = rows.conversation_of(row, "the search")

    def _is_home(self, id: str) -> bool:
        """Whether a conversation has the metadata that is asked for."""
        return not self.lookup.metadata or rules.has_metadata(self._homes[id], self.lookup.metadata)

    # Counting

    async def _counts(self, tail: list[Row]) -> tuple[int, tuple[int, ...]]:
        """How many messages the owner has, and how many of them have each clause, both bounded."""
        clauses = self.lookup.query.wanted
        counts = [0] * len(clauses)
        for row in tail:
            terms = analyse(searchable(_message(row)))
            counts = [count + clause.is_in(terms) for count, clause in zip(counts, clauses, strict=True)]
        for at, clause in enumerate(clauses):
            text = lexemes.clause_of(clause, self.owner)
            found = await self._fetch(*select_count(self.context.tenant, text, _COUNTED, walled=self.walled))
            counts[at] = min(counts[at] + found[0][0], _COUNTED)
        return min(await self._total(), _COUNTED), tuple(counts)

    async def _total(self) -> int:
        tenant, user = self.context.tenant, self.user
        if self.lookup.conversation_id is not None:
            row = await self.link.one("find_conversation", tenant, self.lookup.conversation_id)
            return row[10] if row else 0
        if user is None:
            row = await self.link.one("count_messages", tenant, _COUNTED_CONVERSATIONS)
        else:
            row = await self.link.one("count_messages_of_user", tenant, user, _COUNTED_CONVERSATIONS)
        return row[0] if row else 0


async def search_quickly(link: Link, context: Context, lookup: Lookup, *, walled: bool) -> Matches | None:
    """What matches, in one statement; None when it takes more."""
    return await Search(link, context, lookup, walled=walled).quick()


async def search(
    link: Link, context: Context, lookup: Lookup, *, walled: bool, any_tail: bool = False
) -> Matches | None:
    """What matches, on one snapshot; None when the tail must be indexed first."""
    most = _ANY_TAIL if any_tail else TAIL
    state = await link.one("search_state", context.tenant, most + 1)
    check_version(state[0] if state else None)
    assert state is not None
    return None if state[1] > most else await Search(link, context, lookup, walled=walled).run(state[1])


def check_version(found: int | None) -> None:
    if found != VERSION:
        raise FormatMismatch(
            "the search index was built by another version: run `hansard reindex`",
            found=str(found),
            wanted=str(VERSION),
        )


def _walked(size: int) -> int:
    return max(_WALKED, _WALKED_EACH * size)


def _most(size: int) -> int:
    return max(_SORTED, _SORTED_EACH * size)


def _position(row: Row) -> Position:
    return row[_CREATED_AT], row[_SEQ], row[_CONVERSATION]


def _message(row: Row) -> Message:
    return rows.message_of(row, row[_CONVERSATION])


def _has(row: Row, query: Query) -> bool:
    return query.matches(analyse(searchable(_message(row))))


async def _off_the_loop(run: Callable[[list[Row]], list[T]], found: list[Row]) -> list[T]:
    """What takes long leaves the event loop alone."""
    if sum(len(row[_BODY]) for row in found) > _LONG:
        return await asyncio.to_thread(run, found)
    return run(found)
