"""Search by meaning: the messages whose vectors are nearest to the query's, and both rankings as one.

Exact: every vector of the conversations that are searched is looked at. What a vector says is believed only while the
message is there, says the same, and is on the branch: so what was changed or deleted is never found by an old one.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from heapq import heappush, heappushpop

from msgspec import Struct, structs

from hansard import rules
from hansard.analysis import Clause, Lookup, Match, analyse, searchable
from hansard.contract.types import Context, MessageQuery
from hansard.errors import Unavailable
from hansard.model import Conversation, Message
from hansard.search import asking, scan, vectors
from hansard.search.vectors import Row
from hansard.store import vectoring
from hansard.store.core import View
from hansard.store.embedding import Embeddings
from hansard.threads import aside

MOST = 100_000
"""Vectors that one search looks at."""
DEPTH = 100
"""How many messages a ranking by meaning has."""
SHARE = 0.5
"""How much of a query's weight a message must have to count by its words: `the` and `in` say little."""
_CANDIDATES = 1000
"""How many of the nearest are looked at for messages that pass the filters."""
_BATCH = 50
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


async def nearest(view: View, context: Context, lookup: Lookup, wanted: int = DEPTH) -> Nearest:
    """The messages nearest to the query, the nearest first, as many as are wanted."""
    embeddings = need(view)
    text = lookup.query.text[: vectors.MOST_CHARACTERS].strip()
    if not text or not view.backend.capabilities.keeps:
        return Nearest([], True)
    (vector,) = await asking.vectors_of(embeddings.embedder, [text], _ASKING)
    settled = await embeddings.settle(view.tenant, _SETTLING)
    shared = structs.replace(context, user=None)
    conversations: dict[str, Conversation] = {}
    best: list[Candidate] = []
    seen = 0
    async for conversation in scan.conversations(view.backend, context, lookup):
        conversations[conversation.id] = conversation
        async for rows in vectoring.chunks_of(view.backend, shared, conversation.id, embeddings.embedder.name):
            seen += len(rows)
            await aside(_take, best, rows, vector, conversation.id)
        if seen >= MOST:
            break
    found: list[tuple[float, Match]] = []
    async for candidate, message in _there(view, context, lookup, sorted(best, reverse=True)):
        found.append((round(candidate.score, 6), Match(conversations[candidate.conversation_id], message)))
        if len(found) == wanted:
            break
    return Nearest(found, settled and seen < MOST and (len(best) < _CANDIDATES or len(found) == wanted))


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
    """Those that are still what their vectors were made of, and pass the filters; in order, looked up in batches."""
    lines = Lines(view, context, lookup)
    for at in range(0, len(candidates), _BATCH):
        batch = candidates[at : at + _BATCH]
        messages = await lines.find(batch)
        for each in await aside(_believed, batch, messages, lookup.query.excluded):
            yield each, messages[each.conversation_id, each.id]


def _believed(
    candidates: Sequence[Candidate], messages: Mapping[tuple[str, str], Message], excluded: Sequence[Clause]
) -> list[Candidate]:
    """Those whose messages say what was embedded, and have nothing that is excluded."""
    found = []
    for each in candidates:
        message = messages.get((each.conversation_id, each.id))
        if message is None or vectors.digest_of(vectors.text_of(message)) != each.digest:
            continue
        if not (excluded and any(clause.is_in(analyse(searchable(message))) for clause in excluded)):
            found.append(each)
    return found


class Lines:
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

    async def find(self, candidates: Sequence[Candidate]) -> dict[tuple[str, str], Message]:
        wanted: dict[str, list[Candidate]] = {}
        for each in candidates:
            wanted.setdefault(each.conversation_id, []).append(each)
        found: dict[tuple[str, str], Message] = {}
        for id, here in wanted.items():
            for message in rules.settled(await self._of(id, here), self._context.now):
                found[id, message.id] = message
        return found

    async def _of(self, id: str, candidates: Sequence[Candidate]) -> list[Message]:
        if self._all_branches or await self._is_alone(id):
            ids = [each.id for each in candidates]
            found = await self._backend.find_messages(self._context, id, ids)
            return [message for message in found if rules.is_wanted(message, self._query)]
        # Only a read of the branch tells whether a message is on it.
        messages: list[Message] = []
        for each in candidates:
            place = structs.replace(self._query, above=(0, each.seq - 1), below=(0, each.seq + 1))
            messages += (await self._backend.get_messages(self._context, id, place)).messages
        return messages

    async def _is_alone(self, id: str) -> bool:
        """Whether the conversation has one branch, with every message on it."""
        if id not in self._alone:
            self._alone[id] = (
                self._query.branch is None and len(await self._backend.list_branches(self._context, id)) == 1
            )
        return self._alone[id]


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
