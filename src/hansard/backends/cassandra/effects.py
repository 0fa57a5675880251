"""The changes that a write makes in other partitions, as data. They are stored in the outbox until they are applied.

Each statement uses the number of the write as its timestamp. So applying it twice changes nothing, and an effect that
is applied late loses against that of a later write.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from hansard import cursors
from hansard.backends.cassandra import rows
from hansard.backends.cassandra.rows import Head, Sum
from hansard.model import ConversationSort, from_micros, to_micros

SORTS: tuple[ConversationSort, ...] = ("last_message_at", "updated_at")
BUCKETS = 16
"""Partitions of what would be a hot one: the lists of a tenant and of an agent, usage, names of blobs."""

Entry = tuple[str, int, int, str]
"""List, bucket, slot, and the name in it: an id, or time and id."""
Due = tuple[int, str, str]
"""Time, kind, name."""
Step = tuple[str, tuple[Any, ...]]
"""The name of a query, and its arguments: texts and numbers. Outboxes store them, so their meaning must not change."""
Ended = tuple[int, int, list[int]]
"""An era, the birth of the conversation if that was deleted, and the parts."""


class WriteEffects(Struct, omit_defaults=True):
    tenant: str
    at: int
    steps: list[Step] = []
    moves: list[list[Step]] = []
    """Between lists: the steps in one partition, together, so that a conversation is always somewhere."""
    is_first: bool = False
    """The conversation is new: its tenant may be."""
    sums: list[Sum] = []
    due: list[Due] = []
    not_due: list[Due] = []
    releases: dict[str, list[str]] = {}
    """The references to remove, by blob."""
    records: list[tuple[str, tuple[str, ...], str]] = []
    """Owner, namespace and key of the records to delete with the conversation."""
    birth: int = 0
    unindexed: list[tuple[str, tuple[int, ...]]] = []
    """Owners and months: all rows of the conversation are deleted from the search index."""
    reindexed: list[tuple[str, int, int, int, int]] = []
    """Owner, era, month, segment and seq of messages whose rows are put again."""
    ended: Ended | None = None
    """All messages were removed, and referred to more than an outbox can hold: their rows stay until that is done."""

    @property
    def is_empty(self) -> bool:
        return self == WriteEffects(self.tenant, self.at)


def release(effects: WriteEffects, key: tuple[str, str, str], segment: int, seq: int, what: str) -> None:
    """Releases the blob or upload that a row of kind REFERENCE names."""
    kind, stamp, name = what.split("/", 2)
    if kind == "upload":
        effects.steps.append(("delete_upload", (key[0], name)))
    else:
        effects.releases.setdefault(name, []).append(rows.reference(key[2], stamp, segment, seq))


def wipe(
    effects: WriteEffects,
    key: tuple[str, str, str],
    n: int,
    references: Iterable[tuple[int, int, str]],
    participants: Iterable[str],
    records: Iterable[tuple[str, tuple[str, ...], str]],
) -> WriteEffects:
    """Adds what follows from the removal of all messages, and of the conversation if there are records."""
    for reference in references:
        release(effects, key, *reference)
    for who in participants:
        # One less, so that what the same write adds stays.
        effects.steps.append(("remove_participants", (n - 1, *key[:2], who, key[2])))
    effects.records = list(records)
    return effects


def bucket_of(name: str) -> int:
    return zlib.crc32(name.encode()) % BUCKETS


def user_list(sort: str, user_id: str) -> str:
    return f"{sort}/user/{user_id}"


def agent_list(sort: str, agent_id: str) -> str:
    return f"{sort}/agent/{agent_id}"


def whole_list(sort: str) -> str:
    return f"{sort}/all"


def exact_key(micros: int, id: str) -> tuple[int, str]:
    """Slot and name of an entry with the exact time."""
    return rows.slot_of(micros), rows.exact_name(micros, id)


def entries(head: Head | None) -> list[Entry]:
    """Where a conversation is listed."""
    if head is None or head.state is None:
        return []
    conversation = head.state.conversation
    found: list[Entry] = []
    bucket = bucket_of(conversation.id)
    for sort in SORTS:
        micros = to_micros(cursors.sort_time(conversation, sort))
        key = exact_key(micros, conversation.id) if sort in head.exact else (rows.slot_of(micros), conversation.id)
        found.append((whole_list(sort), bucket, *key))
        if conversation.user_id is not None:
            found.append((user_list(sort, conversation.user_id), 0, *key))
        if conversation.agent_id is not None:
            found.append((agent_list(sort, conversation.agent_id), bucket, *key))
    return found


def move(effects: WriteEffects, prefix: str, id: str, before: Head | None, after: Head) -> None:
    """Moves a conversation from the list entries of one head to those of another."""
    n, old, new = after.n, entries(before), entries(after)
    batches: dict[tuple[str, int], list[Step]] = {}
    for entry in old:
        if entry not in new:
            batches.setdefault(entry[:2], []).append(("leave_list", (n, prefix, effects.tenant, *entry)))
    for entry in new:
        if entry not in old:
            batches.setdefault(entry[:2], []).append(("enter_list", (prefix, effects.tenant, *entry, n)))
    effects.moves = list(batches.values())
    expired, expires = _expiry(before), _expiry(after)
    if expired != expires:
        effects.not_due += [(expired, "conversation", id)] if expired is not None else []
        effects.due += [(expires, "conversation", id)] if expires is not None else []


def _expiry(head: Head | None) -> int | None:
    expires_at = head.state.conversation.expires_at if head and head.state else None
    return to_micros(expires_at) if expires_at else None


def day_of(micros: int) -> str:
    return from_micros(micros).date().isoformat()


def is_in_list(head: Head, name: str) -> bool:
    """Whether a conversation is in a list, wherever in it."""
    return any(each == name for each, *_ in entries(head))
