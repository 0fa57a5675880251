"""The values that Hansard stores and returns: frozen, cheap to create, plain data.

Times are aware UTC datetimes to the microsecond. `Message(role=…, content=…)` may be created without id, conversation
or time; the store fills them in, and `NOT_YET` is a time that it has not assigned yet. Two messages are the same
message if their ids are equal, whatever their bodies. Values that are created by the thousand hold plain data without
cycles, so the garbage collector ignores them (`gc=False`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, overload

from msgspec import Struct

Role = Literal[
    "user",
    "assistant",
    "system",
    "developer",
    "tool",
    "agent",
    "tool_response",
    "mcp_response",
    "pcp_response",
]
MessageScope = Literal["channel", "dm", "thread"]
Status = Literal["complete", "in_progress", "interrupted", "blocked"]
Kind = Literal["user", "agent", "system"]
Order = Literal["asc", "desc"]
MessageSort = Literal["seq", "time"]
ConversationSort = Literal["last_message_at", "updated_at"]
ReadFrom = Literal["primary", "replica"]

ROLES: tuple[str, ...] = Role.__args__  # type: ignore[attr-defined]
SCOPES: tuple[str, ...] = MessageScope.__args__  # type: ignore[attr-defined]
STATUSES: tuple[str, ...] = Status.__args__  # type: ignore[attr-defined]
KINDS: tuple[str, ...] = Kind.__args__  # type: ignore[attr-defined]

MAIN = "main"
"""The branch that every conversation begins with."""
DEFAULT_TENANT = "default"
LABELS = "hansard.labels"
"""The key of a conversation's metadata that holds its labels."""
SERVER_TENANT = "hansard:server"
"""The tenant of what servers keep for themselves, such as keys. It is not listed, copied or open to any caller."""
MEMBERS = "hansard.members"
"""The key of a conversation's metadata that holds its members."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOT_YET = datetime.min.replace(tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


@overload
def to_micros(time: datetime) -> int: ...
@overload
def to_micros(time: None) -> None: ...
def to_micros(time: datetime | None) -> int | None:
    """Returns exact microseconds since 1970 (a float of seconds is not exact)."""
    return None if time is None else (time - EPOCH) // MICROSECOND


@overload
def from_micros(micros: int) -> datetime: ...
@overload
def from_micros(micros: None) -> None: ...
def from_micros(micros: int | None) -> datetime | None:
    return None if micros is None else EPOCH + MICROSECOND * micros


class Participant(Struct, frozen=True, omit_defaults=True, gc=False):
    """The author of a message: a stable id, and a display name that may change."""

    kind: Kind
    id: str
    display_name: str | None = None
    metadata: dict[str, Any] | None = None


class Source(Struct, frozen=True, omit_defaults=True, gc=False):
    """A document that an answer is based on."""

    document_id: str | None = None
    document_name: str | None = None
    chunk: str | None = None
    score: float | None = None


class Usage(Struct, frozen=True, omit_defaults=True, gc=False):
    """Tokens and cost of a message, as its provider reported them."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cost: float = 0.0
    model: str | None = None


class Rating(Struct, frozen=True, omit_defaults=True, gc=False):
    """The opinion of one person about a message. Each person has one: a later one replaces it."""

    value: int | float
    """On a scale of your own: 1 and -1 for thumbs, or 1 to 5 for stars."""
    by: str | None = None
    """The user who gave it; None if that is not known."""
    comment: str | None = None
    created_at: datetime | None = None
    """When it was given; None if that is not known, as in imported history."""


class BlobRef(Struct, frozen=True, omit_defaults=True, array_like=True, gc=False):
    """The place of a large base64 text in a message's content, and the blob that replaced it."""

    sha256: str
    size: int
    path: tuple[str | int, ...]
    prefix: str = ""
    """The text before the base64, such as `data:image/png;base64,`."""

    @property
    def media_type(self) -> str | None:
        return self.prefix[5:].partition(";")[0] or None if self.prefix.startswith("data:") else None


class Message(Struct, frozen=True, eq=False, gc=False):
    """One message, in its writer's own format, stored verbatim."""

    role: str
    content: Any
    id: str = ""
    conversation_id: str = ""
    seq: int = 0
    branch: str = MAIN
    format: str = ""
    participant: Participant | None = None
    mentions: tuple[str, ...] = ()
    scope: MessageScope | None = None
    status: Status = "complete"
    pinned: bool = False
    created_at: datetime = NOT_YET
    updated_at: datetime | None = None
    trace_id: str | None = None
    sources: tuple[Source, ...] = ()
    usage: Usage | None = None
    metadata: dict[str, Any] | None = None
    blobs: tuple[BlobRef, ...] = ()
    labels: tuple[str, ...] = ()
    ratings: tuple[Rating, ...] = ()
    edited_at: datetime | None = None
    """When somebody last changed its content. None for a message that only grew while it was in progress."""
    prompt_id: str | None = None
    """What the model was given for this answer, as `assemble_prompt` named it; `get_prompt` reads it."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and (self is other or (self.id == other.id and self.id != ""))

    def __hash__(self) -> int:
        return hash(self.id) if self.id else id(self)

    @property
    def message_id(self) -> str:
        """The same as `id`."""
        return self.id

    @property
    def text(self) -> str:
        """The plain text of the content, whatever its format."""
        if isinstance(self.content, str):
            return self.content
        from hansard import formats

        return formats.plain_text(self)

    @property
    def cursor(self) -> str:
        """An opaque position to page from, which outlives the message."""
        from hansard import cursors

        return cursors.of_message(self)


class Conversation(Struct, frozen=True, gc=False):
    """One history: the unit of order, isolation and deletion."""

    id: str
    user_id: str | None = None
    agent_id: str | None = None
    audit_id: str | None = None
    title: str | None = None
    metadata: dict[str, Any] = {}
    summary: str | None = None
    created_at: datetime = NOT_YET
    updated_at: datetime = NOT_YET
    last_message_at: datetime | None = None
    message_count: int = 0
    version: int = 0
    branch: str = MAIN
    expires_at: datetime | None = None
    archived_at: datetime | None = None

    @property
    def conversation_id(self) -> str:
        """The same as `id`."""
        return self.id

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of the conversation itself, which its metadata holds under `hansard.labels`."""
        return texts_in(self.metadata, LABELS)

    @property
    def members(self) -> tuple[str, ...]:
        """The users who see it and may append, beside its owner; its metadata holds them under `hansard.members`."""
        return texts_in(self.metadata, MEMBERS)


def texts_in(metadata: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """Returns the texts of a list that metadata holds under a key: labels or members."""
    stored = metadata.get(key)
    return tuple(each for each in stored if isinstance(each, str)) if isinstance(stored, list) else ()


class Branch(Struct, frozen=True, gc=False):
    """A line of messages that shares its beginning with its parent, without copying."""

    id: str
    conversation_id: str
    parent: str | None = None
    from_seq: int | None = None
    """The last message that it shares with its parent."""
    message_count: int = 0
    created_at: datetime = NOT_YET
    active: bool = False


class Summary(Struct, frozen=True, gc=False):
    """A derived text that names the exact range it covers. It never replaces the messages."""

    conversation_id: str
    from_seq: int
    to_seq: int
    text: str
    branch: str = MAIN
    model: str | None = None
    prompt_id: str | None = None
    token_count: int | None = None
    created_at: datetime = NOT_YET


class Record(Struct, frozen=True, gc=False):
    """A JSON or bytes document at `(namespace, key)`, outside the messages."""

    namespace: tuple[str, ...]
    key: str
    value: Any
    revision: int = 0
    created_at: datetime = NOT_YET
    updated_at: datetime = NOT_YET
    expires_at: datetime | None = None
    conversation_id: str | None = None


class Share(Struct, frozen=True):
    """A read-only snapshot of a branch, which anybody with its token may read."""

    id: str
    conversation_id: str
    branch: str
    version: int
    """The version of the conversation that it shows."""
    message_count: int
    created_at: datetime
    expires_at: datetime | None = None
    redacted: bool = False
    token: str | None = None
    """Only in the answer of `share`: the store keeps a hash of it."""


class SharedConversation(Struct, frozen=True):
    """What a share shows: the title and the messages, without ids of users, metadata, ratings or usage."""

    title: str | None
    shared_at: datetime
    messages: list[Message]


class Blob(Struct, frozen=True):
    """Bytes stored once for each tenant, by their hash."""

    sha256: str
    size: int


class Messages(list[Message]):
    """A list of messages, and whether there are more in its direction."""

    has_more: bool

    def __init__(self, messages: Iterable[Message] = (), *, has_more: bool = False) -> None:
        super().__init__(messages)
        self.has_more = has_more


class Page(Struct, frozen=True, gc=False):
    """A part of a listing, and the cursors to continue from."""

    items: list[Conversation]
    next_cursor: str | None = None
    previous_cursor: str | None = None


class RecordPage(Struct, frozen=True):
    items: list[Record]
    next_cursor: str | None = None


class Appended(Struct, frozen=True, gc=False):
    """The result of an append: the messages as stored, in the order given, and the conversation's version."""

    messages: list[Message]
    version: int
    stored: int = 0
    """How many of them were new; the others were stored already."""
    created: bool = False
    """Whether this append created the conversation."""


class Receipt(Struct, frozen=True, kw_only=True):
    """What a deletion removed, and whether it is physically gone. Falsy if there was nothing."""

    conversations: int = 0
    messages: int = 0
    branches: int = 0
    summaries: int = 0
    records: int = 0
    blobs: int = 0
    usage_rows: int = 0
    at: datetime = NOT_YET
    physically_gone: bool = False

    def __bool__(self) -> bool:
        return any(
            (
                self.conversations,
                self.messages,
                self.branches,
                self.summaries,
                self.records,
                self.blobs,
                self.usage_rows,
            )
        )

    def __add__(self, other: Receipt) -> Receipt:
        return Receipt(
            conversations=self.conversations + other.conversations,
            messages=self.messages + other.messages,
            branches=self.branches + other.branches,
            summaries=self.summaries + other.summaries,
            records=self.records + other.records,
            blobs=self.blobs + other.blobs,
            usage_rows=self.usage_rows + other.usage_rows,
            at=max(self.at, other.at),
            # If nothing was removed, nothing is left behind.
            physically_gone=(self.physically_gone or not self) and (other.physically_gone or not other),
        )


class UsageRow(Struct, frozen=True):
    """Tokens and cost of one day, user, agent and model.

    Deleted messages still count, until their user is erased.
    """

    day: str
    user_id: str | None = None
    agent_id: str | None = None
    model: str | None = None
    messages: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cost: float = 0.0


class Stats(Struct, frozen=True, kw_only=True):
    """The size of a tenant, or of the whole store."""

    backend: str
    tenants: int = 0
    conversations: int = 0
    messages: int = 0
    records: int = 0
    blobs: int = 0
    blob_bytes: int = 0
    bytes: int | None = None
    """The size of the store on disk, if known."""
    unindexed: int | None = None
    """Messages that are not in the search index yet, counted up to 10,000; None if there is no index."""
    active: dict[str, int] = {}
    """Messages by day, for the newest 60 days with any.

    Each conversation's messages are spread evenly over the days from its creation to its last activity: exact if it
    lasted a day, an estimate if it lasted longer.
    """
    evicted_conversations: int = 0
    evicted_messages: int = 0


class Vacuumed(Struct, frozen=True):
    """The size of the store on disk before and after a vacuum, if known."""

    bytes_before: int | None
    bytes_after: int | None


class Problem(Struct, frozen=True):
    """A problem that `check` found."""

    where: str
    what: str


OnConflict = Literal["skip", "error"]


class Report(Struct, kw_only=True):
    """The result of a copy or an import. Skipped items were in the target already, and equal."""

    conversations: int = 0
    messages: int = 0
    summaries: int = 0
    records: int = 0
    blobs: int = 0
    skipped: int = 0
    """Conversations that were skipped."""
    skipped_records: int = 0
    conflicts: list[Problem] = []
    """Items that the target holds already with other content; they were not changed."""
    losses: list[Problem] = []
    """Data that could not be stored exactly, or changed while it was copied."""
    id_map: dict[str, dict[str, str]] = {}
    """If the target assigned its own ids: conversation, then old message id to new."""
    verified: bool = True
    """True if the stored data equals the given data: by its counts and, if it was read back, message for message."""


Progress = Callable[[Report], None]
"""Called with the report so far."""
