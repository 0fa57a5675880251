"""A storage in memory whose partitions change in one step each, and processes that die between any two steps."""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Sequence

from msgspec import Struct

from hansard.backends.shared.settling import Outgoing, RemovedCounts, Settling, WriteMark

TENANT = "t"
Effect = tuple[str, int]
"""A place, and the amount to add there. The order of amounts shows the order of writes."""


class Dead(BaseException):
    """The process has come to its end."""


class Write(Struct, frozen=True):
    tenant: str
    mark: WriteMark
    effects: tuple[Effect, ...]


class Conversation:
    def __init__(self) -> None:
        self.stamp = 0
        self.written: list[int] = []
        self.refers: set[str] = set()
        self.outbox: list[tuple[int, tuple[Effect, ...]]] = []


class Place:
    def __init__(self) -> None:
        self.seen: dict[str, int] = {}
        self.amounts: dict[str, list[int]] = defaultdict(list)
        self.gone: dict[tuple[str, int], RemovedCounts] = {}


class World:
    """What is stored."""

    def __init__(self) -> None:
        self.now = 1000
        self.stamps = itertools.count(1)
        self.marks: dict[tuple[str, int], tuple[WriteMark, int]] = {}
        self.conversations: dict[str, Conversation] = defaultdict(Conversation)
        self.places: dict[str, Place] = defaultdict(Place)
        self.uses: dict[str, dict[str, int]] = defaultdict(dict)
        """For each blob the conversations that refer to it, with the stamp of the newest write that prepared it."""

    def problems(self) -> list[str]:
        """What readers of different places would not agree on."""
        found = []
        for id, conversation in self.conversations.items():
            for name, place in self.places.items():
                if place.amounts[id] != conversation.written:
                    found.append(f"{name} has {place.amounts[id]} of {id}, which has {conversation.written}")
            missing = [blob for blob in conversation.refers if id not in self.uses[blob]]
            found += [f"{id} refers to {blob}, which nobody keeps for it" for blob in missing]
        return found

    def left_over(self) -> list[str]:
        """What nobody needs, and nobody would find."""
        uses = [(blob, id) for blob, users in self.uses.items() for id in users]
        found = [f"{blob} is kept for {id}" for blob, id in uses if blob not in self.conversations[id].refers]
        return found + [f"an outbox of {id}" for id, each in self.conversations.items() if each.outbox]


class Process:
    """One process that uses the storage. It dies before its step number `dies_at`, and stops at `pauses_at`."""

    def __init__(
        self, world: World, *, knows_time: bool, dies_at: int | None = None, pauses_at: str | None = None
    ) -> None:
        self.world = world
        self.steps = 0
        self.paused = asyncio.Event()
        self.goes_on = asyncio.Event()
        self._knows_time = knows_time
        self._dies_at = dies_at
        self._pauses_at = pauses_at
        self.settling: Settling[Write, Effect] = Settling(self, fence=None if knows_time else self.fence)

    async def _step(self, name: str) -> None:
        if name == self._pauses_at:
            self._pauses_at = None
            self.paused.set()
            await self.goes_on.wait()
        # Others may come in between.
        await asyncio.sleep(0)
        self.steps += 1
        if self._dies_at is not None and self.steps >= self._dies_at:
            raise Dead

    async def write(self, id: str, amount: int, blobs: tuple[str, ...] = (), *places: str) -> bool:
        conversation = self.world.conversations[id]
        mark = WriteMark(id, next(self.world.stamps), conversation.stamp, blobs)
        return await self.settling.commit(Write(TENANT, mark, tuple((place, amount) for place in places))) is not None

    async def settle(self) -> None:
        await self.settling.settle(TENANT)

    # Partitions

    async def put_mark(self, tenant: str, mark: WriteMark, seconds: int) -> int:
        await self._step("mark")
        deadline = self.world.now + seconds
        self.world.marks[mark.id, mark.n] = (mark, deadline)
        return deadline

    async def prepare(self, write: Write, deadline: int) -> bool:
        for blob in write.mark.prepared:
            await self._step("prepare")
            if self._is_late(deadline):
                return False
            self.world.uses[blob][write.mark.id] = write.mark.n
        return True

    def _is_late(self, deadline: int) -> bool:
        return self._knows_time and self.world.now > deadline

    async def commit(self, write: Write, deadline: int) -> Sequence[Outgoing[Effect]] | None:
        await self._step("commit")
        conversation = self.world.conversations[write.mark.id]
        if self._is_late(deadline) or conversation.stamp != write.mark.after:
            return None
        conversation.stamp = write.mark.n
        conversation.written.append(write.effects[0][1])
        conversation.refers.update(write.mark.prepared)
        conversation.outbox.append((write.mark.n, write.effects))
        return await self.outbox(write.tenant, write.mark)

    async def outbox(self, tenant: str, mark: WriteMark) -> Sequence[Outgoing[Effect]]:
        await self._step("outbox")
        return [Outgoing(n, effects, (n, effects)) for n, effects in self.world.conversations[mark.id].outbox]

    async def remove_outgoing(self, tenant: str, id: str, outgoing: Outgoing[Effect]) -> None:
        await self._step("remove")
        outbox = self.world.conversations[id].outbox
        if outgoing.entry in outbox:
            outbox.remove(outgoing.entry)

    async def apply(self, id: str, n: int, effect: Effect) -> RemovedCounts:
        await self._step("apply")
        place = self.world.places[effect[0]]
        if place.seen.get(id, 0) < n:
            place.seen[id] = n
            place.amounts[id].append(effect[1])
            place.gone[id, n] = RemovedCounts(blobs=effect[1])
        return place.gone.get((id, n), RemovedCounts())

    async def undo(self, tenant: str, mark: WriteMark) -> None:
        for blob in mark.prepared:
            await self._step("undo")
            users = self.world.uses[blob]
            if blob not in self.world.conversations[mark.id].refers and users.get(mark.id) == mark.n:
                users.pop(mark.id)

    async def clear_mark(self, tenant: str, mark: WriteMark) -> None:
        await self._step("clear")
        self.world.marks.pop((mark.id, mark.n), None)

    async def marks(self, tenant: str) -> Sequence[tuple[WriteMark, int]]:
        await self._step("marks")
        return list(self.world.marks.values())

    async def now(self, tenant: str) -> int:
        await self._step("now")
        return self.world.now

    async def fence(self, tenant: str, mark: WriteMark) -> None:
        await self._step("fence")
        conversation = self.world.conversations[mark.id]
        if conversation.stamp == mark.after:
            conversation.stamp = next(self.world.stamps)
