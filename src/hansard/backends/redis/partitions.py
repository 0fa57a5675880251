"""The places of a Redis Cluster as `shared.settling` sees them. Scripts know the time, so no fence is needed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from hansard.backends.redis.batch import Operations, PlaceEffect, WriteBatch
from hansard.backends.redis.keys import RedisKeys, pair_member
from hansard.backends.redis.nodes import Nodes
from hansard.backends.redis.scripts import APPLY, MARK
from hansard.backends.shared.settling import Outgoing, RemovedCounts, WriteMark


class _StoredMark(Struct, array_like=True, frozen=True):
    """The id and stamp of a write in progress, and the blobs that it refers to in advance."""

    id: str
    n: int
    blobs: tuple[str, ...] = ()


class _StoredOutgoing(Struct, array_like=True, frozen=True):
    """An entry of an outbox."""

    id: str
    n: int
    following: list[PlaceEffect]
    name: str = ""
    """That of the write's mark."""


_MARK = msgspec.json.Decoder(_StoredMark)
_OUTGOING = msgspec.msgpack.Decoder(_StoredOutgoing)


class RedisPartitions:
    def __init__(self, nodes: Nodes, keys: RedisKeys) -> None:
        self._nodes = nodes
        self._keys = keys

    async def put_mark(self, tenant: str, mark: WriteMark, seconds: int) -> int:
        encoded = msgspec.json.encode(_StoredMark(mark.id, mark.n, mark.prepared))
        deadline: int = await MARK.run(self._nodes, [self._pending(tenant)], [seconds, mark.name, encoded])
        return deadline

    async def prepare(self, write: WriteBatch, deadline: int) -> bool:
        places = [each for each in write.before.values() if each.values]
        answers = await asyncio.gather(*(each.run(self._nodes, str(deadline)) for each in places))
        return all(answer[0] == 0 for answer in answers)

    async def commit(self, write: WriteBatch, deadline: int) -> Sequence[Outgoing[PlaceEffect]] | None:
        if write.effects:
            entry = msgspec.msgpack.encode(_StoredOutgoing(write.id, write.n, write.effects, write.mark.name))
            write.do("RPUSH", "outbox", entry)
        if (await write.own.run(self._nodes, str(deadline)))[0] != 0:
            return None
        return await self.outbox(write.tenant, write.mark)

    async def outbox(self, tenant: str, mark: WriteMark) -> Sequence[Outgoing[PlaceEffect]]:
        key = self._outbox(tenant, mark.id)
        entries = await self._nodes.ask(key, ("LRANGE", key, 0, -1), write=True)
        found = [(_OUTGOING.decode(entry), entry) for entry in entries]
        return [Outgoing(stored.n, stored.following, entry, stored.name) for stored, entry in found]

    async def remove_outgoing(self, tenant: str, id: str, outgoing: Outgoing[PlaceEffect]) -> None:
        key = self._outbox(tenant, id)
        await self._nodes.ask(key, ("LREM", key, 1, outgoing.entry), write=True)

    async def apply(self, id: str, n: int, effect: PlaceEffect) -> RemovedCounts:
        return RemovedCounts(*await APPLY.run(self._nodes, effect.keys, [id, n, *effect.values]))

    async def undo(self, tenant: str, mark: WriteMark) -> None:
        """Removes the blob references that a write announced and did not make."""
        if not mark.prepared:
            return
        await self._raise_stamp(tenant, mark)
        root = self._keys.conversation(tenant, mark.id)
        for sha256 in mark.prepared:
            if not await self._nodes.ask(root, ("HEXISTS", f"{root}:blobs", sha256), write=True):
                operations = Operations()
                operations.add("undo", self._keys.bucket(tenant, sha256), sha256, mark.id, mark.n)
                await operations.run(self._nodes)

    async def _raise_stamp(self, tenant: str, mark: WriteMark) -> None:
        """Gives later writes of the conversation higher stamps than this one has, whose clock may have been ahead.

        With lower ones they could not release the blobs that it has announced.
        """
        root = self._keys.conversation(tenant, mark.id)
        if not await self._nodes.ask(root, ("EXISTS", f"{root}:head"), write=True):
            # Its grave gets the stamp, and a sweep removes the grave.
            schedule = ("ZADD", self._keys.deleted, "LT", mark.n, pair_member(tenant, mark.id))
            await self._nodes.ask(self._keys.all, schedule, write=True)
        operations = Operations()
        operations.add("raise", root, mark.n)
        await operations.run(self._nodes)

    async def clear_mark(self, tenant: str, mark: WriteMark) -> None:
        key = self._pending(tenant)
        await self._nodes.ask(key, ("HDEL", key, mark.name), write=True)

    async def marks(self, tenant: str) -> Sequence[tuple[WriteMark, int]]:
        key = self._pending(tenant)
        found = await self._nodes.ask(key, ("HGETALL", key), write=True)
        marks: list[tuple[WriteMark, int]] = []
        for name, value in zip(found[::2], found[1::2], strict=True):
            deadline, _, encoded = value.partition(b" ")
            stored = _MARK.decode(encoded)
            marks.append((WriteMark(stored.id, stored.n, 0, stored.blobs, name=name.decode()), int(deadline)))
        return marks

    async def now(self, tenant: str) -> int:
        return int((await self._nodes.ask(self._pending(tenant), ("TIME",), write=True))[0])

    def _pending(self, tenant: str) -> str:
        return f"{self._keys.tenant(tenant)}:pending"

    def _outbox(self, tenant: str, id: str) -> str:
        return f"{self._keys.conversation(tenant, id)}:outbox"
