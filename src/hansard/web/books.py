"""The usage of the last days, added up: tokens by day, and what models, agents and users took.

A busy store has a row of usage for each user, agent, model and day. Where that is much to add up, it is done once a
minute and not for everybody who looks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime, timedelta

from msgspec import Struct

from hansard.errors import Denied, Unsupported
from hansard.model import UsageRow
from hansard.store import Store

BUSIEST = 6
_MANY = 5_000
"""Rows that are added up at most once a minute."""
_MINUTE = timedelta(minutes=1)
_MOST_KEPT = 64


class Ranked(Struct, frozen=True):
    name: str
    tokens: int
    cost: float
    messages: int


class Sums(Struct, frozen=True):
    total: Ranked
    tokens: dict[str, int]
    """By day."""
    models: list[Ranked]
    agents: list[Ranked]
    users: list[Ranked]
    at: datetime
    is_kept: bool
    """There was much to add up: others who look see the same for a while."""


class Books:
    """What was added up lately, by tenant and user."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str | None], Sums] = {}

    async def sums(self, store: Store, since: date) -> Sums:
        now = datetime.now(UTC)
        key = (store.tenant_id, store.user_id)
        kept = self._kept.get(key)
        if kept is not None and now - kept.at < _MINUTE:
            return kept
        made = _added_up(await _usage(store, since), now)
        self._kept.pop(key, None)
        if made.is_kept:
            self._kept[key] = made
            while len(self._kept) > _MOST_KEPT:
                del self._kept[next(iter(self._kept))]
        return made


async def _usage(store: Store, since: date) -> list[UsageRow]:
    try:
        return await store.usage(since=since)
    except (Denied, Unsupported):
        return []


def _added_up(rows: Sequence[UsageRow], now: datetime) -> Sums:
    tokens: dict[str, int] = defaultdict(int)
    for row in rows:
        tokens[row.day] += row.input_tokens + row.output_tokens
    return Sums(
        _sum("", rows),
        tokens,
        _ranked(rows, lambda row: row.model),
        _ranked(rows, lambda row: row.agent_id),
        _ranked(rows, lambda row: row.user_id),
        now,
        is_kept=len(rows) > _MANY,
    )


def _ranked(rows: Sequence[UsageRow], by: Callable[[UsageRow], str | None]) -> list[Ranked]:
    groups: dict[str, list[UsageRow]] = defaultdict(list)
    for row in rows:
        if (name := by(row)) is not None:
            groups[name].append(row)
    found = [_sum(name, each) for name, each in groups.items()]
    return sorted(found, key=lambda each: (-each.tokens, each.name))[:BUSIEST]


def _sum(name: str, rows: Iterable[UsageRow]) -> Ranked:
    tokens = messages = 0
    cost = 0.0
    for row in rows:
        tokens += row.input_tokens + row.output_tokens
        messages += row.messages
        cost += row.cost
    return Ranked(name, tokens, cost, messages)
