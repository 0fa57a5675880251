"""Where vectors lie among the records, and how they go: with their messages, whoever deletes those.

A process that deletes need not have an embedder. The records of `PLACES` say which embedders there are vectors of.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

from msgspec import structs

from hansard.contract.backend import Backend
from hansard.contract.types import Context, RecordQuery, RecordWrite
from hansard.errors import Conflict, HansardError, Unavailable
from hansard.ids import new_id
from hansard.model import Record
from hansard.search import vectors
from hansard.search.vectors import CHUNK, VectorRow
from hansard.store.core import after_a_write

VECTORS = ("hansard", "vectors")
PLACES = ("hansard", "embedding")
STALE = ("hansard", "stale")
STATE = "state"
LONG_AGO = -(1 << 61)
_PAGE = 16
_TRIES = 100
_LONGEST_REMOVAL = timedelta(hours=1)
"""After this time a removal that has not ended was cut off."""


def namespace(id: str, embedder: str) -> tuple[str, ...]:
    return (*VECTORS, id, embedder)


def key_of(chunk: int) -> str:
    return f"{chunk:08d}"


async def place_of(backend: Backend, context: Context, embedder: str) -> int:
    """Up to which time of change everything has its vector, in microseconds; long ago when nothing has.

    From now on whoever deletes messages knows of the embedder.
    """
    (record,) = await backend.get_records(context, [(PLACES, embedder)])
    if record is not None:
        return int(record.value["updated_at"])
    await backend.write_records(context, [RecordWrite(PLACES, embedder, {"updated_at": LONG_AGO})])
    return LONG_AGO


async def chunks_of(backend: Backend, context: Context, id: str, embedder: str) -> AsyncIterator[list[VectorRow]]:
    """The vectors of a conversation, chunk by chunk."""
    async for record in _records(backend, context, namespace(id, embedder)):
        if record.key != STATE:
            yield vectors.unpack(record.value, f"conversation {id!r}")


async def _records(backend: Backend, context: Context, prefix: tuple[str, ...]) -> AsyncIterator[Record]:
    query = RecordQuery(prefix=prefix, limit=_PAGE)
    more = True
    while more:
        page, more = await backend.scan_records(context, query)
        for record in page:
            yield record
        if page:
            query = structs.replace(query, after=(page[-1].namespace, page[-1].key))


# --- forgetting -------------------------------------------------------------------------------------------------------


class Removal:
    """Messages of one conversation are about to go, and their vectors after them.

    Those are two writes. The mark that stands from before the first until after the second tells later callers that
    vectors may have been left behind. Only an embedder that was there before the first write can have made them: one
    that comes later looks after each write whether the messages are still there.
    """

    def __init__(self, backend: Backend, context: Context, id: str, embedders: Sequence[str]) -> None:
        self._backend = backend
        self._context = context
        self._id = id
        self._embedders = embedders
        self.has_removed = False
        """The messages are gone, and their vectors are being deleted."""

    async def begin(self) -> None:
        self._mark = ((*STALE, self._id), new_id("removal_"))
        mark = RecordWrite(*self._mark, True, conversation_id=self._id)
        await self._backend.write_records(self._context, [mark])

    async def end(self) -> None:
        await self._backend.write_records(self._context, [RecordWrite(*self._mark, delete=True)])

    async def forget(self, seqs: Collection[int] | None) -> None:
        """Deletes the vectors of these messages; of the whole conversation, where it is not known which those are."""
        self.has_removed = True
        with after_a_write():
            for embedder in self._embedders:
                await self._forget(embedder, seqs)

    async def _forget(self, embedder: str, seqs: Collection[int] | None) -> None:
        if seqs is None:
            await _delete(self._backend, self._context, namespace(self._id, embedder))
        else:
            for chunk in {seq // CHUNK for seq in seqs}:
                await _thin_out(self._backend, self._context, self._id, embedder, chunk, seqs)

    async def forget_missing(self) -> None:
        """Deletes the vectors whose messages are not there."""
        self.has_removed = True
        with after_a_write():
            for embedder in self._embedders:
                await _forget_missing(self._backend, self._context, self._id, embedder)


@asynccontextmanager
async def removal(backend: Backend, context: Context, id: str) -> AsyncIterator[Removal]:
    """Around the removal of messages: what was removed is forgotten inside.

    First it makes up for removals of the same conversation that were cut off.
    """
    own = structs.replace(context, user=None)  # vectors lie beside the messages, not in the user's own space
    embedders = await _embedders(backend, own)
    if not embedders or await backend.get_conversation(context, id) is None:
        yield Removal(backend, own, id, ())
        return
    await settle(backend, own, id)
    removal = Removal(backend, own, id, embedders)
    await removal.begin()
    try:
        yield removal
    except HansardError as error:
        is_refused = not isinstance(error, Unavailable) or error.outcome == "not_applied"
        if is_refused and not removal.has_removed:
            await removal.end()
        raise
    with after_a_write():
        await removal.end()


async def settle(backend: Backend, context: Context, id: str | None = None) -> None:
    """Makes up for removals that were cut off, in a conversation or in the whole tenant."""
    context = structs.replace(context, user=None)
    embedders = await _embedders(backend, context)
    if not embedders:
        return
    marks = [record async for record in _records(backend, context, STALE if id is None else (*STALE, id))]
    for each in {record.namespace[-1] for record in marks}:
        for embedder in embedders:
            await _forget_missing(backend, context, each, embedder)
    # The mark of a removal that is still under way must stay.
    old = [record for record in marks if record.created_at < context.now - _LONGEST_REMOVAL]
    if old:
        await backend.write_records(context, _deletions(old))


async def forget(backend: Backend, context: Context, id: str, seqs: Collection[int]) -> None:
    """Deletes the vectors of messages whose content has changed."""
    context = structs.replace(context, user=None)
    embedders = await _embedders(backend, context)
    if embedders:
        await Removal(backend, context, id, embedders).forget(seqs)


async def _embedders(backend: Backend, context: Context) -> list[str]:
    capabilities = backend.capabilities
    if not (capabilities.records and capabilities.keeps):
        return []
    return [record.key async for record in _records(backend, context, PLACES)]


async def _forget_missing(backend: Backend, context: Context, id: str, embedder: str) -> None:
    async for rows in chunks_of(backend, context, id, embedder):
        there = {message.id for message in await backend.find_messages(context, id, [row.id for row in rows])}
        gone = {row.seq for row in rows if row.id not in there}
        if gone:
            await _thin_out(backend, context, id, embedder, rows[0].seq // CHUNK, gone)


def is_own_affair(record: Record) -> bool:
    """How far this store's embedding has come: of no meaning in another."""
    if record.namespace[:2] == VECTORS:
        return record.key == STATE
    return record.namespace == PLACES or record.namespace[:2] == STALE


def is_derived(record: Record) -> bool:
    return record.namespace[:2] == VECTORS


async def _thin_out(
    backend: Backend, context: Context, id: str, embedder: str, chunk: int, seqs: Collection[int]
) -> None:
    where = (namespace(id, embedder), key_of(chunk))
    for _ in range(_TRIES):
        (record,) = await backend.get_records(context, [where])
        if record is None:
            return
        rows = vectors.unpack(record.value, f"conversation {id!r}")
        left = [row for row in rows if row.seq not in seqs]
        if len(left) == len(rows):
            return
        write = RecordWrite(
            *where,
            vectors.pack(left),
            delete=not left,
            expected_revision=record.revision,
            conversation_id=record.conversation_id,
        )
        try:
            await backend.write_records(context, [write])
        except Conflict:
            continue  # somebody embeds in this chunk just now
        return
    raise Unavailable(f"others keep changing the vectors of conversation {id!r}: try again")


async def forget_embedders(backend: Backend, context: Context, is_meant: Callable[[str], bool]) -> None:
    """Every vector of a tenant that these embedders made, and how far they had come."""
    unreachable: list[Record] = []
    async for record in _records(backend, context, VECTORS):
        if is_meant(record.namespace[-1]):
            unreachable.append(record)
        if len(unreachable) == _PAGE:
            await backend.write_records(context, _deletions(unreachable))
            unreachable.clear()
    unreachable += [record async for record in _records(backend, context, PLACES) if is_meant(record.key)]
    if unreachable:
        await backend.write_records(context, _deletions(unreachable))


async def _delete(backend: Backend, context: Context, prefix: tuple[str, ...]) -> None:
    query = RecordQuery(prefix=prefix, limit=_PAGE)
    while (page := await backend.scan_records(context, query))[0]:
        await backend.write_records(context, _deletions(page[0]))


def _deletions(found: Iterable[Record]) -> list[RecordWrite]:
    return [RecordWrite(record.namespace, record.key, delete=True) for record in found]
