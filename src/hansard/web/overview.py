"""The first page: what there is, what it costs, who is busy, and how the store is."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

from msgspec import Struct

from hansard.errors import Denied, Unsupported
from hansard.model import Record, Stats, UsageRow
from hansard.server.calls import Answer, NoQuery
from hansard.store import Store
from hansard.web import charts, listing
from hansard.web.charts import Bar
from hansard.web.looks import Look, NoForm, see

DAYS = 30
NEWEST = 8
BUSIEST = 6
CHECKS = ("hansard", "checks")
"""Where the result of the last check is kept."""
_DURABILITY = {
    "none": "nothing: it ends with the process",
    "process": "a crash of the process",
    "machine": "a crash of the machine",
}


class Ranked(Struct, frozen=True):
    name: str
    tokens: int
    cost: float
    messages: int


async def see_overview(look: Look[NoQuery, NoForm]) -> Answer:
    """What the tenant holds, and how it has grown."""
    since = datetime.now(UTC).date() - timedelta(days=DAYS - 1)
    stats, rows, newest, checked = await asyncio.gather(
        _stats(look.store), _usage(look.store, since), listing.newest(look, NEWEST), last_check(look.store)
    )
    if not newest and not (stats and stats.conversations):
        return look.show("empty.html", stats=stats, durability=_DURABILITY[look.store.capabilities.durability])
    values: dict[str, Any] = {
        "stats": stats,
        "rows": newest,
        "checked": checked.value if checked is not None else None,
        "checked_at": checked.updated_at if checked is not None else None,
        "durability": _DURABILITY[look.store.capabilities.durability],
        "total": _total(rows),
        "share": charts.share,
        **_charts(rows, since),
        "models": _ranked(rows, lambda row: row.model),
        "agents": _ranked(rows, lambda row: row.agent_id),
        "users": _ranked(rows, lambda row: row.user_id),
    }
    return look.show("overview.html", **values)


async def _stats(store: Store) -> Stats | None:
    """Counts, except where the store cannot tell, or a user's view may not know."""
    try:
        return await store.stats()
    except (Denied, Unsupported):
        return None


async def _usage(store: Store, since: date) -> list[UsageRow]:
    try:
        return await store.usage(since=since)
    except (Denied, Unsupported):
        return []


async def last_check(store: Store) -> Record | None:
    """What the last check found, for those who may see the whole tenant."""
    if not store.capabilities.records or store.user_id is not None:
        return None
    return await store.records.get(CHECKS, "last")


def _charts(rows: Sequence[UsageRow], since: date) -> dict[str, Any]:
    tokens: dict[str, int] = defaultdict(int)
    messages: dict[str, int] = defaultdict(int)
    for row in rows:
        tokens[row.day] += row.input_tokens + row.output_tokens
        messages[row.day] += row.messages
    days = charts.days_between(since, datetime.now(UTC).date())
    names = [(each.isoformat(), each.strftime("%-d %b")) for each in days]
    return {
        "tokens_chart": charts.columns([Bar(name, tokens[day]) for day, name in names], "Tokens per day", "tokens"),
        "messages_chart": charts.columns(
            [Bar(name, messages[day]) for day, name in names], "Answers per day", "answers"
        ),
    }


def _total(rows: Iterable[UsageRow]) -> Ranked:
    return _sum("", rows)


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


PAGES = (see("/", see_overview),)
