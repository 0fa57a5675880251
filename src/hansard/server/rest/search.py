"""Search. A query is what somebody typed, so it comes in a body: addresses end up in the logs of others."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct, structs

from hansard.errors import NotFound, Unsupported
from hansard.executor import run_in_thread
from hansard.model import Conversation, Message, Role
from hansard.search.hits import Hits, Snippet
from hansard.server.endpoints import Id, NoQuery, Routes
from hansard.server.request import Request
from hansard.store.read_query import BlobMode
from hansard.store.search_modes import SearchMode, SearchOrder, WordMatch

routes = Routes()


class SearchBody(Struct, frozen=True, forbid_unknown_fields=True):
    """`query` as people type it. Everything beside it narrows; `cursor` takes the `next_cursor` of the page before.

    `mode` is `words`, `meaning` or `hybrid`; the latter two need a server with an embedder.
    """

    query: str
    conversation_id: Id | None = None
    user_id: Id | None = None
    agent_id: Id | None = None
    roles: list[Role] | None = None
    participant_ids: list[str] | None = None
    since: datetime | None = None
    until: datetime | None = None
    metadata: dict[str, Any] | None = None
    branch: Id | None = None
    all_branches: bool = False
    mode: SearchMode | None = None
    match: WordMatch | None = None
    order: SearchOrder = "relevance"
    limit: Annotated[int, Meta(ge=1)] = 10
    token_cap: Annotated[int, Meta(ge=1)] | None = 2000
    cursor: str | None = None
    blobs: BlobMode = "inline"


class SearchHit(Struct, frozen=True):
    """A message that was found. The places in `snippet` count Unicode characters."""

    conversation: Conversation
    message: Message
    score: float
    snippet: Snippet


class SearchPage(Struct, frozen=True):
    """`complete` is false when the search stopped at its bound: what is older was not looked at."""

    items: list[SearchHit]
    next_cursor: str | None
    complete: bool

    @classmethod
    def of(cls, hits: Hits) -> SearchPage:
        items = [SearchHit(hit.conversation, hit.message, hit.score, hit.snippet) for hit in hits]
        return cls(items, hits.next_cursor, hits.complete)


@routes.post("/search", scope="read", errors=(NotFound, Unsupported))
async def search(request: Request[NoQuery, SearchBody]) -> SearchPage:
    """Messages that have these words: words, `"phrases"`, `prefix*`, `-not`, `a OR b`; the best or the newest first."""
    given = structs.asdict(request.body)
    hits = await request.store.search(given.pop("query"), **given)
    # Cutting the snippets of long messages takes a while.
    return await run_in_thread(SearchPage.of, hits)
