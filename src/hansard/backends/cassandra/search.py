"""Searches the index, and the messages that are not in it yet: see `index.py`.

The index is asked for one term of each word or phrase. Where that is not the whole condition (phrases, prefixes,
several words, excluded ones), the words of the found rows are compared here. What conversations decide (their branch,
expiry, agent, metadata) their heads tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from hansard import rules
from hansard.analysis import (
    VERSION,
    Clause,
    Lookup,
    Match,
    Matches,
    Query,
)
from hansard.analysis.queries import Phrase
from hansard.backends.cassandra import index, read
from hansard.backends.cassandra.connection import Row, some_at_once
from hansard.backends.cassandra.entries import EVER, Crowded, Period, entry_from, entry_of, once, split
from hansard.backends.cassandra.read import ConversationView
from hansard.backends.cassandra.rows import Head
from hansard.backends.shared.postings import IndexEntry
from hansard.contract.types import Context, MessageQuery
from hansard.errors import TimedOut
from hansard.executor import run_in_thread
from hansard.model import to_micros

if TYPE_CHECKING:
    from hansard.backends.cassandra.storage import CassandraStorage

_TAIL = 200
"""Messages up to which those that are not indexed are read by each search."""
_PIECE_BYTES = 4 << 20
_AT_ONCE = 32
_ALL = 2**31 - 2
_MOST = 100
"""Rows of a word that a search of a whole tenant reads at once, if its page is small. Each takes a node about 0.25 ms,
which compares its whole set of terms; asking for a period of time takes as much as some dozen."""
_PAGES = 4
"""Pages of rows that are read at once, if that is more."""
_MOST_RANKED = 100_000
"""Rows of a word that are ranked, in a whole tenant."""
ATTEMPTS = 3


async def search(storage: CassandraStorage, context: Context, lookup: Lookup) -> Matches:
    for attempt in range(1, ATTEMPTS + 1):
        searched = IndexSearch(storage, context, lookup)
        if not await searched.locate():
            return Matches([])
        newest = await searched.newest()
        found = await searched.matches(newest[: lookup.limit])
        there = [each for each in found if each is not None]
        # A message that was found and is gone was removed meanwhile.
        if len(there) == len(found) or attempt == ATTEMPTS:
            return Matches(there, len(newest) > lookup.limit, searched.is_complete)
    raise AssertionError


async def prepare(storage: CassandraStorage, tenant: str) -> None:
    """Indexes a tenant that no search has seen with these terms: its conversations may not be listed as unindexed."""
    if await storage.link.read("has_name", "search", tenant, 0, str(VERSION)):
        return
    async for head in storage.heads_of(tenant):
        state = head.state
        if state is not None and index.start_of(head) < state.seq and not head.index.is_listed:
            await storage.indexer.index((tenant, state.conversation.id))
    await storage.catalog.add("search", tenant, str(VERSION))


class IndexSearch:
    """One search: where it looks, and what it finds."""

    def __init__(self, storage: CassandraStorage, context: Context, lookup: Lookup, *, is_ranked: bool = False) -> None:
        self.is_ranked = is_ranked
        self.storage = storage
        self.link = storage.link
        self.context = context
        self.lookup = lookup
        self._scope = index.scope_of(storage.link.prefix, context.tenant)
        self._owner = context.user if lookup.user_id is None else lookup.user_id
        self._months: list[int] = []
        self._only: Head | None = None
        """Of the conversation that is searched."""
        self._tail: list[IndexEntry] = []
        self._heads: dict[str, Head | None] = {}
        self.is_complete = True
        """Everything that it should have looked at was indexed, and read."""
        self.wanted = MessageQuery(
            roles=lookup.roles, participant_ids=lookup.participant_ids, since=lookup.since, until=lookup.until, limit=1
        )

    # Where to look

    async def locate(self) -> bool:
        """False if there is nothing to search."""
        tenant = self.context.tenant
        await self.storage.writer.settle(tenant)
        if self.lookup.conversation_id is not None:
            return await self._locate_one(self.lookup.conversation_id)
        try:
            await prepare(self.storage, tenant)
        except TimedOut:
            self.is_complete = False
        listed = await self.storage.indexer.unindexed(tenant, self._owner)
        await self._read_tail(listed)
        if self._owner is not None:
            months = await self.link.read("read_search_months", tenant, self._owner)
            self._months = sorted((month for (month,) in months), reverse=True)
        return True

    async def _locate_one(self, id: str) -> bool:
        (head,) = await self._load([id])
        if head is None or head.state is None or not rules.is_visible(head.state.conversation, self.context):
            return False
        if self._owner not in (None, head.state.conversation.user_id):
            return False
        head.state.branch(self.lookup.branch)  # raises if the branch does not exist
        await self._read_tail([(index.owner_of(head), id)])
        (self._only,) = await self._load([id])
        self._months = sorted(self._only.index.months, reverse=True) if self._only else []
        return self._only is not None

    async def _read_tail(self, listed: Sequence[tuple[str, str]]) -> None:
        """Reads the messages that are not indexed. If they are many, they are indexed first."""
        tenant, indexer = self.context.tenant, self.storage.indexer
        tails: list[Head] = []
        total = 0
        for first in range(0, len(listed), _AT_ONCE):
            some = listed[first : first + _AT_ONCE]
            heads = await read.load_many(self.link, tenant, [id for _, id in some])
            for owner, id in some:
                head = heads.get(id)
                behind = await indexer.behind(tenant, owner, id, head)
                if head is None or not behind:
                    continue
                tails.append(head)
                total += behind
                if total > _TAIL:
                    for each in tails:
                        await self._index(each.conversation.id)
                    tails, total = [], 0
        for head in tails:
            await self._read_tail_of(head)

    async def _read_tail_of(self, head: Head) -> None:
        assert head.state is not None
        id = head.conversation.id
        view = ConversationView(self.link, (self.context.tenant, id), head, head.state)
        found = await view.rows(index.start_of(head), _TAIL + 1, _PIECE_BYTES)
        self._heads[id] = head
        self._tail += await run_in_thread(lambda: [entry_of(row.segment, row.message) for row in found])
        if len(found) > _TAIL or (found and found[-1].message.seq < head.state.seq):
            # Its bytes are many.
            await self._index(id)

    async def _index(self, id: str) -> None:
        self._heads.pop(id, None)
        try:
            await self.storage.indexer.index((self.context.tenant, id))
        except TimedOut:
            self.is_complete = False

    # What is found

    async def newest(self) -> list[IndexEntry]:
        """The newest matches, up to one more than the limit. The index is read by periods, from the newest."""
        found: list[IndexEntry] = []
        periods = self._periods()
        while periods:
            period = periods.pop()
            try:
                entries = [each for each in await self.all(period) if self._is_below(each)]
            except Crowded as crowd:
                # Only common words are asked for with times, which cost more.
                bounds = self._bounds() if period == EVER else period
                periods += split(period, crowd.times) if bounds == period else [bounds]
                continue
            entries.sort(key=lambda each: each.position, reverse=True)
            # At first as many as are needed: heads seldom hide what matches.
            step = self.lookup.limit + 1 - len(found)
            while entries:
                found += await self.filtered(entries[:step])
                if len(found) > self.lookup.limit:
                    return found
                entries, step = entries[step:], _AT_ONCE
        return found

    def _periods(self) -> list[Period]:
        """The newest last: the months of an owner, or all time."""
        if self._is_everywhere:
            return [EVER]
        months = sorted({*self._months, *(index.month_of(each.created) for each in self._tail)})
        return [index.period_of(month) for month in months]

    def _bounds(self) -> Period:
        """When the messages were made that are searched."""
        since, until, below = self.lookup.since, self.lookup.until, self.lookup.below
        end = to_micros(until) if until else EVER[1]
        return to_micros(since) if since else EVER[0], min(end, below[0] + 1) if below else end

    @property
    def _is_everywhere(self) -> bool:
        return self._owner is None and self._only is None

    def _is_below(self, entry: IndexEntry) -> bool:
        return self.lookup.below is None or entry.position < self.lookup.below

    async def all(self, period: Period = EVER) -> list[IndexEntry]:
        """The entries that match the query, of one period, before heads decide."""
        query = self.lookup.query
        group = min(query.groups, key=lambda each: (sum(len(clause.rows) for clause in each), -_length(each)))
        found = [entry for clause in group for entry in await self.having(clause, period)]
        tail = [each for each in self._tail if query.matches(each.terms)]
        return once([*found, *(each for each in tail if period[0] <= each.created < period[1])])

    async def having(self, clause: Clause, period: Period = EVER) -> list[IndexEntry]:
        """The indexed entries that match the query and have the clause."""
        query = self.lookup.query
        is_whole = len(query.groups) == 1 and not query.excluded
        found: list[IndexEntry] = []
        for phrase in clause.rows:
            is_exact = is_whole and len(phrase.parts) == 1 and not phrase.prefix
            entries = await self._ask(self._term(phrase), period, words=not is_exact)
            if not is_exact:
                entries = await run_in_thread(_really_matching, entries, query, phrase)
            found += entries
        return once([each for each in found if self._is_wanted(each)])

    def _term(self, phrase: Phrase) -> str:
        """The term to ask for: the longest word of a phrase, which is likely to be rare."""
        whole = phrase.parts[:-1] if phrase.prefix else phrase.parts
        if whole:
            return f"{self._scope}={max(whole, key=len)}"
        return index.begin_of(self._scope, phrase.parts[0])

    async def _ask(self, term: str, period: Period, *, words: bool) -> list[IndexEntry]:
        if self._is_everywhere:
            return await self._ask_everywhere(term, period, words=words)
        months = [each for each in self._months if period == EVER or index.period_of(each) == period]
        found = await some_at_once(self._ask_month(each, term, words=words) for each in months)
        return [entry_from(row) for each in found for row in each]

    async def _ask_everywhere(self, term: str, period: Period, *, words: bool) -> list[IndexEntry]:
        """Raises `Crowded` if there are more than a search should read. A ranking is incomplete then."""
        is_moment = period[0] + 1 == period[1]
        few = max(_MOST, _PAGES * self.lookup.limit)
        most = _ALL if is_moment else _MOST_RANKED if self.is_ranked else few
        if period == EVER:
            query = "find_words_in_tenant" if words else "find_in_tenant"
            rows = await self.link.find(query, term, most + 1)
        else:
            query = "find_words_in_tenant_between" if words else "find_in_tenant_between"
            rows = await self.link.find(query, term, *period, most + 1)
        if len(rows) > most and self.is_ranked:
            self.is_complete = False
        elif len(rows) > most:
            raise Crowded([row[4] for row in rows])
        return [entry_from(row) for row in rows[:most] if row[0] == self.context.tenant]

    async def _ask_month(self, month: int, term: str, *, words: bool) -> list[Row]:
        tenant = self.context.tenant
        if self._only is None:
            query = "find_words_of_owner" if words else "find_of_owner"
            return await self.link.read(query, tenant, self._owner, month, 0, term)
        owner, id = index.owner_of(self._only), self.lookup.conversation_id or ""
        place = index.place_of(self.link.prefix, tenant, owner, month, id)
        query = "find_words_in_conversation" if words else "find_in_conversation"
        return await self.link.read(query, *place[1:], id, term)

    def _is_wanted(self, entry: IndexEntry) -> bool:
        lookup = self.lookup
        return (
            (lookup.roles is None or entry.role in lookup.roles)
            and (lookup.participant_ids is None or entry.participant in lookup.participant_ids)
            and (lookup.since is None or entry.created >= to_micros(lookup.since))
            and (lookup.until is None or entry.created < to_micros(lookup.until))
        )

    def tail(self) -> list[IndexEntry]:
        """The messages that are not indexed, match, and are wanted."""
        return [each for each in self._tail if self._is_wanted(each) and self.lookup.query.matches(each.terms)]

    # What heads decide

    async def filtered(self, entries: Sequence[IndexEntry]) -> list[IndexEntry]:
        await self._load(dict.fromkeys(each.id for each in entries))
        return [each for each in entries if self._is_wanted(each) and self.is_searched(each.id, each.segment, each.seq)]

    async def _load(self, ids: Iterable[str]) -> list[Head | None]:
        wanted = list(ids)
        unknown = [id for id in wanted if id not in self._heads]
        found = await read.load_many(self.link, self.context.tenant, unknown)
        self._heads |= {id: found.get(id) for id in unknown}
        return [self._heads[id] for id in wanted]

    def is_searched(self, id: str, segment: int, seq: int) -> bool:
        head = self._heads.get(id)
        if head is None or head.state is None:
            return False
        conversation, lookup = head.state.conversation, self.lookup
        return (
            rules.is_visible(conversation, self.context)
            and self._owner in (None, conversation.user_id)
            and lookup.agent_id in (None, conversation.agent_id)
            and rules.has_metadata(conversation, lookup.metadata)
            and (lookup.all_branches or rules.sees(head.state.branch(lookup.branch), segment, seq))
        )

    def view(self, id: str) -> ConversationView:
        head = self._heads[id]
        assert head is not None
        assert head.state is not None
        return ConversationView(self.link, (self.context.tenant, id), head, head.state)

    async def matches(self, entries: Iterable[IndexEntry]) -> list[Match | None]:
        """The messages of entries; None for one that is gone."""

        async def one(entry: IndexEntry) -> Match | None:
            view = self.view(entry.id)
            row = await view.at(entry.segment, entry.seq)
            return Match(view.state.conversation, (await view.messages_of([row]))[0]) if row is not None else None

        return await some_at_once(map(one, entries))


def _really_matching(entries: Sequence[IndexEntry], query: Query, phrase: Phrase) -> list[IndexEntry]:
    return [each for each in entries if phrase.is_in(terms := each.terms) and query.matches(terms)]


def _length(group: Sequence[Clause]) -> int:
    return min(max(map(len, phrase.parts)) for clause in group for phrase in clause.rows)
