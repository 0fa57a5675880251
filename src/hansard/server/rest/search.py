"""The search route. The query is sent in a body, because URLs end up in the logs of proxies."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, structs

from hansard.errors import NotFound, Unsupported
from hansard.executor import run_in_thread
from hansard.model import Conversation, Message, ReadFrom, Role
from hansard.search.hits import Hits, Passage, Snippet
from hansard.search.periods import Period
from hansard.server.endpoints import Id, NoQuery, Routes
from hansard.server.request import Request
from hansard.store.read_query import BlobMode
from hansard.store.search_context import MOST_AROUND
from hansard.store.search_modes import Grouping, SearchMode, SearchOrder, WordMatch

routes = Routes()


class SearchBody(Struct, frozen=True, forbid_unknown_fields=True):
    """`query` as people type it. The other fields filter; `cursor` is the `next_cursor` of the previous page.

    `mode` is `words`, `meaning` or `hybrid`; the latter two need an embedder, with which `hybrid` is the default.
    `match` is `all`, `any`, `auto` for questions, or `part` for pieces of words. `time` reads times such as `last week`
    in the query; `around` adds messages before and after each hit, and `group_by` returns the best conversations.
    `read_from` may be `replica` if the newest writes may be missing.
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
    label: Id | None = None
    rating: float | None = None
    branch: Id | None = None
    all_branches: bool = False
    mode: SearchMode | None = None
    match: WordMatch | None = None
    order: SearchOrder = "relevance"
    time: Literal["auto"] | None = None
    around: Annotated[int, Meta(ge=0, le=MOST_AROUND)] = 0
    group_by: Grouping | None = None
    limit: Annotated[int, Meta(ge=1)] = 10
    token_cap: Annotated[int, Meta(ge=1)] | None = 2000
    cursor: str | None = None
    blobs: BlobMode = "inline"
    read_from: ReadFrom = "primary"


class SearchHit(Struct, frozen=True):
    """A message that was found. The offsets in `snippet` count Unicode characters."""

    conversation: Conversation
    message: Message
    score: float
    snippet: Snippet
    passages: tuple[Passage, ...] = ()


class SearchPage(Struct, frozen=True):
    """`complete` is false if the search stopped at its limit, before older messages.

    `period` is the time that the query named, if the messages of that time were searched.
    """

    items: list[SearchHit]
    next_cursor: str | None
    complete: bool
    period: Period | None = None

    @classmethod
    def of(cls, hits: Hits) -> SearchPage:
        items = [SearchHit(hit.conversation, hit.message, hit.score, hit.snippet, hit.passages) for hit in hits]
        return cls(items, hits.next_cursor, hits.complete, hits.period)


@routes.post("/search", scope="read", errors=(NotFound, Unsupported))
async def search(request: Request[NoQuery, SearchBody]) -> SearchPage:
    """Finds messages by words, `"phrases"`, `prefix*`, `-not`, `a OR b`; the best or the newest first."""
    given = structs.asdict(request.body)
    hits = await request.store.search(given.pop("query"), **given)
    # Snippets of long messages take time, so they are cut in a thread.
    return await run_in_thread(SearchPage.of, hits)
