"""Search by meaning: the messages whose vectors are nearest to the query's.

Every vector of the conversations that are searched is compared, and every message is scored with its neighbours. From
`INDEXED` vectors on, they are held in memory (`view_indexes`) and not read for each search. There, only the nearest and
those next to them are scored. Up to `MOST` vectors, such an answer counts only if no other message can be among the
best; else all are read. Beyond, a message that its neighbours alone would lift can be missed.

A vector counts only if its message still exists, has the same text and is on the branch, so an outdated vector never
finds a changed or deleted message, and lends nothing to its neighbours.
"""

from __future__ import annotations

from array import array
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from heapq import heappush, heappushpop, nlargest

from msgspec import Struct, structs

from hansard import rules
from hansard.analysis import Clause, Lookup, Match, analyse, searchable
from hansard.contract.types import Context, MessageQuery
from hansard.executor import run_in_thread
from hansard.model import Conversation, Message
from hansard.search import scan, similarity, vector_index, vectors
from hansard.search.similarity import Similar
from hansard.search.vector_index import Candidates
from hansard.search.vectors import VectorRow
from hansard.store import marks, vector_records, view_indexes
from hansard.store.core import View
from hansard.store.embedder_task import Embeddings, vectors_of
from hansard.store.view_indexes import ViewIndex

MOST = 100_000
"""Vectors that one search reads from the store."""
INDEXED = 10_000
"""Vectors from which a view gets an index: reading more than these four megabytes again and again costs more."""
CANDIDATES = 1000
"""How many of the nearest are checked for messages that pass the filters."""
MORE_CANDIDATES = 8000
"""How many of an index, if of the first `CANDIDATES` too few pass."""
_BATCH = 50
_WAIT_SECONDS = 5.0
_ASKING = 20.0
_ROUNDED = 0.01
"""The most that the similarities of an index differ from ours: it compares with a query in bytes."""

Key = tuple[str, str]
"""A conversation and a message."""


class Nearest(Struct, frozen=True):
    """The messages nearest to a query, the nearest first."""

    found: list[tuple[float, Match]]
    complete: bool


def embeddings_of(view: View) -> Embeddings:
    view.require(view.embeddings is not None, "embeddings", "search by meaning without connect(url, embedder=…)")
    assert view.embeddings is not None
    return view.embeddings


async def nearest(view: View, context: Context, lookup: Lookup, wanted: int, also: Mapping[Key, int]) -> Nearest:
    """Returns the messages nearest to the query, at most as many as wanted, and in addition those of `also`.

    `also` has the seqs of these messages.
    """
    embeddings = embeddings_of(view)
    text = lookup.query.text[: vectors.MOST_CHARACTERS].strip()
    if not text or not view.backend.capabilities.keeps:
        return Nearest([], True)
    await embeddings.refuse_other_versions(view.tenant)
    (vector,) = await vectors_of(embeddings.embedder, [text], "query", _ASKING)
    is_done = await embeddings.wait_until_done(view.tenant, _WAIT_SECONDS)
    search = _Search(view, context, lookup, vector, wanted, also)
    scope = view_indexes.scope_of(context, lookup)
    index = embeddings.indexes.get(scope)
    found = None if index is None else await search.by_index(index)
    if found is None:
        found, seen = await search.from_store()
        if index is None and seen >= (INDEXED if vector_index.is_installed() else MOST):
            index = embeddings.indexes.add(scope, MOST)
            if index is not None and seen >= MOST:
                found = await search.by_index(index) or found
    return structs.replace(found, complete=found.complete and is_done)


class _Best(Struct, frozen=True):
    """The best of some candidates."""

    found: list[tuple[float, Match]]
    has_all: bool
    """They are as many as wanted, or all that there are."""


class _Search(Struct, frozen=True):
    """What is searched for, and the two ways to find it."""

    view: View
    context: Context
    lookup: Lookup
    vector: array[float]
    wanted: int
    also: Mapping[Key, int]

    async def from_store(self) -> tuple[Nearest, int]:
        """Compares the first `MOST` vectors; returns also how many there were."""
        identity = embeddings_of(self.view).identity
        compared = _Compared(self.lookup, self.vector, self.also, CANDIDATES)
        async for conversation in scan.conversations(self.view.backend, self.context, self.lookup):
            await compared.add(self.view, self.context, conversation, identity)
            if compared.seen >= MOST:
                break
        found = await compared.nearest(self.view, self.context, self.wanted)
        has_all = compared.seen < MOST and (len(compared.best) < CANDIDATES or compared.passed >= self.wanted)
        return Nearest(found, has_all), compared.seen

    async def by_index(self, index: ViewIndex) -> Nearest | None:
        """Returns None if the index is not made yet, or has few vectors, or of up to `MOST` not surely the nearest."""
        listed = scan.conversations(self.view.backend, self.context, self.lookup)
        conversations = {each.id: each async for each in listed}
        seconds = _WAIT_SECONDS if embeddings_of(self.view).in_background else None
        is_current = await index.refresh(self.context, self.lookup, conversations.values(), seconds)
        count = index.vectors.count(conversations)
        if not index.is_built or count < INDEXED:
            return None
        must_be_sure = count < MOST
        if must_be_sure and not (is_current and count == len(index) and not index.is_full):
            return None
        best = await self._best_of(index, conversations, CANDIDATES, must_be_sure=must_be_sure)
        if best is not None and not best.has_all and not must_be_sure:
            best = await self._best_of(index, conversations, MORE_CANDIDATES)
        if best is None:
            return None
        complete = is_current and not index.is_full and best.has_all
        return Nearest(best.found, complete)

    async def _best_of(
        self, index: ViewIndex, conversations: Mapping[str, Conversation], most: int, *, must_be_sure: bool = False
    ) -> _Best | None:
        """Returns the best of so many candidates; None if it must be sure that no other is better, and is not."""
        also: dict[str, set[int]] = {}
        for (id, _), seq in self.also.items():
            also.setdefault(id, set()).add(seq)
        compared = _Compared(self.lookup, self.vector, self.also, most)
        near = await run_in_thread(index.vectors.near, self.vector, most, conversations.keys(), also)
        await run_in_thread(compared.take_candidates, conversations, near)
        least = near.least + _ROUNDED if must_be_sure and not near.has_all else 0.0
        # Before the messages are read, which costs more.
        if least and (len(compared.best) < self.wanted or nlargest(self.wanted, compared.best)[-1].score < least):
            return None
        found = await compared.nearest(self.view, self.context, self.wanted)
        has_all = near.has_all or compared.passed >= self.wanted
        return None if least and not (has_all and compared.lowest >= least) else _Best(found, has_all)


class NearMessage(Struct, frozen=True, order=True):
    """A message and its score with all its neighbours."""

    score: float
    conversation_id: str
    seq: int


class _Compared:
    """The conversations whose vectors were compared."""

    def __init__(self, lookup: Lookup, vector: array[float], also: Collection[Key], most: int) -> None:
        self._lookup = lookup
        self._vector = vector
        self._also = also
        self._conversations: dict[str, Conversation] = {}
        self._rows: dict[str, dict[int, Similar]] = {}
        self._most = most
        self.best: list[NearMessage] = []
        """At most `most` of them."""
        self.seen = 0
        self.passed = 0
        """How many of the best pass the filters, of those that were checked."""
        self.lowest = 0.0
        """The lowest score of those that were checked."""
        self._wanted: list[NearMessage] = []
        """Those of `also`."""

    async def add(self, view: View, context: Context, conversation: Conversation, embedder: str) -> None:
        rows: list[VectorRow] = []
        shared = structs.replace(context, user=None)
        async for chunk in vector_records.chunks_of(view.backend, shared, conversation.id, embedder):
            rows += chunk
        if rows:
            self._conversations[conversation.id] = conversation
            await run_in_thread(self._take, conversation.id, rows)

    def _take(self, id: str, rows: list[VectorRow]) -> None:
        """CPU-bound: it runs in a thread."""
        usable = [row for row in rows if vectors.is_readable(row.vector, len(self._vector))]
        owns = vectors.scores(usable, self._vector)
        here = {
            row.seq: Similar(row.seq, row.id, row.digest, row.size, own) for row, own in zip(usable, owns, strict=True)
        }
        self.seen += len(usable)
        self._rank(id, here, here.keys())

    def take_candidates(self, conversations: Mapping[str, Conversation], near: Candidates) -> None:
        """CPU-bound: it runs in a thread."""
        for id, here in near.rows.items():
            if id in conversations:
                self._conversations[id] = conversations[id]
                self._rank(id, here, near.scored[id])

    def _rank(self, id: str, here: dict[int, Similar], seqs: Iterable[int]) -> None:
        self._rows[id] = here
        around = {} if self._lookup.all_branches else here
        made = [NearMessage(similarity.score(here[seq], around), id, seq) for seq in seqs]
        self._wanted += [each for each in made if (id, here[each.seq].id) in self._also]
        for each in made:
            if each.score > 0:
                (heappush if len(self.best) < self._most else heappushpop)(self.best, each)

    async def nearest(self, view: View, context: Context, wanted: int) -> list[tuple[float, Match]]:
        """Returns the best that are still stored and pass the filters, scored with the neighbours that do, too."""
        stored = _StoredMessages(view, context, self._lookup, self._rows)
        found: dict[NearMessage, tuple[float, Match]] = {}
        best = sorted(self.best, reverse=True)
        for at in range(0, len(best), _BATCH):
            if len(found) >= wanted:
                break
            self.lowest = best[min(at + _BATCH, len(best)) - 1].score
            async for each, message in stored.those_of(best[at : at + _BATCH]):
                if marks.passes((scored := self._scored(each, message, stored))[1], self._lookup):
                    found[each] = scored
        self.passed = len(found)
        async for each, message in stored.those_of([each for each in self._wanted if each not in found]):
            found[each] = self._scored(each, message, stored)
        return sorted(found.values(), key=lambda pair: (-pair[0], [-each for each in pair[1].position[:2]]))

    def _scored(self, each: NearMessage, message: Message, stored: _StoredMessages) -> tuple[float, Match]:
        here = self._rows[each.conversation_id]
        around = {} if self._lookup.all_branches else here
        score = similarity.score(here[each.seq], around, stored.present(each.conversation_id))
        return round(score, 6), Match(self._conversations[each.conversation_id], message)


class _StoredMessages:
    """The messages that are searched, of those whose vectors were compared."""

    def __init__(self, view: View, context: Context, lookup: Lookup, rows: Mapping[str, Mapping[int, Similar]]) -> None:
        self._backend = view.backend
        self._context = context
        self._rows = rows
        self._excluded = lookup.query.excluded
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
        self._read: dict[str, set[int]] = {}
        """The seqs that were read, by conversation."""
        self._found: dict[str, dict[int, Message]] = {}

    def present(self, id: str) -> Collection[int]:
        return self._found.get(id, {})

    async def those_of(self, candidates: Sequence[NearMessage]) -> AsyncIterator[tuple[NearMessage, Message]]:
        """Yields the candidates whose messages are searched; reads their neighbours with them."""
        wanted: dict[str, set[int]] = {}
        for each in candidates:
            wanted.setdefault(each.conversation_id, set()).update(similarity.neighbours(each.seq))
        for id, seqs in wanted.items():
            read = self._read.setdefault(id, set())
            await self._load(id, sorted((seqs & self._rows[id].keys()) - read))
            read |= seqs
        for each in candidates:
            message = self._found[each.conversation_id].get(each.seq)
            if message is not None:
                yield each, message

    async def _load(self, id: str, seqs: Sequence[int]) -> None:
        messages = rules.end_lapsed(await self._messages(id, seqs), self._context.now)
        found = await run_in_thread(_still_embedded, messages, self._rows[id], self._excluded)
        self._found.setdefault(id, {}).update(found)

    async def _messages(self, id: str, seqs: Sequence[int]) -> list[Message]:
        if self._all_branches or await self._is_alone(id):
            found = await self._backend.find_messages(self._context, id, [self._rows[id][seq].id for seq in seqs])
            return [message for message in found if rules.is_wanted(message, self._query)]
        # Whether a message is on the branch is known only by reading the branch.
        messages: list[Message] = []
        for first, last in _runs(seqs):
            place = structs.replace(self._query, above=(0, first - 1), below=(0, last + 1), limit=last - first + 1)
            messages += (await self._backend.get_messages(self._context, id, place)).messages
        return messages

    async def _is_alone(self, id: str) -> bool:
        """Whether the conversation has one branch that holds every message."""
        if id not in self._alone:
            self._alone[id] = (
                self._query.branch is None and len(await self._backend.list_branches(self._context, id)) == 1
            )
        return self._alone[id]


def _runs(seqs: Sequence[int]) -> list[tuple[int, int]]:
    """Returns the first and last of each run of consecutive numbers."""
    runs: list[tuple[int, int]] = []
    for seq in seqs:
        if runs and runs[-1][1] == seq - 1:
            runs[-1] = (runs[-1][0], seq)
        else:
            runs.append((seq, seq))
    return runs


def _still_embedded(
    messages: Sequence[Message], rows: Mapping[int, Similar], excluded: Sequence[Clause]
) -> dict[int, Message]:
    """Returns the messages that have the embedded text and contain no excluded term."""
    found = {}
    for message in messages:
        row = rows.get(message.seq)
        if row is None or row.id != message.id or vectors.digest_of(vectors.text_of(message)) != row.digest:
            continue
        if not (excluded and any(clause.is_in(analyse(searchable(message))) for clause in excluded)):
            found[message.seq] = message
    return found
