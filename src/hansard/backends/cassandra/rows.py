"""The rows of the tables. Documents are JSON; the body of a message is text in a column of its own.

A conversation's partition has these rows, in this order:

| era | kind | place | what |
|---|---|---|---|
| the highest | 9 | | the head |
| the conversation's | 5 | segment, seq | a message |
| | 4 | segment, seq | that it is pinned |
| | 3 | seq: the write's number | a summary |
| | 2 | name | a participant of kind user |
| | 1 | name | the place of a message by its id |
| | 0 | segment, seq, name | a blob, or an upload, that a message refers to |
| -1 | 3 | segment: the birth, name | a record that belongs to the conversation |
| | 2 | seq: the write's number | an entry of the outbox |
| | 1 | name | a tombstone |

The head and the newest messages are one range. Older messages, and what refers to blobs, move to other *parts*, which
are partitions with rows of the same kinds; their places by id go to `ID_PARTS`.

When all messages are removed, the conversation enters the next *era*: one deletion removes the rows of the old era, and
cannot affect those that the same write adds.
"""

from __future__ import annotations

import secrets
import time
import zlib
from typing import Any

from msgspec import Struct

from hansard import codec, rules
from hansard.backends.shared import documents, lists
from hansard.contract.types import ConversationState
from hansard.errors import Corrupt
from hansard.model import BlobRef, Conversation, Message, Record, UsageRow, to_micros

RowKey = tuple[int, int, int, int, str]
"""Era, kind, segment, seq, name."""

HEAD_ERA = 2**31 - 1
BESIDE = -1
"""The era of rows that are not removed with the messages."""
HEAD, MESSAGE, PIN, SUMMARY, PARTICIPANT, ID, REFERENCE = 9, 5, 4, 3, 2, 1, 0
TIE, OUTGOING, TOMBSTONE = 3, 2, 1
NO_SEQ = -1
"""Before every seq."""
ID_PARTS = range(-16, 0)
"""The partitions with the places of the messages of all parts, by their ids."""
REMOVED = b"-"
"""The document of a message that was removed, where a part may still have it."""

_RECENT = 16
"""Stamps that a head keeps, so that a writer whose answer got lost can see whether it has written."""
_KEPT_SUMS = 8
_LARGE_HEAD = 4096
_COMPRESSED = b"z"
"""The first byte of a compressed head. JSON begins with another."""


class Sum(Struct, array_like=True, frozen=True):
    """What a conversation has used since its write number `since`, of one day, user, agent and model."""

    since: int
    row: UsageRow


class IndexProgress(Struct, array_like=True, frozen=True):
    """How far the search index is: see `index.py`."""

    upto: int = 0
    """Messages up to this seq are indexed."""
    claimed: int = 0
    """Messages up to this seq may have rows in the index, in these months."""
    months: tuple[int, ...] = ()
    is_listed: bool = False
    """The conversation is in the table `unindexed`."""
    version: int = 0
    """Of the terms."""


class SealedPart(Struct, array_like=True, frozen=True):
    """A partition with the messages up to a seq, from that of the part before."""

    number: int
    upto: int


class Head(Struct, omit_defaults=True, frozen=True):
    """The row that each write replaces. That of a deleted conversation stays until its tombstones are removed."""

    n: int
    """Grows with every write, also over a deletion: what a write does elsewhere has it as its time."""
    recent: list[str] = []
    """The stamps of the last writes, the newest last."""
    birth: int = 0
    """The `n` of the write that made the conversation."""
    era: int = 0
    edits: int = 0
    """Counts the writes that did more than add."""
    segments: int = 0
    """The highest number that a segment has had."""
    state: ConversationState | None = None
    exact: tuple[str, ...] = ()
    """The sorts by which it is listed at its exact times: see `listing.py`."""
    sums: list[Sum] = []
    """The newest sums. A sum that is not here begins again."""
    has_tombstones: bool = False
    index: IndexProgress = IndexProgress()
    parts: list[SealedPart] = []
    """Oldest first."""
    claim: SealedPart | None = None
    """The part that is being filled."""
    last_part: int = 0
    """The highest number that a part has had."""
    overlaid: bool = False
    """Part 0 has rows of messages that are in other parts: those that were changed or removed since."""

    @property
    def conversation(self) -> Conversation:
        """Of a head that has one."""
        if self.state is None:
            raise LookupError("the conversation was deleted")
        return self.state.conversation

    @property
    def sealed(self) -> int:
        """Messages up to this seq are in parts."""
        return self.parts[-1].upto if self.parts else 0

    @property
    def copied(self) -> int:
        """Messages up to this seq may have rows in parts."""
        return self.claim.upto if self.claim else self.sealed

    def part_of(self, seq: int) -> int:
        """The part that has, or may get, the row of a message; 0 if none does."""
        parts = [*self.parts, self.claim] if self.claim else self.parts
        return next((part.number for part in parts if seq <= part.upto), 0)

    @property
    def partitions(self) -> list[int]:
        """All partitions but the first one."""
        if not self.parts and self.claim is None:
            return []
        claimed = [self.claim.number] if self.claim else []
        return [*(part.number for part in self.parts), *claimed, *ID_PARTS]

    @property
    def stamp(self) -> str:
        return self.recent[-1]

    def has(self, stamp: str, after: str | None) -> bool | None:
        """Whether the write with this stamp, decided on another one, has happened; None if that is unknown."""
        if stamp in self.recent:
            return True
        return False if after in self.recent or len(self.recent) < _RECENT else None


def id_part(id: str) -> int:
    return ID_PARTS[zlib.crc32(id.encode()) % len(ID_PARTS)]


def following(before: Head | None) -> tuple[int, list[str]]:
    """`n` and `recent` of the head that a write makes."""
    now = time.time_ns() // 1000
    stamp = secrets.token_hex(8)
    return (max(before.n + 1, now), [*before.recent[1 - _RECENT :], stamp]) if before else (now, [stamp])


def spent(sums: list[Sum], n: int, changes: list[UsageRow] | tuple[UsageRow, ...]) -> tuple[list[Sum], list[Sum]]:
    """The sums after these changes, and those of them that have changed."""
    known = {lists.usage_key(each.row): each for each in sums}
    changed: list[Sum] = []
    for row in changes:
        before = known.pop(lists.usage_key(row), None)
        after = Sum(before.since, rules.add_usage(before.row, row)) if before else Sum(n, row)
        known[lists.usage_key(row)] = after
        changed.append(after)
    return list(known.values())[-_KEPT_SUMS:], changed


class MessageDocument(Struct, array_like=True, frozen=True):
    """A message without its body."""

    id: str
    role: str
    format: str
    created_at: int
    size: int
    stamp: str
    """Of the write that stored its content."""
    upload: str | None = None
    """Holds the body if it is large."""
    extra: str | None = None


class CassandraMessage(Struct, frozen=True):
    segment: int
    seq: int
    stored: MessageDocument
    body: str | None

    @property
    def id(self) -> str:
        return self.stored.id

    @property
    def created_at(self) -> int:
        return self.stored.created_at

    @property
    def size(self) -> int:
        return self.stored.size

    @property
    def extra(self) -> codec.Extra:
        return documents.extra_of(self.stored.extra, f"message {self.stored.id!r}")


class CassandraRecord(Struct, array_like=True, frozen=True):
    record: Record
    data: bytes | None = None
    """The value where it is bytes, which JSON cannot say."""
    birth: int = 0
    """Of the conversation that it belongs to."""


class BlobHeader(Struct, frozen=True, omit_defaults=True):
    upload: str = ""
    size: int = 0
    keep_until: int = 0
    gone_by: tuple[str, int] | None = None
    """The conversation and the write with which the blob went."""


def encode_head(head: Head) -> bytes:
    """Compressed if it is large: many branches repeat each other's paths."""
    data = documents.encode(head)
    return data if len(data) < _LARGE_HEAD else _COMPRESSED + zlib.compress(data, 1)


def swap_of(key: tuple[str, str, str], before: Head | None, after: Head) -> tuple[str, tuple[Any, ...]]:
    """The statement that replaces or makes a head, unless another writer has."""
    if before is None:
        return "create_head", (*key, after.stamp, encode_head(after))
    return "swap_head", (after.stamp, encode_head(after), *key, before.stamp)


def decode_head(data: bytes, where: str) -> Head:
    if data[:1] == _COMPRESSED:
        try:
            data = zlib.decompress(data[1:])
        except zlib.error as error:
            raise Corrupt(f"{where} cannot be read: {error}", where=where) from error
    return documents.decode(data, Head, where)


# Messages


def stored_of(message: Message, size: int, stamp: str, upload: str | None) -> MessageDocument:
    return MessageDocument(
        message.id,
        message.role,
        message.format,
        to_micros(message.created_at),
        size,
        stamp,
        upload,
        codec.encode_extra(message),
    )


def message_row(row: tuple[Any, ...], id: str) -> CassandraMessage:
    _, _, segment, seq, _, _, doc, body = row
    stored = documents.decode(doc, MessageDocument, f"message {seq} of conversation {id!r}")
    return CassandraMessage(segment, seq, stored, None if body is None else _text(body, id))


def _text(body: bytes, id: str) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise Corrupt(f"a message of conversation {id!r} cannot be read: {error}", where=id) from error


def message_of(row: CassandraMessage, body: str, conversation_id: str) -> Message:
    stored = row.stored
    return documents.message_of(
        conversation_id,
        stored.id,
        row.seq,
        role=stored.role,
        format=stored.format,
        body=body,
        created_at=stored.created_at,
        extra=stored.extra,
    )


def reference(id: str, stamp: str, segment: int, seq: int) -> str:
    """How a message refers to a blob: by its place, and the write that stored its content."""
    return f"{stamp}/{segment}/{seq}/{id}"


def digests_of(blobs: tuple[BlobRef, ...]) -> list[str]:
    return sorted({ref.sha256 for ref in blobs})


# Records


def record_of(row: CassandraRecord) -> Record:
    return documents.join_record(row.record, row.data)


def stored_record(record: Record, birth: int) -> CassandraRecord:
    return CassandraRecord(*documents.split_record(record), birth)


# Times

SLOT = 10_000_000
"""Microseconds of one slot of a list. A conversation that is written often moves once in a slot, and leaves one
tombstone."""


EXACT_DIGITS = 7
"""Of the microseconds in a slot."""
EXACT_END = "\0:"
"""After the names of all entries with exact times, and before all ids, which have no NUL."""


def slot_of(micros: int) -> int:
    return micros // SLOT


def exact_name(micros: int, id: str) -> str:
    """The name of an entry with the exact time. Names of one slot are in the order of time and id."""
    return f"\0{micros % SLOT:0{EXACT_DIGITS}}{id}"
