"""The query of the list of conversations: its filters, its order, its look, and links that change one of them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, structs

from hansard import cursors, rules
from hansard.errors import ValidationError
from hansard.model import Conversation, ConversationSort
from hansard.server.endpoints import Id
from hansard.server.web import links
from hansard.server.web.conversation_facts import ConversationFacts

INDEXED: tuple[ConversationSort, ...] = ("last_message_at", "updated_at")
"""The orders that every storage has an index for. The others sort the first matches only."""
Sort = Literal["last_message_at", "updated_at", "messages", "tokens", "cost", "duration", "errors", "rating"]
_PROJECT = "project"
_PLACES = ("after", "before", "titles", "page")


class ConversationPageQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """`metadata` is `key=value`, where the value may be JSON. `q` searches messages and titles.

    `since` and `until` are days in UTC, both inclusive. `titles` is the cursor for the search of older titles, `page`
    the number of a page of a list that was sorted here.
    """

    q: str | None = None
    user: Id | None = None
    agent: Id | None = None
    model: Id | None = None
    framework: Id | None = None
    project: str | None = None
    label: str | None = None
    metadata: str | None = None
    since: str | None = None
    until: str | None = None
    archived: Literal["no", "yes", "both"] = "no"
    sort: Sort = "last_message_at"
    order: Literal["desc", "asc"] = "desc"
    view: Literal["list", "table"] = "list"
    density: Literal["comfortable", "compact"] = "comfortable"
    after: str | None = None
    before: str | None = None
    titles: str | None = None
    page: Annotated[int, Meta(ge=1, le=1_000)] = 1

    @property
    def index_sort(self) -> ConversationSort:
        """The order in which the storage is read."""
        return self.sort if self.sort in INDEXED else "last_message_at"

    @property
    def needs_facts(self) -> bool:
        """Whether the messages of every match must be read to filter or sort it."""
        return self.model is not None or self.framework is not None or self.sort not in (*INDEXED, "messages")

    @property
    def is_scan(self) -> bool:
        """Whether no index of a storage can filter or sort so."""
        return self.needs_facts or self.sort == "messages"

    def link(self, **changes: object) -> str:
        """Returns the query string of the same list with changes, from its first page."""
        given = structs.asdict(self) | dict.fromkeys(_PLACES) | changes
        defaults = dict(zip(self.__struct_fields__, self.__struct_defaults__, strict=True))
        return links.query(**{name: value for name, value in given.items() if value != defaults[name]}) or "?"


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


def date_range(query: ConversationPageQuery) -> DateRange:
    return DateRange(day_of(query.since, "since"), day_after(query.until, "until"))


def day_of(text: str | None, what: str) -> datetime | None:
    """Returns the beginning of a day."""
    if text is None:
        return None
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError as error:
        raise ValidationError(f"{what} is {text[:40]!r}: write a day as 2026-01-31") from error


def day_after(text: str | None, what: str) -> datetime | None:
    """Returns the end of a day. After the last day of the calendar, there is no time, and so no limit."""
    day = day_of(text, what)
    return None if day is None or day.date() == date.max else day + timedelta(days=1)


def store_filters(query: ConversationPageQuery) -> dict[str, Any]:
    """Returns the arguments of `list_conversations` for these filters."""
    metadata = metadata_of(query.metadata)
    if query.project is not None:
        metadata = (metadata or {}) | {_PROJECT: query.project}
    return {
        "user_id": query.user,
        "agent_id": query.agent,
        "metadata": metadata,
        "label": query.label,
        "archived": {"no": False, "yes": True, "both": None}[query.archived],
    }


def is_listed(query: ConversationPageQuery, conversation: Conversation) -> bool:
    """Whether a conversation that was found in another way passes the filters that storages have."""
    filters = store_filters(query)
    given = {"user_id": conversation.user_id, "agent_id": conversation.agent_id}
    return (
        all(filters[name] in (None, value) for name, value in given.items())
        and rules.has_metadata(conversation, filters["metadata"] or {})
        and (query.label is None or query.label in conversation.labels)
        and filters["archived"] in (None, conversation.archived_at is not None)
        and date_range(query).has(conversation, query.index_sort)
    )


def project_of(conversation: Conversation) -> str | None:
    found = conversation.metadata.get(_PROJECT)
    return found if isinstance(found, str) and found else None


def is_wanted(query: ConversationPageQuery, facts: ConversationFacts) -> bool:
    """Whether a conversation with these facts passes the filters that no storage has."""
    return (query.model is None or query.model in facts.models) and query.framework in (None, facts.framework)


def sort_key(sort: Sort, conversation: Conversation, facts: ConversationFacts) -> tuple[float, datetime]:
    """Returns the key of an order that no storage has. Equal ones are ordered by time."""
    rating = facts.rating
    value = {
        "messages": conversation.message_count,
        "tokens": facts.tokens,
        "cost": facts.cost,
        "duration": facts.seconds,
        "errors": len(facts.errors),
        "rating": float("-inf") if rating is None else rating,
    }.get(sort, 0)
    return value, cursors.sort_time(conversation, "last_message_at")


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
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text
