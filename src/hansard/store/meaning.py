"""Search by meaning: the messages whose vectors are nearest to the query's, and both rankings as one.

Exact: every vector of the conversations that are searched is looked at. What a vector says is believed only while the
message is there, says the same, and is on the branch: so what was changed or deleted is never found by an old one.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from heapq import heappush, heappushpop

from msgspec import Struct, structs

from hansard import rules
from hansard.analysis import Lookup, Match, analyse, searchable
from hansard.errors import Unavailable
from hansard.model import Conversation, Message
from hansard.requests import Context, MessageQuery
from hansard.search import scan, vectors
from hansard.search.vectors import Row
from hansard.store import vectoring
from hansard.store.core import View
from hansard.store.embedding import Embeddings

MOST = 100_000
"""Vectors that one search looks at."""
DEPTH = 100
"""How many messages a ranking by meaning has."""
SHARE = 0.5
"""How much of a query's weight a message must have to count by its words: `the` and `in` say little."""
_CANDIDATES = 1000
"""How many of the nearest are looked at for messages that pass the filters."""
_SETTLING = 5.0
_ASKING = 20.0

logger = logging.getLogger("hansard.embeddings")


class Candidate(Struct, frozen=True, order=True):
    score: float
    seq: int
    id: str
    digest: bytes
    conversation_id: str


class Nearest(Struct, frozen=True):
    found: list[tuple[float, Match]]
    complete: bool


async def nearest(view: View, context: Context, lookup: Lookup) -> Nearest:
    """The messages nearest to the query, the nearest first."""
    embeddings = need(view)
    text = lookup.query.text[: vectors.MOST_CHARACTERS].strip()
    if not text or not view.backend.capabilities.keeps:
        return Nearest([], True)
    (vector,) = await embeddings.embed([text], _ASKING)
    settled = await embeddings.settle(view.tenant, _SETTLING)
    shared = structs.replace(context, user=None)
    conversations: dict[str, Conversation] = {}
    best: list[Candidate] = []
    seen = 0
    async for conversation in scan.conversations(view.backend, context, lookup):
        conversations[conversation.id] = conversation
        async for rows in vectoring.chunks_of(view.backend, shared, conversation.id, embeddings.embedder.name):
            seen += len(rows)
            _take(best, rows, vector, conversation.id)
        if seen >= MOST:
            break
    found: list[tuple[float, Match]] = []
    async for candidate, message in _there(view, context, lookup, sorted(best, reverse=True)):
        found.append((round(candidate.score, 6), Match(conversations[candidate.conversation_id], message)))
        if len(found) == DEPTH:
            break
    return Nearest(found, settled and seen < MOST and (len(best) < _CANDIDATES or len(found) == DEPTH))


def need(view: View) -> Embeddings:
    view.need(view.embeddings is not None, "embeddings", "search by meaning without connect(url, embedder=…)")
    assert view.embeddings is not None
    return view.embeddings


def _take(best: list[Candidate], rows: list[Row], vector: bytes, conversation_id: str) -> None:
    usable = [row for row in rows if len(row.vector) == len(vector)]
    for row, score in zip(usable, vectors.scores(usable, vector), strict=True):
        if score > 0:
            candidate = Candidate(score, row.seq, row.id, row.digest, conversation_id)
            (heappush if len(best) < _CANDIDATES else heappushpop)(best, candidate)


async def _there(
    view: View, context: Context, lookup: Lookup, candidates: list[Candidate]
) -> AsyncIterator[tuple[Candidate, Message]]:
    """Those that are still what their vectors were made of, and pass the filters."""
    query = MessageQuery(
        branch=lookup.branch,
        limit=1,
        roles=lookup.roles,
        participant_ids=lookup.participant_ids,
        since=lookup.since,
        until=lookup.until,
    )
    excluded = lookup.query.excluded
    for each in candidates:
        message = await _message(view, context, each, query, anywhere=lookup.all_branches)
        if message is None or message.id != each.id or vectors.digest_of(vectors.text_of(message)) != each.digest:
            continue
        if excluded and any(clause.is_in(analyse(searchable(message))) for clause in excluded):
            continue
        yield each, message


async def _message(
    view: View, context: Context, candidate: Candidate, query: MessageQuery, *, anywhere: bool
) -> Message | None:
    id, seq = candidate.conversation_id, candidate.seq
    if anywhere:
        found = await view.backend.find_messages(context, id, [candidate.id])
        return next((each for each in found if rules.is_wanted(each, query)), None)
    place = structs.replace(query, above=(0, seq - 1), below=(0, seq + 1))
    taken = await view.backend.get_messages(context, id, place)
    return taken.messages[0] if taken.messages else None


async def hybrid(view: View, context: Context, lookup: Lookup, by_words: list[Match]) -> Nearest:
    """One ranking of both. Where the embedder fails, that of the words alone."""
    try:
        by_meaning = await nearest(view, context, lookup)
    except Unavailable as error:
        logger.warning("searched by words alone: %s", error)
        by_meaning = Nearest([], False)
    matches = {_name(each): each for each in (*by_words, *(match for _, match in by_meaning.found))}
    rankings = [[_name(each) for each in by_words[:DEPTH]], [_name(match) for _, match in by_meaning.found]]
    return Nearest([(round(score, 6), matches[name]) for score, name in vectors.fused(rankings)], by_meaning.complete)


def _name(match: Match) -> tuple[str, str]:
    return match.conversation.id, match.message.id
