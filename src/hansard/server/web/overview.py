"""The first page: statistics, usage, recent conversations, and the state of the store."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

from markupsafe import Markup

from hansard.model import Record
from hansard.server.endpoints import HttpResponse, NoQuery
from hansard.server.web import charts, conversation_rows, markup
from hansard.server.web.charts import Bar
from hansard.server.web.page_request import NoForm, PageRequest, PageRoutes
from hansard.server.web.usage_totals import Totals
from hansard.store import Store

routes = PageRoutes()

DAYS = 30
NEWEST = 8
CHECKS = ("hansard", "checks")
"""The namespace of the record with the result of the last check."""


@routes.page("/")
async def see_overview(request: PageRequest[NoQuery, NoForm]) -> HttpResponse:
    """Statistics of the tenant, and its recent conversations."""
    since = datetime.now(UTC).date() - timedelta(days=DAYS - 1)
    sums, newest, checked = await asyncio.gather(
        request.services.totals.sums(request.store, since),
        conversation_rows.newest(request.store, NEWEST),
        last_check(request.store),
    )
    stats = sums.stats
    if not newest and not (stats and stats.conversations):
        return request.render("empty.html", stats=stats)
    values: dict[str, Any] = {
        "stats": stats,
        "rows": newest,
        "checked": checked.value if checked is not None else None,
        "checked_at": checked.updated_at if checked is not None else None,
        "figures": _figures(sums, since, request.home),
    }
    return request.render("overview.html", **values)


def _figures(sums: Totals, since: date, home: str) -> Markup:
    """Renders numbers and charts."""
    active = None if sums.stats is None else sums.stats.active
    values = {
        "home": home,
        "stats": sums.stats,
        "sums": sums,
        "share": charts.share,
        "tokens_chart": _chart(sums.tokens, since, "Tokens per day", "tokens"),
        "messages_chart": None if active is None else _chart(active, since, "Messages per day", "messages"),
    }
    return Markup(markup.render("figures.html", **values))


async def last_check(store: Store) -> Record | None:
    """Returns the result of the last check; None in a user's view."""
    if not store.capabilities.records or store.user_id is not None:
        return None
    return await store.records.get(CHECKS, "last")


def _chart(by_day: Mapping[str, int], since: date, title: str, unit: str) -> Markup:
    days = charts.days_between(since, datetime.now(UTC).date())
    bars = [Bar(day.strftime("%-d %b"), by_day.get(day.isoformat(), 0)) for day in days]
    return charts.columns(bars, title, unit)
