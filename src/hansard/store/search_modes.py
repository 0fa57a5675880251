"""How a search finds its hits: by words, with the backend's index or a scan; by meaning; or by both.

A search by meaning is exact: it compares every vector of the conversations that are searched. A vector counts only if
its message still exists, has the same text and is on the branch, so an outdated vector never finds a changed or deleted
message.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import lru_cache, partial
from heapq import heappush, heappushpop
from typing import Any, Literal, cast

from msgspec import Struct, structs

from hansard import cursors, rules
from hansard.analysis import (
    MAX_CHARACTERS,
    Clause,
    Lookup,
    Match,
    Matches,
    analyse,
    count_terms,
    parse_query,
    relaxed,
    searchable,
    shortened,
)
from hansard.contract.backend import Indexed
from hansard.contract.types import Context, MessageQuery
from hansard.errors import Unavailable, ValidationError
from hansard.executor import run_in_thread
from hansard.limits import Limits
from hansard.model import Conversation, Message
from hansard.search import Hit, Hits, ranking, scan, vectors
from hansard.search.vectors import VectorRow
from hansard.store import checks, read_query, vector_records
from hansard.store.core import View
from hansard.store.embedder_task import Embeddings, vectors_of
from hansard.store.read_query import BlobMode

SearchOrder = Literal["relevance", "newest"]
WordMatch = Literal["all", "any"]

SearchMode = Literal["words", "meaning", "hybrid"]

POOL = 500
"""How many of the newest matches are ranked, so that a common word in a large store is ranked in bounded time."""

_DENSE = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


Search = Callable[[View, Context, Lookup, str | None, int | None], Awaitable[Hits]]


class How(Struct, frozen=True):
    """The checked mode of a search."""

    search: Search
    match: WordMatch
    is_by_words: bool = True
    """Every word of the query counts. By meaning, a query may be a whole page."""


def mode(mode: SearchMode | None, order: object, match: object) -> How:
    checks.one_of(mode, (None, "words", "meaning", "hybrid"), "mode")
    checks.one_of(order, ("relevance", "newest"), "order")
    checks.one_of(match, (None, "all", "any"), "match")
    if mode in (None, "words"):
        return How(newest if order == "newest" else best, "any" if match == "any" else "all")
    if order == "newest":
        raise ValidationError(f"mode={mode!r} ranks by relevance: order='newest' goes with mode='words'")
    # A question has words that its answer lacks.
    return How(nearest if mode == "meaning" else both, "all" if match == "all" else "any", is_by_words=False)


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
    return cursors.of_search(_cursor_scope("newest", lookup), *last.position)


async def best(view: View, context: Context, lookup: Lookup, cursor: str | None, cap: int | None) -> Hits:
    """Returns the best of the newest matches."""
    scope = _cursor_scope("relevance", lookup)
    pool = await _find(view, context, structs.replace(lookup, limit=POOL))
    ranked = await run_in_thread(ranking.ranked, lookup.query, pool.found)
    best = [(each.score, each.match) for each in ranked]
    return _page(best, lookup, scope, cursor, cap, complete=pool.complete and not pool.has_more)


async def nearest(view: View, context: Context, lookup: Lookup, cursor: str | None, cap: int | None) -> Hits:
    """Returns the messages nearest in meaning."""
    scope = _cursor_scope("meaning", lookup)
    skipped = 0 if cursor is None else cursors.search_offset(cursor, scope)
    found = await by_vectors(view, context, lookup, min(skipped + lookup.limit + 1, DEPTH))
    return _page(found.found, lookup, scope, cursor, cap, complete=found.complete)


async def both(view: View, context: Context, lookup: Lookup, cursor: str | None, cap: int | None) -> Hits:
    """Returns the best by words and by meaning."""
    embeddings_of(view)
    scope = _cursor_scope("hybrid", lookup)
    query = shortened(lookup.query, view.limits.query_terms)
    pool = await _find(view, context, structs.replace(lookup, query=query, limit=POOL))
    ranked = await run_in_thread(ranking.ranked, query, pool.found)
    by_words = [each.match for each in ranked if each.covered >= SHARE]
    found = await hybrid(view, context, lookup, by_words)
    complete = found.complete and pool.complete and not pool.has_more
    return _page(found.found, lookup, scope, cursor, cap, complete=complete)


def _page(
    ranked: list[tuple[float, Match]],
    lookup: Lookup,
    scope: str,
    cursor: str | None,
    cap: int | None,
    *,
    complete: bool,
) -> Hits:
    skipped = 0 if cursor is None else cursors.search_offset(cursor, scope)
    rest = ranked[skipped:]
    taken = len(_capped([each for _, each in rest[: lookup.limit]], cap))
    return Hits(
        (Hit(each.conversation, each.message, score, lookup.query.text) for score, each in rest[:taken]),
        next_cursor=cursors.of_search_offset(scope, skipped + taken) if taken < len(rest) else None,
        complete=complete,
    )


async def _find(view: View, context: Context, lookup: Lookup) -> Matches:
    how = view.backend.capabilities.search
    if not lookup.query or not view.backend.capabilities.keeps:
        return Matches([])
    view.require(how != "none", "search", "search")
    if how == "index":
        return await cast(Indexed, view.backend).search(context, lookup)
    return await scan.find(view.backend, context, lookup)


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
    """Returns the hits with messages as callers see them: leases applied and blobs put back."""
    for at, hit in enumerate(hits):
        if hit.message.blobs or hit.message.status == "in_progress":
            whole = await read_query.with_blobs(view, context, [hit.message], mode)
            hits[at] = structs.replace(hit, message=whole[0] if whole else hit.message)
    return hits


def _capped(matches: list[Match], cap: int | None) -> list[Match]:
    """Returns as many matches as the cap allows, but at least one."""
    if cap is None:
        return matches
    for at, match in enumerate(matches):
        cap -= estimate_tokens(searchable(match.message))
        if cap < 0:
            return matches[: max(at, 1)]
    return matches


def estimate_tokens(text: str) -> int:
    """Four characters for a token; one if each character is a syllable or a word. Close enough for a cap."""
    dense = 0 if text.isascii() else len(_DENSE.findall(text))
    return dense + -(-(len(text) - dense) // 4)


def _cursor_scope(order: str, lookup: Lookup) -> str:
    """Returns what a cursor belongs to."""
    return _digest(order, lookup.query.text)


@lru_cache(256)
def _digest(order: str, text: str) -> str:
    """Returns a digest of the query, which may hold characters that no encoding accepts."""
    return hashlib.sha256(f"{order} {text}".encode("utf-8", "surrogatepass")).hexdigest()


# By meaning, and both rankings combined

MOST = 100_000
"""Vectors that one search compares."""
DEPTH = 100
"""How many messages a ranking by meaning has."""
SHARE = 0.5
"""The share of a query's weight that a message must have to count by its words: `the` and `in` weigh little."""
_CANDIDATES = 1000
"""How many of the nearest are checked for messages that pass the filters."""
_BATCH = 50
_WAIT_SECONDS = 5.0
_ASKING = 20.0

logger = logging.getLogger("hansard.embeddings")


class SearchCandidate(Struct, frozen=True, order=True):
    score: float
    seq: int
    id: str
    digest: bytes
    conversation_id: str


class Nearest(Struct, frozen=True):
    found: list[tuple[float, Match]]
    complete: bool


async def by_vectors(view: View, context: Context, lookup: Lookup, wanted: int = DEPTH) -> Nearest:
    """Returns the messages nearest to the query, the nearest first, at most as many as wanted."""
    embeddings = embeddings_of(view)
    text = lookup.query.text[: vectors.MOST_CHARACTERS].strip()
    if not text or not view.backend.capabilities.keeps:
        return Nearest([], True)
    await embeddings.refuse_other_versions(view.tenant)
    (vector,) = await vectors_of(embeddings.embedder, [text], "query", _ASKING)
    is_done = await embeddings.wait_until_done(view.tenant, _WAIT_SECONDS)
    shared = structs.replace(context, user=None)
    conversations: dict[str, Conversation] = {}
    best: list[SearchCandidate] = []
    seen = 0
    async for conversation in scan.conversations(view.backend, context, lookup):
        conversations[conversation.id] = conversation
        async for rows in vector_records.chunks_of(view.backend, shared, conversation.id, embeddings.identity):
            seen += len(rows)
            await run_in_thread(_take, best, rows, vector, conversation.id)
        if seen >= MOST:
            break
    found: list[tuple[float, Match]] = []
    async for candidate, message in _still_stored(view, context, lookup, sorted(best, reverse=True)):
        found.append((round(candidate.score, 6), Match(conversations[candidate.conversation_id], message)))
        if len(found) == wanted:
            break
    return Nearest(found, is_done and seen < MOST and (len(best) < _CANDIDATES or len(found) == wanted))


def embeddings_of(view: View) -> Embeddings:
    view.require(view.embeddings is not None, "embeddings", "search by meaning without connect(url, embedder=…)")
    assert view.embeddings is not None
    return view.embeddings


def _take(best: list[SearchCandidate], rows: list[VectorRow], vector: array[float], conversation_id: str) -> None:
    usable = [row for row in rows if vectors.is_readable(row.vector, len(vector))]
    for row, score in zip(usable, vectors.scores(usable, vector), strict=True):
        if score > 0:
            candidate = SearchCandidate(score, row.seq, row.id, row.digest, conversation_id)
            (heappush if len(best) < _CANDIDATES else heappushpop)(best, candidate)


async def _still_stored(
    view: View, context: Context, lookup: Lookup, candidates: list[SearchCandidate]
) -> AsyncIterator[tuple[SearchCandidate, Message]]:
    """Yields the candidates whose messages have the embedded text and pass the filters, in order, read in batches."""
    lines = BranchMessages(view, context, lookup)
    for at in range(0, len(candidates), _BATCH):
        batch = candidates[at : at + _BATCH]
        messages = await lines.find(batch)
        for each in await run_in_thread(_still_embedded, batch, messages, lookup.query.excluded):
            yield each, messages[each.conversation_id, each.id]


def _still_embedded(
    candidates: Sequence[SearchCandidate], messages: Mapping[tuple[str, str], Message], excluded: Sequence[Clause]
) -> list[SearchCandidate]:
    """Returns the candidates whose messages have the embedded text and contain no excluded term."""
    found = []
    for each in candidates:
        message = messages.get((each.conversation_id, each.id))
        if message is None or vectors.digest_of(vectors.text_of(message)) != each.digest:
            continue
        if not (excluded and any(clause.is_in(analyse(searchable(message))) for clause in excluded)):
            found.append(each)
    return found


class BranchMessages:
    """The messages of the branches that are searched."""

    def __init__(self, view: View, context: Context, lookup: Lookup) -> None:
        self._backend = view.backend
        self._context = context
        self._query = MessageQuery(
            branch=lookup.branch,
            limit=1,
            roles=lookup.roles,
            participant_ids=lookup.participant_ids,
            since=lookup.since,
            until=lookup.until,
        )
        self._all_branches = lookup.all_branches
        self._alone: dict[str, bool] = {}

    async def find(self, candidates: Sequence[SearchCandidate]) -> dict[tuple[str, str], Message]:
        wanted: dict[str, list[SearchCandidate]] = {}
        for each in candidates:
            wanted.setdefault(each.conversation_id, []).append(each)
        found: dict[tuple[str, str], Message] = {}
        for id, here in wanted.items():
            for message in rules.end_lapsed(await self._of(id, here), self._context.now):
                found[id, message.id] = message
        return found

    async def _of(self, id: str, candidates: Sequence[SearchCandidate]) -> list[Message]:
        if self._all_branches or await self._is_alone(id):
            ids = [each.id for each in candidates]
            found = await self._backend.find_messages(self._context, id, ids)
            return [message for message in found if rules.is_wanted(message, self._query)]
        # Whether a message is on the branch is known only by reading the branch.
        messages: list[Message] = []
        for each in candidates:
            place = structs.replace(self._query, above=(0, each.seq - 1), below=(0, each.seq + 1))
            messages += (await self._backend.get_messages(self._context, id, place)).messages
        return messages

    async def _is_alone(self, id: str) -> bool:
        """Whether the conversation has one branch that holds every message."""
        if id not in self._alone:
            self._alone[id] = (
                self._query.branch is None and len(await self._backend.list_branches(self._context, id)) == 1
            )
        return self._alone[id]


async def hybrid(view: View, context: Context, lookup: Lookup, by_words: list[Match]) -> Nearest:
    """Combines both rankings; if the embedder fails, returns the ranking by words."""
    try:
        by_meaning = await by_vectors(view, context, lookup)
    except Unavailable as error:
        logger.warning("searched by words alone: %s", error)
        by_meaning = Nearest([], False)
    matches = {_name(each): each for each in (*by_words, *(match for _, match in by_meaning.found))}
    rankings = [[_name(each) for each in by_words[:DEPTH]], [_name(match) for _, match in by_meaning.found]]
    return Nearest([(round(score, 6), matches[name]) for score, name in vectors.fused(rankings)], by_meaning.complete)


def _name(match: Match) -> tuple[str, str]:
    return match.conversation.id, match.message.id
