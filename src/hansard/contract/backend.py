"""The Backend contract: what a backend must do so that all of Hansard works on it, and what each answer means.

A backend stores and finds. The meaning of a write (order, duplicates, versions, counts, quotas, branches) is decided by
the pure functions of `hansard.rules`, which a backend calls inside its own transaction or lock. The arguments are
values of `hansard.contract.types`. `backends/memory` is the reference: read it together with this page.
`hansard.testing.contract` proves a backend.

These rules hold for every method:

- **Context.** The first argument says who calls and when. `tenant` is part of every key. If `user` is set, a
  conversation of another owner does not exist: not in reads, not in lists, not in errors; unless the user is one of its
  members, who read and append, and get `Denied` for other writes. `now` is the only clock; a conversation that expires
  at or before `horizon` does not exist. That is `now`, except for an erasure.
- **Atomic.** A write applies in full or not at all, and readers see it in full or not at all. It is stored when the
  method returns; `capabilities.durability` says what it survives.
- **Serial.** Writes to one conversation apply one after another, across threads and processes. Writers of different
  conversations do not wait for each other longer than the storage needs.
- **Read your writes**, in this process at once and in any other after the method returned.
- **Missing.** Reads of a missing conversation return None or nothing. Writes raise `ConversationNotFound`, except
  `append` with `new` set.
- **Errors.** Only the classes of `hansard.errors`; driver exceptions are chained. An error changes nothing, except
  `Unavailable` with `outcome="unknown"`. Data that cannot be decoded raises `Corrupt`.
- **Cancellation.** A cancelled write may still be applied, in full.
- **Values.** Backends never share mutable values with callers, who may change arguments and results.
- **Blocking.** If `capabilities.blocking` is true, no method but `wait` suspends: the blocking API then needs
  no event loop.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager
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

    from hansard.analysis import Lookup, Matches, Ranking

Durability = Literal["none", "process", "machine"]


class Capabilities(Struct, frozen=True, kw_only=True):
    """What a backend can do, as data.

    Callers never probe for methods; an unsupported operation raises `Unsupported`.
    """

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
    """The storage assigns ids itself and cannot store ours."""
    own_times: bool = False
    search: Literal["none", "scan", "index"] = "scan"
    """How messages are found: not at all, by scanning them (the Store does that), or by an index of the backend."""
    pieces: bool = True
    """The index also answers `match="part"`; otherwise the Store scans messages for it."""
    watch: Literal["none", "poll", "push"] = "push"
    backup: bool = False
    secure_delete: bool = False
    """Deleted data is overwritten, not only unlinked."""
    remnants: str = "where the storage keeps them: see its page in the documentation."
    """Where deleted bytes may remain if a receipt does not say that they are physically gone, and what removes them:
    the end of a sentence, for people."""
    vacuum: bool = False
    """The storage can release the space of deleted data, on request."""
    blocking: bool = False
    evicts: bool = False
    """The backend was configured to drop the oldest data when it is full."""
    changed_elsewhere: bool = False
    """Others may delete or change stored data without the backend, which notices it when it is read."""
    mirrors: bool = False
    """Each conversation is also stored at an API, under an id of its own that `remote_id` returns."""
    groups: bool = False
    """Concurrent writes share commits, and `commits` counts both."""


class Backend(Protocol):
    @property
    def capabilities(self) -> Capabilities: ...

    async def close(self) -> None:
        """Finishes acknowledged writes and releases the storage. Calling it again does nothing."""

    # Conversations

    async def create_conversation(self, context: Context, conversation: Conversation) -> Conversation:
        """Creates it with one empty branch `main`. `Conflict` if the id is taken. A tombstone does not prevent it."""

    async def get_conversation(self, context: Context, id: str) -> Conversation | None: ...

    async def list_conversations(self, context: Context, query: ConversationQuery) -> tuple[list[Conversation], bool]:
        """Returns the matches, in the order of the query, and whether there are more. Equal times are ordered by id."""

    async def update_conversation(self, context: Context, id: str, change: ConversationChange) -> Conversation:
        """Changes it; the version grows by one. An unknown branch raises `NotFound`."""

    async def delete_conversation(self, context: Context, id: str, expected_version: int | None = None) -> Receipt:
        """Removes it and everything that was derived from it or belonged to it, and leaves a tombstone.

        Returns an empty receipt if it is missing. `Conflict` if it is not at the expected version.
        """

    # Messages

    async def append(self, context: Context, id: str, append: Append) -> Appended:
        """See `rules.plan_append`. `append.records` are written in the same commit: all of it is stored, or nothing.

        If every message is stored already, records that already have the result of the append stay unchanged. So a
        retry is safe, also with `expected_revision`.
        """

    async def replace_messages(self, context: Context, id: str, replace: Replace) -> Appended:
        """See `rules.plan_replace`."""

    async def get_messages(self, context: Context, id: str, query: MessageQuery) -> Slice:
        """Returns nothing for a missing conversation; `NotFound` for a missing branch."""

    async def find_messages(self, context: Context, id: str, message_ids: Sequence[str]) -> list[Message]:
        """Returns the messages that exist, on any branch, in the order of the ids."""

    async def update_message(self, context: Context, id: str, message_id: str, change: MessageChange) -> Message:
        """`MessageNotFound` if missing. See `rules.plan_update`."""

    async def remove_messages(self, context: Context, id: str, remove: Remove) -> Removed:
        """Removes messages and the summaries that cover them.

        Ids that do not exist are ignored. `ids` leaves tombstones.
        """

    # Branches and summaries

    async def create_branch(self, context: Context, id: str, new: NewBranch) -> Branch:
        """`Conflict` if the name is taken."""

    async def list_branches(self, context: Context, id: str) -> list[Branch]:
        """See `rules.branches_of`. Returns nothing for a missing conversation."""

    async def delete_branch(self, context: Context, id: str, branch: str, expected_version: int | None) -> Receipt:
        """Removes the branch and the messages that only it holds. `Conflict` if it is active or has children."""

    async def put_summary(self, context: Context, summary: Summary) -> None:
        """Stores it; the conversation's `summary` becomes its text. The version does not change."""

    async def list_summaries(self, context: Context, id: str, branch: str | None) -> list[Summary]:
        """Returns summaries, oldest first, of one branch or of all."""

    # Records

    async def get_records(self, context: Context, keys: Sequence[tuple[tuple[str, ...], str]]) -> list[Record | None]:
        """Returns records in the order of the keys. In a user's context, records are those of that user's own space."""

    async def write_records(self, context: Context, writes: Sequence[RecordWrite]) -> list[Record | None]:
        """All or none: `Conflict` if one expected revision does not match. None for a deleted or missing record.

        A record that names a conversation needs it to exist, and is removed with it.
        """

    async def scan_records(self, context: Context, query: RecordQuery) -> tuple[list[Record], bool]:
        """Returns a page in order, and whether there are more."""

    # Blobs

    async def put_blob(self, context: Context, sha256: str, data: bytes, keep_until: datetime) -> None:
        """Stores it at least until `keep_until`, whether or not a message refers to it."""

    async def get_blobs(self, context: Context, digests: Sequence[str]) -> dict[str, bytes]:
        """Returns the blobs that exist."""

    # Copying

    async def read_image(self, context: Context, id: str) -> Image | None: ...

    async def read_rows(self, context: Context, id: str, after_seq: int, limit: int, max_bytes: int) -> list[Row]:
        """Returns messages of all segments, ordered by seq; nothing if there are no more."""

    async def restore(self, context: Context, restore: Restore) -> int:
        """Stores rows ordered by seq; those at or below the highest stored seq are ignored.

        So a copy can be resumed. Segments are numbered as in the image; a backend may renumber them. Counts are exact
        after every call. Returns the highest stored seq. Tombstones do not prevent it. `Conflict` if a message id
        occurs twice, or is stored already.
        """

    async def record_owners(self, context: Context) -> list[str]:
        """Returns the users with records in a space of their own."""

    # Lifecycle

    async def participations(self, context: Context, participant_id: str, limit: int) -> list[Participation]:
        """Returns conversations that hold messages of this participant of kind `user`, and the messages' ids.

        At most `limit` messages.
        """

    async def erase_user_data(self, context: Context, user_id: str) -> Receipt:
        """Removes the user's data outside conversations.

        That is the records of the user's own space, and usage rows.
        """

    async def sweep(self, context: Context, limit: int) -> Swept:
        """Removes expired data, over all tenants.

        It also removes unneeded blobs and old tombstones, a bounded amount in each call.
        """

    async def usage(self, context: Context, since: str | None, until: str | None) -> list[UsageRow]:
        """By day, user, agent and model; days are `YYYY-MM-DD`, `until` exclusive."""

    async def stats(self, tenant: str | None) -> Stats:
        """Returns the size of a tenant, or of the whole store."""

    def check(self, tenant: str | None) -> AsyncIterator[Problem | int]:
        """Yields each problem, and now and then how many conversations were checked.

        Checks every conversation with `rules.audit`, and every blob against its SHA-256 (reads need not: the Store
        does). Data that cannot be decoded is yielded as a `Problem`, not raised.
        """

    async def list_tenants(self) -> list[str]:
        """Returns tenants with conversations, records or blobs, in order. Tombstones and usage alone do not count."""

    async def delete_tenant(self, context: Context) -> Receipt: ...

    async def backup(self, target: Path) -> None:
        """Makes a consistent copy while others write.

        Never overwrites a file. `Unsupported` unless `capabilities.backup`.
        """

    async def wait(self, context: Context, id: str, seen: int, timeout: float) -> int:
        """Returns when the conversation may have changed since `seen`, or after `timeout` seconds.

        Returns the mark to pass as `seen` next time; 0 to begin with, which returns at once. It is only a hint: the
        caller reads again.
        """


class CommitCounts(Protocol):
    """For backends whose concurrent writes share commits: `capabilities.groups`."""

    @property
    def commits(self) -> tuple[int, int]:
        """Returns how many commits this process has made, and how many writes they held."""


class Grouping(Backend, CommitCounts, Protocol):
    """A backend whose concurrent writes share commits."""


class Vacuuming(Backend, Protocol):
    """A backend that can release the space of deleted data: `capabilities.vacuum`."""

    async def vacuum(self) -> None:
        """Releases the space, while others read and write."""


class Mirror(Backend, Protocol):
    """A backend that also stores each conversation at an API: `capabilities.mirrors`."""

    async def remote_id(self, context: Context, id: str) -> str | None:
        """Returns the conversation's id there; None while it is not there."""


class Index(Protocol):
    """An index of messages: `capabilities.search` is `index`."""

    async def search(self, context: Context, lookup: Lookup) -> Matches:
        """Returns exactly the matches by `Query.matches` over `analyse(searchable(message))`, newest first.

        An appended message is found at once, a changed or removed one no longer by its old text. The order is that of
        `analysis.Position`, from `below` downwards.
        """

    async def rank(self, context: Context, lookup: Lookup) -> Ranking:
        """Returns the best matches of all, as `analysis.relevance.best` ranks them.

        Neighbours are messages of one conversation whose `seq` is one, two or three apart; with `all_branches` also of
        one segment. `below` is not used.
        """

    async def catch_up(self) -> None:
        """Indexes the messages that are not indexed yet. Search is exact without it, and faster after it."""

    def reindex(self) -> AsyncIterator[int]:
        """Rebuilds the index, over all tenants; yields how many messages are done. Others may read and write."""


class Indexed(Backend, Index, Protocol):
    """A backend with an index of its own."""

    def bulk_load(self) -> AbstractContextManager[None]:
        """Lets this process index large appends at once while it is entered, if that costs less than `catch_up`."""
