"""How a write reaches several partitions of a storage whose transactions cover only one.

A conversation is one partition; lists of conversations, usage and blobs are others. A writer may die between any two
steps. So:

1. The write is *marked* in its tenant's partition, with a deadline, and what others will rely on is *prepared*: bytes
   of blobs, for example, must be there before a message refers to them.
2. The conversation is *committed*: in one step it is compared, changed, and given an entry in its *outbox* with the
   *effects* that the write has elsewhere. From here on the write has happened.
3. The outbox is emptied, oldest first: the effects are applied, place by place, once and in order, because each place
   remembers the newest write of each conversation that it has seen.
4. The mark is cleared.

Before a process reads a place that others write to (a list, usage, a sweep), it settles the marks of the tenant: it
does steps 3 and 4 for writers that have not come to it yet, or never will. A mark that is long overdue is cleared, and
what step 1 prepared in vain is undone. It is not undone before, not even by a writer that was too late to commit:
another writer may have prepared the same, and be about to commit.

**Overdue writers** must not commit any longer: nobody would look for their outbox. A storage that knows the time
inside its write refuses a commit after the deadline. One that does not gives a `fence`: before an overdue mark is
cleared, the head of its conversation gets another stamp, and the writer's comparison fails.

**A storage of your own** brings three things:

- a *write*: any object with a `tenant`, a `mark` and its `effects`;
- `Partitions`, each method a step that may be repeated. Decide where the outbox lies. A partition with several rows
  holds its entries (`redis`): the commit adds one, `remove_outgoing` removes it. Where a partition is a single value
  (`keyvalue`), the effects travel in `WriteMark.carried`: then the outbox of a mark is those effects if the
  conversation has the mark's stamp, and `remove_outgoing` has nothing to do, because clearing the mark removes them;
- a `fence`, unless its commit compares the deadline with a clock.

It calls `Settling.commit` for a write that reaches more than one partition, and `Settling.settle` before it reads what
only effects write. `tests/backends/shared` has the smallest `Partitions`, with processes that die at every step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct

from hansard.errors import Unavailable

DEADLINE = 10
"""Seconds that a write may take from its mark to its commit."""
GRACE = 60
"""Seconds after the deadline when a mark is cleared: so far apart may the clocks of the storage's nodes be."""


class WriteMark(Struct, frozen=True):
    """A write that is under way."""

    id: str
    n: int
    """Its stamp: higher than that of every earlier write to this conversation, also of one that was deleted."""
    after: int
    """The stamp of the conversation that it was decided on; 0 where there was none."""
    prepared: tuple[str, ...] = ()
    """What `undo` may have to take back."""
    carried: Any = None
    """What else the storage keeps with the mark: the effects, for one."""


E = TypeVar("E")
E_co = TypeVar("E_co", covariant=True)


class Crossing(Protocol[E_co]):
    """A write as a storage knows it."""

    @property
    def tenant(self) -> str: ...
    @property
    def mark(self) -> WriteMark: ...
    @property
    def effects(self) -> Sequence[E_co]:
        """One for each place."""


class RemovedCounts(Struct, frozen=True):
    """What went from other places with a write."""

    blobs: int = 0
    records: int = 0


W = TypeVar("W", bound=Crossing[Any])
W_contra = TypeVar("W_contra", bound=Crossing[Any], contravariant=True)


class Outgoing(Struct, Generic[E], frozen=True):
    """An entry of an outbox."""

    n: int
    effects: Sequence[E]
    """One for each place."""
    entry: Any
    """What `remove_outgoing` finds it by."""


class Partitions(Protocol[W_contra, E]):
    """What settling asks of a storage. Each method is one step of one partition unless it says otherwise.

    Every method may be called again after it has done its work, by anybody.
    """

    async def put_mark(self, tenant: str, mark: WriteMark, seconds: int) -> int:
        """Returns the deadline: the time of the tenant's partition, so many seconds from now."""

    async def prepare(self, write: W_contra, deadline: int) -> bool:
        """Does what others will rely on, in any number of steps.

        A storage that knows the time here compares the deadline in each step, and returns False when it is over.
        """

    async def commit(self, write: W_contra, deadline: int) -> Sequence[Outgoing[E]] | None:
        """Changes the conversation and adds the outbox entry, if its stamp is still the one that was decided on.

        A storage that knows the time here also compares the deadline. Returns the outbox as it then is, oldest first,
        or None when nothing was changed.
        """

    async def outbox(self, tenant: str, mark: WriteMark) -> Sequence[Outgoing[E]]:
        """That of the mark's conversation, oldest first; also of one that was deleted."""

    async def remove_outgoing(self, tenant: str, id: str, outgoing: Outgoing[E]) -> None: ...

    async def apply(self, id: str, n: int, effect: E) -> RemovedCounts:
        """Does nothing if the place has seen this write of the conversation, or a later one.

        Returns what went with this write either way, for as long as its writer may wait for it.
        """

    async def undo(self, tenant: str, mark: WriteMark) -> None:
        """Takes back what was prepared, except what the conversation refers to, or another write has prepared since."""

    async def clear_mark(self, tenant: str, mark: WriteMark) -> None: ...

    async def marks(self, tenant: str) -> Sequence[tuple[WriteMark, int]]:
        """With their deadlines."""

    async def now(self, tenant: str) -> int:
        """In seconds, by the clock that `put_mark` reads."""


Fence = Callable[[str, WriteMark], Awaitable[None]]
"""If the conversation still has the stamp `mark.after`, gives it another one, and changes nothing else."""


class Settling(Generic[W, E]):
    def __init__(self, partitions: Partitions[W, E], *, fence: Fence | None = None) -> None:
        self._partitions = partitions
        self._fence = fence

    async def commit(self, write: W) -> RemovedCounts | None:
        """What went elsewhere with the write; None when it has not happened, because somebody else was faster."""
        partitions, tenant, mark = self._partitions, write.tenant, write.mark
        try:
            # The mark comes first: what is prepared must be found by whoever clears up.
            deadline = await partitions.put_mark(tenant, mark, DEADLINE)
            is_prepared = await partitions.prepare(write, deadline)
        except Unavailable as error:
            # No conversation refers to any of it: a settler removes it when the mark is overdue.
            raise type(error)(str(error), retryable=error.retryable, outcome="not_applied") from error
        outbox = await partitions.commit(write, deadline) if is_prepared else None
        if outbox is None:
            if not mark.prepared:
                await partitions.clear_mark(tenant, mark)
            return None
        try:
            # What others left there before comes first: a place passes over what is older than what it has seen.
            finished = await self._finish(tenant, mark.id, outbox)
            # Where another process has emptied the outbox, this only asks what went.
            gone = finished.get(mark.n) or await self._apply(mark.id, mark.n, write.effects)
            await partitions.clear_mark(tenant, mark)
        except Unavailable as error:
            # Whatever became of this step, the write itself has happened.
            raise type(error)(str(error), retryable=error.retryable, outcome="unknown") from error
        return gone

    async def settle(self, tenant: str) -> None:
        """Finishes what writers have left open in a tenant."""
        marks = await self._partitions.marks(tenant)
        if not marks:
            return
        # Read before the outboxes: whoever was overdue then adds nothing to them after they are read.
        now = await self._partitions.now(tenant)
        for mark, deadline in marks:
            await self.settle_mark(tenant, mark, is_overdue=now > deadline + GRACE)

    async def settle_mark(self, tenant: str, mark: WriteMark, *, is_overdue: bool = False) -> None:
        """Finishes a write that has happened, and gives up one that is overdue."""
        partitions = self._partitions
        if is_overdue and self._fence is not None:
            await self._fence(tenant, mark)
        finished = await self._finish(tenant, mark.id, await partitions.outbox(tenant, mark))
        if is_overdue:
            await partitions.undo(tenant, mark)
        if is_overdue or mark.n in finished:
            await partitions.clear_mark(tenant, mark)

    async def _finish(self, tenant: str, id: str, outbox: Sequence[Outgoing[E]]) -> dict[int, RemovedCounts]:
        """Empties the outbox of a conversation. Returns what went with each write."""
        gone: dict[int, RemovedCounts] = {}
        for outgoing in outbox:
            gone[outgoing.n] = await self._apply(id, outgoing.n, outgoing.effects)
            await self._partitions.remove_outgoing(tenant, id, outgoing)
        return gone

    async def _apply(self, id: str, n: int, effects: Sequence[E]) -> RemovedCounts:
        calls = [self._partitions.apply(id, n, effect) for effect in effects]
        # A single effect needs no event loop: the storage may be one that never suspends.
        went = [await calls[0]] if len(calls) == 1 else await asyncio.gather(*calls)
        return RemovedCounts(sum(each.blobs for each in went), sum(each.records for each in went))
