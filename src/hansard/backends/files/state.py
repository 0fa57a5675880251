"""A conversation as read from its journal, without its messages, which have rows of their own in the index.

A write has exactly the effect here that reading its line again has.
"""

from __future__ import annotations

import secrets
from datetime import datetime
from typing import TypeVar

import msgspec
from msgspec import UNSET, Struct, structs

from hansard import rules
from hansard.backends.files import entries
from hansard.backends.files.entries import JournalEntry
from hansard.backends.files.index import IndexDamage
from hansard.backends.files.line_format import ReadPosition
from hansard.contract.types import ConversationState, StoredBranch
from hansard.model import NOT_YET, Conversation, Summary, UsageRow

T = TypeVar("T")


class StateCore(Struct, array_like=True):
    """The fields that every write may change, as the index stores them."""

    conversation: Conversation | None
    seq: int = 0
    branches: list[StoredBranch] = []
    has_tombstones: bool = False
    count: int = 0
    top: int = 0
    waste: int = 0
    latest: int = 0
    is_time_ordered: bool = True
    deleted_at: datetime | None = None
    tombstone: bool = False


class StateExtras(Struct, array_like=True):
    """The fields that few writes change."""

    summaries: list[Summary] = []
    owners: list[str] = []
    """Spaces that hold records of this conversation."""


_encode = msgspec.json.Encoder().encode
_core = msgspec.json.Decoder(StateCore)
_rest = msgspec.json.Decoder(StateExtras)
_usage = msgspec.json.Decoder(list[UsageRow])


class JournalState:
    """Everything in a journal about its conversation, except the messages."""

    def __init__(self, position: ReadPosition | None = None) -> None:
        self.position = position or ReadPosition()
        self.id = ""
        self.journal = ""
        self.conversation_state: ConversationState | None = None
        self.count = 0
        """The number of messages."""
        self.top = 0
        """The highest segment that was ever used."""
        self.waste = 0
        """Bytes in the journal that a rewrite would leave out."""
        self.latest = 0
        """The latest time of a message, in microseconds."""
        self.is_time_ordered = True
        """Whether the order of seq is also the order of time."""
        self.deleted_at: datetime | None = None
        self.tombstone = False
        """Whether it was deleted by a call, not by its expiry."""
        self.rest = StateExtras()
        self.usage: dict[rules.UsageKey, UsageRow] = {}
        self.is_rest_changed = False

    @property
    def is_live(self) -> bool:
        return self.conversation_state is not None and self.deleted_at is None

    def last_segment(self) -> int:
        """Returns the highest segment that this conversation uses or has used."""
        assert self.conversation_state is not None
        return max(self.top, *(branch.segment for branch in self.conversation_state.branches.values()))

    # Applying entries

    def change(self, entry: JournalEntry) -> None:
        """Applies everything in an entry except its messages."""
        self._change_conversation(entry)
        self._change_rest(entry)

    def _change_conversation(self, entry: JournalEntry) -> None:
        head = self.conversation_state
        conversation = head.conversation if head else None
        if entry.conversation is not UNSET:
            conversation = entries.apply_changed_fields(conversation, self.id, entry.conversation)
        if conversation is None:
            return
        if conversation.message_count != self.count:
            raise ValueError(f"its message count is {conversation.message_count}, but it has {self.count} messages")
        branches = dict(head.branches) if head else {}
        for id in entry.dropped:
            del branches[id]
        branches.update((branch.id, branch) for branch in entry.branches)
        for id, count in entry.counts.items():
            branches[id] = structs.replace(branches[id], count=count)
        seq = entry.seq if entry.seq is not UNSET else head.seq if head else 0
        has_tombstones = (
            entry.has_tombstones if entry.has_tombstones is not UNSET else head is not None and head.has_tombstones
        )
        self.conversation_state = ConversationState(conversation, seq, branches, has_tombstones)

    def _change_rest(self, entry: JournalEntry) -> None:
        self.top = max(self.top, entry.top)
        rest = self.rest
        if entry.summaries is not UNSET:
            rest.summaries = entry.summaries
        if entry.summary is not UNSET:
            rest.summaries = [*rest.summaries, entry.summary]
        if entry.owners:
            rest.owners = sorted({*rest.owners, *entry.owners})
        if entry.deleted:
            self.deleted_at, self.tombstone = entry.at, entry.tombstone
        for row in entry.usage:
            key = (row.day, row.user_id, row.agent_id, row.model)
            self.usage[key] = rules.add_usage(self.usage[key], row) if key in self.usage else row
        if entry.erased:
            self.usage = {key: row for key, row in self.usage.items() if key[1] != entry.erased}
        self.is_rest_changed |= (
            bool(entry.hansard or entry.owners or entry.usage or entry.erased)
            or entry.summaries is not UNSET
            or entry.summary is not UNSET
        )

    # Rewriting

    def whole(self, at: datetime = NOT_YET) -> JournalEntry:
        """Returns an entry with everything except the messages. Its nonce tells the file from another of the same
        length.
        """
        entry = JournalEntry(
            what="snapshot",
            at=at,
            nonce=secrets.token_hex(4),
            top=self.top,
            summaries=self.rest.summaries,
            usage=list(self.usage.values()),
            owners=self.rest.owners,
        )
        assert self.conversation_state is not None
        entries.set_state(entry, None, self.conversation_state)
        return entry

    def copy(self) -> JournalState:
        """Returns a copy that can be changed independently."""
        twin = JournalState.__new__(JournalState)
        vars(twin).update(vars(self))
        twin.position, twin.rest, twin.usage = (
            structs.replace(self.position),
            structs.replace(self.rest),
            dict(self.usage),
        )
        return twin

    # In the index

    def core(self) -> bytes:
        head = self.conversation_state
        numbers = (self.count, self.top, self.waste, self.latest, self.is_time_ordered, self.deleted_at, self.tombstone)
        if head is None:
            return _encode(StateCore(None, 0, [], False, *numbers))
        return _encode(
            StateCore(head.conversation, head.seq, list(head.branches.values()), head.has_tombstones, *numbers)
        )

    def set_core(self, data: bytes) -> None:
        core = _decoded(_core, data)
        self.count, self.top, self.waste = core.count, core.top, core.waste
        self.latest, self.is_time_ordered = core.latest, core.is_time_ordered
        self.deleted_at, self.tombstone = core.deleted_at, core.tombstone
        if core.conversation is not None:
            self.conversation_state = ConversationState(
                core.conversation, core.seq, {branch.id: branch for branch in core.branches}, core.has_tombstones
            )

    def rest_and_usage(self) -> tuple[bytes, bytes | None]:
        return _encode(self.rest), _encode(list(self.usage.values())) if self.usage else None

    def set_rest(self, rest: bytes | None, usage: bytes | None) -> None:
        self.rest = decode_rest(rest)
        self.usage = {(row.day, row.user_id, row.agent_id, row.model): row for row in decode_usage(usage)}


def decode_core(data: bytes) -> StateCore:
    return _decoded(_core, data)


def decode_rest(data: bytes | None) -> StateExtras:
    return _decoded(_rest, data) if data is not None else StateExtras()


def decode_usage(data: bytes | None) -> list[UsageRow]:
    return _decoded(_usage, data) if data is not None else []


def _decoded(decoder: msgspec.json.Decoder[T], data: bytes) -> T:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError) as error:
        raise IndexDamage(str(error)) from error
