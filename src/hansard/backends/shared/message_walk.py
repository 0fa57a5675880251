"""Reads of one conversation by walking its segments from either end, for storages that keep messages as sorted rows.

A storage provides `WalkedConversation`; the functions here answer what the Storage contract asks about messages.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Protocol, TypeVar

from hansard import rules
from hansard.backends.shared import lists
from hansard.contract.storage import Run, Without
from hansard.contract.types import ConversationState, MessageQuery
from hansard.model import Message, from_micros
from hansard.rules.operations.common import runs_of


class WalkedRow(Protocol):
    """A message as it is stored."""

    @property
    def segment(self) -> int: ...
    @property
    def seq(self) -> int: ...
    @property
    def id(self) -> str: ...
    @property
    def created_at(self) -> int: ...
    @property
    def size(self) -> int: ...


R = TypeVar("R", bound=WalkedRow)
R_co = TypeVar("R_co", bound=WalkedRow, covariant=True)


class WalkedConversation(Protocol[R_co]):
    @property
    def state(self) -> ConversationState: ...

    def walk(self, run: Run, *, newest_first: bool = False, expected: int | None = None) -> AsyncGenerator[R_co, None]:
        """Yields the messages of a run from either end. Callers will take about as many as expected, if they know."""

    def pinned(self, run: Run) -> AsyncGenerator[R_co, None]:
        """Yields the pinned messages of a run, ascending."""


def segments(state: ConversationState) -> list[int]:
    """Returns every segment that holds messages: each message is read by some branch."""
    return sorted({segment for branch in state.branches.values() for segment, _ in rules.segments(branch)})


async def walk_all(
    conversation: WalkedConversation[R],
    runs: Sequence[Run],
    *,
    newest_first: bool = False,
    expected: int | None = None,
) -> AsyncGenerator[R, None]:
    for run in reversed(runs) if newest_first else runs:
        async with aclosing(conversation.walk(run, newest_first=newest_first, expected=expected)) as walked:
            async for row in walked:
                yield row


async def newest(conversation: WalkedConversation[R], runs: Sequence[Run], count: int) -> list[R]:
    """Returns the last rows of all runs taken together, in ascending order."""
    found: list[R] = []
    async with aclosing(walk_all(conversation, runs, newest_first=True, expected=count + 1)) as walked:
        async for row in walked:
            if len(found) == count:
                break
            found.append(row)
    return found[::-1]


async def last_time(conversation: WalkedConversation[R], without: Without) -> datetime | None:
    """See `Wants.last_time_without`."""
    left = [await _last_left(conversation, segment, without) for segment in segments(conversation.state)]
    last = max((row for row in left if row is not None), key=lambda row: row.seq, default=None)
    return from_micros(last.created_at) if last else None


async def _last_left(conversation: WalkedConversation[R], segment: int, without: Without) -> R | None:
    runs = [run for run in without.runs if run.segment == segment]
    upto = rules.NO_END
    for run in sorted(runs, key=lambda each: -each.upto):
        upto = run.after if run.upto >= upto else upto
    async with aclosing(conversation.walk(Run(segment, 0, upto), newest_first=True, expected=10)) as walked:
        async for row in walked:
            if row.id not in without.ids and not any(run.after < row.seq <= run.upto for run in runs):
                return row
    return None


async def select(
    conversation: WalkedConversation[R], query: MessageQuery, message_of: Callable[[R], Message]
) -> tuple[list[R], bool]:
    """Returns the rows that a query asks for, and whether there are more. `message_of` may leave the content out."""
    found: list[R] = []
    total = 0
    async with aclosing(_candidates(conversation, query)) as candidates:
        async for row in candidates:
            message = message_of(row)
            if not (rules.is_between(message, query) and rules.is_wanted(message, query)):
                continue
            if len(found) == query.limit or (query.max_bytes is not None and total >= query.max_bytes):
                return found, True
            found.append(row)
            total += row.size
    return found, False


async def _candidates(conversation: WalkedConversation[R], query: MessageQuery) -> AsyncGenerator[R, None]:
    """Yields rows of the branch in the order of the query, at least all that it selects."""
    runs = runs_of(conversation.state.branch(query.branch))
    if query.sort == "time":
        everything = [row async for row in walk_all(conversation, runs)]
        everything.sort(key=lambda row: (row.created_at, row.seq), reverse=query.newest_first)
        for row in everything:
            yield row
        return
    above = query.above[1] if query.above else 0
    below = query.below[1] - 1 if query.below else rules.NO_END
    runs = [Run(run.segment, max(run.after, above), min(run.upto, below)) for run in runs]
    runs = [run for run in runs if run.after < run.upto]
    if query.pinned:
        pinned = [row for run in runs async for row in conversation.pinned(run)]
        for row in reversed(pinned) if query.newest_first else pinned:
            yield row
        return
    expected = None if query.limit is None else query.limit + 1
    async with aclosing(walk_all(conversation, runs, newest_first=query.newest_first, expected=expected)) as walked:
        async for row in walked:
            yield row


async def rows_after(conversation: WalkedConversation[R], seq: int, limit: int, max_bytes: int) -> list[R]:
    """Returns rows of all segments, ordered by seq: at least one, if there is one."""
    merged: list[R] = []
    end = rules.NO_END
    for segment in segments(conversation.state):
        part, more = await _piece(conversation, Run(segment, seq, rules.NO_END), limit, max_bytes)
        merged += part
        end = min(end, part[-1].seq) if more else end
    merged.sort(key=lambda row: row.seq)
    taken, _ = lists.take((row for row in merged if row.seq <= end), limit, max_bytes, lambda row: row.size)
    return taken


async def _piece(conversation: WalkedConversation[R], run: Run, limit: int, max_bytes: int) -> tuple[list[R], bool]:
    """Returns the beginning of a run, and whether it continues."""
    found: list[R] = []
    total = 0
    async with aclosing(conversation.walk(run)) as walked:
        async for row in walked:
            if len(found) == limit or (found and total >= max_bytes):
                return found, True
            found.append(row)
            total += row.size
    return found, False
