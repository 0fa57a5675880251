"""The Storage contract: what a storage provides so that Hansard can store conversations in it.

A storage finds and applies; it decides nothing. The meaning of writes is defined once, in `hansard.rules.operations`:
an *operation* reads from its `Transaction`, decides, and applies one `Changes`. `backends.stored` makes a `Backend` of
any storage. Read `backends/memory` together with this page: it is the shortest storage and the reference. The promises
to the Store are those of `contract.backend`, and `hansard.testing.contract` proves them.

A storage guarantees:

- **Atomic.** The changes of an operation are stored in full or not at all, and readers see them in full or not at all.
- **Serial.** Writes to one conversation apply one after another, across threads and processes. An operation decides on
  a state, and its changes are stored only while the conversation is still in that state.
- **Durable.** When `write` returns, the changes survive what `capabilities.durability` says, and every later read, in
  any process, sees them.
- **Order.** Messages are added to a segment in ascending `seq`, and read in that order. Equal times never decide an
  order.
- **Visible.** Reads apply the wall of `Context`: data that has expired, or belongs to another user, does not exist.
  Members are not the storage's concern: `backends.stored` reads for them.
  Writes do not: `Transaction.state` is the stored state, and the operations decide what the context may see.
- **Blocking.** With `capabilities.blocking`, no method but `wait` ever suspends, and then no operation does either.

**Repeated runs.** A storage may run an operation several times, and use only the last run: if a group commit failed and
its writes are repeated one by one, if a compare-and-swap was lost, if a server asked for a retry. So an operation
awaits only its transaction, has no effect but one `apply`, and derives its result from what `apply` returned.

**Remembered state.** A storage may begin with a state that it remembers instead of reading it. Then it must check in
`apply` that this state is current (by a stamp that every write changes), and otherwise run the operation again. A run
that ends without `apply`, by a refusal or because there is nothing to do, was not checked: it counts only if the state
was read for this run and no answer was assumed; otherwise the storage runs it again on a fresh state.
`backends.shared.optimistic` implements this.

How the storages do it:

- *SQLite*: an operation is a job of the writing thread, and `blocking.run_to_end` runs it inside the transaction of a
  group commit. `get` and `apply` are plain statements, so they never suspend. A refused job must have changed nothing:
  `new_segment` counts in memory until `apply` stores the number, and `get` writes nothing but buffered rows.
- *PostgreSQL*: appends are decided on remembered states and stored by one statement that compares stamps; `append` of
  `backends.stored.StoredBackend` is the hook. Such a run answers `expects_none` without reading, and stops if `get`
  wants anything else. All other writes run in one transaction that locks the conversation's row; there `state` is
  always current, and `get` sends its statements in one pipeline.
- *Redis*: the state is remembered, or read with `get`'s answers in one script, which also compares the stamp; `apply`
  sends one script that compares it again. Effects in other hash slots are settled before `apply` returns.
- *Files*: the journal's lock is held for the run; `get` answers from the index, and `apply` writes one journal entry.
- *Key-value*: state and answers are read under one version of the conversation's head, and `apply` swaps the head if it
  still has that version; objects of a lost swap are invisible, because no head names them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from msgspec import Struct

from hansard.contract.backend import Capabilities
from hansard.contract.types import (
    Context,
    ConversationQuery,
    ConversationState,
    Draft,
    MessageQuery,
    Participation,
    RecordQuery,
    RecordWrite,
    Row,
    Slice,
    Swept,
)
from hansard.model import Conversation, Message, Problem, Receipt, Record, Stats, Summary, UsageRow

T = TypeVar("T")

Placed = tuple[int, Message]
"""A message and its segment. A segment is a run of messages under one number."""
RecordKey = tuple[tuple[str, ...], str]
"""Namespace and key, in the space of the context's user, or in the shared one if the context has no user."""


class Run(Struct, frozen=True, gc=False):
    """The messages of one segment with `after < seq <= upto`."""

    segment: int
    after: int
    upto: int


class Span(Struct, frozen=True, gc=False):
    """How many messages a run holds, and its first and last seq; zeros if it holds none."""

    count: int = 0
    first: int = 0
    last: int = 0


class Without(Struct, frozen=True):
    """Messages to leave out: these ids, and those of these runs."""

    ids: Sequence[str] = ()
    runs: Sequence[Run] = ()


class Wants(Struct, frozen=True, kw_only=True):
    """What an operation or a read needs beyond the state. A storage answers all of it in one round trip."""

    ids: Sequence[str] = ()
    """Messages by id, on any branch."""
    runs: Sequence[Run] = ()
    newest: int | None = None
    """Only this many messages from the end of all runs taken together."""
    spans: Sequence[Run] = ()
    last_time_without: Without | None = None
    """The time of the message with the highest seq, on any segment, that would be left without these."""
    summaries: bool = False
    tombstones: Sequence[str] = ()
    """By digest, in the context's tenant."""
    blobs: Sequence[str] = ()
    records: Sequence[RecordKey] = ()
    """Records that the context may see and that have not expired."""
    expects_none: bool = False
    """None of `ids` and `tombstones` should exist, and nothing else but records is requested.

    A storage that can check this in `apply` may answer that there are none, without reading. If the check fails, or the
    run ends without `apply`, it runs the operation again with real answers.
    """


class Found(Struct, frozen=True, kw_only=True):
    """The answer to `Wants`, of the same moment as the state."""

    by_id: Mapping[str, Placed] = {}
    messages: Sequence[Placed] = ()
    """Of the runs, in the order of the runs and ascending in each, also with `newest`."""
    spans: Sequence[Span] = ()
    """One for each run."""
    last_time: datetime | None = None
    summaries: Sequence[Summary] = ()
    """Of all branches, oldest first."""
    tombstones: Mapping[str, datetime] = {}
    blobs: Mapping[str, bytes] = {}
    records: Mapping[RecordKey, Record] = {}


NOTHING = Found()

Wipe = Literal["nothing", "messages", "everything"]


class Update(Struct, frozen=True, kw_only=True):
    """One message changed in place; its id, seq and segment stay."""

    segment: int
    before: Message
    after: Message
    draft: Draft | None
    """The new body and its size; None if the content stays."""


class RecordChange(Struct, frozen=True):
    """The new record, or None if it is removed."""

    key: RecordKey
    revision: int
    """The revision that it was decided on, 0 for no record. A storage that did not lock the record checks it."""
    record: Record | None


class Changes(Struct, frozen=True, kw_only=True):
    """All changes of one write. Removals come before insertions; otherwise the order is free.

    Positions in listings follow from the old and the new state; search entries, pins, participants and blob references
    from the messages that are added, changed and removed. So a storage reads nothing more than its own bookkeeping.
    """

    wipes: Wipe = "nothing"
    """What is removed first.

    `messages`: all messages and summaries. `everything`: also the records that belong to the conversation, and the
    conversation itself.
    """
    state: ConversationState | None
    """The new state; None if the conversation is deleted: then only `wipes` and `tombstones` are set.

    It is a new one if there was none, or `everything` was wiped.
    """
    remove: Sequence[Placed] = ()
    remove_runs: Sequence[Run] = ()
    """Not in the same changes as `remove`."""
    insert: Sequence[tuple[int, Sequence[tuple[Message, Draft]]]] = ()
    """Segments, each with the messages to add at its end. An id that `remove_runs` removes may be added again.

    The message is what is stored, with its seq and time; of the draft, only `body` and `size` matter.
    """
    update: Update | None = None
    lost_summaries: Sequence[int] = ()
    """Positions in the `Found.summaries` that this operation was given: before the write."""
    new_summary: Summary | None = None
    tombstones: Sequence[str] = ()
    """Digests to store in the tenant, with the time of the context, or the later one that is stored already."""
    usage: Sequence[UsageRow] = ()
    """Amounts to add to the tenant's usage, each key (day, user, agent, model) once. They may be negative."""
    blobs: Mapping[str, bytes] = {}
    """Bytes for the new messages; some may be stored already.

    A blob is removed with the last message that refers to it, unless `put_blob` keeps it longer.
    """
    records: Sequence[RecordChange] = ()


class Applied(Struct, frozen=True, kw_only=True):
    """How many of each the changes removed; records only with `wipes`."""

    messages: int = 0
    summaries: int = 0
    records: int = 0
    blobs: int = 0
    physically_gone: bool = False
    """The removed data cannot be recovered from the medium.

    A storage that learns it later corrects the receipt itself.
    """


class Transaction(Protocol):
    """One conversation as a write sees it. Valid only inside `Storage.write`."""

    @property
    def context(self) -> Context: ...

    @property
    def id(self) -> str: ...

    @property
    def state(self) -> ConversationState | None:
        """The stored state of this id, even if it has expired or belongs to another user; None if there is none.

        Operations never change it, and never hand its mutable parts to callers.
        """

    def new_segment(self) -> int:
        """Returns a number that nothing stored of this conversation has, another one with each call.

        It may be a placeholder that `apply` replaces in the state and in `insert`: callers never see it.
        """

    async def get(self, wants: Wants) -> Found:
        """Answers at the moment of `state`. An operation calls it at most twice, and never after `apply`.

        The transaction may keep what it read, for `apply`. Operations may hand answers to callers, who may change them.
        """

    async def apply(self, changes: Changes) -> Applied:
        """Applies the changes. Called at most once, as the last await of the operation.

        The storage may commit here or after the operation. Once the changes can be read, it wakes those who `wait` for
        the conversation, even if the state is unchanged.
        """


Operation = Callable[[Transaction], Coroutine[Any, Any, T]]


class Storage(Protocol):
    """The methods of a storage. Errors are those of `hansard.errors`; driver exceptions are chained."""

    @property
    def capabilities(self) -> Capabilities: ...
    async def close(self) -> None: ...

    # One conversation. Where a method has no docstring, see the method of the same name in `Backend`

    async def write(self, context: Context, id: str, operation: Operation[T]) -> T:
        """Runs the operation and stores its changes.

        An error of the operation changes nothing and is raised unchanged.
        """

    async def read(self, context: Context, id: str, wants: Wants) -> tuple[ConversationState, Found] | None:
        """Returns the state and the answers, of one moment; None if the context sees no such conversation."""

    async def messages(self, context: Context, id: str, query: MessageQuery) -> Slice:
        """See `Backend.get_messages`."""

    async def rows(self, context: Context, id: str, after_seq: int, limit: int, max_bytes: int) -> list[Row]:
        """For copying: see `Backend.read_rows`."""

    async def wait(self, context: Context, id: str, seen: int, timeout: float) -> int: ...

    # Many conversations

    async def list_conversations(
        self, context: Context, query: ConversationQuery
    ) -> tuple[list[Conversation], bool]: ...
    async def participations(self, context: Context, participant_id: str, limit: int) -> list[Participation]: ...

    # Outside conversations

    async def get_records(self, context: Context, keys: Sequence[RecordKey]) -> list[Record | None]: ...
    async def write_records(self, context: Context, writes: Sequence[RecordWrite]) -> list[Record | None]:
        """Decided by `rules.plan_records`, all or none.

        Raises `rules.not_found` if a record is to belong to a conversation that the context does not see. The only
        write outside `write` that depends on callers' decisions.
        """

    async def scan_records(self, context: Context, query: RecordQuery) -> tuple[list[Record], bool]: ...
    async def record_owners(self, context: Context) -> list[str]: ...
    async def put_blob(self, context: Context, sha256: str, data: bytes, keep_until: datetime) -> None: ...
    async def get_blobs(self, context: Context, digests: Sequence[str]) -> dict[str, bytes]: ...
    async def usage(self, context: Context, since: str | None, until: str | None) -> list[UsageRow]:
        """Returns rows between two days, without those of other users than the context's and without rows of zeros.

        `backends.shared.lists.select_usage` does that.
        """

    # Lifecycle

    async def erase_user_data(self, context: Context, user_id: str) -> Receipt: ...
    async def sweep(self, context: Context, limit: int) -> Swept:
        """Removes what has expired of about `limit` conversations, or of all; `Swept.more` asks for another call."""

    async def stats(self, tenant: str | None) -> Stats: ...
    def check(self, tenant: str | None) -> AsyncIterator[Problem | int]: ...
    async def list_tenants(self) -> list[str]: ...
    async def delete_tenant(self, context: Context) -> Receipt: ...


class Backup(Protocol):
    """With `capabilities.backup`. `Index` and `CommitCounts` of `contract.backend` are the other optional parts."""

    async def backup(self, target: Path) -> None: ...


class Vacuum(Protocol):
    """With `capabilities.vacuum`: see `contract.backend.Vacuuming`."""

    async def vacuum(self) -> None: ...
