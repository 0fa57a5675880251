"""Search without an index: every message is compared. Exact, and limited to `MOST` messages for each search.

It uses only the Backend contract, so every backend has search from its first day. An index returns the same, only
faster.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable
from heapq import nlargest
from itertools import chain
from typing import TypeVar

from msgspec import structs

from hansard import rules
from hansard.analysis import (
    Clause,
    Lookup,
    Match,
    Matches,
    Position,
    Query,
    RankedMatch,
    Ranking,
    Sieve,
    Terms,
    analyse,
    relevance,
    searchable,
)
from hansard.analysis.formula import Posting
from hansard.blocking import run_to_end
from hansard.contract.backend import Backend
from hansard.contract.storage import Placed
from hansard.contract.types import Context, ConversationQuery, MessageQuery
from hansard.executor import run_in_thread
from hansard.model import Conversation, Message, to_micros

T = TypeVar("T")

MOST = 100_000
"""Messages that one search compares. The conversations with the newest activity come first."""
_PAGE = 100
_PAGE_BYTES = 8_000_000

Found = tuple[Conversation, Message, int]
"""The number is the segment if all branches are searched, else 0: then a branch is one sequence."""
_SEQ_BITS = 40


async def find(backend: Backend, context: Context, lookup: Lookup) -> Matches:
    newest: list[tuple[Position, Match]] = []
    sieve = Sieve(lookup.query)
    seen = matching = 0
    complete = True
    async for batch in _batches(_messages(backend, context, lookup)):
        complete = seen + len(batch) <= MOST
        found = await run_in_thread(_matching, batch[: MOST - seen], lookup, sieve)
        seen += len(batch)
        matching += len(found)
        newest = nlargest(lookup.limit, [*newest, *found], key=_position)
        if not complete:
            break
    return Matches([match for _, match in newest], matching > lookup.limit, complete)


async def rank(backend: Backend, context: Context, lookup: Lookup) -> Ranking:
    scanned = _Scanned(lookup)
    seen = 0
    async for batch in _batches(_messages(backend, context, lookup)):
        await run_in_thread(scanned.add, batch[: MOST - seen])
        seen += len(batch)
        if seen > MOST:
            break
    return Ranking(await run_in_thread(_best, scanned, lookup), complete=seen <= MOST)


def ranked(query: Query, texts: Collection[Match]) -> list[RankedMatch]:
    """Returns those of the messages that match, the best first. CPU-bound."""
    lookup = Lookup(query, limit=max(1, len(texts)))
    scanned = _Scanned(lookup)
    scanned.add([(match.conversation, match.message, 0) for match in texts])
    return _best(scanned, lookup)


def _best(scanned: _Scanned, lookup: Lookup) -> list[RankedMatch]:
    found = run_to_end(relevance.best(lookup.query, scanned, lookup.limit, neighbours=lookup.neighbours))
    return [RankedMatch(scanned.matches[each.key], each.score) for each in found]


class _Scanned:
    """What a scan has found, as `relevance` reads it."""

    def __init__(self, lookup: Lookup) -> None:
        self._query = lookup.query
        self._sieve = Sieve(lookup.query)
        self._groups: dict[tuple[str, int], int] = {}
        self._has: dict[Clause, list[Posting]] = {clause: [] for clause in lookup.query.wanted}
        self._found: set[int] = set()
        self._unsure: list[int] = []
        """Messages that do not match, but may be next to one that is not read yet."""
        self.matches: dict[int, Match] = {}
        """The messages that match, and those next to them."""

    def add(self, batch: list[Found]) -> None:
        """CPU-bound: it runs in a thread."""
        for conversation, message, segment in batch:
            group = self._groups.setdefault((conversation.id, segment), len(self._groups) + 1)
            key = group << _SEQ_BITS | message.seq
            self.matches[key] = Match(conversation, message)
            if not self._take(key, searchable(message)):
                self._unsure.append(key)
        self._forget_strangers()

    def _take(self, key: int, text: str) -> bool:
        terms = analyse(text) if self._sieve.passes(text) else None
        if terms is None or not self._query.matches(terms):
            return False
        self._found.add(key)
        for clause, postings in self._has.items():
            if clause.is_in(terms):
                postings.append((key, len(terms.words)))
        return True

    def _forget_strangers(self) -> None:
        """Drops messages that are next to none that matches, but not those of the last conversation."""
        last = len(self._groups) << _SEQ_BITS
        unsure, self._unsure = self._unsure, []
        for key in unsure:
            if key > last:
                self._unsure.append(key)
            elif not any(key + step in self._found for step in range(-3, 4)):
                del self.matches[key]

    async def count(self, clause: Clause, most: int) -> int:
        return min(len(self._has[clause]), most)

    async def of(self, clause: Clause) -> Iterable[Posting]:
        return self._has[clause]

    async def terms(self, keys: Collection[int]) -> dict[int, Terms]:
        there = [key for key in keys if key in self.matches]
        return {key: analyse(searchable(self.matches[key].message)) for key in there}

    async def positions(self, all_of: Collection[int], newest_of: Iterable[int], count: int) -> dict[int, Position]:
        return {key: self.matches[key].position for key in chain(all_of, newest_of)}

    async def run(self, work: Callable[[], T]) -> T:
        return work()


def _matching(batch: list[Found], lookup: Lookup, sieve: Sieve) -> list[tuple[Position, Match]]:
    """Returns the matches, each with its position. CPU-bound: it runs in a thread."""
    found = []
    for conversation, message, _ in batch:
        text = searchable(message)
        match = Match(conversation, message)
        is_below = lookup.below is None or match.position < lookup.below
        if is_below and sieve.passes(text) and lookup.query.matches(analyse(text)):
            found.append((match.position, match))
    return found


def _position(found: tuple[Position, Match]) -> Position:
    return found[0]


async def _batches(messages: AsyncIterator[Found]) -> AsyncIterator[list[Found]]:
    """Yields messages of several conversations together: a thread for each one would cost more than it saves."""
    batch: list[Found] = []
    async for found in messages:
        batch.append(found)
        if len(batch) == _PAGE:
            yield batch
            batch = []
    yield batch


async def _messages(backend: Backend, context: Context, lookup: Lookup) -> AsyncIterator[Found]:
    query = MessageQuery(
        branch=lookup.branch,
        newest_first=True,
        limit=_PAGE,
        max_bytes=_PAGE_BYTES,
        roles=lookup.roles,
        participant_ids=lookup.participant_ids,
        since=lookup.since,
        until=lookup.until,
    )
    async for conversation in conversations(backend, context, lookup):
        lines = (
            _all_branches(backend, context, conversation.id, query)
            if lookup.all_branches
            else _branch_messages(backend, context, conversation.id, query)
        )
        async for segment, message in lines:
            yield conversation, message, segment


async def conversations(backend: Backend, context: Context, lookup: Lookup) -> AsyncIterator[Conversation]:
    if lookup.conversation_id is not None:
        only = await backend.get_conversation(context, lookup.conversation_id)
        if only is not None and _is_wanted(only, lookup):
            yield only
        return
    query = ConversationQuery(
        user_id=context.user if lookup.user_id is None else lookup.user_id,
        agent_id=lookup.agent_id,
        metadata=lookup.metadata,
        archived=None,
        limit=_PAGE,
        memberships=context.user is not None,
    )
    more = True
    while more:
        page, more = await backend.list_conversations(context, query)
        for conversation in page:
            yield conversation
        if page:
            last = page[-1]
            place = (to_micros(last.last_message_at or last.created_at), last.id)
            query = structs.replace(query, below=place)


def _is_wanted(conversation: Conversation, lookup: Lookup) -> bool:
    return (
        (lookup.user_id in (None, conversation.user_id) or lookup.user_id in conversation.members)
        and lookup.agent_id in (None, conversation.agent_id)
        and rules.has_metadata(conversation, lookup.metadata)
    )


async def _branch_messages(backend: Backend, context: Context, id: str, query: MessageQuery) -> AsyncIterator[Placed]:
    more = True
    while more:
        page = await backend.get_messages(context, id, query)
        for message in page.messages:
            yield 0, message
        more = page.has_more
        if page.messages:
            query = structs.replace(query, below=rules.position(page.messages[-1]))


async def _all_branches(backend: Backend, context: Context, id: str, query: MessageQuery) -> AsyncIterator[Placed]:
    seq = 0
    while rows := await backend.read_rows(context, id, seq, _PAGE, _PAGE_BYTES):
        for row in rows:
            if rules.is_wanted(row.message, query):
                yield row.segment, row.message
        seq = rows[-1].message.seq
