"""The changes that a write makes in other partitions, as data. They are stored in the outbox until they are applied.

Each statement uses the number of the write as its timestamp. So applying it twice changes nothing, and an effect that
is applied late loses against that of a later write.
"""

from __future__ import annotations

import zlib

from msgspec import Struct

from hansard import cursors
from hansard.backends.cassandra import rows
from hansard.backends.cassandra.rows import Head, Sum
from hansard.contract.types import ConversationState
from hansard.model import Conversation, ConversationSort, from_micros, to_micros

SORTS: tuple[ConversationSort, ...] = ("last_message_at", "updated_at")
BUCKETS = 16
"""Partitions of what would be a hot one: the lists of a tenant and of an agent, usage, names of blobs."""

Entry = tuple[str, int, int]
"""List, bucket, slot."""
Due = tuple[int, str, str]
"""Time, kind, name."""


class WriteEffects(Struct, omit_defaults=True):
    tenant: str
    at: int
    enters: list[Entry] = []
    leaves: list[Entry] = []
    is_first: bool = False
    """The conversation is new: its tenant may be."""
    sums: list[Sum] = []
    says: list[tuple[str, str]] = []
    """Participant and message."""
    unsays: list[tuple[str, str]] = []
    leaving: list[str] = []
    """Participants whose messages are all removed."""
    due: list[Due] = []
    not_due: list[Due] = []
    releases: dict[str, list[str]] = {}
    """The references to remove, by blob."""
    uploads: list[str] = []
    """Uploads to delete."""
    records: list[tuple[str, tuple[str, ...], str]] = []
    """Owner, namespace and key of the records to delete with the conversation."""
    birth: int = 0
    unsealed: list[tuple[int, int, int, int, str]] = []
    """Part, era, segment and seq of messages whose rows are deleted from parts, and the id if that goes, too."""
    ended: list[int] = []
    """Parts that are deleted."""
    listed: list[str] = []
    """Owners under which the conversation enters the table `unindexed`."""
    unlisted: list[str] = []
    """Owners under which it leaves that table."""
    unindexed: list[tuple[str, tuple[int, ...]]] = []
    """Owners and months: all rows of the conversation are deleted from the search index."""
    unindexed_messages: list[tuple[str, int, int, int]] = []
    """Owner, month, segment and seq of messages whose rows are deleted."""
    reindexed: list[tuple[str, int, int, int, int]] = []
    """Owner, era, month, segment and seq of messages whose rows are put again."""

    @property
    def is_empty(self) -> bool:
        return self == WriteEffects(self.tenant, self.at)


def bucket_of(name: str) -> int:
    return zlib.crc32(name.encode()) % BUCKETS


def user_list(sort: str, user_id: str) -> str:
    return f"{sort}/user/{user_id}"


def agent_list(sort: str, agent_id: str) -> str:
    return f"{sort}/agent/{agent_id}"


def whole_list(sort: str) -> str:
    return f"{sort}/all"


def entries(conversation: Conversation) -> list[Entry]:
    """Where a conversation is listed."""
    found: list[Entry] = []
    bucket = bucket_of(conversation.id)
    for sort in SORTS:
        slot = rows.slot_of(to_micros(cursors.sort_time(conversation, sort)))
        found.append((whole_list(sort), bucket, slot))
        if conversation.user_id is not None:
            found.append((user_list(sort, conversation.user_id), 0, slot))
        if conversation.agent_id is not None:
            found.append((agent_list(sort, conversation.agent_id), bucket, slot))
    return found


def move(effects: WriteEffects, before: ConversationState | None, after: ConversationState | None, id: str) -> None:
    """Moves a conversation from the list entries of one state to those of another."""
    old = entries(before.conversation) if before else []
    new = entries(after.conversation) if after else []
    effects.leaves = [entry for entry in old if entry not in new]
    effects.enters = [entry for entry in new if entry not in old]
    expired, expires = _expiry(before), _expiry(after)
    if expired != expires:
        effects.not_due += [(expired, "conversation", id)] if expired is not None else []
        effects.due += [(expires, "conversation", id)] if expires is not None else []


def _expiry(state: ConversationState | None) -> int | None:
    return to_micros(state.conversation.expires_at) if state and state.conversation.expires_at else None


def day_of(micros: int) -> str:
    return rows.day_of(from_micros(micros))


def is_listed(head: Head | None, entry: Entry) -> bool:
    """Whether a conversation is where an entry says."""
    return head is not None and head.state is not None and entry in entries(head.state.conversation)
