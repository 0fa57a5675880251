"""The search index of Redis' query engine (RediSearch), where a server has one. A cluster has none.

The engine indexes a hash for each message: its terms as tags, whom it belongs to, and its time. Appends do not wait for
it: the messages without a hash, or with an outdated one, wait in a sorted set of their tenant, and a search puts them
into the index first. A write that replaces the text of a message, or removes it, deletes its hash in the same script. A
hash is put only if its message still waits as it was read, so an indexer that is late, or dies, leaves nothing that is
outdated.

A tenant has an index from its first search on. Then the field `version` of its state is set; a state without it, or
with another one, means that messages may be missing, so the next search lets all of them wait.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

from hansard.analysis import GAP, VERSION, columns, searchable
from hansard.backends.redis import listing, rows
from hansard.backends.redis.batch import Operations
from hansard.backends.redis.errors import refuses_writes
from hansard.backends.redis.keys import RedisKeys
from hansard.backends.redis.nodes import Nodes
from hansard.backends.redis.scripts import INDEX
from hansard.contract.storage import Placed
from hansard.errors import Denied, FormatMismatch, Unavailable
from hansard.executor import run_in_thread
from hansard.model import Message, to_micros

_log = logging.getLogger("hansard.redis")
_TAGS = ("TAG", "SEPARATOR", " ", "CASESENSITIVE")
_SCHEMA = ("k", *_TAGS, "words", *_TAGS, "more", *_TAGS, "begins", *_TAGS, "at", "NUMERIC", "SORTABLE")
_PIECE = 200
"""Messages that are indexed in one script."""
_PATIENCE = 10.0
"""Seconds for the engine to read the hashes of a server that was restarted."""
_PAUSE = 0.02

Waiting = tuple[bytes, bytes]
"""A message that waits, as the sorted set names it, and its score."""


class _State(NamedTuple):
    version: int | None
    replaced: bytes | None
    newest: list[Waiting]
    """The last message that waits."""
    engine: dict[bytes, Any]


# Hashes


@lru_cache(8192)
def tag(kind: str, name: str) -> str:
    """Returns the tag of a tenant (t), user (u), conversation (c), role (r) or participant (p), whatever its name."""
    return kind + hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def begin_of(start: str) -> str:
    """Returns the tag of all words that may begin so."""
    return f"3{start[:3]}" if len(start) > 2 else f"1{start[0]}"


def _begins(words: Iterable[str]) -> set[str]:
    found = set(words) - {GAP}
    return {f"1{word[0]}" for word in found} | {f"3{word[:3]}" for word in found if len(word) > 2}


def _hash_of(tenant: str, owner: str | None, segment: int, message: Message) -> list[Any]:
    """Returns the fields and values of a message. CPU-bound."""
    words, more = columns(searchable(message))
    listed = words.split()
    tags = [tag("t", tenant), tag("c", message.conversation_id), tag("r", message.role)]
    if owner is not None:
        tags.append(tag("u", owner))
    if message.participant is not None:
        tags.append(tag("p", message.participant.id))
    created = to_micros(message.created_at)
    made = {
        "k": " ".join(tags),
        "words": words,
        "more": more,
        "begins": " ".join(_begins([*listed, *more.split()])),
        "at": created,
        "id": message.conversation_id,
        "segment": segment,
        "seq": message.seq,
        "created": created,
        "length": len(listed),
    }
    return [each for pair in made.items() for each in pair]


class RedisIndex:
    def __init__(self, nodes: Nodes, keys: RedisKeys) -> None:
        self._nodes = nodes
        self._keys = keys
        self.is_there = False
        """Whether the server has a query engine that we may use."""

    async def open(self) -> None:
        """Finds out whether the server has an engine, and makes the index."""
        if self._nodes.is_cluster:
            return
        try:
            await self._find_or_create()
            # Not every module with these commands has all that a search needs.
            nothing = f"@k:{{{tag('t', '')}}}"
            sorted_page = ("FT.SEARCH", self._keys.index, nothing, "SORTBY", "at", "DESC", "LIMIT", 0, 1, "DIALECT", 2)
            walk = ("FT.AGGREGATE", self._keys.index, nothing, "LOAD", 1, "@id", "WITHCURSOR", "COUNT", 1)
            await self._nodes.ask_many([(self._keys.all, sorted_page), (self._keys.all, walk)])
        except (Denied, FormatMismatch):
            return  # no engine, or not for us
        except Unavailable as error:
            # Only database 0 can have an index; and a server that refuses writes can still be read.
            if error.retryable and not refuses_writes(error):
                raise
            level = logging.WARNING if error.retryable else logging.INFO
            _log.log(level, "searches scan the messages until the store is opened again: %s", error)
            return
        self.is_there = True

    async def _find_or_create(self) -> None:
        try:
            await self._nodes.ask(self._keys.all, ("FT.INFO", self._keys.index), write=False)
        except Unavailable as error:
            if error.retryable:
                raise
            await self._create()

    async def _create(self) -> None:
        create = ("FT.CREATE", self._keys.index, "ON", "HASH", "PREFIX", 1, self._keys.entries, "SCHEMA", *_SCHEMA)
        try:
            await self._nodes.ask(self._keys.all, create, write=True)
        except Unavailable as error:
            if "already exists" not in str(error):
                raise

    # Before a search

    async def prepare(self, tenant: str) -> bytes | None:
        """Returns when every message that is stored now is in the index; the answer is that of `ask_replaced`."""
        state = await self._state(tenant)
        if state.version != VERSION:
            await self._queue_everything(tenant)
            state = await self._state(tenant)
        if state.newest:
            await self._index_until(tenant, state.newest[0][1])
        if state.engine.get(b"indexing") not in (0, b"0"):
            await self._wait_for_engine()
        return state.replaced

    def ask_replaced(self, tenant: str) -> tuple[str, tuple[Any, ...]]:
        """Returns the command that reads how many messages have left the index to be indexed again.

        If that changes during a search, the search may have missed one.
        """
        state = self._keys.index_state(tenant)
        return state, ("HGET", state, "replaced")

    async def _state(self, tenant: str) -> _State:
        keys = self._keys
        state, queue = keys.index_state(tenant), keys.unindexed(tenant)
        asks: list[tuple[str, tuple[Any, ...]]] = [
            (state, ("HGET", state, "version")),
            self.ask_replaced(tenant),
            (queue, ("ZREVRANGE", queue, 0, 0, "WITHSCORES")),
        ]
        try:
            version, replaced, newest, info = await self._nodes.ask_many([*asks, (state, ("FT.INFO", keys.index))])
        except Unavailable as error:
            if error.retryable:
                raise
            await self._create()  # somebody has dropped it, or emptied the server
            version, replaced, newest, info = await self._nodes.ask_many([*asks, (state, ("FT.INFO", keys.index))])
        known = int(version) if version is not None else None
        return _State(known, replaced, _pairs(newest), dict(zip(info[::2], info[1::2], strict=True)))

    async def _wait_for_engine(self) -> None:
        give_up = time.monotonic() + _PATIENCE
        while time.monotonic() < give_up:
            info = await self._nodes.ask(self._keys.all, ("FT.INFO", self._keys.index), write=False)
            if dict(zip(info[::2], info[1::2], strict=True)).get(b"indexing") in (0, b"0"):
                return
            await asyncio.sleep(_PAUSE)
        raise Unavailable("Redis' query engine is still reading its index: try again in a moment")

    # Indexing

    async def _queue_everything(self, tenant: str) -> None:
        """Lets all messages of a tenant wait. From the first step on, writers let theirs wait, too."""
        keys = self._keys
        state, queue = keys.index_state(tenant), keys.unindexed(tenant)
        await self._nodes.ask(state, ("HSET", state, "since", time.time_ns() // 1000), write=True)
        async for members in listing.everything(self._nodes, keys, tenant):
            queued = Operations()
            for id in map(listing.id_of, members):
                ids = f"{keys.conversation(tenant, id)}:ids"
                queued.add("queue_others", queue, id, time.time_ns() // 1000, ids)
            await queued.run(self._nodes)
        await self._nodes.ask(state, ("HSET", state, "version", VERSION), write=True)

    async def _index_until(self, tenant: str, score: bytes) -> int:
        """Indexes the messages that wait, up to this score. Returns how many."""
        queue, done = self._keys.unindexed(tenant), 0
        while True:
            ask = ("ZRANGEBYSCORE", queue, "-inf", score, "WITHSCORES", "LIMIT", 0, _PIECE)
            waiting = _pairs(await self._nodes.ask(queue, ask, write=False))
            if not waiting:
                return done
            done += await self._index(tenant, waiting)

    async def _index(self, tenant: str, waiting: Sequence[Waiting]) -> int:
        """Indexes the first of these messages, as many as may be read at once. Returns how many."""
        keys = self._keys
        places = [_place(member) for member, _ in waiting]
        ids = list(dict.fromkeys(id for _, _, id in places))
        states = dict(zip(ids, await listing.states_of(self._nodes, keys, tenant, ids), strict=True))
        owners = {id: each.state.conversation.user_id if each else None for id, each in states.items()}
        sizes = accumulate(each.largest if (each := states[id]) else 0 for _, _, id in places)
        count = max(1, sum(size <= rows.PIECE_BYTES for size in sizes))
        waiting, places = waiting[:count], places[:count]
        segments = [f"{keys.conversation(tenant, id)}:messages:{segment}" for segment, _, id in places]
        asks = [(key, ("ZRANGEBYSCORE", key, seq, seq)) for key, (_, seq, _) in zip(segments, places, strict=True)]
        found = [each[0] if each else b"" for each in await self._nodes.ask_many(asks)]

        def values() -> list[Any]:
            made: list[Any] = []
            for one, (segment, seq, id), key, data in zip(waiting, places, segments, found, strict=True):
                fields = []
                if data:
                    (message,) = rows.messages_of([data], id)
                    fields = _hash_of(tenant, owners[id], segment, message)
                digest = hashlib.sha1(data, usedforsecurity=False).hexdigest()
                entry = f"{keys.index_entries(tenant, id)}:{segment}:{seq}"
                made += (*one, key, seq, digest, entry, len(fields), *fields)
            return made

        # Like a read: it may be repeated if the connection is lost.
        names = [keys.unindexed(tenant), keys.index_state(tenant)]
        await INDEX.run(self._nodes, names, await run_in_thread(values), write=False)
        return count

    # All tenants

    async def catch_up(self, tenants: Iterable[str]) -> None:
        for tenant in tenants:
            await self.prepare(tenant)

    async def rebuild(self, tenant: str) -> int:
        """Indexes all messages of a tenant again. Returns how many."""
        await self._queue_everything(tenant)
        newest = (await self._state(tenant)).newest
        return await self._index_until(tenant, newest[0][1]) if newest else 0

    async def waiting(self, tenant: str) -> int | None:
        """Returns how many messages wait; None for all of them, because the tenant has no index yet."""
        state, queue = self._keys.index_state(tenant), self._keys.unindexed(tenant)
        version, count = await self._nodes.ask_many([(state, ("HGET", state, "version")), (queue, ("ZCARD", queue))])
        return int(count) if version == b"%d" % VERSION else None

    async def missing(self, tenant: str, id: str, owner: str | None, messages: Sequence[Placed]) -> int:
        """Returns how many of these messages neither wait for the index nor are in it as this user's."""
        if not self.is_there or await self.waiting(tenant) is None:
            return 0
        entries, queue = self._keys.index_entries(tenant, id), self._keys.unindexed(tenant)
        asks: list[tuple[str, tuple[Any, ...]]] = []
        for segment, message in messages:
            entry = f"{entries}:{segment}:{message.seq}"
            asks += ((queue, ("ZSCORE", queue, f"{segment} {message.seq} {id}")), (entry, ("HGET", entry, "k")))
        found = await self._nodes.ask_many(asks)
        pairs = zip(found[::2], found[1::2], strict=True)
        return sum(score is None and not _belongs(tags, owner) for score, tags in pairs)

    async def forget(self, tenant: str) -> None:
        """Removes what is left of a tenant whose conversations are gone."""
        for key in (self._keys.index_state(tenant), self._keys.unindexed(tenant)):
            await self._nodes.ask(key, ("UNLINK", key), write=True)


def _pairs(found: Sequence[bytes]) -> list[Waiting]:
    return list(zip(found[::2], found[1::2], strict=True))


def _belongs(tags: bytes | None, owner: str | None) -> bool:
    """Returns whether these are the tags of a message of this user."""
    if tags is None:
        return False
    users = [each for each in tags.decode().split() if each.startswith("u")]
    return users == ([] if owner is None else [tag("u", owner)])


def _place(member: bytes) -> tuple[int, int, str]:
    """Returns the segment, the seq and the conversation of a message that waits."""
    segment, seq, id = member.decode().split(" ", 2)
    return int(segment), int(seq), id
