"""The arguments of `hansard.contract.backend.Backend`'s methods, as frozen values.

The Store has checked and converted everything here; a backend need not check it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from hansard.errors import NotFound
from hansard.model import (
    NOT_YET,
    Conversation,
    ConversationSort,
    Message,
    MessageSort,
    Rating,
    Receipt,
    Record,
    Source,
    Status,
    Usage,
)

OnDuplicate = Literal["first", "error"]
BEGINNING = datetime.min.replace(tzinfo=UTC)
"""Before anything can have expired."""


class Context(Struct, frozen=True, gc=False):
    """Who calls, and when."""

    tenant: str
    now: datetime
    user: str | None = None
    with_expired: bool = False
    """Expired data exists as well: for erasure, which must also remove invisible data."""
    replica: bool = False
    """A replica may answer this read, which may not have the newest writes. A storage without replicas ignores it."""

    @property
    def horizon(self) -> datetime:
        """Data that expires at or before this time does not exist."""
        return BEGINNING if self.with_expired else self.now


class Draft(Struct, frozen=True, gc=False):
    """A message to store, checked and encoded. `message.created_at` is `NOT_YET` if the store assigns it."""

    message: Message
    body: str
    """The content as text: itself if the format is `text`, otherwise JSON. `codec` decodes it."""
    size: int
    """Bytes of `body`: what `max_bytes` counts."""
    given_id: bool
    """The caller chose the id, so it may be stored already."""
    terms: tuple[str, str] | None = None
    """The columns of the search index (see `hansard.analysis.columns`) if they were made already, as in an import."""


class NewConversation(Struct, frozen=True, gc=False):
    """The fields of a conversation that an append creates."""

    user_id: str | None = None
    agent_id: str | None = None
    audit_id: str | None = None
    title: str | None = None
    metadata: dict[str, Any] = {}
    expires_at: datetime | None = None


class Append(Struct, frozen=True, gc=False):
    drafts: tuple[Draft, ...]
    new: NewConversation | None
    """None: the conversation must exist."""
    user_id: str | None = None
    """Must be the owner or a member, or becomes the owner if there is none."""
    branch: str | None = None
    """None: the active one."""
    expected_version: int | None = None
    on_duplicate: OnDuplicate = "first"
    max_messages: int = 1_000_000
    blobs: Mapping[str, bytes] = {}
    """Bytes of the blobs that the drafts refer to, by SHA-256; stored with them in one transaction."""
    revive: bool = False
    """Store messages even if tombstones say that they were deleted."""
    count_usage: bool = True
    """False for copies, whose usage is counted already."""
    records: tuple[RecordWrite, ...] = ()
    """Written in the same commit. Each may belong to this conversation or to none."""


class Replace(Struct, frozen=True):
    """A full snapshot of a branch: the common beginning stays unchanged, the rest is replaced."""

    drafts: tuple[Draft, ...]
    branch: str | None = None
    expected_version: int | None = None
    max_messages: int = 1_000_000
    blobs: Mapping[str, bytes] = {}
    revive: bool = False
    """Store messages even if tombstones say that they were deleted."""


class MessageQuery(Struct, frozen=True, gc=False):
    """Messages of one branch between two positions, from one end.

    Positions are `(created_at in microseconds, seq)`, exclusive. With `sort="seq"` only the seq decides.
    """

    branch: str | None = None
    newest_first: bool = False
    above: tuple[int, int] | None = None
    below: tuple[int, int] | None = None
    limit: int | None = None
    max_bytes: int | None = None
    """Stop after the message with which the bodies reach this size; at least one is returned."""
    sort: MessageSort = "seq"
    roles: frozenset[str] | None = None
    participant_ids: frozenset[str] | None = None
    scope: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    pinned: bool | None = None
    """True for pinned messages only, at a cost that follows their number; False for the others; None for both."""


class Slice(Struct, frozen=True, gc=False):
    messages: list[Message]
    """In the order of the query."""
    has_more: bool


class MessageChange(Struct, frozen=True):
    """Changes of a message; UNSET fields stay."""

    draft: Draft | None = None
    """New content (with its format and blob references); its other fields are ignored."""
    metadata: dict[str, Any] | UnsetType | None = UNSET
    status: Status | UnsetType = UNSET
    usage: Usage | UnsetType | None = UNSET
    sources: tuple[Source, ...] | UnsetType = UNSET
    pinned: bool | UnsetType = UNSET
    expected_version: int | None = None
    blobs: Mapping[str, bytes] = {}
    rating: Rating | UnsetType = UNSET
    """Replaces the rating of the same person; those of others stay."""
    unrated_by: str | UnsetType | None = UNSET
    """Whose rating is removed."""
    added_labels: tuple[str, ...] = ()
    removed_labels: tuple[str, ...] = ()


class Remove(Struct, frozen=True):
    """The messages to remove: these ids (from every branch), the newest of a branch, or all with all branches."""

    what: Literal["ids", "last", "all"]
    ids: tuple[str, ...] = ()
    branch: str | None = None
    expected_version: int | None = None


class Removed(Struct, frozen=True):
    messages: list[Message]
    """For `ids` and `last`: the removed messages, as they were. For `all`: empty."""
    receipt: Receipt
    version: int
    blobs: Mapping[str, bytes] = {}
    """For `last`: the bytes that the message refers to, which may have been removed with it."""


class ConversationQuery(Struct, frozen=True, gc=False):
    """Conversations between two positions, from one end. Positions are `(sort time in microseconds, id)`, exclusive."""

    user_id: str | None = None
    agent_id: str | None = None
    metadata: dict[str, Any] = {}
    archived: bool | None = False
    sort: ConversationSort = "last_message_at"
    newest_first: bool = True
    above: tuple[int, str] | None = None
    below: tuple[int, str] | None = None
    offset: int = 0
    limit: int = 20
    memberships: bool = False
    """Also those that the user of the context is a member of. A storage need not know this field, nor the next."""
    ids: tuple[str, ...] | None = None
    """Only these conversations: a bounded number, which are read one by one."""


class ConversationChange(Struct, frozen=True):
    """Changes of a conversation; UNSET fields stay. `metadata` merges by key, None deletes the key."""

    title: str | UnsetType | None = UNSET
    user_id: str | UnsetType | None = UNSET
    agent_id: str | UnsetType | None = UNSET
    audit_id: str | UnsetType | None = UNSET
    metadata: dict[str, Any] = {}
    expires_at: datetime | UnsetType | None = UNSET
    archived_at: datetime | UnsetType | None = UNSET
    branch: str | UnsetType = UNSET
    expected_version: int | None = None
    added_labels: tuple[str, ...] = ()
    removed_labels: tuple[str, ...] = ()
    added_members: tuple[str, ...] = ()
    removed_members: tuple[str, ...] = ()


class NewBranch(Struct, frozen=True):
    """A branch that shares its source's messages up to `at`, or before `before`, or all of them; or none."""

    id: str
    source: str | None = None
    at: str | None = None
    before: str | None = None
    empty: bool = False
    activate: bool = True
    expected_version: int | None = None


class RecordWrite(Struct, frozen=True):
    namespace: tuple[str, ...]
    key: str
    value: Any = None
    delete: bool = False
    expected_revision: int | None = None
    """0: the record must not exist."""
    expires_at: datetime | None = None
    conversation_id: str | None = None
    exact: Record | None = None
    """For copying: the record to store unchanged, with its revision and times."""


class RecordQuery(Struct, frozen=True):
    """Records under a prefix, ordered by namespace and key, after a position."""

    prefix: tuple[str, ...] = ()
    key_prefix: str = ""
    exact: bool = False
    """Only the namespace itself, not those below it."""
    after: tuple[tuple[str, ...], str] | None = None
    newest_first: bool = False
    """Backwards through the keys."""
    limit: int = 100


class Participation(Struct, frozen=True):
    """Messages of one participant in one conversation."""

    conversation_id: str
    message_ids: list[str]


class Swept(Struct, frozen=True, kw_only=True):
    """What a sweep removed, and whether to call it again."""

    receipt: Receipt
    tombstones: int = 0
    more: bool = False


class StoredBranch(Struct, frozen=True, gc=False, rename={"segment": "line"}):
    """A branch as stored: its own segment of messages, and the segments that it reads before it.

    `path` holds `(segment, up to which seq)`, oldest first; the branch's own segment comes last and is read to its end.
    So reading never walks ancestors. `segment` is stored and sent under its older name, `line`.
    """

    id: str
    segment: int
    path: tuple[tuple[int, int], ...] = ()
    count: int = 0
    parent: str | None = None
    from_seq: int | None = None
    created_at: datetime = NOT_YET


class ConversationState(Struct, frozen=True, gc=False):
    """A conversation as its writers see it."""

    conversation: Conversation
    seq: int
    branches: dict[str, StoredBranch]
    has_tombstones: bool = False
    """True if any of its messages was deleted by id, and left a tombstone."""

    def branch(self, branch: str | None) -> StoredBranch:
        """Returns the named branch, or the active one."""
        name = self.conversation.branch if branch is None else branch
        try:
            return self.branches[name]
        except KeyError:
            raise NotFound(f"conversation {self.conversation.id!r} has no branch {name!r}") from None


class Image(Struct, frozen=True, rename={"branches": "lanes"}):
    """A conversation without its messages, exactly as stored, for copying."""

    conversation: Conversation
    seq: int
    branches: tuple[StoredBranch, ...]


class Row(Struct, frozen=True, gc=False, rename={"segment": "line"}):
    """A stored message and its segment."""

    segment: int
    message: Message


class RestoredRow(Struct, frozen=True, gc=False, rename={"segment": "line"}):
    """A message to store unchanged, with its seq, times and segment."""

    segment: int
    draft: Draft


class Restore(Struct, frozen=True):
    """A piece of a copied conversation. The first creates it; the one with `done` sets its final times and version."""

    image: Image
    rows: tuple[RestoredRow, ...] = ()
    blobs: Mapping[str, bytes] = {}
    done: bool = False
