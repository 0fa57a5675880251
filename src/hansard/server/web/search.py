"""The search page, with marked matches, filters and both orders."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Literal

from markupsafe import Markup
from msgspec import Struct

from hansard.model import ROLES
from hansard.search.hits import Hit, Hits
from hansard.server.endpoints import HttpResponse, Id
from hansard.server.web import content, conversation_rows, fragments, headings, markup
from hansard.server.web.conversation_filters import day_of, metadata_of
from hansard.server.web.page_request import NoForm, PageRequest, PageRoutes
from hansard.store.search_modes import SearchMode, SearchOrder

routes = PageRoutes()

PAGE = 20
MODES = {"words": "words", "meaning": "meaning", "hybrid": "both"}
SNIPPET = 320


class SearchQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """`since` and `until` are days, both inclusive."""

    q: str | None = None
    conversation: Id | None = None
    user: Id | None = None
    agent: Id | None = None
    participant: Id | None = None
    role: str | None = None
    metadata: str | None = None
    since: str | None = None
    until: str | None = None
    mode: SearchMode | None = None
    match: Literal["", "all", "any", "auto"] = ""
    order: SearchOrder = "relevance"
    branches: Literal["active", "all"] = "active"
    cursor: str | None = None


@routes.page("/search")
async def see_search(request: PageRequest[SearchQuery, NoForm]) -> HttpResponse:
    """Searches all messages."""
    hits = await _search(request) if request.query.q else Hits()
    modes = MODES if request.store.embedder is not None else {}
    template = "hits.html" if request.wants_fragment else "search.html"
    home = request.home
    values: dict[str, Any] = {"q": request.query, "home": home, "next": hits.next_cursor, "complete": hits.complete}
    titles = await headings.headings_of(request.store, (hit.conversation for hit in hits))
    found = [_html(hit, titles[hit.conversation.id], home) for hit in hits]
    inside = Markup(markup.render(template, found=found, roles=ROLES, modes=modes, **values))
    if request.wants_fragment:
        return request.render_fragment("fragment.html", inside=inside)
    return request.render_around("search", f"{request.query.q} · Search" if request.query.q else "Search", inside)


async def _search(request: PageRequest[SearchQuery, NoForm]) -> Hits:
    query = request.query
    return await request.store.search(
        query.q or "",
        conversation_id=query.conversation,
        user_id=query.user,
        agent_id=query.agent,
        metadata=metadata_of(query.metadata),
        roles=[query.role] if query.role else (),
        participant_ids=[query.participant] if query.participant else (),
        since=day_of(query.since, "since"),
        until=_after(day_of(query.until, "until")),
        mode=query.mode,
        match=query.match or "auto",
        order=query.order,
        all_branches=query.branches == "all",
        limit=PAGE,
        token_cap=None,
        cursor=query.cursor,
        blobs="refs",
    )


def _html(hit: Hit, title: str, home: str) -> Markup:
    def write() -> str:
        who = content.speaker_of(hit.message, hit.conversation)
        return fragments.hit(hit.message, who, title, conversation_rows.marked(hit.cut(SNIPPET)), home)

    return markup.cached(("hit", hit.query, hit.message, hit.conversation, title, home), write)


def _after(day: datetime | None) -> datetime | None:
    return None if day is None else day + timedelta(days=1)
