"""What a reading connection remembers of the file until the next write.

A search needs the state of the index, the number of its tenant, and the conversation of every hit: lookups that take as
long as the search of a rare word. They are cached with the connection, and discarded as soon as `data_version` says
that another connection, of any process, has committed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Set
from copy import deepcopy
from typing import Any

from msgspec import Struct, structs

from hansard.backends.sqlite import index, rows
from hansard.backends.sqlite.errors import Unreadable
from hansard.backends.sqlite.index import IndexState
from hansard.backends.sqlite.queries import QUERIES
from hansard.contract.types import StoredBranch
from hansard.model import Conversation

_MOST = 1000
"""Entries of each kind."""
_FEW = 256
_LONG = 500
"""Characters above which a query is not remembered."""


class ConversationBranch(Struct, frozen=True, gc=False):
    """A conversation, and a branch of it."""

    conversation: Conversation
    branch: StoredBranch


class _Forks(Struct, frozen=True, gc=False):
    """What is known of a tenant's branches."""

    looked_to: int
    """The last segment that had been assigned."""
    fork: int | None
    """The segment of a branch whose conversation has several."""


class ReadConnection(sqlite3.Connection):
    """A reading connection, with its cache."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._cursor = self.cursor()
        """For the statements of every read, which take about as long as creating a cursor."""
        self._version = -1
        self._state: IndexState | None = None
        self._ranges: dict[str, tuple[int, int] | None] = {}
        self._places: dict[tuple[str, str], tuple[int, int] | None] = {}
        self._homes: dict[int, ConversationBranch] = {}
        self._odd: dict[str, bool] = {}
        self._forks: dict[str, _Forks] = {}
        """Kept when others commit: a search must not read the branches of all tenants after each write."""
        self.active: set[int] = set()
        """Of the cached segments, those of an active branch whose conversation never expires."""
        self._rare: set[tuple[int, str]] = set()
        self._common: set[tuple[int, str]] = set()
        """Queries that match many messages. They only affect speed, so they may be outdated."""

    def begin(self) -> None:
        self._cursor.execute("BEGIN")

    def end(self) -> None:
        """Ends the transaction, if there is one."""
        if self.in_transaction:
            self._cursor.execute("ROLLBACK")

    def refresh(self) -> None:
        """Discards what may have changed. Callers must call it at the beginning of a transaction."""
        version = self._cursor.execute("PRAGMA data_version").fetchone()[0]
        if version != self._version:
            self._version = version
            self._state = None
            for kind in (self._ranges, self._places, self._homes, self.active, self._rare, self._odd):
                kind.clear()

    def state(self) -> IndexState:
        if self._state is None:
            self._state = index.state_of(self)
        return self._state

    def entries_of(self, tenant: str) -> tuple[int, int] | None:
        """Returns the range of a tenant's entries; None if nothing of it is indexed."""
        try:
            return self._ranges[tenant]
        except KeyError:
            found = _room(self._ranges)[tenant] = index.entry_range(self, tenant)
            return found

    def has_odd(self, tenant: str) -> bool:
        """Returns whether not every entry of a tenant is searched: some have branches, or expire."""
        if tenant not in self._odd:
            expires = self.execute(QUERIES["has_expiring_conversations"], (tenant,)).fetchone()[0]
            _room(self._odd)[tenant] = bool(expires) or self._has_forks(tenant)
        return self._odd[tenant]

    def _has_forks(self, tenant: str) -> bool:
        """Returns whether a conversation of a tenant has several branches.

        Segments are never reused, and a conversation gets its second branch with a new one. So where there was none,
        only newer segments are read.
        """
        known = self._forks.get(tenant)
        if known is None or known.fork is not None:
            if known is not None and self.execute(QUERIES["is_fork"], (known.fork,)).fetchone()[0]:
                return True
            found = self.execute(QUERIES["find_fork"], (tenant,)).fetchone()
        else:
            found = self.execute(QUERIES["find_newer_fork"], (known.looked_to, tenant)).fetchone()
        looked_to = self.execute(QUERIES["last_segment"]).fetchone()[0]
        _room(self._forks)[tenant] = _Forks(looked_to, found[0] if found else None)
        return found is not None

    def place_of(self, tenant: str, id: str) -> tuple[int, int] | None:
        """Returns the pk of a conversation, and the segment of its active branch."""
        try:
            return self._places[tenant, id]
        except KeyError:
            found = self.execute(QUERIES["find_pk_and_segment"], (tenant, id)).fetchone()
            _room(self._places)[tenant, id] = found
            return found  # type: ignore[no-any-return]

    def home_of(self, segment: int) -> ConversationBranch:
        """Returns the conversation of a segment with its active branch. Callers must not hand it out: see `own`."""
        return self._homes.get(segment) or self.homes_of({segment})[segment]

    def homes_of(self, segments: Set[int]) -> Mapping[int, ConversationBranch]:
        """Returns the conversations of at least these segments, read together, which is faster than one by one."""
        if segments <= self._homes.keys():
            return self._homes
        if len(self._homes) >= _MOST:
            self._homes.clear()
            self.active.clear()
        self._read_homes(segments - self._homes.keys())
        return self._homes

    def _read_homes(self, missing: Set[int]) -> None:
        for segment, *columns, active, path in self.execute(
            QUERIES["find_conversations_by_segment"], (str([*missing]),)
        ):
            conversation = rows.conversation_of(tuple(columns), "the search")
            branch = StoredBranch("", active, rows.path_of(path, f"conversation {conversation.id!r}"))
            self._homes[segment] = ConversationBranch(conversation, branch)
            if segment == active and conversation.expires_at is None:
                self.active.add(segment)
        for segment in missing - self._homes.keys():
            raise Unreadable(f"the conversation of segment {segment}, which has messages, is not there")

    def is_rare(self, match: str, between: tuple[int, int]) -> bool:
        """Returns whether few entries of a tenant match: then the fastest way is to read each."""
        key = (between[0], match)
        if key in self._common or len(match) > _LONG:
            return False
        if key not in self._rare:
            is_rare = index.count(self, match, between, _FEW) < _FEW
            _room(self._rare if is_rare else self._common).add(key)
            return is_rare
        return True


def own(conversation: Conversation) -> Conversation:
    """Returns a copy whose metadata the caller may change."""
    metadata = conversation.metadata
    return structs.replace(conversation, metadata=deepcopy(metadata) if metadata else {})


def _room(kind: Any) -> Any:
    """Returns the cache, emptied if it is full."""
    if len(kind) >= _MOST:
        kind.clear()
    return kind
