"""Writes that reach several partitions of a storage whose transactions cover only one.

A conversation is one partition; listings, usage and blobs are others. A writer may die between any two steps. So:

1. The write is *marked* in its tenant's partition, with a deadline, and everything that others will rely on is
   *prepared*: the bytes of blobs, for example, must be stored before a message refers to them.
2. The conversation is *committed*: one step compares it, changes it, and adds an entry to its *outbox* with the
   *effects* of the write on other partitions. From here on the write has happened.
3. The outbox is emptied, oldest entry first: the effects are applied, partition by partition, once and in order,
   because each partition remembers the newest write of each conversation that it has applied.
4. The mark is cleared.

Before a process reads a partition that only effects write (a listing, usage, a sweep), it settles the tenant's marks:
it performs steps 3 and 4 for writers that have not reached them yet, or never will. A mark that is long overdue is
cleared, and what step 1 prepared in vain is undone. It is not undone earlier, not even by a writer that was too late to
commit: another writer may have prepared the same and be about to commit.

**Overdue writers** must no longer commit, because no process would find their outbox. A storage that knows the time
inside its write refuses a commit after the deadline. Any other storage provides a `fence`: before an overdue mark is
cleared, the head of its conversation gets another stamp, so the writer's comparison fails.

**A storage of your own** provides:

- a *write*: any object with a `tenant`, a `mark` and its `effects`;
- `Partitions`, each method a step that may be repeated. Decide where the outbox is stored. A partition with several
  rows holds its entries (`redis`): the commit adds one, `remove_outgoing` removes it. Where a partition is a single
  value (`keyvalue`), `WriteMark.carried` holds the effects: the outbox of a mark is those effects if the conversation
  has the mark's stamp, and `remove_outgoing` does nothing, because clearing the mark removes them;
- a `fence`, unless its commit compares the deadline with a clock.

It calls `Settling.commit` for a write that reaches more than one partition, and `Settling.settle` before it reads
anything that only effects write. `tests/backends/shared` has the smallest `Partitions`, with processes that die at
every step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct

from hansard.errors import Unavailable

DEADLINE = 10
"""Seconds from a write's mark to the deadline of its commit."""
GRACE = 60
"""Seconds after the deadline until a mark is cleared: the largest clock difference between the storage's nodes."""


class WriteMark(Struct, frozen=True):
    """A write in progress."""

    id: str
    n: int
    """The write's stamp: higher than that of every earlier write to this conversation, including a deleted one."""
    after: int
    """The stamp of the conversation that the write was decided on; 0 for a new conversation."""
    prepared: tuple[str, ...] = ()
    """The names of what `undo` may have to remove."""
    carried: Any = None
    """Whatever else the storage stores with the mark, such as the effects."""
    name: str = ""
    """Tells it from a write with the same stamp, where another writer may have tried one."""


E = TypeVar("E")
E_co = TypeVar("E_co", covariant=True)


class Crossing(Protocol[E_co]):
    """A write, as settling sees it."""

    @property
    def tenant(self) -> str: ...
    @property
    def mark(self) -> WriteMark: ...
    @property
    def effects(self) -> Sequence[E_co]:
        """One for each partition."""


class RemovedCounts(Struct, frozen=True):
    """How many items a write removed from other partitions."""

    blobs: int = 0
    records: int = 0


W = TypeVar("W", bound=Crossing[Any])
W_contra = TypeVar("W_contra", bound=Crossing[Any], contravariant=True)


class Outgoing(Struct, Generic[E], frozen=True):
    """An entry of an outbox."""

    n: int
    effects: Sequence[E]
    """One for each partition."""
    entry: Any
    """The key by which `remove_outgoing` finds the entry."""
    name: str = ""
    """That of the write's mark."""


class Partitions(Protocol[W_contra, E]):
    """The steps that settling needs from a storage. Each is one step of one partition unless it says otherwise.

    Every method may be repeated after it has succeeded, by any process.
    """

    async def put_mark(self, tenant: str, mark: WriteMark, seconds: int) -> int:
        """Stores the mark and returns its deadline: the time of the tenant's partition plus `seconds`."""

    async def prepare(self, write: W_contra, deadline: int) -> bool:
        """Stores what others will rely on, in any number of steps.

        A storage that knows the time here compares the deadline in each step, and returns False after the deadline.
        """

    async def commit(self, write: W_contra, deadline: int) -> Sequence[Outgoing[E]] | None:
        """Changes the conversation and adds the outbox entry, if the conversation still has the expected stamp.

        A storage that knows the time here also compares the deadline. Returns the outbox after the commit, oldest entry
        first, or None if nothing was changed.
        """

    async def outbox(self, tenant: str, mark: WriteMark) -> Sequence[Outgoing[E]]:
        """Returns the outbox of the mark's conversation, oldest entry first, even if the conversation was deleted."""

    async def remove_outgoing(self, tenant: str, id: str, outgoing: Outgoing[E]) -> None: ...

    async def apply(self, id: str, n: int, effect: E) -> RemovedCounts:
        """Applies an effect, unless the partition has applied this write of the conversation or a later one.

        Either way, returns what this write removed, for as long as its writer may wait for the answer.
        """

    async def undo(self, tenant: str, mark: WriteMark) -> None:
        """Removes what was prepared, except what the conversation refers to or another write has prepared since."""

    async def clear_mark(self, tenant: str, mark: WriteMark) -> None: ...

    async def marks(self, tenant: str) -> Sequence[tuple[WriteMark, int]]:
        """Returns the marks with their deadlines."""

    async def now(self, tenant: str) -> int:
        """Returns the time in seconds, by the clock that `put_mark` reads."""


_Name = tuple[int, str]
"""The stamp of a write and the name of its mark."""
Fence = Callable[[str, WriteMark], Awaitable[None]]
"""If the conversation still has the stamp `mark.after`, assigns another one, and changes nothing else."""


class Settling(Generic[W, E]):
    def __init__(self, partitions: Partitions[W, E], *, fence: Fence | None = None) -> None:
        self._partitions = partitions
        self._fence = fence

    async def commit(self, write: W) -> RemovedCounts | None:
        """Returns what the write removed elsewhere, or None if another writer committed first and nothing happened."""
        partitions, tenant, mark = self._partitions, write.tenant, write.mark
        try:
            # The mark comes first, so that a settler finds whatever is prepared.
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
            # Earlier entries come first: a partition skips what is older than the newest write that it has applied.
            finished = await self._finish(tenant, mark.id, outbox)
            # If another process has emptied the outbox, this only returns what was removed.
            gone = finished.get((mark.n, mark.name)) or await self._apply(mark.id, mark.n, write.effects)
            await partitions.clear_mark(tenant, mark)
        except Unavailable as error:
            # Whether or not this step succeeded, the write itself has happened.
            raise type(error)(str(error), retryable=error.retryable, outcome="unknown") from error
        return gone

    async def settle(self, tenant: str) -> None:
        """Finishes the writes that other processes have left open in a tenant."""
        marks = await self._partitions.marks(tenant)
        if not marks:
            return
        # Read before the outboxes: a writer that was overdue then adds nothing after they are read.
        now = await self._partitions.now(tenant)
        for mark, deadline in marks:
            await self.settle_mark(tenant, mark, is_overdue=now > deadline + GRACE)

    async def settle_mark(self, tenant: str, mark: WriteMark, *, is_overdue: bool = False) -> None:
        """Finishes a write that has happened, and abandons one that is overdue."""
        partitions = self._partitions
        if is_overdue and self._fence is not None:
            await self._fence(tenant, mark)
        finished = await self._finish(tenant, mark.id, await partitions.outbox(tenant, mark))
        if is_overdue:
            await partitions.undo(tenant, mark)
        if is_overdue or (mark.n, mark.name) in finished:
            await partitions.clear_mark(tenant, mark)

    async def _finish(self, tenant: str, id: str, outbox: Sequence[Outgoing[E]]) -> dict[_Name, RemovedCounts]:
        """Empties the outbox of a conversation. Returns what each write removed."""
        gone: dict[_Name, RemovedCounts] = {}
        for outgoing in outbox:
            gone[outgoing.n, outgoing.name] = await self._apply(id, outgoing.n, outgoing.effects)
            await self._partitions.remove_outgoing(tenant, id, outgoing)
        return gone

    async def _apply(self, id: str, n: int, effects: Sequence[E]) -> RemovedCounts:
        calls = [self._partitions.apply(id, n, effect) for effect in effects]
        # A single effect is awaited without an event loop: the storage may never suspend.
        went = [await calls[0]] if len(calls) == 1 else await asyncio.gather(*calls)
        return RemovedCounts(sum(each.blobs for each in went), sum(each.records for each in went))
