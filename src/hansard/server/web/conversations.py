"""The list of conversations as a list or a table: filtered, sorted, counted, or searched by title and content.

Storages have an index for the time, the user, the agent and marks. What none of them can filter, sort or count covers
the first matches, and the page says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup
from msgspec import Struct

from hansard import cursors
from hansard.errors import Unsupported, ValidationError
from hansard.model import Conversation, Page
from hansard.server.endpoints import HttpResponse
from hansard.server.web import conversation_facets, conversation_rows
from hansard.server.web.conversation_facts import NO_FACTS, ConversationFacts
from hansard.server.web.conversation_filters import (
    ConversationPageQuery,
    DateRange,
    date_range,
    is_listed,
    is_wanted,
    sort_key,
    store_filters,
)
from hansard.server.web.conversation_rows import ConversationRow, marked
from hansard.server.web.page_request import NoForm, PageRequest, PageRoutes
from hansard.store import Store

routes = PageRoutes()

PAGE = 25
MOST_MATCHES = 1_000
"""Matches that are sorted and counted where no index can."""
_STEP = 100
_TITLES = 200
"""Newest conversations whose titles are searched first."""
_OLDER_TITLES = 2_000
"""The same for each further step."""
ListRequest = PageRequest[ConversationPageQuery, NoForm]


@routes.page("/conversations")
async def see_conversations(request: ListRequest) -> HttpResponse:
    """Conversations, those with the newest message first."""
    query = request.query
    if query.q:
        values = await _searched(request, query.q)
    elif query.is_scan:
        values = await _sorted_here(request)
    else:
        values = await _listed(request)
    values = {"next": None, "previous": None, "titles": None, "scan": None} | values
    values |= {"q": query, "chips": conversation_facets.chips(query), "is_search": bool(query.q)}
    if request.wants_fragment:
        return request.render_fragment("rows.html", **values)
    return request.render("conversations.html", **values)


@routes.page("/filters")
async def see_facets(request: ListRequest) -> HttpResponse:
    """The filters of the list, with counts."""
    if request.query.q:
        matches = ListMatches([each for each, _ in (await _found(request, request.query.q))[0]], has_more=False)
    else:
        matches = await first_matches(request.store, request.query)
    facts = await request.services.facts.facts_of(request.store, matches.found)
    wanted = [each for each in matches.found if is_wanted(request.query, facts.get(each.id, NO_FACTS))]
    values: dict[str, Any] = {
        "q": request.query,
        "facets": conversation_facets.facets(request.query, wanted, facts),
        "counted": len(matches.found) if matches.has_more else len(wanted),
        "has_more": matches.has_more,
        "place": "conversations",
    }
    if request.wants_fragment:
        return request.render_fragment("facets.html", **values)
    return request.render("facets_page.html", **values)


async def _listed(request: ListRequest) -> dict[str, Any]:
    """Returns a page in an order that the storage has."""
    page = await _page(request)
    rows = await _rows(request, page.items)
    query = request.query
    return {
        "rows": rows,
        "next": query.link(after=page.next_cursor) if page.next_cursor else None,
        "previous": query.link(before=page.previous_cursor) if page.previous_cursor else None,
    }


async def _rows(request: ListRequest, conversations: Sequence[Conversation]) -> list[ConversationRow]:
    facts: dict[str, ConversationFacts] = {}
    if request.query.view == "table":
        facts = await request.services.facts.facts_of(request.store, conversations)
    return await conversation_rows.rows(request.store, conversations, facts)


# An order or a filter that no storage has


class ListMatches(Struct, frozen=True):
    """The first conversations that match the filters of the storage."""

    found: list[Conversation]
    has_more: bool


async def first_matches(store: Store, query: ConversationPageQuery) -> ListMatches:
    dates = date_range(query)
    found: list[Conversation] = []
    after = dates.begin(query.index_sort)
    while len(found) < MOST_MATCHES:
        page = await store.list_conversations(**store_filters(query), sort=query.index_sort, after=after, limit=_STEP)
        inside = [each for each in page.items if dates.has(each, query.index_sort)]
        found += inside
        after = page.next_cursor
        if after is None or (page.items and len(inside) < len(page.items)):
            return ListMatches(found, has_more=False)
    return ListMatches(found, has_more=True)


async def _sorted_here(request: ListRequest) -> dict[str, Any]:
    """Returns a page of the first matches, filtered and sorted here."""
    query = request.query
    matches = await first_matches(request.store, request.query)
    facts: dict[str, ConversationFacts] = {}
    if query.needs_facts:
        facts = await request.services.facts.facts_of(request.store, matches.found)
    wanted = [each for each in matches.found if is_wanted(query, facts.get(each.id, NO_FACTS))]
    if query.sort != query.index_sort:
        wanted.sort(key=lambda each: sort_key(query.sort, each, facts.get(each.id, NO_FACTS)))
        wanted = wanted if query.order == "asc" else wanted[::-1]
    elif query.order == "asc":
        wanted.reverse()
    start = (query.page - 1) * PAGE
    return {
        "rows": await _rows(request, wanted[start : start + PAGE]),
        "scan": matches,
        "next": query.link(page=query.page + 1) if len(wanted) > start + PAGE else None,
        "previous": query.link(page=query.page - 1) if start else None,
    }


# An order that storages have


async def _page(request: ListRequest) -> Page:
    """Returns a page of the conversations in the date range, which are adjacent: listings are sorted by time."""
    query = request.query
    dates, sort = date_range(query), query.index_sort
    if query.order == "asc":
        return await _oldest_first(request, dates)
    after = query.after or (dates.begin(sort) if query.before is None else None)
    page = await request.store.list_conversations(
        **store_filters(query), sort=sort, after=after, before=query.before, limit=PAGE
    )
    inside = [each for each in page.items if dates.has(each, sort)]
    times = [cursors.sort_time(each, sort) for each in page.items]
    newer, older = page.previous_cursor, page.next_cursor
    # Outside of the range there may be others, but a link to them would lead to an empty page.
    if newer is not None and dates.end is not None:
        begins = query.after is query.before is None or any(at >= dates.end for at in times[:1])
        newer = None if begins else await _cursor_in_range(request, dates, before=newer)
    if older is not None and dates.start is not None:
        ends = any(at < dates.start for at in times[-1:])
        older = None if ends else await _cursor_in_range(request, dates, after=older)
    return Page(inside, older, newer)


async def _oldest_first(request: ListRequest, dates: DateRange) -> Page:
    """Returns a page, oldest first. Conversations outside of the date range are left out of it."""
    query = request.query
    after = query.after
    if after is None and query.before is None and dates.start is not None:
        edge = Conversation("", last_message_at=dates.start, updated_at=dates.start)
        after = cursors.of_conversation(edge, query.index_sort)
    page = await request.store.list_conversations(
        **store_filters(query), sort=query.index_sort, order="asc", after=after, before=query.before, limit=PAGE
    )
    inside = [each for each in page.items if dates.has(each, query.index_sort)]
    is_past = len(inside) < len(page.items)
    return Page(inside, None if is_past else page.next_cursor, page.previous_cursor)


async def _cursor_in_range(request: ListRequest, dates: DateRange, **where: str) -> str | None:
    """Returns the cursor if the next conversation after it is in the date range."""
    query = request.query
    page = await request.store.list_conversations(**store_filters(query), sort=query.index_sort, limit=1, **where)  # type: ignore[arg-type]
    return next(iter(where.values())) if any(dates.has(each, query.index_sort) for each in page.items) else None


# Searching the list

ConversationMatch = tuple[Conversation, Markup | None]
"""A conversation and the snippet that was found in it; None if its title or id matched."""


async def _searched(request: ListRequest, words: str) -> dict[str, Any]:
    found, titles = await _found(request, words)
    facts: dict[str, ConversationFacts] = {}
    if request.query.view == "table" or request.query.needs_facts:
        facts = await request.services.facts.facts_of(request.store, [each for each, _ in found])
    wanted = [each for each in found if is_wanted(request.query, facts.get(each[0].id, NO_FACTS))]
    rows = [
        conversation_rows.row(request.store, each, snippet, facts.get(each.id, NO_FACTS)) for each, snippet in wanted
    ]
    return {"rows": await asyncio.gather(*rows), "titles": titles}


async def _found(request: ListRequest, words: str) -> tuple[list[ConversationMatch], TitleMatches]:
    """Returns unique conversations that match by id, title or content, and the state of the title search."""
    filters = store_filters(request.query)
    titles = await _by_title(request, words, filters)
    if request.query.titles is not None:
        return _unique(titles.found, request.query), titles
    exact, by_content = await asyncio.gather(_by_id(request, words), _by_words(request, words, filters))
    return _unique([*exact, *titles.found, *by_content], request.query), titles


def _unique(findings: Sequence[ConversationMatch], query: ConversationPageQuery) -> list[ConversationMatch]:
    """Returns each matching conversation once, with a snippet if there is one."""
    found: dict[str, ConversationMatch] = {}
    for conversation, snippet in findings:
        if conversation.id not in found or found[conversation.id][1] is None:
            found[conversation.id] = (conversation, snippet)
    return [each for each in found.values() if is_listed(query, each[0])]


async def _by_id(request: ListRequest, words: str) -> list[ConversationMatch]:
    try:
        conversation = await request.store.get_conversation(words)
    except ValidationError:
        return []  # not a valid id
    return [] if conversation is None else [(conversation, None)]


class TitleMatches(Struct, frozen=True):
    """Conversations whose title matches."""

    found: list[ConversationMatch]
    searched: int
    next: str | None
    """The cursor to continue from; None if there are no more."""


async def _by_title(request: ListRequest, words: str, filters: dict[str, Any]) -> TitleMatches:
    """Searches titles. They are not indexed, so a bounded number of conversations is read, newest first."""
    wanted, dates = words.casefold(), date_range(request.query)
    found: list[ConversationMatch] = []
    searched = 0
    after = request.query.titles or dates.begin(request.query.index_sort)
    most = _TITLES if request.query.titles is None else _OLDER_TITLES
    while searched < most and len(found) < PAGE:
        page = await request.store.list_conversations(**filters, sort=request.query.index_sort, after=after, limit=100)
        for at, each in enumerate(page.items):
            if len(found) == PAGE:
                # The page is full: the next search continues here.
                return TitleMatches(
                    found, searched + at, cursors.of_conversation(page.items[at - 1], request.query.index_sort)
                )
            if each.title and wanted in each.title.casefold():
                found.append((each, None))
        searched += len(page.items)
        after = page.next_cursor
        is_past = (
            bool(page.items) and dates.start is not None and not dates.has(page.items[-1], request.query.index_sort)
        )
        if after is None or is_past:
            return TitleMatches(found, searched, None)
    return TitleMatches(found, searched, after)


async def _by_words(request: ListRequest, words: str, filters: dict[str, Any]) -> list[ConversationMatch]:
    narrowed = {name: filters[name] for name in ("user_id", "agent_id", "metadata", "label")}
    try:
        hits = await request.store.search(words, **narrowed, limit=PAGE, token_cap=None, blobs="refs")
    except Unsupported:
        return []
    return [(hit.conversation, marked(hit.snippet)) for hit in hits]
