"""The search page: questions in plain words, passages with their context, filters with counts, both orders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Literal

from markupsafe import Markup
from msgspec import Struct, structs

from hansard.model import ROLES
from hansard.search.hits import Hit, Hits
from hansard.server.endpoints import HttpResponse, Id
from hansard.server.web import headings, links, markup, search_hit
from hansard.server.web.conversation_facets import Chip, Facet, FacetValue
from hansard.server.web.conversation_filters import day_after, day_of, metadata_of
from hansard.server.web.page_request import NoForm, PageRequest, PageRoutes
from hansard.server.web.words import say
from hansard.store.search_modes import SearchMode, SearchOrder

routes = PageRoutes()

PAGE = 20
COUNTED = 100
"""Hits that the filters count."""
_AROUND = 1
"""Messages before and after each hit."""
_MOST_VALUES = 8


class SearchQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """`since` and `until` are days, both inclusive."""

    q: str | None = None
    conversation: Id | None = None
    user: Id | None = None
    agent: Id | None = None
    participant: Id | None = None
    role: str | None = None
    label: str | None = None
    metadata: str | None = None
    since: str | None = None
    until: str | None = None
    mode: SearchMode | None = None
    match: Literal["", "all", "any", "auto", "part"] = ""
    order: SearchOrder = "relevance"
    branches: Literal["active", "all"] = "active"
    cursor: str | None = None

    def link(self, **changes: object) -> str:
        """Returns the query string of the same search with changes, from its first page."""
        given = structs.asdict(self) | {"cursor": None} | changes
        defaults = dict(zip(self.__struct_fields__, self.__struct_defaults__, strict=True))
        return links.query(**{name: value for name, value in given.items() if value != defaults[name]}) or "?"


SearchRequest = PageRequest[SearchQuery, NoForm]


@routes.page("/search")
async def see_search(request: SearchRequest) -> HttpResponse:
    """Searches all messages."""
    query, home = request.query, request.home
    hits = await _search(request, PAGE, around=_AROUND) if query.q else Hits()
    titles = await headings.headings_of(request.store, (hit.conversation for hit in hits))
    values: dict[str, Any] = {
        "q": query,
        "home": home,
        "next": query.link(cursor=hits.next_cursor) if hits.next_cursor else None,
        "complete": hits.complete,
        "period": hits.period,
        "found": [_html(hit, titles[hit.conversation.id], home) for hit in hits],
        "chips": _chips(query),
    }
    if request.wants_fragment:
        return request.render_fragment("fragment.html", inside=Markup(markup.render("hits.html", **values)))
    modes = {"hybrid": say("words and meaning"), "words": say("words"), "meaning": say("meaning")}
    values |= {"modes": modes if request.store.embedder is not None else {}, "roles": ROLES}
    inside = Markup(markup.render("search.html", **values))
    return request.render_around("search", f"{query.q} · {say('Search')}" if query.q else say("Search"), inside)


@routes.page("/search-filters")
async def see_search_facets(request: SearchRequest) -> HttpResponse:
    """The filters of a search, with counts among the first hits."""
    query = request.query
    hits = await _search(request, COUNTED) if query.q else Hits()
    values: dict[str, Any] = {
        "q": query,
        "facets": await _facets(request, hits),
        "counted": len(hits),
        "has_more": hits.next_cursor is not None,
        "place": "search",
    }
    if request.wants_fragment:
        return request.render_fragment("facets.html", **values)
    return request.render("facets_page.html", **values)


async def _search(request: SearchRequest, limit: int, around: int = 0) -> Hits:
    query = request.query
    all_branches = query.branches == "all"
    return await request.store.search(
        query.q or "",
        conversation_id=query.conversation,
        user_id=query.user,
        agent_id=query.agent,
        metadata=metadata_of(query.metadata),
        label=query.label,
        roles=[query.role] if query.role else (),
        participant_ids=[query.participant] if query.participant else (),
        since=day_of(query.since, "since"),
        until=day_after(query.until, "until"),
        mode=query.mode,
        match=_match(query),
        order=query.order,
        time="auto",
        around=0 if all_branches else around,
        all_branches=all_branches,
        limit=limit,
        token_cap=None,
        cursor=query.cursor,
        blobs="refs",
    )


def _match(query: SearchQuery) -> Literal["all", "any", "auto", "part"] | None:
    """Returns how words match: a question by default. By meaning, there are no words to match."""
    if query.match:
        return query.match
    return "auto" if query.mode in (None, "words") else None


def _html(hit: Hit, title: str, home: str) -> Markup:
    shown = ("hit", hit.query, hit.message, hit.passages, hit.conversation, title, home)
    return markup.cached(shown, lambda: search_hit.render(hit, title, home))


# Filters


def _titles() -> dict[str, str]:
    return {
        "conversation": say("Conversation"),
        "user": say("User"),
        "agent": say("Agent"),
        "participant": say("Participant"),
        "role": say("Role"),
        "label": say("Label"),
        "metadata": say("Metadata"),
        "since": say("Since"),
        "until": say("Until"),
    }


def _chips(query: SearchQuery) -> list[Chip]:
    return [
        Chip(title, str(getattr(query, name)), query.link(**{name: None}))
        for name, title in _titles().items()
        if getattr(query, name) is not None
    ]


async def _facets(request: SearchRequest, hits: Hits) -> list[Facet]:
    values: dict[str, Iterable[str | None]] = {
        "user": (hit.conversation.user_id for hit in hits),
        "agent": (hit.conversation.agent_id for hit in hits),
        "role": (hit.message.role for hit in hits),
        "label": (label for hit in hits for label in {*hit.message.labels, *hit.conversation.labels}),
        "conversation": (hit.conversation.id for hit in hits),
    }
    counted = {name: Counter(each for each in found if each) for name, found in values.items()}
    titles = _titles()
    shown = {id for id, _ in counted["conversation"].most_common(_MOST_VALUES)}
    names = await headings.headings_of(
        request.store, (hit.conversation for hit in hits if hit.conversation.id in shown)
    )
    return [
        Facet(
            name,
            titles[name],
            list(_values(request.query, name, count, names if name == "conversation" else {})),
            max(0, len(count) - _MOST_VALUES),
        )
        for name, count in counted.items()
        if count
    ]


def _values(query: SearchQuery, name: str, counted: Counter[str], names: dict[str, str]) -> Iterator[FacetValue]:
    chosen = getattr(query, name)
    for value, count in counted.most_common(_MOST_VALUES):
        is_chosen = value == chosen
        link = query.link(**{name: None if is_chosen else value})
        yield FacetValue(names.get(value, value), count, link, is_chosen)
