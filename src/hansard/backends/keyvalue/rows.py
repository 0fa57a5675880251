"""The values under the keys, as structs; messages and records are rows of a tree. All but blobs is JSON."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Raw, Struct

from hansard import codec
from hansard.backends.keyvalue.tree import Root
from hansard.backends.shared import documents
from hansard.contract.types import ConversationState, Draft
from hansard.model import BlobRef, Message, Participant, Record, UsageRow, to_micros

_RECENT = 32
"""How many stamps a head keeps, so that a writer whose answer was lost can see whether it has written."""


class MessageRow(Struct, array_like=True, frozen=True):
    """A message as a row."""

    segment: int
    seq: int
    id: str
    role: str
    format: str
    body: str
    created_at: int
    size: int
    stamp: str
    """The stamp of the write that stored its content: it names its references to blobs."""
    pinned: bool = False
    blobs: tuple[BlobRef, ...] = ()
    participant: Participant | None = None
    extra: str | None = None


class StoredRecord(Struct, array_like=True, frozen=True):
    record: Record
    data: bytes | None = None
    """The value if it is bytes, which JSON cannot represent."""
    birth: str = ""
    """The birth of the conversation that it belongs to."""
    stamp: str = ""
    """The stamp of the write that stored it: it names the entries that find it."""


class PendingSpace(Struct, frozen=True):
    """The future of a space, once the write of a conversation that also writes its records has happened."""

    head: str
    n: int
    stamp: str
    root: Root
    owner: str | None


class Anchor(Struct, omit_defaults=True, frozen=True):
    """A head: the one object of a conversation, or of an owner's records (a *space*), that is swapped.

    It names all other objects. An empty one stays for a day: see `partitions`.
    """

    n: int = 0
    """Counts the writes."""
    recent: list[str] = []
    """The stamps of the last writes, the newest last."""
    birth: str = ""
    state: ConversationState | None = None
    owner: str | None = None
    """Of a space: the user's id, or empty for records outside any user's view."""
    root: Root = Root()
    segments: int = 0
    """The highest segment number ever used."""
    listed: str = ""
    """The stamp of the entries in listings."""
    due: str = ""
    """The stamp of the entry for the time when it expires."""
    pending: PendingSpace | None = None
    is_unmarked: bool = False
    """True if the last write had no mark: there was nothing to settle."""
    fence: str = ""

    @property
    def stamp(self) -> str:
        """The stamp of the last write. While a mark of this name exists, that write is not settled."""
        return self.recent[-1] if self.recent else ""

    def has(self, n: int, stamp: str) -> bool | None:
        """Returns whether this write has happened; None if it is too long ago to tell."""
        at = len(self.recent) - 1 - (self.n - n)
        if at < 0:
            return None
        return at < len(self.recent) and self.recent[at] == stamp


def following(before: Anchor | None, stamp: str) -> tuple[int, list[str]]:
    """Returns `n` and `recent` of the head that a write creates."""
    return (before.n + 1, [*before.recent[1 - _RECENT :], stamp]) if before else (1, [stamp])


class CountedUsage(Struct):
    """The usage of one conversation on one day, and the last of its writes that is counted."""

    n: int
    rows: list[UsageRow]


class BlobFacts(Struct, frozen=True):
    """The header before the bytes of a blob. `fence` changes with each put, so that no token repeats."""

    keep_until: datetime
    fence: str


def raw(value: Any) -> Raw:
    return Raw(documents.encode(value))


# Messages


def stored_of(segment: int, message: Message, draft: Draft, stamp: str) -> MessageRow:
    return _stored(segment, message, draft.body, draft.size, stamp)


def changed(before: MessageRow, after: Message, draft: Draft | None, stamp: str) -> MessageRow:
    """Returns the row of a changed message; without a draft, its content stays."""
    if draft is None:
        return _stored(before.segment, after, before.body, before.size, before.stamp)
    return _stored(before.segment, after, draft.body, draft.size, stamp)


def _stored(segment: int, message: Message, body: str, size: int, stamp: str) -> MessageRow:
    return MessageRow(
        segment,
        message.seq,
        message.id,
        message.role,
        message.format,
        body,
        to_micros(message.created_at),
        size,
        stamp,
        message.pinned,
        message.blobs,
        message.participant,
        codec.encode_extra(message),
    )


def message_of(row: MessageRow, conversation_id: str) -> Message:
    return documents.message_of(
        conversation_id,
        row.id,
        row.seq,
        role=row.role,
        format=row.format,
        body=row.body,
        created_at=row.created_at,
        extra=row.extra,
    )


# Keys of trees: a letter for the kind, then the part that sorts

_SEQ_END = (1 << 63) - 1


def message_key(segment: int, seq: int) -> bytes:
    return b"m" + segment.to_bytes(8) + min(seq, _SEQ_END).to_bytes(8)


def pin_key(segment: int, seq: int) -> bytes:
    return b"p" + segment.to_bytes(8) + min(seq, _SEQ_END).to_bytes(8)


def id_key(id: str) -> bytes:
    return b"i" + id.encode()


def summary_key(n: int) -> bytes:
    return b"s" + n.to_bytes(8)


SUMMARIES = (b"s", b"t")
RECORDS = (b"r", b"s")


def namespace_key(namespace: tuple[str, ...]) -> bytes:
    """Returns the prefix of the keys of all records in a namespace and below it."""
    return b"r" + codec.pack_namespace(namespace).replace(b"\0", b"\0\x01")


def record_key(namespace: tuple[str, ...], key: str) -> bytes:
    """Sorts by namespace and then by key: the end of a namespace is less than its continuation."""
    return namespace_key(namespace) + b"\0\0" + key.encode()


def bound_key(birth: str, key: bytes) -> bytes:
    """Returns the key by which a conversation finds the record at `key`."""
    return b"c" + birth.encode() + key


# Blobs


def blob_value(data: bytes, keep_until: datetime, fence: str) -> bytes:
    return documents.encode(BlobFacts(keep_until, fence)) + b"\n" + data


def blob_of(value: bytes, where: str) -> tuple[BlobFacts, bytes]:
    line, _, data = value.partition(b"\n")
    return documents.decode(line, BlobFacts, where), data


# Records


def record_of(row: StoredRecord) -> Record:
    return documents.join_record(row.record, row.data)


def stored_record(record: Record, birth: str, stamp: str) -> StoredRecord:
    return StoredRecord(*documents.split_record(record), birth, stamp)
