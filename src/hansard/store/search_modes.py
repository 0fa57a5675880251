"""How a search finds its hits: by words, with the backend's index or a scan; by meaning; or by both."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Literal, cast

from msgspec import Struct, structs

from hansard import cursors
from hansard.analysis import (
    MAX_CHARACTERS,
    Lookup,
    Match,
    Matches,
    Query,
    Ranking,
    count_terms,
    parse_pieces,
    parse_query,
    relaxed,
    searchable,
    shortened,
)
from hansard.contract.backend import Capabilities, Indexed
from hansard.contract.types import Context
from hansard.errors import Unavailable, ValidationError
from hansard.limits import Limits
from hansard.model import Message
from hansard.search import Hit, Hits, fusion, reranker, scan
from hansard.store import checks, marks, nearest_messages, read_query
from hansard.store.core import View
from hansard.store.read_query import BlobMode

SearchOrder = Literal["relevance", "newest"]
WordMatch = Literal["all", "any", "auto", "part"]
Grouping = Literal["conversation"]

SearchMode = Literal["words", "meaning", "hybrid"]

DEPTH = 200
"""How many messages of each ranking are combined: deeper ones change no page that people read."""

logger = logging.getLogger("hansard.embeddings")

_MARKED = 1000
"""How many of the newest or best matches are searched for those with a label or a rating."""
QUESTION = 4
"""Words of a question. Fewer are keywords, which name what a message must have; the answer to a question may have none
of its words, between messages that do."""

_DENSE = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


Search = Callable[[View, Context, Lookup, str | None, int | None], Awaitable[Hits]]


class How(Struct, frozen=True):
    """The checked mode of a search."""

    search: Search
    match: WordMatch
    is_by_words: bool = True
    """Every word of the query counts. By meaning, a query may be a whole page."""


def checked_mode(mode: SearchMode | None, order: object, match: object, *, has_embedder: bool = False) -> How:
    if mode is None and match is None and type(order) is str and order == "newest":
        return _NEWEST
    checks.one_of(mode, (None, "words", "meaning", "hybrid"), "mode")
    checks.one_of(order, ("relevance", "newest"), "order")
    checks.one_of(match, (None, "all", "any", "auto", "part"), "match")
    if mode is None and has_embedder and match in (None, "auto") and order == "relevance":
        mode = "hybrid"
    if mode in (None, "words"):
        return _by_words(order, match)
    if match == "part":
        raise ValidationError(f"match='part' finds pieces of words: it goes with mode='words', not {mode!r}")
    if order == "newest":
        raise ValidationError(f"mode={mode!r} ranks by relevance: order='newest' goes with mode='words'")
    # A question has words that its answer lacks.
    return How(nearest if mode == "meaning" else both, "all" if match == "all" else "any", is_by_words=False)


def _by_words(order: object, match: object) -> How:
    if match == "part":
        return How(newest if order == "newest" else best, "part")
    if order == "newest":
        return How(newest_as_needed, "all") if match == "auto" else How(newest, "any" if match == "any" else "all")
    return How(best, "auto" if match == "auto" else "any" if match == "any" else "all")


def checked_query(query: object, how: How, limits: Limits) -> tuple[Query, bool]:
    """Returns the words to search for, and whether they are a question."""
    if not isinstance(query, str):
        raise ValidationError(f"query must be text, not a {type(query).__name__}")
    text = query if type(query) is str else str.__str__(query)
    if how.is_by_words:
        check_size(text, limits)
    match = how.match
    parsed = parse_pieces(text) if match == "part" else parse_query(text)
    is_question = match == "auto" and len(parsed.wanted) >= QUESTION
    return (parsed if match in ("all", "part") else relaxed(parsed)), is_question


def check_size(text: str, limits: Limits) -> None:
    """Refuses a query that would take too long."""
    if len(text) > MAX_CHARACTERS:
        raise ValidationError(f"the query has {len(text):,} characters; the limit is {MAX_CHARACTERS:,}")
    # A query cannot have more terms than characters.
    if len(text) > limits.query_terms and (size := count_terms(text)) > limits.query_terms:
        raise ValidationError(
            f"the query has {size:,} words and phrases; the limit is {limits.query_terms} (Limits.query_terms)"
        )


async def newest(view: View, context: Context, lookup: Lookup, cursor: str | None, cap: int | None) -> Hits:
    """Returns the newest matches."""
    if cursor is not None:
        lookup = structs.replace(lookup, below=cursors.search_position(cursor, _cursor_scope("newest", lookup)))
    is_marked = lookup.label is not None or lookup.rating is not None
    matches = await (_find_marked if is_marked else _find)(view, context, lookup)
    taken = _capped(matches.found, cap)
    more = matches.has_more or len(taken) < len(matches.found)
    text, in_pieces = lookup.query.text, lookup.query.in_pieces
    return Hits(
        [Hit(match.conversation, match.message, 0.0, text, (), in_pieces) for match in taken],
        next_cursor=partial(_after, lookup, taken[-1]) if more and taken else None,
        complete=matches.complete,
    )


_NEWEST = How(newest, "all")


async def newest_as_needed(view: View, context: Context, lookup: Lookup, cursor: str | None, cap: int | None) -> Hits:
    """Returns the newest matches with all words; if there are none, those with any."""
    loose = structs.replace(lookup, query=relaxed(lookup.query))
    if cursor is None:
        return await newest(view, context, lookup, None, cap) or await newest(view, context, loose, None, cap)
    is_loose = cursors.is_of_search(cursor, _cursor_scope("newest", loose))
    return await newest(view, context, loose if is_loose else lookup, cursor, cap)


def _after(lookup: Lookup, last: Match) -> str:
    return cursors.of_search(_cursor_scope("newest", lookup), *last.position)


async def best(view: View, context: Context, lookup: Lookup, cursor: str | None, cap: int | None) -> Hits:
    """Returns the best matches."""
    skipped = _skipped("relevance", lookup, cursor)
    wanted = max(skipped + lookup.limit + 1, 0 if view.reranker is None else reranker.CANDIDATES)
    ranking = await _rank(view, context, structs.replace(lookup, limit=wanted))
    best = [(each.score, each.match) for each in ranking.found]
    return await _page(view, best, lookup, "relevance", skipped, cap, complete=ranking.complete)


async def nearest(view: View, context: Context, lookup: Lookup, cursor: str | None, cap: int | None) -> Hits:
    """Returns the messages nearest in meaning."""
    skipped = _skipped("meaning", lookup, cursor)
    found = await nearest_messages.nearest(view, context, lookup, DEPTH, {})
    return await _page(view, found.found[:DEPTH], lookup, "meaning", skipped, cap, complete=found.complete)


async def both(view: View, context: Context, lookup: Lookup, cursor: str | None, cap: int | None) -> Hits:
    """Returns the best by words and by meaning; if the embedder fails, by words."""
    nearest_messages.embeddings_of(view)
    skipped = _skipped("hybrid", lookup, cursor)
    query = shortened(lookup.query, view.limits.query_terms)
    is_question = len(query.wanted) >= QUESTION
    ranking = await _rank(view, context, structs.replace(lookup, query=query, limit=DEPTH, neighbours=is_question))
    by_words = ranking.found
    matches = {_key(each.match): each.match for each in by_words}
    seqs = {key: match.message.seq for key, match in matches.items()}
    try:
        near = await nearest_messages.nearest(view, context, lookup, DEPTH, seqs)
    except Unavailable as error:
        logger.warning("searched by words alone: %s", error)
        near = nearest_messages.Nearest([], False)
    matches |= {_key(match): match for _, match in near.found}
    combined = fusion.fused(
        [(each.score, _key(each.match)) for each in by_words], [(score, _key(match)) for score, match in near.found]
    )
    complete = near.complete and ranking.complete
    found = [(score, matches[key]) for score, key in combined]
    return await _page(view, found, lookup, "hybrid", skipped, cap, complete=complete)


def _key(match: Match) -> nearest_messages.Key:
    return match.conversation.id, match.message.id


async def _page(
    view: View,
    ranked: list[tuple[float, Match]],
    lookup: Lookup,
    order: str,
    skipped: int,
    cap: int | None,
    *,
    complete: bool,
) -> Hits:
    # Behind the candidates its order is that of the ranking.
    if view.reranker is not None and skipped < reranker.CANDIDATES:
        ranked = await reranker.reranked(view.reranker, lookup.query.text, ranked)
    rest = ranked[skipped:]
    taken = _capped([each for _, each in rest[: lookup.limit]], cap)
    text, in_pieces = lookup.query.text, lookup.query.in_pieces
    return Hits(
        [Hit(match.conversation, match.message, score, text, (), in_pieces) for score, match in rest[: len(taken)]],
        next_cursor=partial(_after_skipped, order, lookup, skipped + len(taken)) if len(taken) < len(rest) else None,
        complete=complete,
    )


def _skipped(order: str, lookup: Lookup, cursor: str | None) -> int:
    """Returns how many hits were on the pages before that of a cursor."""
    return 0 if cursor is None else cursors.search_offset(cursor, _cursor_scope(order, lookup))


def _after_skipped(order: str, lookup: Lookup, skipped: int) -> str:
    return cursors.of_search_offset(_cursor_scope(order, lookup), skipped)


async def _find_marked(view: View, context: Context, lookup: Lookup) -> Matches:
    """Returns the newest matches with a label or a rating."""
    bare = structs.replace(lookup, label=None, rating=None, limit=_MARKED)
    found: list[Match] = []
    looked, more, complete = 0, True, True
    while more and looked < _MARKED and len(found) <= lookup.limit:
        matches = await _find(view, context, bare)
        found += [each for each in matches.found if marks.passes(each, lookup)]
        looked, more = looked + len(matches.found), matches.has_more and bool(matches.found)
        complete = complete and matches.complete
        if more:
            bare = structs.replace(bare, below=matches.found[-1].position)
    return Matches(
        found[: lookup.limit], len(found) > lookup.limit, complete and (not more or len(found) > lookup.limit)
    )


async def _find(view: View, context: Context, lookup: Lookup) -> Matches:
    capabilities = view.backend.capabilities
    if not lookup.query.groups or not capabilities.keeps:
        return Matches([])
    if has_index(capabilities, lookup):
        return await cast(Indexed, view.backend).search(context, lookup)
    view.require(capabilities.search != "none", "search", "search")
    return await scan.find(view.backend, context, lookup)


async def _rank(view: View, context: Context, lookup: Lookup) -> Ranking:
    if lookup.label is None and lookup.rating is None:
        return await _rank_any(view, context, lookup)
    ranking = await _rank_any(view, context, structs.replace(lookup, label=None, rating=None, limit=_MARKED))
    found = [each for each in ranking.found if marks.passes(each.match, lookup)]
    has_all = len(ranking.found) < _MARKED or len(found) >= lookup.limit
    return Ranking(found[: lookup.limit], complete=ranking.complete and has_all)


async def _rank_any(view: View, context: Context, lookup: Lookup) -> Ranking:
    capabilities = view.backend.capabilities
    if not lookup.query or not capabilities.keeps:
        return Ranking([])
    view.require(capabilities.search != "none", "search", "search")
    if has_index(capabilities, lookup):
        return await cast(Indexed, view.backend).rank(context, lookup)
    return await scan.rank(view.backend, context, lookup)


def has_index(capabilities: Capabilities, lookup: Lookup) -> bool:
    """Whether an index of the backend answers, and not a scan."""
    return capabilities.search == "index" and (capabilities.pieces or not lookup.query.in_pieces)


async def are_unchanged(view: View, context: Context, hits: Hits) -> bool:
    """Whether all hits are still as they were found. Reading a message notices changes by other processes."""
    by_conversation: dict[str, list[Message]] = {}
    for hit in hits:
        by_conversation.setdefault(hit.conversation.id, []).append(hit.message)

    async def is_unchanged(id: str, messages: list[Message]) -> bool:
        found = await view.backend.find_messages(context, id, [message.id for message in messages])
        return [each.content for each in found] == [each.content for each in messages]

    return all(await asyncio.gather(*(is_unchanged(id, messages) for id, messages in by_conversation.items())))


async def with_blobs(view: View, context: Context, hits: Hits, mode: BlobMode) -> Hits:
    """Leaves the hits with messages as callers see them: leases applied and blobs put back.

    A hit whose message was deleted since it was found, and whose blobs are gone with it, is left out.
    """
    changing = {at for at, hit in enumerate(hits) if hit.message.blobs or hit.message.status == "in_progress"}
    if not changing:
        return hits
    kept: list[Hit] = []
    for at, hit in enumerate(hits):
        if at in changing:
            whole = await read_query.with_blobs(view, context, [hit.message], mode)
            kept += [structs.replace(hit, message=message) for message in whole]
        else:
            kept.append(hit)
    hits[:] = kept
    return hits


def _capped(matches: list[Match], cap: int | None) -> list[Match]:
    """Returns as many matches as the cap allows, but at least one."""
    return matches if cap is None else matches[: fitting([match.message for match in matches], cap)]


def fitting(messages: Sequence[Message], cap: int | None) -> int:
    """Returns how many of the first messages the cap allows, but at least one."""
    if cap is None:
        return len(messages)
    for at, message in enumerate(messages):
        cap -= cost_of(message)
        if cap < 0:
            return max(at, 1)
    return len(messages)


def cost_of(message: Message) -> int:
    return estimate_tokens(searchable(message))


def estimate_tokens(text: str) -> int:
    """Four characters for a token; one if each character is a syllable or a word. Close enough for a cap."""
    dense = 0 if text.isascii() else len(_DENSE.findall(text))
    return dense + -(-(len(text) - dense) // 4)


def _cursor_scope(order: str, lookup: Lookup) -> str:
    """Returns what a cursor belongs to: a digest of the query, how its words match, and the filters.

    The times of since and until are left out, because those of a caller who asks for "the last hour" move.
    """
    query = lookup.query
    parts = (
        *(order, query.text, len(query.groups), query.in_pieces, lookup.neighbours),
        *(lookup.conversation_id, lookup.branch, lookup.all_branches, lookup.user_id, lookup.agent_id),
        *(sorted(map(repr, lookup.metadata.items())), sorted(lookup.roles or ()), sorted(lookup.participant_ids or ())),
        *(lookup.label, lookup.rating, lookup.is_timed),
        *(lookup.since is None, lookup.until is None),
    )
    # It may hold characters that no encoding accepts.
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()
