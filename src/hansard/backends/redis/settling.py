"""How a write reaches several places.

On one server it does so in one script. In a cluster other places may be on other nodes, and a writer may die between
any two steps. So:

1. The write is *marked* in its tenant's place, with a deadline, and what others will rely on is done (`before`).
2. The script changes the conversation, unless the deadline has passed, and puts what follows (`after`) into the
   conversation's *outbox* in the same step. From here on the write has happened.
3. The outbox is emptied, oldest first: what follows is applied, place by place, once and in order, because each place
   remembers the newest `n` of each conversation that it has seen.
4. The mark is cleared.

Whoever reads a place that others write to (a list, usage, a sweep) first settles the tenant's marks: it does steps 3
and 4 for writers that have not come to it yet, or never will. A mark whose deadline is long over is cleared, and what
step 1 did in vain is undone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from hansard.backends.redis.batch import Batch, Operations
from hansard.backends.redis.keys import Keys
from hansard.backends.redis.nodes import Nodes
from hansard.backends.redis.scripts import APPLY, MARK
from hansard.errors import Unavailable

DEADLINE = 10
"""Seconds that a write may take from its mark to its commit."""
_GRACE = 60
"""Seconds after the deadline when nobody can be about to commit any longer, whatever the nodes' clocks say."""


class Mark(Struct, array_like=True, frozen=True):
    """Who is going to write what, and which blobs it refers to beforehand."""

    id: str
    n: int
    blobs: tuple[str, ...] = ()


class Following(Struct, array_like=True, frozen=True):
    """What follows from a write at one place: see `scripts/apply.lua`."""

    keys: list[str]
    values: list[Any]


class Outgoing(Struct, array_like=True, frozen=True):
    """An entry of an outbox."""

    id: str
    n: int
    following: list[Following]


_MARK = msgspec.json.Decoder(Mark)
_OUTGOING = msgspec.msgpack.Decoder(Outgoing)


class Settling:
    def __init__(self, nodes: Nodes, keys: Keys) -> None:
        self._nodes = nodes
        self._keys = keys

    async def commit(self, batch: Batch) -> list[int]:
        """The answer of the script `write`, with all that went anywhere."""
        if not batch.before and not batch.after:
            return await batch.own.run(self._nodes)
        deadline = await self._announce(batch)
        following = [Following(each.keys, each.values) for each in batch.after.values() if each.values]
        outgoing = msgspec.msgpack.encode(Outgoing(batch.id, batch.n, following))
        if following:
            batch.do("RPUSH", "outbox", outgoing)
        answer = await batch.own.run(self._nodes, str(deadline))
        if answer[0] != 0:
            await self._undo(batch.tenant, _mark_of(batch))
            await self._unmark(batch)
            return answer
        try:
            # What others left there before comes first: a place passes over what is older than what it has seen.
            gone = await self._finish(batch.tenant, batch.id, batch.n)
            await self._unmark(batch)
        except Unavailable as error:
            # Whatever became of this step, the write itself has happened.
            raise type(error)(str(error), retryable=error.retryable, outcome="unknown") from error
        return [0, *gone]

    async def _announce(self, batch: Batch) -> int:
        mark = msgspec.json.encode(_mark_of(batch))
        pending = f"{self._keys.tenant(batch.tenant)}:pending"
        # The mark comes first: what is done beforehand must be found by whoever clears up.
        deadline: int = await MARK.run(self._nodes, [pending], [DEADLINE, f"{batch.n}:{batch.id}", mark])
        await asyncio.gather(*(each.run(self._nodes) for each in batch.before.values() if each.values))
        return deadline

    async def _apply(self, id: str, n: int, following: Sequence[Following]) -> tuple[int, int]:
        """Blobs and records that went."""
        gone = await asyncio.gather(*(APPLY.run(self._nodes, each.keys, [id, n, *each.values]) for each in following))
        return sum(blobs for blobs, _ in gone), sum(records for _, records in gone)

    async def _unmark(self, batch: Batch) -> None:
        pending = f"{self._keys.tenant(batch.tenant)}:pending"
        await self._nodes.ask(pending, ("HDEL", pending, f"{batch.n}:{batch.id}"), write=True)

    async def _undo(self, tenant: str, mark: Mark) -> None:
        """Takes back the uses of blobs that a write announced and did not make."""
        root = self._keys.conversation(tenant, mark.id)
        for sha256 in mark.blobs:
            if not await self._nodes.ask(root, ("HEXISTS", f"{root}:blobs", sha256), write=True):
                bucket = self._keys.bucket(tenant, sha256)
                operations = Operations()
                # It stays until a sweep: it may have been put by itself meanwhile.
                operations.add("release", bucket, sha256, mark.id, mark.n, "-inf")
                await operations.run(self._nodes)

    # Helping

    async def settle(self, tenant: str) -> None:
        """Finishes what writers have left open in a tenant."""
        if not self._nodes.is_cluster:
            return
        pending = f"{self._keys.tenant(tenant)}:pending"
        marks = await self._nodes.ask(pending, ("HGETALL", pending), write=True)
        if not marks:
            return
        now = int((await self._nodes.ask(pending, ("TIME",), write=True))[0])
        for name, value in zip(marks[::2], marks[1::2], strict=True):
            deadline, _, text = value.partition(b" ")
            mark = _MARK.decode(text)
            await self._finish(tenant, mark.id)
            if now > int(deadline) + _GRACE:
                await self._undo(tenant, mark)
                await self._nodes.ask(pending, ("HDEL", pending, name), write=True)

    async def _finish(self, tenant: str, id: str, n: int = 0) -> tuple[int, int]:
        """Empties the outbox of a conversation, oldest first. Gives what went with the write `n`."""
        outbox = f"{self._keys.conversation(tenant, id)}:outbox"
        gone = (0, 0)
        for entry in await self._nodes.ask(outbox, ("LRANGE", outbox, 0, -1), write=True):
            outgoing = _OUTGOING.decode(entry)
            went = await self._apply(outgoing.id, outgoing.n, outgoing.following)
            gone = went if outgoing.n == n else gone
            await self._nodes.ask(outbox, ("LREM", outbox, 1, entry), write=True)
        return gone


def _mark_of(batch: Batch) -> Mark:
    return Mark(batch.id, batch.n, tuple(sorted(batch.uses)))
