"""The first page: activity, cost and errors over time, rankings, recent conversations, and the state of the store."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, Literal

from markupsafe import Markup
from msgspec import Struct

from hansard.model import Record
from hansard.server import backups
from hansard.server.endpoints import HttpResponse
from hansard.server.web import charts, conversation_rows, conversations, markup, quantities
from hansard.server.web.charts import Bar
from hansard.server.web.conversation_filters import ConversationPageQuery
from hansard.server.web.page_request import NoForm, PageRequest, PageRoutes
from hansard.server.web.usage_totals import Totals
from hansard.server.web.words import say
from hansard.store import Store

routes = PageRoutes()

PERIODS = (7, 30, 90)
NEWEST = 5
CHECKS = ("hansard", "checks")
"""The namespace of the record with the result of the last check."""


class OverviewQuery(Struct, frozen=True, forbid_unknown_fields=True):
    days: Literal["7", "30", "90"] = "30"

    @property
    def since(self) -> date:
        return datetime.now(UTC).date() - timedelta(days=int(self.days) - 1)


OverviewRequest = PageRequest[OverviewQuery, NoForm]


@routes.page("/")
async def see_overview(request: OverviewRequest) -> HttpResponse:
    """Statistics of the tenant, and its recent conversations."""
    sums, newest, checked, saved = await asyncio.gather(
        request.services.totals.sums(request.store, request.query.since),
        conversation_rows.newest(request.store, NEWEST),
        last_check(request.store),
        _last_backup(request),
    )
    stats = sums.stats
    if not newest and not (stats and stats.conversations):
        return request.render("empty.html", stats=stats)
    values: dict[str, Any] = {
        "stats": stats,
        "rows": newest,
        "checked": checked.value if checked is not None else None,
        "checked_at": checked.updated_at if checked is not None else None,
        "can_back_up": request.known_caller.is_operator and request.store.capabilities.name == "sqlite",
        "saved_at": saved.updated_at if saved is not None else None,
        "days": int(request.query.days),
        "periods": PERIODS,
        "figures": _figures(sums, request.query, request.home),
    }
    return request.render("overview.html", **values)


@routes.page("/errors")
async def see_errors(request: OverviewRequest) -> HttpResponse:
    """Errors over time. No storage counts them, so those of the newest conversations are counted."""
    query = ConversationPageQuery(since=request.query.since.isoformat(), archived="both")
    matches = await conversations.first_matches(request.store, query)
    facts = await request.services.facts.facts_of(request.store, matches.found)
    by_day = Counter(day for each in facts.values() for day in each.errors)
    values: dict[str, Any] = {
        "days": int(request.query.days),
        "chart": _chart(by_day, request.query, say("Errors a day")),
        "total": sum(count for day, count in by_day.items() if day >= request.query.since.isoformat()),
        "counted": len(facts),
        "has_more": matches.has_more or len(facts) < len(matches.found),
        "link": query.link(sort="errors", view="table"),
    }
    if request.wants_fragment:
        return request.render_fragment("errors.html", **values)
    return request.render("errors_page.html", **values)


def _figures(sums: Totals, query: OverviewQuery, home: str) -> Markup:
    """Renders numbers and charts."""
    active = None if sums.stats is None else sums.stats.active
    values = {
        "home": home,
        "days": int(query.days),
        "stats": sums.stats,
        "sums": sums,
        "share": charts.share,
        "cost_chart": _chart(sums.costs, query, say("Cost a day"), quantities.money),
        "tokens_chart": _chart(sums.tokens, query, say("Tokens a day")),
        "messages_chart": None if active is None else _chart(active, query, say("Messages a day")),
    }
    return Markup(markup.render("figures.html", **values))


async def last_check(store: Store) -> Record | None:
    """Returns the result of the last check; None in a user's view."""
    if not store.capabilities.records or store.user_id is not None:
        return None
    return await store.records.get(CHECKS, "last")


async def _last_backup(request: OverviewRequest) -> Record | None:
    """Returns the record of the last backup, for operators: it covers all tenants."""
    if not request.known_caller.is_operator or not request.store.capabilities.records:
        return None
    return await request.root.records.get(backups.BACKUPS, "last")


def _chart(
    by_day: Mapping[str, float], query: OverviewQuery, title: str, show: Callable[[float], str] = quantities.short
) -> Markup:
    days = charts.days_between(query.since, datetime.now(UTC).date())
    bars = [Bar(quantities.short_day(day), by_day.get(day.isoformat(), 0)) for day in days]
    return charts.columns(bars, title, show)
