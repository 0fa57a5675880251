"""The content of a line in a conversation's journal.

An entry states the effect of a write, not its request, so reading a journal needs no rules, only this module. Fields
that have their default are left out. An entry removes messages before it adds its own; then it changes the
conversation.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, structs

from hansard.contract.types import ConversationState, Draft, StoredBranch
from hansard.model import (
    MAIN,
    NOT_YET,
    BlobRef,
    Conversation,
    Message,
    MessageScope,
    Participant,
    Rating,
    Source,
    Status,
    Summary,
    Usage,
    UsageRow,
)

Text = str | UnsetType | None
Time = datetime | UnsetType | None


class ChangedFields(Struct, omit_defaults=True, kw_only=True):
    """The fields of a conversation that a write changed."""

    user_id: Text = UNSET
    agent_id: Text = UNSET
    audit_id: Text = UNSET
    title: Text = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET
    summary: Text = UNSET
    created_at: datetime | UnsetType = UNSET
    updated_at: datetime | UnsetType = UNSET
    last_message_at: Time = UNSET
    message_count: int | UnsetType = UNSET
    version: int | UnsetType = UNSET
    branch: str | UnsetType = UNSET
    expires_at: Time = UNSET
    archived_at: Time = UNSET


class JournalEntry(Struct, omit_defaults=True, kw_only=True, rename={"has_tombstones": "buried"}):
    # The first line of a journal says what it is.
    hansard: int = 0
    kind: str = ""
    tenant: str = ""
    id: str = ""
    journal: str = ""
    """A random id, unique to this journal, that stays when the journal is rewritten."""

    what: str = ""
    """A word for people who read the journal; no code depends on it."""
    at: datetime = NOT_YET
    nonce: str = ""

    messages: list[Raw] = []
    """Messages as `JournalMessage`. One whose id exists already replaces that message."""
    cleared: bool = False
    """All messages were removed."""
    removed: list[str] = []
    """The ids of removed messages."""

    conversation: ChangedFields | UnsetType = UNSET
    seq: int | UnsetType = UNSET
    has_tombstones: bool | UnsetType = UNSET
    dropped: list[str] = []
    """The ids of removed branches."""
    branches: list[StoredBranch] = []
    counts: dict[str, int] = {}
    """New message counts of branches that did not change otherwise."""
    top: int = 0
    """The highest segment that was ever used."""
    summary: Summary | UnsetType = UNSET
    """A new summary."""
    summaries: list[Summary] | UnsetType = UNSET
    """All remaining summaries."""
    usage: list[UsageRow] = []
    """Amounts to add to the usage rows."""
    erased: str = ""
    """The user whose usage rows were removed."""
    owners: list[str] = []
    """Spaces that hold records of this conversation."""
    deleted: bool = False
    tombstone: bool = False


class JournalMessage(Struct, omit_defaults=True, kw_only=True):
    """A message in a journal."""

    id: str
    seq: int
    line: int = 1
    branch: str = MAIN
    role: str
    participant: Participant | None = None
    mentions: tuple[str, ...] = ()
    scope: MessageScope | None = None
    status: Status = "complete"
    pinned: bool = False
    created_at: datetime
    updated_at: datetime | None = None
    trace_id: str | None = None
    format: str
    size: int
    content: Any
    sources: tuple[Source, ...] = ()
    usage: Usage | None = None
    metadata: dict[str, Any] | None = None
    blobs: tuple[BlobRef, ...] = ()
    labels: tuple[str, ...] = ()
    ratings: tuple[Rating, ...] = ()
    edited_at: datetime | None = None
    prompt_id: str | None = None


class MessageFields(Struct):
    """The part of a stored message that the index needs."""

    id: str
    seq: int
    size: int
    role: str
    created_at: datetime
    line: int = 1
    participant: Participant | None = None
    pinned: bool = False
    blobs: tuple[BlobRef, ...] = ()


MESSAGES = b'"messages":['

_encode = msgspec.json.Encoder().encode
_entry = msgspec.json.Decoder(JournalEntry)
_fields = msgspec.json.Decoder(MessageFields)
_message = msgspec.json.Decoder(Message)


def encode(entry: JournalEntry) -> bytes:
    return _encode(entry)


def decode_entry(line: bytes) -> JournalEntry:
    return _entry.decode(line)


def decode_fields(raw: Raw) -> MessageFields:
    return _fields.decode(raw)


def decode_message(data: bytes, conversation_id: str) -> Message:
    message = _message.decode(data)
    structs.force_setattr(message, "conversation_id", conversation_id)
    return message


def encode_message(line: int, message: Message, size: int, draft: Draft | None = None) -> Raw:
    """Encodes a message as JSON. The draft's body is its content, already encoded."""
    as_is = draft is None or message.format == "text"
    stored = JournalMessage(
        id=message.id,
        seq=message.seq,
        line=line,
        branch=MAIN if message.branch == MAIN else message.branch,  # msgspec compares defaults by identity
        role=message.role,
        participant=message.participant,
        mentions=message.mentions,
        scope=message.scope,
        status=message.status,
        pinned=message.pinned,
        created_at=message.created_at,
        updated_at=message.updated_at,
        trace_id=message.trace_id,
        format=message.format,
        size=size,
        content=message.content if as_is or draft is None else Raw(draft.body.encode()),
        sources=message.sources,
        usage=message.usage,
        metadata=message.metadata,
        blobs=message.blobs,
        labels=message.labels,
        ratings=message.ratings,
        edited_at=message.edited_at,
        prompt_id=message.prompt_id,
    )
    return Raw(_encode(stored))


# --- changes ----------------------------------------------------------------------------------------------------------


def set_state(entry: JournalEntry, before: ConversationState | None, after: ConversationState) -> None:
    """Sets the fields of an entry to the difference between two states."""
    entry.conversation = _changed_fields(before.conversation if before else None, after.conversation)
    if before is None or before.seq != after.seq:
        entry.seq = after.seq
    if after.has_tombstones != (before is not None and before.has_tombstones):
        entry.has_tombstones = after.has_tombstones
    old = before.branches if before else {}
    entry.dropped = [id for id in old if id not in after.branches]
    for id, branch in after.branches.items():
        if id not in old or structs.replace(old[id], count=branch.count) != branch:
            entry.branches.append(branch)
        elif old[id].count != branch.count:
            entry.counts[id] = branch.count


def _changed_fields(before: Conversation | None, after: Conversation) -> ChangedFields | UnsetType:
    if before is after:
        return UNSET
    base = before or Conversation(after.id)
    changed = {}
    for name in ChangedFields.__struct_fields__:
        old, new = getattr(base, name), getattr(after, name)
        # Changed metadata is a new object. Do not compare by value: 1 and True are equal, but not the same JSON.
        if (old is not new and (old or new)) if name == "metadata" else old != new:
            changed[name] = new
    return ChangedFields(**changed) if changed else UNSET


def apply_changed_fields(conversation: Conversation | None, id: str, fields: ChangedFields) -> Conversation:
    changed = {name: value for name in ChangedFields.__struct_fields__ if (value := getattr(fields, name)) is not UNSET}
    return structs.replace(conversation or Conversation(id), **changed)
