"""The vectors of messages: computed in batches after the appends, without delaying any write.

A write only notes which chunks of a conversation it changed. A background task then compares each chunk with its
messages: it embeds messages that have no vector or one of another text, and deletes vectors of deleted messages. If the
embedder fails or hangs, that is logged and tried again later. Work that a process left unfinished is found by the next
one: each tenant has a position in the order of changes up to which everything is done, and each conversation the
version that its vectors belong to.

All of it is stored in records of the tenant:

- `("hansard", "vectors", conversation, embedder)`: one record for each chunk, by its number, and the record `state`
  with the `version` and `leases`: the chunks with messages in progress, and when to compare them again
- `("hansard", "embedding")`: one record for each embedder, with its position
"""

from __future__ import annotations

import asyncio
import logging
from array import array
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from hansard import rules
from hansard.contract.backend import Backend
from hansard.contract.types import Context, ConversationQuery, RecordWrite
from hansard.errors import Closed, Conflict, NotFound, TimedOut, Unavailable
from hansard.model import Conversation, Message, to_micros
from hansard.search import vectors
from hansard.search.vectors import CHUNK, Embedder, TextKind, VectorRow
from hansard.store import vector_records
from hansard.store.core import View
from hansard.store.view_indexes import ViewIndexes

if TYPE_CHECKING:
    from asyncio import Task


logger = logging.getLogger("hansard.embeddings")

_COMPARED_AT_ONCE = 64
"""Chunks that are compared before their missing vectors are computed."""
_MOST_WAITING = 10_000
"""Conversations that are remembered as waiting."""
_PAGE = 100
_GATHER = 0.01
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_OVERLAP, _LONG_OVERLAP = 5_000_000, 600_000_000
"""Microseconds before a position that are listed again; the second after a start.

Other processes' clocks may be behind.
"""

Key = tuple[str, str]
"""A tenant and a conversation."""


def embeddings_in(view: View, embedder: Embedder) -> Embeddings:
    """Returns the object that keeps the vectors of an embedder in the view's store."""
    capabilities = view.backend.capabilities
    view.require(capabilities.records or not capabilities.keeps, "records", "store vectors: it has no records")
    page = view.limits.page_bytes
    return Embeddings(view.backend, vectors.checked(embedder), view.clock, view.tasks, page)


class Refresh(Struct):
    """A chunk that was compared with its messages."""

    key: Key
    number: int
    revision: int
    kept: list[VectorRow]
    lacking: list[tuple[Message, str]]
    is_changed: bool
    is_part: bool = False
    """Some of its missing vectors are not computed yet."""


class Growing(Struct):
    """A conversation with messages in progress under a lease: their end may never be written."""

    updated_at: int
    leases: dict[int, int] = {}
    """For each chunk, the time in microseconds at which the last of its leases runs out."""


class Embeddings:
    """The vectors of one embedder, kept up to date. Shared by all views of a store."""

    def __init__(
        self,
        backend: Backend,
        embedder: Embedder,
        clock: Callable[[], datetime],
        tasks: set[Task[None]],
        page_bytes: int,
    ) -> None:
        self.embedder = embedder
        self.identity = vectors.identity(embedder)
        self.in_background = True
        """False where no event loop runs between the calls: then a search, or `embed`, does the work."""
        self.indexes = ViewIndexes(backend, self.identity, embedder.dimensions, tasks)
        self._backend = backend
        self._clock = clock
        self._tasks = tasks
        self._page_bytes = page_bytes
        self._task: Task[None] | None = None
        self._suspensions = 0
        """How many callers currently want no background task."""
        self._waiting: dict[Key, set[int] | None] = {}
        """Chunks to compare; None for all of the conversation."""
        self._seen: dict[Key, tuple[int, int]] = {}
        """The version of a conversation that is being compared, and when it was written, in microseconds."""
        self._growing: dict[Key, Growing] = {}
        self._to_list: set[str] = set()
        self._positions: dict[str, int] = {}
        self._accepted: set[str] = set()
        """Tenants without vectors of another version of the embedder."""
        self._done: Counter[str] = Counter()
        self._careful = 0
        """How many more times one text is embedded alone, after a failure."""
        self._turn = 0

    def context(self, tenant: str) -> Context:
        return Context(tenant, self._clock())

    # Noting

    def note(self, tenant: str, id: str, seqs: Iterable[int] | None) -> None:
        """Notes that these messages were written; None for any of the conversation."""
        if not self._backend.capabilities.keeps:
            return
        key = (tenant, id)
        if len(self._waiting) >= _MOST_WAITING and key not in self._waiting:
            # Too many to remember: list them again, from the stored position.
            self._positions.pop(tenant, None)
        elif seqs is None:
            self._waiting[key] = None
        elif (chunks := self._waiting.setdefault(key, set())) is not None:
            chunks.update(seq // CHUNK for seq in seqs)
        if tenant not in self._positions:
            self._to_list.add(tenant)
        self._wake_if_due()

    def start_over(self, tenant: str) -> None:
        """Lists everything again: copies bring their own times, which may be before the stored position."""
        self._positions[tenant] = vector_records.LONG_AGO
        self._to_list.add(tenant)
        self._wake_if_due()

    def _wake_if_due(self) -> None:
        if self.in_background and not self._suspensions and (self._to_list or self._waiting):
            self._wake()

    def _wake(self) -> Task[None]:
        loop = asyncio.get_running_loop()
        if self._task is None or self._task.done() or self._task.get_loop() is not loop:
            self._task = loop.create_task(self._work_in_background())
            self._tasks.add(self._task)
            self._task.add_done_callback(self._tasks.discard)
        return self._task

    async def refuse_other_versions(self, tenant: str) -> None:
        if tenant not in self._accepted:
            await vector_records.refuse_other_versions(self._backend, self.context(tenant), self.identity)
            self._accepted.add(tenant)

    async def wait_until_done(self, tenant: str, seconds: float) -> bool:
        """Waits up to `seconds` for work in progress; returns whether all of the tenant's messages have vectors."""
        self._to_list.add(tenant)
        done, _ = await asyncio.wait({self._wake()}, timeout=seconds)
        return bool(done) and not self._waiting and not self._to_list

    async def complete(self, tenant: str) -> int:
        """Computes all missing vectors and returns how many messages had none. Raises if it cannot."""
        before = self._done[tenant]
        self._to_list.add(tenant)
        async with self._suspended():
            while self._to_list or self._waiting:
                await self._step()
        return self._done[tenant] - before

    async def rebuild(self, tenant: str, *, forget_others: bool = False) -> AsyncIterator[int]:
        """Deletes the embedder's vectors of the tenant and computes them again; yields how many are done."""
        own = self.embedder.name
        async with self._suspended():
            await vector_records.delete_embedders(
                self._backend, self.context(tenant), lambda each: forget_others or vectors.name_of(each) == own
            )
            await vector_records.place_of(self._backend, self.context(tenant), self.identity)
            before = self._done[tenant]
            self.start_over(tenant)
            while self._to_list or self._waiting:
                await self._step()
                yield self._done[tenant] - before

    @asynccontextmanager
    async def _suspended(self) -> AsyncIterator[None]:
        """Suspends the background task."""
        self._suspensions += 1
        try:
            if self._task is not None and self._task.get_loop() is asyncio.get_running_loop():
                self._task.cancel()
                await asyncio.wait({self._task})
            yield
        finally:
            self._suspensions -= 1
            self._wake_if_due()

    # Working

    async def _work_in_background(self) -> None:
        pause = _FIRST_PAUSE
        await asyncio.sleep(_GATHER)
        while self._to_list or self._waiting:
            try:
                await self._step()
                pause = _FIRST_PAUSE
            except Closed:
                return
            except Exception as error:
                logger.warning("embedding continues in %g seconds: %s: %s", pause, type(error).__name__, error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

    async def _step(self) -> None:
        if self._to_list and len(self._waiting) < _MOST_WAITING:
            await self._list(next(iter(self._to_list)))
        else:
            await self._work()

    async def _list(self, tenant: str) -> None:
        """Notes the conversations of a tenant that were written since its position, and those whose leases ran out."""
        context = self.context(tenant)
        self._note_lapsed(context)
        place = self._positions.get(tenant)
        if place is None:
            place = await vector_records.place_of(self._backend, context, self.identity) - _LONG_OVERLAP
        are_ours_noted = tenant in self._positions
        query = ConversationQuery(archived=None, sort="updated_at", newest_first=False, limit=_PAGE)
        above, last, more = (place - _OVERLAP, ""), place, True
        while more and len(self._waiting) < _MOST_WAITING:
            page, more = await self._backend.list_conversations(context, structs.replace(query, above=above))
            await self._note_changed(context, page, are_ours_noted)
            if page:
                last = max(last, to_micros(page[-1].updated_at))
                above = (to_micros(page[-1].updated_at), page[-1].id)
        self._positions[tenant] = last
        if not more:
            self._to_list.discard(tenant)
            await self._save_position(tenant)

    async def _note_changed(self, context: Context, page: Sequence[Conversation], are_ours_noted: bool) -> None:
        keys = [(self._namespace(each.id), vector_records.STATE) for each in page]
        states = await self._backend.get_records(context, keys) if keys else []
        for conversation, state in zip(page, states, strict=True):
            version = state.value.get("version") if state is not None else None
            key = (context.tenant, conversation.id)
            if state is not None and state.value.get("leases") and key not in self._growing:
                leases = {int(chunk): until for chunk, until in state.value["leases"].items()}
                self._growing[key] = Growing(to_micros(conversation.updated_at), leases)
                self._note_lapsed(context)
            # This process has noted its own writes; after a start there may be others.
            if version != conversation.version and (conversation.message_count or state is not None):
                self._waiting[key] = self._waiting.get(key) if are_ours_noted else None

    def _note_lapsed(self, context: Context) -> None:
        now = to_micros(context.now)
        for key, growing in self._growing.items():
            due = {chunk for chunk, until in growing.leases.items() if until < now}
            if due and key[0] == context.tenant and (chunks := self._waiting.setdefault(key, set())) is not None:
                chunks |= due

    async def _work(self) -> None:
        """Compares some chunks, embeds what they lack, and writes them.

        After a failure it embeds one text at a time, in turn, so that a text that cannot be embedded stops no other.
        """
        looked: list[Refresh] = []
        lacking = 0
        most = 1 if self._careful else _COMPARED_AT_ONCE
        try:
            while lacking < BATCH and len(looked) < most and (picked := await self._pick()) is not None:
                looked.append(await self._compare(*picked))
                lacking += len(looked[-1].lacking)
            if self._careful and lacking > 1:
                self._turn += 1
                looked[0].lacking = [looked[0].lacking[self._turn % lacking]]
                looked[0].is_part = True
            texts = [text for each in looked for _, text in each.lacking]
            made = await vectors_of(self.embedder, texts, "passage")
            self._careful = max(0, self._careful - 1)
            while looked:
                size = len(looked[0].lacking)
                await self._write(looked[0], made[:size])
                looked, made = looked[1:], made[size:]
        except BaseException as error:
            if isinstance(error, Exception):
                self._careful = BATCH
            for each in looked:
                self._requeue(each.key, each.number)
            raise
        for tenant, id in list(self._seen):
            if self._waiting.get((tenant, id)) == set():
                await self._finish(tenant, id)

    async def _pick(self) -> tuple[Key, int] | None:
        """Removes the next chunk from the list and returns it."""
        for key in list(self._waiting):
            if key not in self._seen or self._waiting.get(key, set()) is None:
                image = await self._backend.read_image(self.context(key[0]), key[1])
                if image is None:
                    self._drop(key)
                    self._growing.pop(key, None)
                    continue
                self._seen[key] = image.conversation.version, to_micros(image.conversation.updated_at)
                if self._waiting.get(key, set()) is None:
                    self._waiting[key] = set(range(image.seq // CHUNK + 1))
            if chunks := self._waiting.get(key):
                number = min(chunks)
                chunks.discard(number)
                return key, number
        return None

    def _requeue(self, key: Key, number: int) -> None:
        """Puts a chunk at the end of the list, so that one that cannot be embedded does not block the others."""
        chunks = self._waiting.pop(key, set())
        if chunks is not None:
            chunks.add(number)
        self._waiting[key] = chunks

    def _drop(self, key: Key) -> None:
        self._waiting.pop(key, None)
        self._seen.pop(key, None)

    async def _compare(self, key: Key, number: int) -> Refresh:
        try:
            return await self._missing_vectors(key, number)
        except BaseException:
            self._requeue(key, number)
            raise

    async def _missing_vectors(self, key: Key, number: int) -> Refresh:
        tenant, id = key
        context = self.context(tenant)
        (record,) = await self._backend.get_records(context, [(self._namespace(id), vector_records.key_of(number))])
        rows = vectors.unpack(record.value, f"conversation {id!r}") if record is not None else []
        known = {row.seq: row for row in rows if vectors.is_readable(row.vector, self.embedder.dimensions)}
        kept: list[VectorRow] = []
        lacking: list[tuple[Message, str]] = []
        leases = [0]
        async for stored in self._messages(context, id, number):
            (message,) = rules.end_lapsed([stored], context.now)
            if (left := rules.time_left(message, context.now)) is not None:
                leases.append(to_micros(context.now + left))
            text = vectors.text_of(message)
            row = known.get(message.seq)
            if row is not None and row.id == message.id and row.digest == vectors.digest_of(text):
                kept.append(row)
            elif text:
                lacking.append((message, text))
        self._remember_lease(key, number, max(leases))
        revision = record.revision if record is not None else 0
        return Refresh(key, number, revision, kept, lacking, bool(lacking) or len(kept) != len(rows))

    def _remember_lease(self, key: Key, number: int, until: int) -> None:
        """Remembers when to compare a chunk again; 0 for never."""
        growing = self._growing.get(key)
        if until:
            if growing is None:
                growing = self._growing[key] = Growing(self._seen[key][1])
            growing.leases[number] = until
        elif growing is not None:
            growing.leases.pop(number, None)
            if not growing.leases:
                del self._growing[key]

    async def _messages(self, context: Context, id: str, number: int) -> AsyncIterator[Message]:
        after, end = max(number * CHUNK - 1, 0), (number + 1) * CHUNK
        while found := await self._backend.read_rows(context, id, after, end - after - 1, self._page_bytes):
            for row in found:
                if row.message.seq < end:
                    yield row.message
            after = found[-1].message.seq
            if after >= end - 1:
                return

    async def _write(self, refresh: Refresh, made: Sequence[array[float]]) -> None:
        if refresh.is_part:
            self._requeue(refresh.key, refresh.number)
        if not refresh.is_changed:
            return
        tenant, id = refresh.key
        fresh = [
            VectorRow(message.seq, message.id, vectors.digest_of(text), vectors.stored(vector), vectors.size_of(text))
            for (message, text), vector in zip(refresh.lacking, made, strict=True)
        ]
        rows = [*refresh.kept, *fresh]
        write = RecordWrite(
            self._namespace(id),
            vector_records.key_of(refresh.number),
            vectors.pack(rows),
            delete=not rows,
            expected_revision=refresh.revision,
            conversation_id=id,
        )
        context = self.context(tenant)
        try:
            await self._backend.write_records(context, [write])
        except Conflict:
            self._requeue(refresh.key, refresh.number)
            return
        except NotFound:
            self._drop(refresh.key)
            self._growing.pop(refresh.key, None)
            return
        self._done[tenant] += len(fresh)
        there = await self._backend.find_messages(context, id, [row.id for row in fresh])
        if len(there) < len(fresh):
            # Deleted while it was embedded: compare again, which removes its vector.
            self._requeue(refresh.key, refresh.number)

    async def _finish(self, tenant: str, id: str) -> None:
        """Stores that every message of a conversation has its vector, as of the version that was read before."""
        value: dict[str, Any] = {"version": self._seen[tenant, id][0]}
        if growing := self._growing.get((tenant, id)):
            value["leases"] = {str(chunk): until for chunk, until in growing.leases.items()}
        self._drop((tenant, id))
        write = RecordWrite(self._namespace(id), vector_records.STATE, value, conversation_id=id)
        try:
            await self._backend.write_records(self.context(tenant), [write])
        except NotFound:
            return
        await self._save_position(tenant)

    async def _save_position(self, tenant: str) -> None:
        """Stores the position once everything before it is done. It stays before messages in progress."""
        if tenant in self._positions and tenant not in self._to_list and all(key[0] != tenant for key in self._waiting):
            growing = (each.updated_at for key, each in self._growing.items() if key[0] == tenant)
            value = {"updated_at": min((self._positions[tenant], *growing))}
            await self._backend.write_records(
                self.context(tenant), [RecordWrite(vector_records.PLACES, self.identity, value)]
            )

    def _namespace(self, id: str) -> tuple[str, ...]:
        return vector_records.namespace(id, self.identity)


# Calling an embedder: in batches, with a time limit, and checking everything that it returns

BATCH = 64
"""Texts that the embedder receives at once."""
_BATCH_CHARACTERS = 16_000
"""Characters of a batch of several texts. A small model takes some three seconds for them, so that one on a machine
with twenty times the load still answers in time."""
PATIENCE = 60.0
"""Seconds that the embedder may take for a batch."""


async def vectors_of(
    embedder: Embedder, texts: Sequence[str], kind: TextKind, seconds: float | None = None
) -> list[array[float]]:
    """Returns the vectors of these texts. `Unavailable` if the embedder fails, hangs, or returns anything else."""
    made: list[array[float]] = []
    for batch in _batches(texts):
        made += await _call_embedder(embedder, batch, kind, PATIENCE if seconds is None else seconds)
    return made


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for text in texts:
        if batch and (len(batch) == BATCH or size + len(text) > _BATCH_CHARACTERS):
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += len(text)
    if batch:
        yield batch


async def _call_embedder(embedder: Embedder, texts: list[str], kind: TextKind, seconds: float) -> list[array[float]]:
    answer = asyncio.ensure_future(embedder(texts, kind))
    try:
        done, _ = await asyncio.wait({answer}, timeout=seconds)
    finally:
        answer.cancel()
    if not done:
        raise TimedOut(f"the embedder did not answer within {seconds:g} seconds", retryable=True, outcome="not_applied")
    try:
        found = list(answer.result())
        if len(found) != len(texts):
            raise ValueError(f"it returned {len(found)} vectors for {len(texts)} texts")
        return [vectors.unit(each, embedder.dimensions) for each in found]
    except asyncio.CancelledError as error:
        raise Unavailable("the embedder was cancelled", retryable=True, outcome="not_applied") from error
    except Exception as error:
        raise Unavailable(
            f"the embedder failed: {type(error).__name__}: {error}", retryable=True, outcome="not_applied"
        ) from error
