"""Filters of the list with counts: the most frequent users, agents, models, frameworks, projects, labels and times.

No storage counts these, so the first matches are counted, and the page says how many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from hansard.model import Conversation
from hansard.server.web.conversation_facts import NO_FACTS, ConversationFacts
from hansard.server.web.conversation_filters import ConversationPageQuery, project_of
from hansard.server.web.words import say

MOST_VALUES = 8
_TIMES = (1, 7, 30, 90)


class FacetValue(Struct, frozen=True):
    name: str
    count: int
    link: str
    is_chosen: bool = False


class Facet(Struct, frozen=True):
    name: str
    title: str
    values: list[FacetValue]
    others: int = 0
    """How many more values there are."""


class Chip(Struct, frozen=True):
    """A filter that is set, and the link that removes it."""

    title: str
    value: str
    link: str


def titles() -> dict[str, str]:
    """Returns the filters by their names in the query."""
    return {
        "user": say("User"),
        "agent": say("Agent"),
        "model": say("Model"),
        "framework": say("Framework"),
        "project": say("Project"),
        "label": say("Label"),
    }


def chips(query: ConversationPageQuery) -> list[Chip]:
    """Returns the filters that are set."""
    more = {"metadata": say("Metadata"), "since": say("Since"), "until": say("Until")}
    found = [
        Chip(title, str(getattr(query, name)), query.link(**{name: None}))
        for name, title in (titles() | more).items()
        if getattr(query, name) is not None
    ]
    if query.archived != "no":
        shown = say("yes") if query.archived == "yes" else say("included")
        found.append(Chip(say("Archived"), shown, query.link(archived="no")))
    return found


def facets(
    query: ConversationPageQuery, matches: Sequence[Conversation], facts: Mapping[str, ConversationFacts]
) -> list[Facet]:
    """Counts the values of each filter among the matches."""
    known = [(each, facts.get(each.id, NO_FACTS)) for each in matches]
    values: dict[str, Iterable[str | None]] = {
        "user": (each.user_id for each, _ in known),
        "agent": (each.agent_id for each, _ in known),
        "model": (model for _, facts in known for model in facts.models),
        "framework": (facts.framework for _, facts in known),
        "project": (project_of(each) for each, _ in known),
        "label": (label for each, _ in known for label in each.labels),
    }
    made = [_facet(query, name, title, values[name]) for name, title in titles().items()]
    return [each for each in (_times(query, matches), *made) if each.values]


def _facet(query: ConversationPageQuery, name: str, title: str, values: Iterable[str | None]) -> Facet:
    counted = Counter(each for each in values if each)
    chosen = getattr(query, name)
    found = [
        FacetValue(value, count, query.link(**{name: None if value == chosen else value}), value == chosen)
        for value, count in counted.most_common(MOST_VALUES)
    ]
    return Facet(name, title, found, max(0, len(counted) - MOST_VALUES))


def _times(query: ConversationPageQuery, matches: Sequence[Conversation]) -> Facet:
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    names = {1: say("Today"), 7: say("7 days"), 30: say("30 days"), 90: say("90 days")}
    found = []
    for days in _TIMES:
        since = today - timedelta(days=days - 1)
        day = since.date().isoformat()
        count = sum((each.last_message_at or each.created_at) >= since for each in matches)
        is_chosen = query.since == day and query.until is None
        link = query.link(since=None if is_chosen else day, until=None)
        if count or is_chosen:
            found.append(FacetValue(names[days], count, link, is_chosen))
    return Facet("since", say("Time"), found)
