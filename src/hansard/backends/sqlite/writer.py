"""The context of a job: the writing connection, and the states of conversations.

States are cached across transactions and trusted only while `data_version` says that no other connection has written.
Rows and counters of appends are stored once, when the transaction ends: a conversation that many callers append to
costs one UPDATE.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import cache
from itertools import chain
from operator import index
from typing import Any

from hansard import rules
from hansard.backends.sqlite import rows
from hansard.backends.sqlite.errors import decodes
from hansard.backends.sqlite.queries import QUERIES
from hansard.backends.sqlite.tail_cache import AddedRows, TailCache
from hansard.contract.types import Context, ConversationState, StoredBranch
from hansard.model import UsageRow, to_micros

_MOST = 4096
"""Entries of each kind that are cached."""
_MOST_SLOTS = 100_000

_FIND_HEAD = QUERIES["find_head"]
_SAVE_COUNTERS = QUERIES["save_counters"]
_INSERT_MESSAGE = QUERIES["insert_message"]
_INSERT_RARE_MESSAGE = QUERIES["insert_rare_message"]
_ADD_SEARCH_ROW = QUERIES["add_search_row"]
_ADD_MANY_SEARCH_ROWS = QUERIES["add_many_search_rows"]
_ADD_SEARCH_ROWS = QUERIES["add_search_rows"]
_DATA_VERSION = "PRAGMA data_version"
_BRANCH = 19
"""The index of a branch's first column in a row of `find_head`."""


_TOGETHER = 100
"""Rows that one statement inserts."""
BULK = 50
"""Batches from this size on are assumed to be a bulk load."""

IndexInserted = Callable[["SqliteWriter", list[Any]], bool]
"""`index.index_inserted`, which needs the writer."""


class CachedState:
    """A conversation as the writer knows it."""

    __slots__ = ("largest", "pk", "saved", "state")

    def __init__(self, pk: int, state: ConversationState, largest: int) -> None:
        self.pk = pk
        self.state = state
        self.largest = largest
        self.saved = state.branches
        """The branches as they are stored in the file."""


class SqliteWriter:
    def __init__(self, connection: sqlite3.Connection, index_inserted: IndexInserted) -> None:
        self.connection = connection
        self.execute = connection.execute
        self.touched: set[tuple[str, str]] = set()
        """Conversations that this transaction has changed."""
        self._entries: dict[tuple[str, str], CachedState] = {}
        self._dirty: dict[tuple[str, str], CachedState] = {}
        """Conversations whose counters are not saved yet."""
        self._messages: list[rows.Row] = []
        """Messages that are not inserted yet."""
        self.tails = TailCache()
        self._added: list[AddedRows] = []
        """Rows to add to the tail cache after the commit."""
        self.unindexed = 0
        """How many messages wait to be indexed, as far as this process knows."""
        self.arrived = 0
        """How many of them came in the last batch."""
        self.loads = 0
        """How many bulk loads are under way: then large batches are indexed in their own transaction."""
        self.loaded = 0
        """How many messages they have indexed, until the index is merged."""
        self.unmerged = 0
        """How many messages others have indexed, until segments of the index are merged."""
        self.index_inserted = index_inserted
        self._to_index: list[rows.Row] = []
        """What `index_inserted` needs of the messages that are not inserted yet; of those before a load, nothing."""
        self.lists_for_search = True
        """False only to measure the cost of search: such messages are not found, and `check` reports it."""
        self._tombstones: dict[tuple[str, str], datetime | None] = {}
        """Tombstones that were looked up: an append of dated messages asks for the same one each time."""
        self._last_segment: int | None = None
        """The highest segment number in use, once it was looked up."""
        self.free_slots: dict[int, tuple[int, int]] = {}
        """The next free number of a slot of the search index, and the time of its newest message: see `index`.

        Entries that are deleted meanwhile only leave numbers unused."""
        self.next_slots: dict[int, int] = {}
        """For a full slot, the first one after it that may have room."""
        self._data_version = -1
        self._marks = 0
        self._flushed = 0
        """Changes of the connection that `flush` made."""

    # The transaction

    def begin(self) -> None:
        self.execute("BEGIN IMMEDIATE")
        self.touched.clear()
        version = self.execute(_DATA_VERSION).fetchone()[0]
        if version != self._data_version:
            self._clear_caches()
            self._data_version = version
        elif len(self._entries) > _MOST or len(self._tombstones) > _MOST or len(self.free_slots) > _MOST_SLOTS:
            self._clear_caches()

    def _clear_caches(self) -> None:
        self._entries.clear()
        self._tombstones.clear()
        self.clear_slots()
        self._last_segment = None

    def clear_slots(self) -> None:
        """Clears what is known of the search index."""
        self.free_slots.clear()
        self.next_slots.clear()

    def commit(self) -> None:
        self.flush()
        self.execute("COMMIT")

    def update_tails(self) -> None:
        """After the commit: adds appended rows to the cached tails."""
        added, self._added = self._added, []
        for each in added:
            self.tails.add(each)

    def rollback(self) -> None:
        self._clear_caches()
        self._dirty.clear()
        self._messages.clear()
        self._to_index.clear()
        self._added.clear()
        self.touched.clear()
        if self.connection.in_transaction:
            self.execute("ROLLBACK")

    @property
    def changes(self) -> int:
        """Grows with every change, which shows that a refused job has made none.

        Rows that a job flushes were changed by earlier jobs.
        """
        return self.connection.total_changes - self._flushed + self._marks

    def run(self, name: str, *values: Any) -> sqlite3.Cursor:
        return self.execute(QUERIES[name], values)

    def one(self, name: str, *values: Any) -> Any:
        return self.execute(QUERIES[name], values).fetchone()

    # Heads

    def load(self, tenant: str, id: str) -> CachedState | None:
        key = (tenant, id)
        entry = self._entries.get(key)
        if entry is None:
            entry = find_state(self.connection, tenant, id)
            if entry is not None:
                self._entries[key] = entry
        return entry

    def require(self, context: Context, id: str) -> CachedState:
        """Returns a conversation, which the context must be able to see."""
        entry = self.load(context.tenant, id)
        if entry is None or not rules.is_visible(entry.state.conversation, context):
            raise rules.not_found(id)
        return entry

    def touch(self, tenant: str, id: str) -> None:
        self.touched.add((tenant, id))
        self._marks += 1

    def save_later(self, tenant: str, id: str, entry: CachedState, state: ConversationState) -> None:
        """Saves only counters, later: for an append to an existing conversation."""
        entry.state = state
        key = (tenant, id)
        self._dirty[key] = entry
        self.touched.add(key)
        self._marks += 1

    def save(self, tenant: str, id: str, entry: CachedState, state: ConversationState) -> None:
        """Saves everything: the conversation's row and its branches."""
        # Buffered appends are written first: only changes against the file are saved below.
        self.flush()
        before, entry.state = entry.state, state
        self.run("save_conversation", *rows.conversation_row(state, entry.largest), entry.pk)
        if state.branches is not before.branches:
            self._save_branches(entry, before.branches, state.branches)
        entry.saved = state.branches
        self.touch(tenant, id)

    def _save_branches(
        self, entry: CachedState, before: dict[str, StoredBranch], after: dict[str, StoredBranch]
    ) -> None:
        for id in before.keys() - after.keys():
            self.run("delete_branch", entry.pk, id)
        # If the number of branches changes from or to one, the branches are saved too: their count moves.
        same_count_row = (len(before) > 1) == (len(after) > 1)
        for id, branch in after.items():
            if not (same_count_row and branch is before.get(id)):
                self._save_branch(entry.pk, branch, alone=len(after) == 1)

    def _save_branch(self, pk: int, branch: StoredBranch, *, alone: bool) -> None:
        self.run("save_branch", branch.segment, *rows.branch_row(pk, branch, alone=alone))

    def insert(self, tenant: str, state: ConversationState, largest: int) -> CachedState:
        """Inserts a new conversation with its branches."""
        id = state.conversation.id
        pk = self.run("insert_conversation", tenant, id, *rows.conversation_row(state, largest)).lastrowid
        assert pk is not None
        for branch in state.branches.values():
            self._save_branch(pk, branch, alone=len(state.branches) == 1)
        entry = self._entries[tenant, id] = CachedState(pk, state, largest)
        self.touch(tenant, id)
        return entry

    def new_segment(self) -> int:
        """Returns a number that no segment has had. It is kept when a branch with it is saved, or by `reserve`."""
        if self._last_segment is None:
            self._last_segment = int(self.one("last_segment")[0])
        self._last_segment += 1
        return self._last_segment

    def reserve(self, segment: int) -> None:
        """Marks a segment as used that no branch owns."""
        self.run("reserve_segment", segment)
        self.run("release_segment")

    def discard(self, tenant: str, id: str) -> None:
        """Removes a deleted conversation from the cache."""
        self._entries.pop((tenant, id), None)
        self._dirty.pop((tenant, id), None)
        self.touch(tenant, id)

    # Tombstones

    def tombstone(self, tenant: str, digest: str) -> datetime | None:
        key = (tenant, digest)
        try:
            return self._tombstones[key]
        except KeyError:
            row = self.one("find_tombstone", *key)
            found = self._tombstones[key] = rows.moment_of(row[0]) if row else None
            return found

    def add_tombstones(self, tenant: str, digests: Iterable[str], at: datetime) -> None:
        for digest in digests:
            self.run("add_tombstone", tenant, digest, to_micros(at))
            # A later time may be stored already: it is read when it is needed.
            self._tombstones.pop((tenant, digest), None)

    def clear_tombstones(self) -> None:
        """Clears the cache after some were deleted from the file."""
        self._tombstones.clear()

    # Buffered appends

    def add_usage(self, tenant: str, amounts: Iterable[UsageRow]) -> None:
        for row in amounts:
            self.run("add_usage", *rows.usage_row(tenant, row))

    def insert_later(self, messages: list[rows.Row], to_index: Sequence[rows.Row]) -> None:
        """Buffers messages, which are inserted together, by key: the pages of one segment are touched together.

        During a bulk load, `to_index` is what `index_inserted` needs of them.
        """
        self._messages += messages
        self._to_index += to_index
        self._marks += 1

    def add_later(
        self, segment: int, before: ConversationState, after: ConversationState, inserted: list[rows.Row], largest: int
    ) -> None:
        """Records an append for the tail cache, so that readers of the segment's end need not read the file."""
        if segment in self.tails:
            made = [rows.as_read(row) for row in reversed(inserted)]
            self._added.append(AddedRows(segment, _place_of(before), _place_of(after), made, largest))

    def flush(self) -> None:
        """Writes buffered appends. Callers must call it before they read messages in the same transaction."""
        if not (self._messages or self._dirty):
            return
        before = self.connection.total_changes
        if self._messages:
            # Before sorting: search needs the order of arrival.
            arrived = [row[0] for row in self._messages]
            self._messages.sort()
            self._insert(self._messages)
            if self.lists_for_search and not self._index_at_once():
                self._list_for_search(arrived, self._messages[0][0], self._messages[-1][0])
                self.unindexed += len(arrived)
            self.arrived = len(arrived)
            self._messages.clear()
            self._to_index.clear()
        if self._dirty:
            entries = self._dirty.values()
            self._many(_SAVE_COUNTERS, [rows.counters_row(each.state, each.largest, each.pk) for each in entries])
            for entry in entries:
                if len(entry.state.branches) > 1:
                    self._save_counts(entry)
            self._dirty.clear()
        self._flushed += self.connection.total_changes - before

    def _insert(self, messages: list[rows.Row]) -> None:
        rare = [row for row in messages if rows.is_rare(row)]
        if rare:
            self._many(_INSERT_RARE_MESSAGE, rare)
            messages = [row for row in messages if not rows.is_rare(row)]
        if messages:
            self.insert_all(_INSERT_MESSAGE, messages)

    def _index_at_once(self) -> bool:
        """During a bulk load, indexes the messages. Returns whether it did."""
        if not self.loads or len(self._messages) < BULK or len(self._to_index) < len(self._messages):
            return False
        return self.index_inserted(self, self._to_index)

    def _list_for_search(self, arrived: list[int], first: int, last: int) -> None:
        if len(arrived) == 1:
            self.execute(_ADD_SEARCH_ROW, arrived)
        elif 0 < last - first == len(arrived) - 1:
            # Every key between the two: they are of one segment, where the order of arrival is that of the keys.
            self.execute(_ADD_SEARCH_ROWS, (first, last))
        else:
            self.execute(_ADD_MANY_SEARCH_ROWS, (str(arrived),))

    def _save_counts(self, entry: CachedState) -> None:
        """Saves the counts of the branches that were appended to; usually few have changed."""
        for id, branch in entry.state.branches.items():
            if branch is not entry.saved.get(id):
                self.run("save_count", branch.count, branch.segment)
        entry.saved = entry.state.branches

    def _many(self, sql: str, values: list[rows.Row]) -> None:
        if len(values) == 1:
            self.execute(sql, values[0])
        else:
            self.connection.executemany(sql, values)

    def insert_all(self, sql: str, values: list[rows.Row]) -> None:
        """Inserts rows, many by each statement: about half the work of a statement for each row (W7)."""
        together = len(values) - len(values) % _TOGETHER
        for start in range(0, together, _TOGETHER):
            self.execute(_repeated(sql), [*chain.from_iterable(values[start : start + _TOGETHER])])
        if together < len(values):
            self._many(sql, values[together:])


@cache
def _repeated(sql: str) -> str:
    """Returns the INSERT of one row as one of `_TOGETHER` rows."""
    head, values, row = sql.removesuffix(";").partition("VALUES")
    return head + values + ",".join([row] * _TOGETHER)


def _place_of(state: ConversationState) -> tuple[int, int]:
    return state.conversation.version, state.seq


def find_state(connection: sqlite3.Connection, tenant: str, id: str) -> CachedState | None:
    """Reads a conversation with its branches."""
    found = connection.execute(_FIND_HEAD, (tenant, id)).fetchall()
    return _state_of(found, f"conversation {id!r} of tenant {tenant!r}") if found else None


@decodes
def _state_of(found: list[rows.Row], where: str) -> CachedState:
    first = found[0]
    seq, has_tombstones, largest = first[_BRANCH - 3 : _BRANCH]
    conversation = rows.conversation_of(first[1 : _BRANCH - 3], where)
    branches = (
        rows.branch_of(row[_BRANCH:], conversation.message_count, where) for row in found if row[_BRANCH] is not None
    )
    state = ConversationState(
        conversation, index(seq), {branch.id: branch for branch in branches}, bool(has_tombstones)
    )
    return CachedState(first[0], state, index(largest))
