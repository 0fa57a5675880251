"""The Backend contract: what a storage must do so that all of Hansard works on it. This is its only copy.

A backend stores and finds. What a write *means* (order, duplicates, versions, counts, quotas, branches) is decided by
the pure functions of `hansard.rules`, which a backend calls inside its own transaction or lock. The arguments are the
values of `hansard.contract.types`. `backends/memory` is the definition of truth: read it beside this page.
`hansard.testing.contract` proves a backend.

What holds for every method:

- **Context.** The first argument says who asks and when. `tenant` is part of every key. When `user` is set, a
  conversation of another owner does not exist: not in reads, not in lists, not in errors. `now` is the only clock; a
  conversation that expires at or before `horizon` does not exist. That is `now`, except for an erasure.
- **Atomic.** A write applies in full or not at all, and may be seen by readers only in full. It is stored when the
  method returns: `capabilities.durability` says against what.
- **Serial.** Writes to one conversation apply one after another, across threads and processes. Writers of different
  conversations do not wait for each other longer than the storage needs.
- **Read your writes**, in this process at once and in any other after the method returned.
- **Missing.** Reads of a missing conversation give None or nothing. Writes raise `ConversationNotFound`, except
  `append` with `new` set.
- **Errors.** Only the classes of `hansard.errors`; driver exceptions are chained. An error changes nothing, except
  `Unavailable` with `outcome="unknown"`. What cannot be decoded raises `Corrupt`.
- **Cancellation.** A cancelled write may still land, whole.
- **Values.** Backends never share mutable values with callers: what was passed in, or handed out, may be changed by
  others.
- **Blocking.** When `capabilities.blocking` is true, no method ever suspends: the blocking API then needs no event
  loop.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Literal, Protocol

from msgspec import Struct

from hansard.contract.types import (
    Append,
    Context,
    ConversationChange,
    ConversationQuery,
    Image,
    MessageChange,
    MessageQuery,
    NewBranch,
    Participation,
    RecordQuery,
    RecordWrite,
    Remove,
    Removed,
    Replace,
    Restore,
    Row,
    Slice,
    Swept,
)
from hansard.model import (
    Appended,
    Branch,
    Conversation,
    Message,
    Problem,
    Receipt,
    Record,
    Stats,
    Summary,
    UsageRow,
)

if TYPE_CHECKING:
    from pathlib import Path

    from hansard.analysis import Lookup, Matches

Durability = Literal["none", "process", "machine"]


class Capabilities(Struct, frozen=True, kw_only=True):
    """What a backend can do, as data. Nobody probes for methods; an operation beyond these raises `Unsupported`."""

    name: str
    durability: Durability
    """What an acknowledged write survives: nothing, a crash of the process, or a crash of the machine."""
    keeps: bool = True
    """False for a backend that stores nothing."""
    shared: bool = False
    """Several processes may use the same storage at once."""
    atomic_batch: int | None = None
    """The largest append that is all or nothing; None for any."""
    compare_and_swap: bool = True
    branches: bool = True
    records: bool = True
    append_records: bool = True
    """`Append.records` commit with the messages. Otherwise such an append raises `Unsupported` and stores nothing."""
    blobs: bool = True
    own_ids: bool = False
    """The storage gives ids itself and cannot take ours."""
    own_times: bool = False
    search: Literal["none", "scan", "index"] = "scan"
    """How messages are found: not at all, by looking at each (the Store does that), or by an index of the backend's."""
    watch: Literal["none", "poll", "push"] = "push"
    backup: bool = False
    secure_delete: bool = False
    """What was deleted is overwritten, not only unlinked."""
    remnants: str = "where the storage keeps them: see its page in the documentation."
    """Where deleted bytes may remain when a receipt does not say that they are physically gone, and what removes them:
    the end of a sentence, for people."""
    vacuum: bool = False
    """The storage can give back the space of what was deleted, on request."""
    blocking: bool = False
    evicts: bool = False
    """The backend was told to drop the oldest when it is full."""
    changed_elsewhere: bool = False
    """Others may delete or change what is stored behind the backend's back, which is noticed when it is read."""
    mirrors: bool = False
    """Each conversation is also at an API, under an id of its own that `remote_id` tells."""
    groups: bool = False
    """Concurrent writes share commits, and `commits` counts both."""


class Backend(Protocol):
    @property
    def capabilities(self) -> Capabilities: ...

    async def close(self) -> None:
        """Finishes what was acknowledged and lets go of the storage. Calling it again does nothing."""

    # Conversations

    async def create_conversation(self, context: Context, conversation: Conversation) -> Conversation:
        """Makes it with one empty branch `main`. `Conflict` when the id is taken. A tombstone does not stop it."""

    async def get_conversation(self, context: Context, id: str) -> Conversation | None: ...

    async def list_conversations(self, context: Context, query: ConversationQuery) -> tuple[list[Conversation], bool]:
        """Those that match, in the order of the query, and whether there are more. Equal times order by id."""

    async def update_conversation(self, context: Context, id: str, change: ConversationChange) -> Conversation:
        """Changes it; the version grows by one. An unknown branch raises `NotFound`."""

    async def delete_conversation(self, context: Context, id: str, expected_version: int | None = None) -> Receipt:
        """Removes it and all that was derived from it or belonged to it, leaves a tombstone.

        An empty receipt when missing. `Conflict` when it is at another version than the expected one.
        """

    # Messages

    async def append(self, context: Context, id: str, append: Append) -> Appended:
        """See `rules.plan_append`. `append.records` are written in the same commit: all of it is stored, or nothing.

        When every message is stored already, records that are what the append would make of them stay as they are. So
        a retry is safe, also with `expected_revision`.
        """

    async def replace_messages(self, context: Context, id: str, replace: Replace) -> Appended:
        """See `rules.plan_replace`."""

    async def get_messages(self, context: Context, id: str, query: MessageQuery) -> Slice:
        """Nothing for a missing conversation; `NotFound` for a branch that it does not have."""

    async def find_messages(self, context: Context, id: str, message_ids: Sequence[str]) -> list[Message]:
        """Those that exist, on any branch, in the order asked for."""

    async def update_message(self, context: Context, id: str, message_id: str, change: MessageChange) -> Message:
        """`MessageNotFound` when missing. See `rules.plan_update`."""

    async def remove_messages(self, context: Context, id: str, remove: Remove) -> Removed:
        """Removes messages and the summaries that cover them.

        Ids that do not exist are passed over. `ids` leaves tombstones.
        """

    # Branches and summaries

    async def create_branch(self, context: Context, id: str, new: NewBranch) -> Branch:
        """`Conflict` when the name is taken."""

    async def list_branches(self, context: Context, id: str) -> list[Branch]:
        """See `rules.branches_of`. Nothing for a missing conversation."""

    async def delete_branch(self, context: Context, id: str, branch: str, expected_version: int | None) -> Receipt:
        """Removes the branch and the messages that only it holds. `Conflict` when it is active or has children."""

    async def put_summary(self, context: Context, summary: Summary) -> None:
        """Stores it; the conversation's `summary` becomes its text. The version stays."""

    async def list_summaries(self, context: Context, id: str, branch: str | None) -> list[Summary]:
        """Oldest first, of one branch or of all."""

    # Records

    async def get_records(self, context: Context, keys: Sequence[tuple[tuple[str, ...], str]]) -> list[Record | None]:
        """In the order asked for. In a user's context, records live in that user's own space."""

    async def write_records(self, context: Context, writes: Sequence[RecordWrite]) -> list[Record | None]:
        """All or none: `Conflict` when one expected revision does not hold. None for what was deleted or was not there.

        A record that names a conversation needs it to exist, and goes when it goes.
        """

    async def scan_records(self, context: Context, query: RecordQuery) -> tuple[list[Record], bool]:
        """A page in order, and whether there are more."""

    # Blobs

    async def put_blob(self, context: Context, sha256: str, data: bytes, keep_until: datetime) -> None:
        """Keeps it at least until then, whether or not anything refers to it."""

    async def get_blobs(self, context: Context, digests: Sequence[str]) -> dict[str, bytes]:
        """Those that exist."""

    # Copying

    async def read_image(self, context: Context, id: str) -> Image | None: ...

    async def read_rows(self, context: Context, id: str, after_seq: int, limit: int, max_bytes: int) -> list[Row]:
        """Messages of all lines in the order of seq. Nothing when there are no more."""

    async def restore(self, context: Context, restore: Restore) -> int:
        """Stores rows in the order of seq; those at or below the highest stored seq are passed over.

        So a copy can be resumed. Lines are numbered as in the image; a backend may renumber them. Counts are exact
        after every call. Gives the highest stored seq. Tombstones do not stop it. `Conflict` when a message id comes
        twice, or is there already.
        """

    async def record_owners(self, context: Context) -> list[str]:
        """Users with records in a space of their own."""

    # Lifecycle

    async def participations(self, context: Context, participant_id: str, limit: int) -> list[Participation]:
        """Conversations that hold messages of this participant of kind `user`, and their ids.

        At most `limit` messages.
        """

    async def erase_user_data(self, context: Context, user_id: str) -> Receipt:
        """Removes what is kept under the user beside conversations.

        The records of the user's own space, and usage rows.
        """

    async def sweep(self, context: Context, limit: int) -> Swept:
        """Over all tenants.

        Removes what has expired, blobs that nothing needs and tombstones that are old, a bounded amount a call.
        """

    async def usage(self, context: Context, since: str | None, until: str | None) -> list[UsageRow]:
        """By day, user, agent and model; days are `YYYY-MM-DD`, `until` exclusive."""

    async def stats(self, tenant: str | None) -> Stats:
        """Of a tenant, or of the whole store."""

    def check(self, tenant: str | None) -> AsyncIterator[Problem | int]:
        """Looks at everything: yields each problem, and now and then how many conversations it has looked at."""

    async def list_tenants(self) -> list[str]:
        """Those that hold conversations, records or blobs, in order. Tombstones and usage alone do not count."""

    async def delete_tenant(self, context: Context) -> Receipt: ...

    async def backup(self, target: Path) -> None:
        """A consistent copy while others write.

        Never over a file that exists. `Unsupported` unless `capabilities.backup`.
        """

    async def wait(self, context: Context, id: str, seen: int, timeout: float) -> int:
        """Returns when the conversation may have changed since `seen`, or after `timeout` seconds.

        Gives the mark to pass as `seen` next time; 0 to begin with, which returns at once. Only a hint: the caller
        reads again.
        """


class CommitCounts(Protocol):
    """Where concurrent writes share commits: `capabilities.groups`."""

    @property
    def commits(self) -> tuple[int, int]:
        """How many commits this process has made, and how many writes they held."""


class Grouping(Backend, CommitCounts, Protocol):
    """A backend whose concurrent writes share commits."""


class Vacuuming(Backend, Protocol):
    """A backend that can give back the space of what was deleted: `capabilities.vacuum`."""

    async def vacuum(self) -> None:
        """Does so, while others read and write."""


class Mirror(Backend, Protocol):
    """A backend that keeps each conversation at an API too: `capabilities.mirrors`."""

    async def remote_id(self, context: Context, id: str) -> str | None:
        """The conversation's id there; None while it is not there."""


class Index(Protocol):
    """An index of messages: `capabilities.search` is `index`."""

    async def search(self, context: Context, lookup: Lookup) -> Matches:
        """Exactly the messages that match, by `Query.matches` over `analyse(searchable(message))`, newest first.

        What was appended is found at once, what was changed or removed never again. The order is that of
        `analysis.Position`, from `below` downwards.
        """

    async def catch_up(self) -> None:
        """Indexes what is not indexed yet. Search is exact without it; it is quicker afterwards."""

    def reindex(self) -> AsyncIterator[int]:
        """Builds the index anew, over all tenants; yields how many messages are done. Others may read and write."""


class Indexed(Backend, Index, Protocol):
    """A backend with an index of its own."""
