"""States of conversations as writers see them, and a cache of those that this process remembers.

A remembered state is only a guess that saves a round trip. The writing statement checks its stamp, and an outdated one
is discarded.
"""

from __future__ import annotations

import random

from msgspec import Struct

from hansard.backends.postgres import rows
from hansard.backends.postgres.connection import Row
from hansard.contract.types import ConversationState

_MOST = 4096
# Not for secrets: it only has to differ from the numbers of other processes.
_chance = random.SystemRandom().getrandbits


def new_stamp() -> int:
    return _chance(63)


class StampedState(Struct, frozen=True):
    """A conversation as it is stored."""

    state: ConversationState
    largest: int
    last_segment: int
    """The highest segment number ever used."""
    stamp: int


class PostgresStateCache:
    """The states that this process has last seen; the least recently used are dropped first."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str], StampedState] = {}

    def get(self, tenant: str, id: str) -> StampedState | None:
        return self._entries.get((tenant, id))

    def put(self, tenant: str, id: str, entry: StampedState | None) -> None:
        """None removes the state."""
        self._entries.pop((tenant, id), None)
        if entry is not None:
            self._entries[tenant, id] = entry
            if len(self._entries) > _MOST:
                del self._entries[next(iter(self._entries))]

    def drop_tenant(self, tenant: str) -> None:
        for key in [key for key in self._entries if key[0] == tenant]:
            del self._entries[key]


def stamped_state_of(row: Row, branches: str | None, tenant: str) -> StampedState:
    """Decodes the columns of `lock_conversation`, and the branches."""
    where = f"conversation {row[0]!r} of tenant {tenant!r}"
    return StampedState(rows.state_of(row, branches, where), row[17], row[18], row[19])
