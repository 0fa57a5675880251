"""The list of conversations, filtered by user, agent and date, or searched by title and content."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec
from markupsafe import Markup, escape
from msgspec import Struct

from hansard import cursors
from hansard.errors import Unsupported, ValidationError
from hansard.model import Conversation, ConversationSort, Messages, Page
from hansard.rendering.markdown import bare
from hansard.search.hits import Snippet
from hansard.server.endpoints import HttpResponse, Id
from hansard.server.web import content, headings
from hansard.server.web.page_request import NoForm, PageRequest, PageRoutes

routes = PageRoutes()

PAGE = 25
_PREVIEW_MESSAGES = 3
"""Newest messages of each conversation that are read for its preview."""
_TITLES = 200
"""Newest conversations whose titles are searched first."""
_OLDER_TITLES = 2_000
"""The same for each further step."""
_MARK, _UNMARK = Markup("<mark>"), Markup("</mark>")


class ConversationPageQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """`metadata` is `key=value`, where the value may be JSON. `q` searches messages and titles.

    `since` and `until` are days in UTC, both inclusive. `titles` is the cursor for the search of older titles.
    """

    q: str | None = None
    user: Id | None = None
    agent: Id | None = None
    metadata: str | None = None
    since: str | None = None
    until: str | None = None
    archived: Literal["no", "yes", "both"] = "no"
    sort: Literal["last_message_at", "updated_at"] = "last_message_at"
    after: str | None = None
    before: str | None = None
    titles: str | None = None


class ConversationRow(Struct, frozen=True):
    """A row of the list."""

    conversation: Conversation
    heading: str
    preview: Markup | str
    """The newest words, or what a search has found; empty if the heading says the same."""
    people: list[str]
    is_live: bool
    at: datetime


@routes.page("/conversations")
async def see_conversations(request: PageRequest[ConversationPageQuery, NoForm]) -> HttpResponse:
    """Conversations, those with the newest message first."""
    query = request.query
    values: dict[str, Any] = {"q": query, "next": None, "previous": None, "titles": None, "is_search": bool(query.q)}
    if query.q:
        values["rows"], values["titles"] = await _matches(request, query.q)
    else:
        page = await _page(request)
        values |= {"rows": await rows(request, page.items), "next": page.next_cursor, "previous": page.previous_cursor}
    if request.wants_fragment:
        return request.render_fragment("rows.html", **values)
    return request.render("conversations.html", **values)


async def _page(request: PageRequest[ConversationPageQuery, NoForm]) -> Page:
    """Returns a page of the conversations in the date range, which are adjacent: listings are sorted by time."""
    query = request.query
    dates = _date_range(query)
    after = query.after or (dates.begin(query.sort) if query.before is None else None)
    page = await request.store.list_conversations(
        **_filters(query), sort=query.sort, after=after, before=query.before, limit=PAGE
    )
    inside = [each for each in page.items if dates.has(each, query.sort)]
    times = [cursors.sort_time(each, query.sort) for each in page.items]
    newer, older = page.previous_cursor, page.next_cursor
    # Outside of the range there may be others, but a link to them would lead to an empty page.
    if newer is not None and dates.end is not None:
        begins = query.after is query.before is None or any(at >= dates.end for at in times[:1])
        newer = None if begins else await _cursor_in_range(request, dates, before=newer)
    if older is not None and dates.start is not None:
        ends = any(at < dates.start for at in times[-1:])
        older = None if ends else await _cursor_in_range(request, dates, after=older)
    return Page(inside, older, newer)


async def _cursor_in_range(
    request: PageRequest[ConversationPageQuery, NoForm], dates: DateRange, **where: str
) -> str | None:
    """Returns the cursor if the next conversation after it is in the date range."""
    query = request.query
    page = await request.store.list_conversations(**_filters(query), sort=query.sort, limit=1, **where)  # type: ignore[arg-type]
    return next(iter(where.values())) if any(dates.has(each, query.sort) for each in page.items) else None


class DateRange(Struct, frozen=True):
    """A time range: `start` is inclusive, `end` is exclusive."""

    start: datetime | None = None
    end: datetime | None = None

    def has(self, conversation: Conversation, sort: ConversationSort) -> bool:
        at = cursors.sort_time(conversation, sort)
        return (self.start is None or at >= self.start) and (self.end is None or at < self.end)

    def begin(self, sort: ConversationSort) -> str | None:
        """Returns the cursor of the range's first conversation in a listing, newest first; None for its beginning."""
        if self.end is None:
            return None
        return cursors.of_conversation(Conversation("", last_message_at=self.end, updated_at=self.end), sort)


def _date_range(query: ConversationPageQuery) -> DateRange:
    end = day_of(query.until, "until")
    return DateRange(day_of(query.since, "since"), None if end is None else end + timedelta(days=1))


def day_of(text: str | None, what: str) -> datetime | None:
    """Returns the beginning of a day."""
    if text is None:
        return None
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError as error:
        raise ValidationError(f"{what} is {text[:40]!r}: write a day as 2026-01-31") from error


async def newest(request: PageRequest[Any, Any], limit: int) -> list[ConversationRow]:
    return await rows(request, (await request.store.list_conversations(limit=limit)).items)


async def rows(request: PageRequest[Any, Any], conversations: Sequence[Conversation]) -> list[ConversationRow]:
    """Returns rows for conversations, with a preview of each."""
    return await asyncio.gather(*(_row(request, each) for each in conversations))


async def _row(
    request: PageRequest[Any, Any], conversation: Conversation, found: Markup | None = None
) -> ConversationRow:
    end = await _end(request, conversation)
    if end.has_more:
        heading = await headings.heading_of(request.store, conversation)
    else:
        heading = headings.heading_from(conversation, end)
    preview: Markup | str = content.preview(end) if found is None else found
    if preview == heading:
        preview = ""
    known = (conversation.user_id, conversation.agent_id)
    people = dict.fromkeys(
        each.participant.display_name or each.participant.id
        for each in end
        if each.participant is not None and each.participant.id not in known
    )
    is_live = any(each.status == "in_progress" for each in end)
    at = conversation.last_message_at or conversation.created_at
    return ConversationRow(conversation, heading, preview, list(people)[:3], is_live, at)


async def _end(request: PageRequest[Any, Any], conversation: Conversation) -> Messages:
    if not conversation.message_count:
        return Messages()
    return await request.store.get_messages(conversation.id, last=_PREVIEW_MESSAGES, blobs="refs")


def _filters(query: ConversationPageQuery) -> dict[str, Any]:
    archived = {"no": False, "yes": True, "both": None}[query.archived]
    return {
        "user_id": query.user,
        "agent_id": query.agent,
        "metadata": metadata_of(query.metadata),
        "archived": archived,
    }


def metadata_of(text: str | None) -> dict[str, Any] | None:
    """Parses `key=value` pairs, separated by commas."""
    if text is None:
        return None
    found = {}
    for piece in text.split(","):
        name, equals, value = piece.partition("=")
        if not equals or not name.strip():
            raise ValidationError(f"metadata is {text[:80]!r}: write it as key=value")
        found[name.strip()] = _value(value.strip())
    return found


def _value(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return text


# Searching the list

ConversationMatch = tuple[Conversation, Markup | None]
"""A conversation and the snippet that was found in it; None if its title or id matched."""


async def _matches(
    request: PageRequest[ConversationPageQuery, NoForm], words: str
) -> tuple[list[ConversationRow], TitleMatches]:
    """Returns unique conversations that match by id, title or content, and the state of the title search."""
    filters = _filters(request.query)
    titles = await _by_title(request, words, filters)
    if request.query.titles is None:
        exact, by_content = await asyncio.gather(_by_id(request, words), _by_words(request, words, filters))
        found = _unique([*exact, *titles.found, *by_content], request.query)
    else:
        found = _unique(titles.found, request.query)
    return await asyncio.gather(*(_row(request, conversation, snippet) for conversation, snippet in found)), titles


def _unique(findings: Sequence[ConversationMatch], query: ConversationPageQuery) -> list[ConversationMatch]:
    """Returns each matching conversation once, with a snippet if there is one."""
    found: dict[str, ConversationMatch] = {}
    for conversation, snippet in findings:
        if conversation.id not in found or found[conversation.id][1] is None:
            found[conversation.id] = (conversation, snippet)
    return [each for each in found.values() if _is_wanted(each[0], query)]


def _is_wanted(conversation: Conversation, query: ConversationPageQuery) -> bool:
    is_right = query.archived == "both" or (conversation.archived_at is not None) == (query.archived == "yes")
    return is_right and _date_range(query).has(conversation, query.sort)


async def _by_id(request: PageRequest[ConversationPageQuery, NoForm], words: str) -> list[ConversationMatch]:
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


async def _by_title(
    request: PageRequest[ConversationPageQuery, NoForm], words: str, filters: dict[str, Any]
) -> TitleMatches:
    """Searches titles. They are not indexed, so a bounded number of conversations is read, newest first."""
    wanted, dates = words.casefold(), _date_range(request.query)
    found: list[ConversationMatch] = []
    searched = 0
    after = request.query.titles or dates.begin(request.query.sort)
    most = _TITLES if request.query.titles is None else _OLDER_TITLES
    while searched < most and len(found) < PAGE:
        page = await request.store.list_conversations(**filters, sort=request.query.sort, after=after, limit=100)
        for at, each in enumerate(page.items):
            if len(found) == PAGE:
                # The page is full: the next search continues here.
                return TitleMatches(
                    found, searched + at, cursors.of_conversation(page.items[at - 1], request.query.sort)
                )
            if each.title and wanted in each.title.casefold():
                found.append((each, None))
        searched += len(page.items)
        after = page.next_cursor
        is_past = bool(page.items) and dates.start is not None and not dates.has(page.items[-1], request.query.sort)
        if after is None or is_past:
            return TitleMatches(found, searched, None)
    return TitleMatches(found, searched, after)


async def _by_words(
    request: PageRequest[ConversationPageQuery, NoForm], words: str, filters: dict[str, Any]
) -> list[ConversationMatch]:
    narrowed = {name: filters[name] for name in ("user_id", "agent_id", "metadata")}
    try:
        hits = await request.store.search(words, **narrowed, limit=PAGE, token_cap=None, blobs="refs")
    except Unsupported:
        return []
    return [(hit.conversation, marked(hit.snippet)) for hit in hits]


def marked(snippet: Snippet) -> Markup:
    """Renders a snippet with its matches marked."""
    pieces, end = [], 0
    for start, stop in snippet.highlights:
        pieces += [escape(bare(snippet.text[end:start])), _MARK, escape(snippet.text[start:stop]), _UNMARK]
        end = stop
    return Markup("").join([*pieces, escape(bare(snippet.text[end:]))])
