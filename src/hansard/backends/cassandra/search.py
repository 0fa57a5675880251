"""Searches the index, and the messages that are not in it yet: see `index.py`.

The index is asked for one term of each word or phrase. Where that is not the whole condition (phrases, prefixes,
several words, excluded ones), the words of the found rows are compared here. What conversations decide (their branch,
expiry, agent, metadata) their heads tell.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import aclosing
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from msgspec import structs

from hansard import rules
from hansard.analysis import (
    VERSION,
    Clause,
    Lookup,
    Match,
    Matches,
    Position,
    Query,
    RankedMatch,
    Ranking,
    Terms,
    analyse,
    columns,
    relevance,
    searchable,
)
from hansard.analysis.queries import Phrase
from hansard.analysis.relevance import Posting
from hansard.backends.cassandra import index, listing, read
from hansard.backends.cassandra.connection import Row
from hansard.backends.cassandra.read import ConversationView
from hansard.backends.cassandra.rows import Head
from hansard.contract.storage import Run
from hansard.contract.types import Context, ConversationQuery, MessageQuery, StoredBranch
from hansard.executor import run_in_thread
from hansard.model import NOT_YET, Message, to_micros

if TYPE_CHECKING:
    from hansard.backends.cassandra.storage import CassandraStorage

T = TypeVar("T")
Place = tuple[str, int, int]
"""Conversation, segment and seq."""

_TAIL = 200
"""Messages up to which those that are not indexed are read by each search."""
_PIECE_BYTES = 4 << 20
_AT_ONCE = 32
_ATTEMPTS = 3
_SEQ_BITS = 40
_SEQ_MASK = (1 << _SEQ_BITS) - 1
_EVERYTHING = ConversationQuery(archived=None, sort="updated_at", newest_first=False)


class Entry(NamedTuple):
    """A row of the index, or a message that is not indexed yet."""

    id: str
    segment: int
    seq: int
    created: int
    role: str
    participant: str | None
    length: int
    words: str = ""
    more: str = ""

    @property
    def place(self) -> Place:
        return self.id, self.segment, self.seq

    @property
    def position(self) -> Position:
        return self.created, self.seq, self.id

    @property
    def terms(self) -> Terms:
        return Terms(self.words.split(), self.more.split())


async def search(storage: CassandraStorage, context: Context, lookup: Lookup) -> Matches:
    for attempt in range(1, _ATTEMPTS + 1):
        searched = IndexSearch(storage, context, lookup)
        if not await searched.locate():
            return Matches([])
        newest = await searched.newest()
        messages = await searched.read(newest[: lookup.limit])
        found = [searched.match(each, messages) for each in newest[: lookup.limit]]
        there = [each for each in found if each is not None]
        # A message that was found and is gone was removed meanwhile.
        if len(there) == len(found) or attempt == _ATTEMPTS:
            return Matches(there, len(newest) > lookup.limit)
    raise AssertionError


async def rank(storage: CassandraStorage, context: Context, lookup: Lookup) -> Ranking:
    for attempt in range(1, _ATTEMPTS + 1):
        searched = IndexSearch(storage, context, structs.replace(lookup, below=None))
        if not await searched.locate():
            return Ranking([])
        postings = CassandraPostings(searched)
        best = await relevance.best(lookup.query, postings, lookup.limit, neighbours=lookup.neighbours)
        messages = await searched.read([postings.entries[each.key] for each in best])
        found = [(searched.match(postings.entries[each.key], messages), each) for each in best]
        there = [RankedMatch(match, each.score, each.covered) for match, each in found if match is not None]
        if len(there) == len(found) or attempt == _ATTEMPTS:
            return Ranking(there)
    raise AssertionError


async def prepare(storage: CassandraStorage, tenant: str) -> None:
    """Indexes a tenant that no search has seen with these terms: its conversations may not be listed as unindexed."""
    if await storage.link.read("has_name", "search", tenant, 0, str(VERSION)):
        return
    async for head in conversations(storage, tenant):
        state = head.state
        if state is not None and index.start_of(head) < state.seq and not head.index.is_listed:
            await storage.indexer.index((tenant, state.conversation.id))
    await storage.catalog.add("search", tenant, str(VERSION))


async def conversations(storage: CassandraStorage, tenant: str) -> AsyncIterator[Head]:
    async with aclosing(listing.walk(storage.link, Context(tenant, NOT_YET), _EVERYTHING)) as walked:
        async for head in walked:
            yield head


class IndexSearch:
    """One search: where it looks, and what it finds."""

    def __init__(self, storage: CassandraStorage, context: Context, lookup: Lookup) -> None:
        self.storage = storage
        self.link = storage.link
        self.context = context
        self.lookup = lookup
        self._scope = index.scope_of(storage.link.prefix, context.tenant)
        self._owner = context.user if lookup.user_id is None else lookup.user_id
        self._months: list[int] = []
        self._only: Head | None = None
        """Of the conversation that is searched."""
        self._tail: list[Entry] = []
        self._heads: dict[str, Head | None] = {}
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
        await prepare(self.storage, tenant)
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
            for head, behind in await asyncio.gather(*(indexer.tail(tenant, *each) for each in some)):
                if head is None or not behind:
                    continue
                tails.append(head)
                total += behind
                if total > _TAIL:
                    for each in tails:
                        assert each.state is not None
                        await indexer.index((tenant, each.state.conversation.id))
                        self._heads.pop(each.state.conversation.id, None)
                    tails, total = [], 0
        for head in tails:
            await self._read_tail_of(head)

    async def _read_tail_of(self, head: Head) -> None:
        assert head.state is not None
        id = head.state.conversation.id
        view = ConversationView(self.link, (self.context.tenant, id), head, head.state)
        found = await view.rows(index.start_of(head), _TAIL + 1, _PIECE_BYTES)
        self._heads[id] = head
        self._tail += await run_in_thread(lambda: [_entry(row.segment, row.message) for row in found])
        if len(found) > _TAIL or (found and found[-1].message.seq < head.state.seq):
            # Its bytes are many.
            await self.storage.indexer.index((self.context.tenant, id))
            self._heads.pop(id, None)

    # What is found

    async def newest(self) -> list[Entry]:
        """The newest matches, up to one more than the limit. The index of a user is read month by month."""
        found: list[Entry] = []
        for month in self._periods():
            entries = [each for each in await self.all(month) if self._is_below(each)]
            entries.sort(key=lambda each: each.position, reverse=True)
            for first in range(0, len(entries), _AT_ONCE):
                found += await self.filtered(entries[first : first + _AT_ONCE])
                if len(found) > self.lookup.limit:
                    return found
        return found

    def _periods(self) -> list[int | None]:
        if self._is_everywhere:
            return [None]
        months = sorted({*self._months, *(index.month_of(each.created) for each in self._tail)}, reverse=True)
        return [*months]

    @property
    def _is_everywhere(self) -> bool:
        return self._owner is None and self._only is None

    def _is_below(self, entry: Entry) -> bool:
        return self.lookup.below is None or entry.position < self.lookup.below

    async def all(self, month: int | None = None) -> list[Entry]:
        """The entries that match the query, of one month or of all, before heads decide."""
        query = self.lookup.query
        group = min(query.groups, key=lambda each: (sum(len(clause.rows) for clause in each), -_length(each)))
        found = [entry for clause in group for entry in await self.having(clause, month)]
        tail = [each for each in self._tail if query.matches(each.terms)]
        return _once([*found, *(each for each in tail if month in (None, index.month_of(each.created)))])

    async def having(self, clause: Clause, month: int | None = None) -> list[Entry]:
        """The indexed entries that match the query and have the clause."""
        query = self.lookup.query
        is_whole = len(query.groups) == 1 and not query.excluded
        found: list[Entry] = []
        for phrase in clause.rows:
            is_exact = is_whole and len(phrase.parts) == 1 and not phrase.prefix
            entries = await self._ask(self._term(phrase), month, words=not is_exact)
            if not is_exact:
                entries = await run_in_thread(_really_matching, entries, query, phrase)
            found += entries
        return _once([each for each in found if self._is_wanted(each)])

    def _term(self, phrase: Phrase) -> str:
        """The term to ask for: the longest word of a phrase, which is likely to be rare."""
        whole = phrase.parts[:-1] if phrase.prefix else phrase.parts
        if whole:
            return f"{self._scope}={max(whole, key=len)}"
        return index.begin_of(self._scope, phrase.parts[0])

    async def _ask(self, term: str, month: int | None, *, words: bool) -> list[Entry]:
        if self._is_everywhere:
            rows = await self.link.find("find_words_in_tenant" if words else "find_in_tenant", term)
            return [Entry(*row[1:]) for row in rows if row[0] == self.context.tenant]
        months = self._months if month is None else [month] if month in self._months else []
        found = await asyncio.gather(*(self._ask_month(each, term, words=words) for each in months))
        return [Entry(*row[1:]) for each in found for row in each]

    async def _ask_month(self, month: int, term: str, *, words: bool) -> list[Row]:
        tenant = self.context.tenant
        if self._only is None:
            query = "find_words_of_owner" if words else "find_of_owner"
            return await self.link.read(query, tenant, self._owner, month, 0, term)
        owner, id = index.owner_of(self._only), self.lookup.conversation_id or ""
        place = index.place_of(self.link.prefix, tenant, owner, month, id)
        query = "find_words_in_conversation" if words else "find_in_conversation"
        return await self.link.read(query, *place[1:], id, term)

    def _is_wanted(self, entry: Entry) -> bool:
        lookup = self.lookup
        return (
            (lookup.roles is None or entry.role in lookup.roles)
            and (lookup.participant_ids is None or entry.participant in lookup.participant_ids)
            and (lookup.since is None or entry.created >= to_micros(lookup.since))
            and (lookup.until is None or entry.created < to_micros(lookup.until))
        )

    def tail(self) -> list[Entry]:
        """The messages that are not indexed, match, and are wanted."""
        return [each for each in self._tail if self._is_wanted(each) and self.lookup.query.matches(each.terms)]

    # What heads decide

    async def filtered(self, entries: Sequence[Entry]) -> list[Entry]:
        await self._load(dict.fromkeys(each.id for each in entries))
        return [each for each in entries if self._is_wanted(each) and self.is_searched(each.id, each.segment, each.seq)]

    async def _load(self, ids: Iterable[str]) -> list[Head | None]:
        wanted = list(ids)
        unknown = [id for id in wanted if id not in self._heads]
        for first in range(0, len(unknown), _AT_ONCE):
            some = unknown[first : first + _AT_ONCE]
            heads = await asyncio.gather(*(read.load(self.link, (self.context.tenant, id)) for id in some))
            self._heads |= dict(zip(some, heads, strict=True))
        return [self._heads[id] for id in wanted]

    def is_searched(self, id: str, segment: int, seq: int) -> bool:
        head = self._heads.get(id)
        if head is None or head.state is None:
            return False
        conversation, lookup = head.state.conversation, self.lookup
        if not rules.is_visible(conversation, self.context) or self._owner not in (None, conversation.user_id):
            return False
        if lookup.agent_id not in (None, conversation.agent_id):
            return False
        if lookup.metadata and not rules.has_metadata(conversation, lookup.metadata):
            return False
        return lookup.all_branches or rules.sees(self.branch_of(head), segment, seq)

    def branch_of(self, head: Head) -> StoredBranch:
        assert head.state is not None
        return head.state.branch(self.lookup.branch)

    def head(self, id: str) -> Head:
        head = self._heads[id]
        assert head is not None
        return head

    # Messages

    def view(self, id: str) -> ConversationView:
        head = self.head(id)
        assert head.state is not None
        return ConversationView(self.link, (self.context.tenant, id), head, head.state)

    async def read(self, entries: Iterable[Entry]) -> dict[Place, Message]:
        """The messages of entries, without those that are gone or no longer match."""
        found: dict[Place, Message] = {}

        async def one(entry: Entry) -> None:
            view = self.view(entry.id)
            row = await view.at(entry.segment, entry.seq)
            if row is not None:
                found[entry.place] = (await view.messages_of([row]))[0]

        await asyncio.gather(*map(one, entries))
        return found

    def match(self, entry: Entry, messages: dict[Place, Message]) -> Match | None:
        message = messages.get(entry.place)
        state = self.head(entry.id).state
        return Match(state.conversation, message) if message is not None and state is not None else None


class CassandraPostings:
    """What relevance reads. A key is the number of a conversation, or of one of its segments, and the seq."""

    def __init__(self, searched: IndexSearch) -> None:
        self._search = searched
        self._groups: dict[tuple[str, int], int] = {}
        self._conversations: list[tuple[str, int]] = [("", 0)]
        self._read: dict[Clause, list[Posting]] = {}
        self._everything: list[tuple[Entry, int]] | None = None
        self.entries: dict[int, Entry] = {}

    async def count(self, clause: Clause, most: int) -> int:
        return min(len(await self.of(clause)), most)

    async def of(self, clause: Clause) -> list[Posting]:
        if clause not in self._read:
            self._read[clause] = await self._postings(clause)
        return self._read[clause]

    async def _postings(self, clause: Clause) -> list[Posting]:
        search = self._search
        if len(search.lookup.query.groups) == 1:
            in_tail = [each for each in search.tail() if clause.is_in(each.terms)]
            found = await search.filtered(_once([*await search.having(clause), *in_tail]))
            return [(self._key(each), each.length) for each in found]
        if self._everything is None:
            self._everything = [(each, self._key(each)) for each in await search.filtered(await search.all())]
        everything = self._everything

        def having() -> list[Posting]:
            return [(key, each.length) for each, key in everything if clause.is_in(each.terms)]

        return await run_in_thread(having)

    async def terms(self, keys: Collection[int]) -> dict[int, Terms]:
        """Of the messages themselves: neighbours need not match."""
        found: dict[int, Terms] = {}
        for group, some in groupby(sorted(keys), lambda key: key >> _SEQ_BITS):
            if not 0 < group < len(self._conversations):
                continue
            seqs = {key & _SEQ_MASK for key in some}
            messages = await self._messages(*self._conversations[group], seqs)
            texts = await run_in_thread(lambda: [analyse(searchable(each)) for _, each in messages])  # noqa: B023
            for (segment, message), terms in zip(messages, texts, strict=True):
                found[self._key(_entry(segment, message))] = terms
        return {key: found[key] for key in keys if key in found}

    async def _messages(self, id: str, segment: int, seqs: set[int]) -> list[tuple[int, Message]]:
        search = self._search
        view, branch = search.view(id), search.branch_of(search.head(id))
        segments = [segment] if search.lookup.all_branches else [each for each, _ in rules.segments(branch)]
        found: list[tuple[int, Message]] = []
        for first, last in _runs(seqs):
            for each in segments:
                known = [row async for row in view.walk(Run(each, first - 1, last))]
                wanted = [row for row in known if row.seq in seqs and search.is_searched(id, each, row.seq)]
                found += [(each, message) for message in await view.messages_of(wanted)]
        return [each for each in found if rules.is_wanted(each[1], search.wanted)]

    async def newest(self, keys: Sequence[int], count: int) -> dict[int, Position]:
        return {key: self.entries[key].position for key in keys}

    async def run(self, work: Callable[[], T]) -> T:
        return await run_in_thread(work)

    def _key(self, entry: Entry) -> int:
        at = (entry.id, entry.segment if self._search.lookup.all_branches else 0)
        if at not in self._groups:
            self._groups[at] = len(self._conversations)
            self._conversations.append(at)
        key = self._groups[at] << _SEQ_BITS | entry.seq
        self.entries[key] = entry
        return key


def _entry(segment: int, message: Message) -> Entry:
    words, more = columns(searchable(message))
    who = message.participant.id if message.participant else None
    created = to_micros(message.created_at)
    length = len(words.split())
    return Entry(message.conversation_id, segment, message.seq, created, message.role, who, length, words, more)


def _once(entries: Iterable[Entry]) -> list[Entry]:
    return list({each.place: each for each in entries}.values())


def _really_matching(entries: Sequence[Entry], query: Query, phrase: Phrase) -> list[Entry]:
    return [each for each in entries if phrase.is_in(terms := each.terms) and query.matches(terms)]


def _length(group: Sequence[Clause]) -> int:
    return min(max(map(len, phrase.parts)) for clause in group for phrase in clause.rows)


def _runs(seqs: Iterable[int]) -> list[tuple[int, int]]:
    """Neighbouring numbers as ranges."""
    found: list[tuple[int, int]] = []
    for seq in sorted(seqs):
        if found and seq <= found[-1][1] + 1:
            found[-1] = (found[-1][0], seq)
        else:
            found.append((seq, seq))
    return found
