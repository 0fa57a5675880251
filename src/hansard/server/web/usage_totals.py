"""Statistics and recent usage for the overview: totals by day, model, agent and user.

A busy store has many conversations, and a row of usage for each user, agent, model and day. Large totals are computed
at most once a minute. Conversations that cannot be counted in a few seconds are not counted.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime, timedelta

from msgspec import Struct

from hansard.errors import Denied, Unsupported
from hansard.model import Stats, UsageRow
from hansard.store import Store

BUSIEST = 6
_MANY_ROWS, _MANY_CONVERSATIONS = 5_000, 10_000
"""Above these sizes, totals are computed at most once a minute."""
_MINUTE = timedelta(minutes=1)
_PATIENCE = 5.0
"""Seconds that a page waits for the number of conversations."""
_PAUSE = timedelta(minutes=10)
"""How long conversations are not counted again that took longer."""
_MAX_CACHED = 64


class UsageRank(Struct, frozen=True):
    name: str
    tokens: int
    cost: float
    messages: int


class Totals(Struct, frozen=True):
    stats: Stats | None
    """None if the store has no statistics, in a user's view, or if counting took too long."""
    total: UsageRank
    tokens: dict[str, int]
    """Tokens by day."""
    costs: dict[str, float]
    """Cost by day."""
    models: list[UsageRank]
    """The most expensive first, then those with the most tokens; so are agents and users."""
    agents: list[UsageRank]
    users: list[UsageRank]
    at: datetime
    is_cached: bool
    """The totals were expensive to compute, so they are shown for up to a minute."""
    is_uncounted: bool
    """Counting the conversations took too long."""


class UsageTotals:
    """Recently computed totals, by tenant, user and first day."""

    def __init__(self) -> None:
        self._cached: dict[tuple[str, str | None, date], Totals] = {}
        self._generation = 0
        self._uncounted: dict[tuple[str, str | None], datetime] = {}
        """Until when the conversations of a view are not counted."""

    async def sums(self, store: Store, since: date) -> Totals:
        now = datetime.now(UTC)
        key = (store.tenant_id, store.user_id, since)
        cached = self._cached.get(key)
        if cached is not None and now - cached.at < _MINUTE:
            return cached
        generation = self._generation
        stats, rows = await asyncio.gather(self._stats(store, now), _usage(store, since))
        made = _add_up(stats, rows, now, is_uncounted=key[:2] in self._uncounted)
        self._cached.pop(key, None)
        if made.is_cached and generation == self._generation:
            self._cached[key] = made
            while len(self._cached) > _MAX_CACHED:
                del self._cached[next(iter(self._cached))]
        return made

    async def _stats(self, store: Store, now: datetime) -> Stats | None:
        view = (store.tenant_id, store.user_id)
        if now < self._uncounted.get(view, now):
            return None
        self._uncounted.pop(view, None)
        try:
            async with asyncio.timeout(_PATIENCE):
                return await store.stats()
        except TimeoutError:
            self._uncounted[view] = now + _PAUSE
            while len(self._uncounted) > _MAX_CACHED:
                del self._uncounted[next(iter(self._uncounted))]
        except (Denied, Unsupported):
            pass
        return None

    def clear(self) -> None:
        """Clears the cache after a deletion, so that deleted data and erased names are no longer shown."""
        self._generation += 1
        self._cached.clear()


async def _usage(store: Store, since: date) -> list[UsageRow]:
    try:
        return await store.usage(since=since)
    except (Denied, Unsupported):
        return []


def _add_up(stats: Stats | None, rows: Sequence[UsageRow], now: datetime, *, is_uncounted: bool) -> Totals:
    tokens: dict[str, int] = defaultdict(int)
    costs: dict[str, float] = defaultdict(float)
    for row in rows:
        tokens[row.day] += row.input_tokens + row.output_tokens
        costs[row.day] += row.cost
    is_much = stats is not None and stats.conversations > _MANY_CONVERSATIONS
    return Totals(
        stats,
        _sum("", rows),
        tokens,
        costs,
        _ranked(rows, lambda row: row.model),
        _ranked(rows, lambda row: row.agent_id),
        _ranked(rows, lambda row: row.user_id),
        now,
        is_cached=is_much or len(rows) > _MANY_ROWS,
        is_uncounted=is_uncounted,
    )


def _ranked(rows: Sequence[UsageRow], by: Callable[[UsageRow], str | None]) -> list[UsageRank]:
    groups: dict[str, list[UsageRow]] = defaultdict(list)
    for row in rows:
        if (name := by(row)) is not None:
            groups[name].append(row)
    found = [_sum(name, each) for name, each in groups.items()]
    return sorted(found, key=lambda each: (-each.cost, -each.tokens, each.name))[:BUSIEST]


def _sum(name: str, rows: Iterable[UsageRow]) -> UsageRank:
    tokens = messages = 0
    cost = 0.0
    for row in rows:
        tokens += row.input_tokens + row.output_tokens
        messages += row.messages
        cost += row.cost
    return UsageRank(name, tokens, cost, messages)
