"""Heads: the rows that every write swaps, and how rows of a conversation get copies elsewhere.

Messages are copied to parts (`seal.py`) and to the search index (`index.py`), in three steps:

1. The head is swapped for one that *claims* the messages: from now on, they may have copies.
2. The copies are put, with the number of that swap as their time.
3. The head is swapped for one that says that they are there, if the claim still holds.

A write that changes or removes a claimed message also replaces or deletes its copies, at a later time. So a process
that is late, or dies, leaves nothing of a message that is gone, and another one continues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import structs

from hansard.backends.cassandra import read, rows
from hansard.backends.cassandra.connection import Link, Statement
from hansard.backends.cassandra.read import Name
from hansard.backends.cassandra.rows import Head
from hansard.cache import Cache

_REMEMBERED = 4096
_TRIES = 5


class Heads:
    def __init__(self, link: Link) -> None:
        self._link = link
        self._remembered: Cache[Name, Head] = Cache(_REMEMBERED)
        """As this process has left them."""

    def get(self, name: Name) -> Head | None:
        return self._remembered.get(name)

    def remember(self, name: Name, head: Head) -> None:
        known = self._remembered.get(name)
        if known is None or known.n < head.n:
            self._remembered.put(name, head)

    def forget(self, name: Name) -> None:
        self._remembered.pop(name)

    async def swap(self, name: Name, before: Head | None, after: Head, others: Iterable[Statement] = ()) -> Head | None:
        """Returns the head with its new stamp; None if another writer was faster, and nothing was changed."""
        n, recent = rows.following(before)
        after = structs.replace(after, n=n, recent=recent)
        self.forget(name)
        if not await self._link.swap([rows.swap_of((self._link.prefix, *name), before, after), *others]):
            return None
        self.remember(name, after)
        return after

    async def finish(
        self, name: Name, claim: Head, end: Callable[[Head], Head | None], others: Iterable[Statement] = ()
    ) -> Head | None:
        """Step 3. `end` makes the last head from one that still has the claim, and returns None for any other."""
        head: Head | None = claim
        for _ in range(_TRIES):
            after = end(head) if head is not None and head.state is not None else None
            if head is None or after is None:
                return None
            if done := await self.swap(name, head, after, others):
                return done
            head = await read.load(self._link, name)
        return None
