"""How a search becomes hits: asked of the backend's index or of the scan, ranked, capped, paged."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterator
from functools import lru_cache, partial
from typing import Any, Literal, cast

from msgspec import Struct, structs

from hansard import cursors
from hansard.analysis import (
    MAX_CHARACTERS,
    Lookup,
    Match,
    Matches,
    count_terms,
    parse_query,
    relaxed,
    searchable,
    shortened,
)
from hansard.contract.backend import Indexed
from hansard.contract.types import Context
from hansard.errors import ValidationError
from hansard.limits import Limits
from hansard.model import Message
from hansard.search import Hit, Hits, ranking, scan, tokens
from hansard.store import checks, reading
from hansard.store.core import View
from hansard.store.reading import BlobMode
from hansard.threads import aside

SearchOrder = Literal["relevance", "newest"]
WordMatch = Literal["all", "any"]

SearchMode = Literal["words", "meaning", "hybrid"]

POOL = 500
"""How many of the newest matches a ranking looks at: a common word over a large store is ranked in bounded time."""


Search = Callable[[View, Context, Lookup, str | None, int | None], Awaitable[Hits]]


class How(Struct, frozen=True):
    """How to search, checked."""

    search: Search
    match: WordMatch
    is_by_words: bool = True
    """Every word of the query counts. By meaning, a query may be a whole page."""


def mode(mode: SearchMode | None, order: object, match: object) -> How:
    try:
        return _HOW[mode, order, match]
    except (KeyError, TypeError):
        checks.one_of(mode, (None, "words", "meaning", "hybrid"), "mode")
        checks.one_of(order, ("relevance", "newest"), "order")
        checks.one_of(match, (None, "all", "any"), "match")
        raise ValidationError(f"mode={mode!r} ranks by relevance: order='newest' goes with mode='words'") from None


def lookup(query: object, how: How, limits: Limits, **where: Any) -> Lookup:
    if not isinstance(query, str):
        raise ValidationError(f"query must be text, not a {type(query).__name__}")
    text = query if type(query) is str else str.__str__(query)
    if how.is_by_words:
        check_size(text, limits)
    parsed = parse_query(text)
    match = how.match
    made = Lookup(relaxed(parsed) if match == "any" else parsed, **where)
    if made.branch is not None and (made.conversation_id is None or made.all_branches):
        raise ValidationError("branch names a branch of one conversation: give its conversation_id, not all_branches")
    return made


def check_size(text: str, limits: Limits) -> None:
    """Refuses a query that takes too long to answer."""
    if len(text) > MAX_CHARACTERS:
        raise ValidationError(f"the query has {len(text):,} characters; the limit is {MAX_CHARACTERS:,}")
    # A query cannot have more terms than characters.
    if len(text) > limits.query_terms and (size := count_terms(text)) > limits.query_terms:
        raise ValidationError(
            f"the query has {size:,} words and phrases; the limit is {limits.query_terms} (Limits.query_terms)"
        )


async def newest(view: View, context: Context, lookup: Lookup, cursor: str | None, cap: int | None) -> Hits:
    """The newest that match."""
    if cursor is not None:
        lookup = structs.replace(lookup, below=cursors.search_position(cursor, _home("newest", lookup)))
    matches = await _find(view, context, lookup)
    taken = _capped(matches.found, cap)
    more = matches.has_more or len(taken) < len(matches.found)
    text = lookup.query.text
    return Hits(
        [Hit(each.conversation, each.message, 0.0, text) for each in taken],
        next_cursor=partial(_after, lookup, taken[-1]) if more and taken else None,
        complete=matches.complete,
    )


def _after(lookup: Lookup, last: Match) -> str:
    return cursors.of_search(_home("newest", lookup), *last.position)


async def best(view: View, context: Context, lookup: Lookup, cursor: str | None, cap: int | None) -> Hits:
    """The best of the newest that match."""
    home = _home("relevance", lookup)
    pool = await _find(view, context, structs.replace(lookup, limit=POOL))
    ranked = await aside(ranking.ranked, lookup.query, pool.found)
    best = [(each.score, each.match) for each in ranked]
    return _page(best, lookup, home, cursor, cap, complete=pool.complete and not pool.has_more)


async def nearest(view: View, context: Context, lookup: Lookup, cursor: str | None, cap: int | None) -> Hits:
    """What means most nearly the same."""
    from hansard.store import meaning

    home = _home("meaning", lookup)
    skipped = 0 if cursor is None else cursors.search_offset(cursor, home)
    found = await meaning.nearest(view, context, lookup, min(skipped + lookup.limit + 1, meaning.DEPTH))
    return _page(found.found, lookup, home, cursor, cap, complete=found.complete)


async def both(view: View, context: Context, lookup: Lookup, cursor: str | None, cap: int | None) -> Hits:
    """The best by words and by meaning."""
    from hansard.store import meaning

    meaning.need(view)
    home = _home("hybrid", lookup)
    query = shortened(lookup.query, view.limits.query_terms)
    pool = await _find(view, context, structs.replace(lookup, query=query, limit=POOL))
    ranked = await aside(ranking.ranked, query, pool.found)
    by_words = [each.match for each in ranked if each.covered >= meaning.SHARE]
    found = await meaning.hybrid(view, context, lookup, by_words)
    complete = found.complete and pool.complete and not pool.has_more
    return _page(found.found, lookup, home, cursor, cap, complete=complete)


def _page(
    ranked: list[tuple[float, Match]], lookup: Lookup, home: str, cursor: str | None, cap: int | None, *, complete: bool
) -> Hits:
    skipped = 0 if cursor is None else cursors.search_offset(cursor, home)
    rest = ranked[skipped:]
    taken = len(_capped([each for _, each in rest[: lookup.limit]], cap))
    return Hits(
        (Hit(each.conversation, each.message, score, lookup.query.text) for score, each in rest[:taken]),
        next_cursor=cursors.of_search_offset(home, skipped + taken) if taken < len(rest) else None,
        complete=complete,
    )


def _ways() -> Iterator[tuple[tuple[object, object, object], How]]:
    for match in (None, "all", "any"):
        for mode in (None, "words"):
            yield (mode, "newest", match), How(newest, "any" if match == "any" else "all")
            yield (mode, "relevance", match), How(best, "any" if match == "any" else "all")
        # A question has words that its answer has not.
        yield ("meaning", "relevance", match), How(nearest, "all" if match == "all" else "any", is_by_words=False)
        yield ("hybrid", "relevance", match), How(both, "all" if match == "all" else "any", is_by_words=False)


_HOW = dict(_ways())


async def _find(view: View, context: Context, lookup: Lookup) -> Matches:
    how = view.backend.capabilities.search
    if not lookup.query or not view.backend.capabilities.keeps:
        return Matches([])
    view.need(how != "none", "search", "search")
    if how == "index":
        return await cast(Indexed, view.backend).search(context, lookup)
    return await scan.find(view.backend, context, lookup)


async def are_there(view: View, context: Context, hits: Hits) -> bool:
    """Whether all that was found is still as it was: to read a message is to notice what others did to it."""
    by_conversation: dict[str, list[Message]] = {}
    for hit in hits:
        by_conversation.setdefault(hit.conversation.id, []).append(hit.message)

    async def look(id: str, messages: list[Message]) -> bool:
        found = await view.backend.find_messages(context, id, [message.id for message in messages])
        return [each.content for each in found] == [each.content for each in messages]

    return all(await asyncio.gather(*(look(id, messages) for id, messages in by_conversation.items())))


async def with_blobs(view: View, context: Context, hits: Hits, mode: BlobMode) -> Hits:
    """The hits as messages are read: settled, and with their blobs put back."""
    for at, hit in enumerate(hits):
        if hit.message.blobs or hit.message.status == "in_progress":
            whole = await reading.with_blobs(view, context, [hit.message], mode)
            hits[at] = structs.replace(hit, message=whole[0] if whole else hit.message)
    return hits


def _capped(matches: list[Match], cap: int | None) -> list[Match]:
    """As many as the cap allows, but always one."""
    if cap is None:
        return matches
    for at, match in enumerate(matches):
        cap -= tokens.estimate(searchable(match.message))
        if cap < 0:
            return matches[: max(at, 1)]
    return matches


def _home(order: str, lookup: Lookup) -> str:
    """What a cursor belongs to."""
    return _digest(order, lookup.query.text)


@lru_cache(256)
def _digest(order: str, text: str) -> str:
    """A query may hold characters that no encoding takes."""
    return hashlib.sha256(f"{order} {text}".encode("utf-8", "surrogatepass")).hexdigest()
