"""Search over everything: with what was found marked, filters, and both orders."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from markupsafe import Markup
from msgspec import Meta, Struct

from hansard.model import ROLES
from hansard.search.hits import Hit, Hits
from hansard.server.calls import Answer
from hansard.store.finding import SearchMode, SearchOrder
from hansard.web import content, listing, pieces, rendering
from hansard.web.looks import Look, NoForm, see

PAGE = 20
MODES = {"words": "words", "meaning": "meaning", "hybrid": "both"}
SNIPPET = 320
Id = Annotated[str, Meta(min_length=1, max_length=256)]


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
    mode: SearchMode = "words"
    match: Literal["", "all", "any"] = ""
    order: SearchOrder = "relevance"
    branches: Literal["active", "all"] = "active"
    cursor: str | None = None


async def see_search(look: Look[SearchQuery, NoForm]) -> Answer:
    """What was said, wherever."""
    hits = await _search(look) if look.query.q else Hits()
    found = [_html(hit, look.visit.home) for hit in hits]
    values: dict[str, Any] = {"q": look.query, "found": found, "next": hits.next_cursor, "complete": hits.complete}
    if look.visit.wants_piece:
        return look.piece("hits.html", **values)
    return look.show("search.html", roles=ROLES, modes=MODES if look.store.embedder is not None else {}, **values)


async def _search(look: Look[SearchQuery, NoForm]) -> Hits:
    query = look.query
    return await look.store.search(
        query.q or "",
        conversation_id=query.conversation,
        user_id=query.user,
        agent_id=query.agent,
        metadata=listing.metadata_of(query.metadata),
        roles=[query.role] if query.role else (),
        participant_ids=[query.participant] if query.participant else (),
        since=listing.day_of(query.since, "since"),
        until=_after(listing.day_of(query.until, "until")),
        mode=query.mode,
        match=query.match or None,
        order=query.order,
        all_branches=query.branches == "all",
        limit=PAGE,
        token_cap=None,
        cursor=query.cursor,
        blobs="refs",
    )


def _html(hit: Hit, home: str) -> Markup:
    conversation = hit.conversation

    def write() -> str:
        who = content.speaker_of(hit.message, conversation)
        return pieces.hit(hit.message, who, listing.title_of(conversation), listing.marked(hit.cut(SNIPPET)), home)

    of = (conversation.id, conversation.title, conversation.user_id, conversation.agent_id)
    return rendering.remembered("hit", (hit.message, of, hit.query, home), write)


def _after(day: datetime | None) -> datetime | None:
    return None if day is None else day + timedelta(days=1)


PAGES = (see("/search", see_search, query=SearchQuery),)
