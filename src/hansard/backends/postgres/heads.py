"""Conversations as their writers know them: read under a lock, saved, and remembered.

What is remembered is only a guess that saves a round trip. It is checked by its stamp in the statement that writes, and
forgotten when it does not hold.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from hansard import rules
from hansard.backends.postgres import rows
from hansard.backends.postgres.errors import Raced
from hansard.backends.postgres.link import Row
from hansard.contract.types import Context, Head, Lane

if TYPE_CHECKING:
    from hansard.backends.postgres.engine import Work

_MOST = 4096
# Not for secrets: it only has to differ from what any other process has drawn.
_chance = random.SystemRandom().getrandbits


def new_stamp() -> int:
    return _chance(63)


class Entry(Struct, frozen=True):
    """A conversation as it is stored."""

    head: Head
    largest: int
    line: int
    """The last that a branch was given."""
    stamp: int


class Heads:
    """The entries that this process has last seen, those longest unused forgotten first."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str], Entry] = {}

    def get(self, tenant: str, id: str) -> Entry | None:
        return self._entries.get((tenant, id))

    def put(self, tenant: str, id: str, entry: Entry | None) -> None:
        """None forgets it."""
        self._entries.pop((tenant, id), None)
        if entry is not None:
            self._entries[tenant, id] = entry
            if len(self._entries) > _MOST:
                del self._entries[next(iter(self._entries))]

    def forget_tenant(self, tenant: str) -> None:
        for key in [key for key in self._entries if key[0] == tenant]:
            del self._entries[key]


def entry_of(row: Row, lanes: str | None, tenant: str) -> Entry:
    """From the columns of `find_conversation`, and the branches."""
    where = f"conversation {row[0]!r} of tenant {tenant!r}"
    return Entry(rows.head_of(row, lanes, where), row[17], row[18], row[19])


# Inside a transaction that writes


async def load(work: Work, id: str) -> Entry | None:
    """The conversation, locked until the transaction ends, whoever may see it."""
    row = await work.link.one("lock_conversation", work.tenant, id)
    if row is None:
        return None
    lanes = await work.link.one("find_lanes", work.tenant, id)
    return entry_of(row, lanes[0] if lanes else None, work.tenant)


async def find(work: Work, context: Context, id: str) -> Entry | None:
    """The conversation, locked, if the context may see it."""
    entry = await load(work, id)
    return entry if entry is not None and rules.is_visible(entry.head.conversation, context) else None


async def need(work: Work, context: Context, id: str) -> Entry:
    entry = await find(work, context, id)
    if entry is None:
        raise rules.not_found(id)
    return entry


async def insert(work: Work, entry: Entry) -> None:
    """A new conversation with its branches."""
    id = entry.head.conversation.id
    row = rows.conversation_row(entry.head, entry.largest, entry.line, entry.stamp)
    if not await work.link.run("insert_conversation", work.tenant, id, *row):
        raise Raced(f"conversation {id!r} was made by somebody else at the same moment")
    await _save_lanes(work, id, {}, entry.head.lanes)
    work.changed[id] = entry


async def save(work: Work, before: Entry, head: Head, *, largest: int = 0, line: int = 0) -> None:
    """The conversation's row, and those of its branches that have changed."""
    id = head.conversation.id
    entry = Entry(head, max(before.largest, largest), max(before.line, line), new_stamp())
    row = rows.conversation_row(head, entry.largest, entry.line, entry.stamp)
    await work.link.run("save_conversation", work.tenant, id, *row)
    if head.conversation.user_id != before.head.conversation.user_id:
        # The owner is part of what its messages are found by.
        await work.link.run("queue_conversations", work.tenant, [id])
    await _save_lanes(work, id, before.head.lanes, head.lanes)
    work.changed[id] = entry


async def _save_lanes(work: Work, id: str, before: Mapping[str, Lane], after: Mapping[str, Lane]) -> None:
    for name in before.keys() - after.keys():
        await work.link.run("delete_branch", work.tenant, id, name)
    # A branch that is no longer alone, or is alone again, is saved too: its count moves.
    same_company = len(before) > 0 and (len(before) > 1) == (len(after) > 1)
    for name, lane in after.items():
        old = before.get(name)
        if not same_company or old is None or not _is_saved(old, lane, alone=len(after) == 1):
            await work.link.run("save_branch", work.tenant, id, *rows.lane_row(lane, alone=len(after) == 1))


def _is_saved(before: Lane, after: Lane, *, alone: bool) -> bool:
    """Whether the branch's row says so already. The count of one that is alone stands in the conversation's."""
    return before is after or (alone and rows.lane_row(before, alone=True) == rows.lane_row(after, alone=True))


class FreshLines:
    """Numbers for new lines of a conversation; the last one is saved with it."""

    def __init__(self, entry: Entry) -> None:
        self.last = entry.line

    def __call__(self) -> int:
        self.last += 1
        return self.last
