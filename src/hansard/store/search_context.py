"""What a search returns around its hits: passages, the best conversations, and the time that the query named."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from msgspec import structs

from hansard import rules
from hansard.analysis import Lookup
from hansard.contract.types import Context, MessageQuery
from hansard.errors import ValidationError
from hansard.limits import Limits
from hansard.model import Message
from hansard.search import reranker
from hansard.search.hits import Hit, Hits, Passage
from hansard.search.passages import with_passages
from hansard.search.periods import Period, find_period
from hansard.store import checks, read_query, search_modes
from hansard.store.core import View
from hansard.store.read_query import BlobMode
from hansard.store.search_modes import Grouping, How, Search

MOST_AROUND = 50
"""The most messages on each side of a hit."""
_PAGES = 20
"""Pages that are ranked until there are enough conversations."""
_PASSAGES = 3
"""The passages of a conversation that are returned."""


def checked_around(around: object, group_by: Grouping | None, lookup: Lookup, cursor: str | None) -> int:
    checks.one_of(group_by, (None, "conversation"), "group_by")
    if group_by is not None and cursor is not None:
        raise ValidationError("group_by returns the best conversations at once: ask for a higher limit, not for a page")
    size = checks.count(around, "around", MOST_AROUND, least=0)
    if size and lookup.all_branches:
        raise ValidationError("around reads one branch: give branch, not all_branches")
    return size


def narrowed(lookup: Lookup, text: str, context: Context, how: How, limits: Limits) -> tuple[Lookup, Period] | None:
    """Returns the lookup within the time that the query names; None if it names none, or the caller gave one."""
    found = None if lookup.since or lookup.until else find_period(text, context.now)
    if found is None or not found[1]:
        return None
    period, rest = found
    query, is_question = search_modes.checked_query(rest, how, limits)
    times = {"since": period.since, "until": period.until, "is_timed": True}
    narrow = structs.replace(lookup, query=query, neighbours=is_question, **times)
    return (narrow, period) if narrow.query else None


async def in_period(
    view: View, context: Context, search: Search, timed: tuple[Lookup, Period], cursor: str | None, cap: int | None
) -> Hits | None:
    """Returns the hits within a period; None if there are none, also not on an earlier page."""
    lookup, period = timed
    if cursor is not None and not await search(view, context, structs.replace(lookup, limit=1), None, None):
        return None
    hits = await search(view, context, lookup, cursor, cap)
    hits.period = period
    return hits if hits or cursor is not None else None


async def find(
    view: View,
    context: Context,
    lookup: Lookup,
    how: How,
    timed: tuple[Lookup, Period] | None,
    *,
    place: str | None,
    cap: int | None,
    group_by: Grouping | None,
) -> Hits:
    """Returns the hits within the time that the query names, if there are any, otherwise of any time."""
    search = partial(best_conversations, how) if group_by is not None else how.search
    if timed is not None:
        found = await in_period(view, context, search, timed, place, cap)
        if found is not None:
            return found
    return await search(view, context, lookup, place, cap)


async def best_conversations(
    how: How, view: View, context: Context, lookup: Lookup, cursor: str | None, cap: int | None
) -> Hits:
    """Returns hits of the best conversations, those of each together."""
    # So a reranker is asked once: further pages begin behind its candidates.
    page = structs.replace(lookup, limit=max(lookup.limit, view.limits.page, reranker.CANDIDATES))
    found: dict[str, list[Hit]] = {}
    complete = True
    for _ in range(_PAGES):
        hits = await how.search(view, context, page, cursor, None)
        complete = hits.complete
        for hit in hits:
            found.setdefault(hit.conversation.id, []).append(hit)
        cursor = hits.next_cursor
        if cursor is None or len(found) >= lookup.limit:
            break
    best = [hit for group in [*found.values()][: lookup.limit] for hit in group[:_PASSAGES]]
    size = search_modes.fitting([hit.message for hit in best], cap)
    return Hits(best[:size], complete=complete and (cursor is None or len(found) >= lookup.limit))


async def with_context(
    view: View, context: Context, lookup: Lookup, hits: Hits, around: int, cap: int | None, *, grouped: bool
) -> Hits:
    """Returns the hits with their passages."""
    left = None if cap is None else max(0, cap - sum(search_modes.cost_of(hit.message) for hit in hits))
    near = partial(_near, view, context, lookup)
    made = await with_passages(hits, near, around, left, search_modes.cost_of, grouped=grouped)
    return Hits(made, next_cursor=hits.next_cursor, complete=hits.complete, period=hits.period)


async def _near(
    view: View, context: Context, lookup: Lookup, hit: Hit, around: int
) -> tuple[list[Message], list[Message]]:
    place = rules.position(hit.message)
    before = MessageQuery(branch=lookup.branch, newest_first=True, limit=around, below=place)
    after = MessageQuery(branch=lookup.branch, limit=around, above=place)
    return (
        (await view.backend.get_messages(context, hit.conversation.id, before)).messages,
        (await view.backend.get_messages(context, hit.conversation.id, after)).messages,
    )


async def whole(view: View, context: Context, hits: Hits, mode: BlobMode) -> Hits:
    """Returns the hits with the messages of their passages as callers see them."""
    for at, hit in enumerate(hits):
        if hit.passages:
            passages = [await _whole(view, context, passage, mode) for passage in hit.passages]
            hits[at] = structs.replace(hit, passages=tuple(passages))
    return hits


async def _whole(view: View, context: Context, passage: Passage, mode: BlobMode) -> Passage:
    messages: Sequence[Message] = await read_query.with_blobs(view, context, list(passage.messages), mode)
    return structs.replace(passage, messages=tuple(messages))
