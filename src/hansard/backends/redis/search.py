"""Searches the index of Redis' query engine: see `index.py`.

The engine decides which words a message has, and who said it when and to whom. What conversations decide (their branch,
expiry, agent, metadata) their heads tell.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from msgspec import structs

from hansard import rules
from hansard.analysis import Clause, Lookup, Match, Matches, Query, RankedMatch, Ranking, relevance
from hansard.backends.redis import listing, rows
from hansard.backends.redis.engine_query import EngineQuery
from hansard.backends.redis.index import RedisIndex
from hansard.backends.redis.keys import RedisKeys
from hansard.backends.redis.nodes import Nodes
from hansard.backends.redis.rows import StoredState
from hansard.backends.shared.postings import EntryPostings, IndexEntry, Place
from hansard.contract.storage import Placed
from hansard.contract.types import Context, MessageQuery
from hansard.errors import HansardError
from hansard.executor import run_in_thread
from hansard.model import Message, to_micros

_PAGE = 200
_COUNT = 1000
"""Entries of one answer, if all are read."""
_IDLE = 60_000
"""Milliseconds that the engine keeps the rest for us."""
_CURSORS = 32
"""Of a process at a time. The engine has 128 for an index, unless it is configured otherwise."""
_MOST_RANKED = 100_000
"""Entries that a ranking compares for each word."""
_ATTEMPTS = 3
_FIELDS = ("id", "segment", "seq", "created", "length")
_WITH_TERMS = (*_FIELDS, "words", "more")


class RedisSearch:
    """Searches of a store."""

    def __init__(self, nodes: Nodes, keys: RedisKeys, index: RedisIndex) -> None:
        self.nodes = nodes
        self.keys = keys
        self.index = index
        self.cursors = asyncio.Semaphore(_CURSORS)

    async def search(self, context: Context, lookup: Lookup) -> Matches:
        for attempt in range(1, _ATTEMPTS + 1):
            searched = EngineSearch(self, context, lookup)
            if not await searched.locate():
                return Matches([])
            newest = await searched.newest()
            found = await searched.matches(newest[: lookup.limit])
            there = [each for each in found if each is not None]
            # A message that was found and is gone was removed meanwhile.
            if (len(there) == len(found) and searched.is_complete) or attempt == _ATTEMPTS:
                return Matches(there, len(newest) > lookup.limit, searched.is_complete)
        raise AssertionError

    async def rank(self, context: Context, lookup: Lookup) -> Ranking:
        for attempt in range(1, _ATTEMPTS + 1):
            searched = EngineSearch(self, context, structs.replace(lookup, below=None))
            if not await searched.locate():
                return Ranking([])
            postings = EntryPostings(searched)
            best = await relevance.best(lookup.query, postings, lookup.limit, neighbours=lookup.neighbours)
            found = await searched.matches([postings.entries[each.key] for each in best])
            pairs = zip(found, best, strict=True)
            there = [RankedMatch(match, each.score) for match, each in pairs if match is not None]
            if (len(there) == len(found) and searched.is_complete) or attempt == _ATTEMPTS:
                return Ranking(there, searched.is_complete and not searched.is_crowded)
        raise AssertionError


class EngineSearch:
    """One search: what it asks the engine, and what heads decide."""

    def __init__(self, store: RedisSearch, context: Context, lookup: Lookup) -> None:
        self._nodes = store.nodes
        self._keys = store.keys
        self._index = store.index
        self._cursors = store.cursors
        self._context = context
        self.lookup = lookup
        self._owner = context.user if lookup.user_id is None else lookup.user_id
        self._heads: dict[str, StoredState | None] = {}
        self._replaced: bytes | None = None
        self.is_complete = True
        """False if a message may be missing, because its text was replaced meanwhile."""
        self.is_crowded = False
        """True if there are more entries than a ranking compares."""
        self._wanted = MessageQuery(
            roles=lookup.roles, participant_ids=lookup.participant_ids, since=lookup.since, until=lookup.until, limit=1
        )

    async def locate(self) -> bool:
        """Returns False if there is nothing to search."""
        self._replaced = await self._index.prepare(self._context.tenant)
        id = self.lookup.conversation_id
        if id is None:
            return True
        await self._load([id])
        head = self._heads[id]
        if head is None or not self._is_searched(head):
            return False
        head.state.branch(self.lookup.branch)  # raises if the branch does not exist
        return True

    # What the engine finds

    async def newest(self) -> list[IndexEntry]:
        """Returns the newest matches, up to one more than the limit."""
        query = EngineQuery(self.lookup, self._context.tenant, self._owner)
        below, found = self.lookup.below, list[IndexEntry]()
        high = "inf" if below is None else str(below[0])
        while True:
            page = await self._page(query, high)
            is_last = len(page) < _PAGE
            if not is_last:
                # The engine has times as floats: all messages of the last one have to be compared.
                last = float(page[-1].created)
                time = f"{last:.0f}"
                same = await self._read_all(query, time, time, terms=not query.is_exact)
                page = [*(each for each in page if float(each.created) > last), *same]
                high = f"({time}"
            page = [each for each in page if below is None or each.position < below]
            page.sort(key=lambda each: each.position, reverse=True)
            found += await self._covered(page, query)
            if is_last or len(found) > self.lookup.limit:
                return found

    async def having(self, clause: Clause) -> list[IndexEntry]:
        query = EngineQuery(self.lookup, self._context.tenant, self._owner, clause)
        found = await self._read_all(query, "-inf", "inf", terms=not query.is_exact, most=_MOST_RANKED)
        if not query.is_exact:
            found = await run_in_thread(_with_clause, found, clause)
        return await self._covered(found, query)

    async def all(self) -> list[IndexEntry]:
        query = EngineQuery(self.lookup, self._context.tenant, self._owner)
        return await self._covered(await self._read_all(query, "-inf", "inf", terms=True, most=_MOST_RANKED), query)

    async def _page(self, query: EngineQuery, high: str) -> list[IndexEntry]:
        fields = _FIELDS if query.is_exact else _WITH_TERMS
        text, *rest = query.between("-inf", high)
        options = ("SORTBY", "at", "DESC", "LIMIT", 0, _PAGE, "RETURN", len(fields), *fields, "TIMEOUT", 0)
        answer = await self._ask("FT.SEARCH", text, *options, *rest)
        return [_entry(row) for row in answer[2::2] if row]

    async def _read_all(
        self, query: EngineQuery, low: str, high: str, *, terms: bool, most: int | None = None
    ) -> list[IndexEntry]:
        fields = [f"@{name}" for name in (_WITH_TERMS if terms else _FIELDS)]
        text, *rest = query.between(low, high)
        options = ("LOAD", len(fields), *fields, "TIMEOUT", 0, "WITHCURSOR", "COUNT", _COUNT, "MAXIDLE", _IDLE)
        async with self._cursors:
            answer, cursor = await self._walk("FT.AGGREGATE", self._keys.index, text, *options, *rest)
            found = [_entry(row) for row in answer[1:] if row]
            while cursor and (most is None or len(found) <= most):
                answer, cursor = await self._walk("FT.CURSOR", "READ", self._keys.index, cursor, "COUNT", _COUNT)
                found += [_entry(row) for row in answer[1:] if row]
            if cursor:
                await self._remove(cursor)
        if most is not None and len(found) > most:
            self.is_crowded = True
        return found[:most]

    async def _walk(self, *command: Any) -> Any:
        """Returns rows and the cursor of the rest. A cancelled search waits for it, to remove the cursor."""
        asked = asyncio.create_task(self._nodes.ask(self._keys.all, command, write=False))
        try:
            return await asyncio.shield(asked)
        except asyncio.CancelledError:
            with suppress(HansardError):  # then the engine removes it when it was idle for long enough
                _, cursor = await asked
                if cursor:
                    await self._remove(cursor)
            raise

    async def _remove(self, cursor: int) -> None:
        await self._nodes.ask(self._keys.all, ("FT.CURSOR", "DEL", self._keys.index, cursor), write=False)

    async def _ask(self, command: str, *values: Any) -> Any:
        return await self._nodes.ask(self._keys.all, (command, self._keys.index, *values), write=False)

    # What is compared, and what heads decide

    async def _covered(self, entries: Sequence[IndexEntry], query: EngineQuery) -> list[IndexEntry]:
        if not query.is_exact:
            entries = await run_in_thread(_matching, entries, self.lookup.query)
        await self._load(each.id for each in entries)
        return [each for each in entries if self._is_wanted(each) and self._covers(each.place)]

    def _is_wanted(self, entry: IndexEntry) -> bool:
        since, until = self.lookup.since, self.lookup.until
        return (since is None or entry.created >= to_micros(since)) and (
            until is None or entry.created < to_micros(until)
        )

    def _covers(self, place: Place) -> bool:
        id, segment, seq = place
        head = self._heads.get(id)
        if head is None or not self._is_searched(head):
            return False
        return self.lookup.all_branches or rules.sees(head.state.branch(self.lookup.branch), segment, seq)

    def _is_searched(self, head: StoredState) -> bool:
        conversation, lookup = head.state.conversation, self.lookup
        return (
            rules.is_visible(conversation, self._context)
            and self._owner in (None, conversation.user_id)
            and lookup.agent_id in (None, conversation.agent_id)
            and rules.has_metadata(conversation, lookup.metadata)
        )

    async def _load(self, ids: Iterable[str]) -> None:
        unknown = [id for id in dict.fromkeys(ids) if id not in self._heads]
        heads = await listing.states_of(self._nodes, self._keys, self._context.tenant, unknown)
        self._heads |= dict(zip(unknown, heads, strict=True))

    # Messages

    async def matches(self, entries: Sequence[IndexEntry]) -> list[Match | None]:
        """Returns the messages of entries, None for one that is gone; and finds out whether these are all."""
        runs = [(each.id, each.segment, each.seq, each.seq) for each in entries]
        placed, (replaced,) = await self._read(runs, self._index.ask_replaced(self._context.tenant))
        self.is_complete = replaced == self._replaced
        found = {(message.conversation_id, segment, message.seq): message for segment, message in placed}
        return [self._match(each, found.get(each.place)) for each in entries]

    def _match(self, entry: IndexEntry, message: Message | None) -> Match | None:
        head = self._heads[entry.id]
        return Match(head.state.conversation, message) if head is not None and message is not None else None

    async def messages_at(self, id: str, segment: int, runs: Sequence[tuple[int, int]]) -> list[Placed]:
        head = self._heads[id]
        assert head is not None
        branch = head.state.branch(self.lookup.branch)
        segments = [segment] if self.lookup.all_branches else [each for each, _ in rules.segments(branch)]
        found, _ = await self._read([(id, each, first, last) for each in segments for first, last in runs])
        return [
            (each, message)
            for each, message in found
            if self._covers((id, each, message.seq)) and rules.is_wanted(message, self._wanted)
        ]

    async def _read(
        self, runs: Sequence[tuple[str, int, int, int]], *more: tuple[str, tuple[Any, ...]]
    ) -> tuple[list[Placed], list[Any]]:
        """Reads runs of messages: the conversation, the segment, and the first and the last seq.

        Returns them, and the answers to more commands.
        """
        roots = [
            f"{self._keys.conversation(self._context.tenant, id)}:messages:{segment}" for id, segment, _, _ in runs
        ]
        asks = [(key, ("ZRANGEBYSCORE", key, run[2], run[3])) for key, run in zip(roots, runs, strict=True)]
        answers = await self._nodes.ask_many([*asks, *more])

        def decode() -> list[Placed]:
            pairs = zip(runs, answers[: len(runs)], strict=True)
            return [(run[1], message) for run, data in pairs for message in rows.messages_of(data, run[0])]

        return await run_in_thread(decode), answers[len(runs) :]


def _entry(row: Sequence[bytes]) -> IndexEntry:
    """Decodes the fields and values of a hash."""
    fields = dict(zip(row[::2], row[1::2], strict=True))
    segment, seq, created, length = (int(fields[name]) for name in (b"segment", b"seq", b"created", b"length"))
    words, more = (fields.get(name, b"").decode() for name in (b"words", b"more"))
    return IndexEntry(fields[b"id"].decode(), segment, seq, created, length, words, more)


def _matching(entries: Sequence[IndexEntry], query: Query) -> list[IndexEntry]:
    return [each for each in entries if query.matches(each.terms)]


def _with_clause(entries: Sequence[IndexEntry], clause: Clause) -> list[IndexEntry]:
    return [each for each in entries if clause.is_in(each.terms)]
