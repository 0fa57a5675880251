"""Writes: planned on what is known, committed only if that still holds, planned again if it does not.

The rules are Python, and Redis runs Lua. So a write reads the head, or remembers it, decides, and sends one script that
checks the head's `n` and applies everything at once. Where somebody else was faster nothing has happened, and the
write is planned again. Writers of one process take turns for each conversation, so that they do not disturb each
other; an append leaves its turn as soon as it is sent, and the next one builds on what it is going to be. Many appends
to one conversation thus share a round trip.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

from msgspec import Struct

from hansard import rules
from hansard.backends.redis.batch import Batch
from hansard.backends.redis.coding import Entry
from hansard.backends.redis.heads import Ask, Heads, Name, Tomb
from hansard.backends.redis.keys import Keys
from hansard.backends.redis.nodes import Nodes
from hansard.backends.redis.settling import Settling
from hansard.backends.signals import Signals
from hansard.contract.types import Context
from hansard.errors import HansardError, TimedOut

T = TypeVar("T")

_PATIENCE = 30.0
"""Seconds in which a write that others keep overtaking is planned again."""
_MANY = 1000


class Gone(Struct, frozen=True):
    """What went from other places with a write."""

    blobs: int = 0
    records: int = 0


class Write(Struct, Generic[T]):
    """A planned write: the batch (None when there is nothing to do), the conversation after it, and the answer."""

    batch: Batch | None
    entry: Entry | None
    answer: Callable[[Gone], T]


class _Turn:
    """Whose turn it is to plan a write of a conversation: `async with` it. It is kept while somebody wants it."""

    __slots__ = ("_lock", "_name", "_turns", "_users")

    def __init__(self, turns: dict[Name, _Turn], name: Name) -> None:
        self._turns = turns
        self._name = name
        self._lock = asyncio.Lock()
        self._users = 0

    async def __aenter__(self) -> None:
        self._users += 1
        try:
            await self._lock.acquire()
        except BaseException:
            self._leave()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()
        self._leave()

    def _leave(self) -> None:
        self._users -= 1
        if not self._users:
            del self._turns[self._name]


class Moved(Exception):
    """The conversation is no longer what the plan was made on."""


class Duplicate(Exception):
    """Something that was taken to be new is there already."""


Planner = Callable[[Entry | Tomb], Awaitable[Write[T]]]


class Writer:
    def __init__(self, nodes: Nodes, keys: Keys, heads: Heads, settling: Settling) -> None:
        self.nodes = nodes
        self.keys = keys
        self.heads = heads
        self.signals = Signals()
        self._settling = settling
        self._turns: dict[Name, _Turn] = {}

    def begin(self, context: Context, id: str, found: Entry | Tomb) -> Batch:
        """A batch that happens only if the conversation, or its absence, is still what was found."""
        # Never given twice, and growing over deletions: from the clock, or else one more than the last.
        n = max(found.n + 1, time.time_ns() // 1000)
        batch = Batch(self.keys, context.tenant, id, n, cluster=self.nodes.is_cluster)
        if isinstance(found, Entry):
            batch.check("head", "n", found.n)
        else:
            batch.check("head", "n", "")
            batch.check("graves", "n", found.n or "")
        batch.must_hold = len(batch.checks) // 3
        return batch

    async def change(self, context: Context, id: str, plan: Planner[T], *, hold: bool = True) -> T:
        """Plans and commits until nobody was faster. Without `hold`, the next write need not wait for this one."""
        name = (context.tenant, id)
        # In a cluster a write takes several steps, so that the next could overtake it.
        hold = hold or self.nodes.is_cluster
        give_up = time.monotonic() + _PATIENCE
        while time.monotonic() < give_up:
            gone: Gone | None = None
            async with self._turn(name):
                write = await self._plan(name, plan)
                if write is None:
                    continue
                if write.batch is None:
                    return write.answer(Gone())
                if hold:
                    gone = await self._commit(name, write, write.batch)
                elif write.entry is not None:
                    self.heads.expect(name, write.entry)
            if not hold:
                gone = await self._commit(name, write, write.batch)
            if gone is not None:
                self.signals.notify(name)
                return write.answer(gone)
        raise TimedOut(f"others kept changing conversation {id!r} for {_PATIENCE:.0f} seconds", outcome="not_applied")

    def _turn(self, name: Name) -> _Turn:
        turn = self._turns.get(name)
        if turn is None:
            turn = self._turns[name] = _Turn(self._turns, name)
        return turn

    async def _plan(self, name: Name, plan: Planner[T]) -> Write[T] | None:
        """A plan, or None when it has to be made again. What is only remembered is no ground to refuse anything."""
        remembered = self.heads.latest(name)
        if remembered is not None:
            try:
                write = await plan(remembered)
                if write.batch is not None:
                    return write
            except (HansardError, Moved):
                pass
        try:
            return await plan(await self.heads.look_for_writing(name))
        except Moved:
            return None

    async def _commit(self, name: Name, write: Write[T], batch: Batch) -> Gone | None:
        """What went, or None when somebody else was faster."""
        try:
            answer = await self._settling.commit(batch)
        except BaseException:
            self.heads.forget(name)
            raise
        if answer[0] == 0:
            if write.entry is None:
                self.heads.forget(name)
            else:
                self.heads.keep(name, write.entry)
            return Gone(*answer[1:])
        self.heads.forget(name)
        if answer[0] > batch.must_hold:
            raise Duplicate
        return None

    async def look(self, context: Context, id: str, found: Entry | Tomb, *asks: Ask) -> list[Any]:
        """More of what a plan is made on, of the same moment."""
        seen = await self.heads.look((context.tenant, id), asks, write=True)
        if (seen.entry.n if seen.entry else 0) != (found.n if isinstance(found, Entry) else 0):
            raise Moved
        return seen.answers

    async def look_up(
        self, context: Context, id: str, found: Entry | Tomb, part: str, fields: Sequence[str]
    ) -> dict[str, bytes]:
        """Those of these fields of a hash that are there."""
        values: list[bytes | None] = []
        for start in range(0, len(fields), _MANY):
            (piece,) = await self.look(context, id, found, ("HMGET", part, *fields[start : start + _MANY]))
            values += piece
        return {field: value for field, value in zip(fields, values, strict=True) if value is not None}


def visible(found: Entry | Tomb, context: Context) -> Entry | None:
    if isinstance(found, Entry) and rules.is_visible(found.head.conversation, context):
        return found
    return None


def needed(found: Entry | Tomb, context: Context, id: str) -> Entry:
    entry = visible(found, context)
    if entry is None:
        raise rules.not_found(id)
    return entry
