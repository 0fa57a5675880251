"""The records that hold vectors, and how vectors are deleted together with their messages.

A process that deletes messages need not have an embedder: the records of `PLACES` tell which embedders have vectors
here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

from msgspec import structs

from hansard.contract.backend import Backend
from hansard.contract.types import Context, RecordQuery, RecordWrite
from hansard.errors import Conflict, FormatMismatch, HansardError, Unavailable
from hansard.ids import new_id
from hansard.model import Record
from hansard.search import vectors
from hansard.search.vectors import CHUNK, VectorRow
from hansard.store.core import outcome_unknown_on_failure

VECTORS = ("hansard", "vectors")
PLACES = ("hansard", "embedding")
STALE = ("hansard", "stale")
STATE = "state"
LONG_AGO = -(1 << 61)
_PAGE = 16
_TRIES = 100
_LONGEST_REMOVAL = timedelta(hours=1)
"""A removal that has not ended after this time was interrupted."""


def namespace(id: str, embedder: str) -> tuple[str, ...]:
    return (*VECTORS, id, embedder)


def key_of(chunk: int) -> str:
    return f"{chunk:08d}"


async def place_of(backend: Backend, context: Context, embedder: str) -> int:
    """Returns the time of change up to which everything has its vector, in microseconds; long ago if nothing has.

    From now on, processes that delete messages know of the embedder. `FormatMismatch` if there are vectors of another
    version of it.
    """
    await refuse_other_versions(backend, context, embedder)
    (record,) = await backend.get_records(context, [(PLACES, embedder)])
    if record is not None:
        return int(record.value["updated_at"])
    await backend.write_records(context, [RecordWrite(PLACES, embedder, {"updated_at": LONG_AGO})])
    return LONG_AGO


async def refuse_other_versions(backend: Backend, context: Context, embedder: str) -> None:
    name = vectors.name_of(embedder)
    for other in await _embedders(backend, context):
        if other != embedder and vectors.name_of(other) == name:
            raise FormatMismatch(
                f"this store has vectors of {other}, and the embedder is {embedder}: run "
                "`hansard reindex --embedder …` with this one, or use the other one",
                found=other,
                wanted=embedder,
            )


async def chunks_of(backend: Backend, context: Context, id: str, embedder: str) -> AsyncIterator[list[VectorRow]]:
    """Yields the vectors of a conversation, chunk by chunk."""
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


# Deletion


class Removal:
    """The removal of messages of one conversation, followed by that of their vectors.

    Those are two writes. A marker record, written before the first and deleted after the second, tells later callers
    that vectors may have been left behind. Only an embedder that existed before the first write can have made them: a
    later one checks after each write whether the messages still exist.
    """

    def __init__(self, backend: Backend, context: Context, id: str, embedders: Sequence[str]) -> None:
        self._backend = backend
        self._context = context
        self._id = id
        self._embedders = embedders
        self.has_removed = False
        """The messages are gone, and their vectors are being deleted."""

    async def write_marker(self) -> None:
        self._mark = ((*STALE, self._id), new_id("removal_"))
        mark = RecordWrite(*self._mark, True, conversation_id=self._id)
        await self._backend.write_records(self._context, [mark])

    async def delete_marker(self) -> None:
        await self._backend.write_records(self._context, [RecordWrite(*self._mark, delete=True)])

    async def delete_vectors(self, seqs: Collection[int] | None) -> None:
        """Deletes the vectors of these messages; None deletes those of the whole conversation."""
        self.has_removed = True
        with outcome_unknown_on_failure():
            for embedder in self._embedders:
                await self._delete_of_embedder(embedder, seqs)

    async def _delete_of_embedder(self, embedder: str, seqs: Collection[int] | None) -> None:
        if seqs is None:
            await _delete(self._backend, self._context, namespace(self._id, embedder))
        else:
            for chunk in {seq // CHUNK for seq in seqs}:
                await _delete_from_chunk(self._backend, self._context, self._id, embedder, chunk, seqs)

    async def delete_missing(self) -> None:
        """Deletes the vectors whose messages no longer exist."""
        self.has_removed = True
        with outcome_unknown_on_failure():
            for embedder in self._embedders:
                await _delete_missing(self._backend, self._context, self._id, embedder)


@asynccontextmanager
async def removal(backend: Backend, context: Context, id: str) -> AsyncIterator[Removal]:
    """Surrounds the removal of messages; callers delete the vectors inside it.

    First it finishes earlier removals in the same conversation that were interrupted.
    """
    own = structs.replace(context, user=None)  # vectors belong to the conversation, not to the user's own records
    embedders = await _embedders(backend, own)
    if not embedders or await backend.get_conversation(context, id) is None:
        yield Removal(backend, own, id, ())
        return
    await finish_interrupted(backend, own, id)
    removal = Removal(backend, own, id, embedders)
    await removal.write_marker()
    try:
        yield removal
    except HansardError as error:
        is_refused = not isinstance(error, Unavailable) or error.outcome == "not_applied"
        if is_refused and not removal.has_removed:
            await removal.delete_marker()
        raise
    with outcome_unknown_on_failure():
        await removal.delete_marker()


async def finish_interrupted(backend: Backend, context: Context, id: str | None = None) -> None:
    """Finishes removals that were interrupted, in a conversation or in the whole tenant."""
    context = structs.replace(context, user=None)
    embedders = await _embedders(backend, context)
    if not embedders:
        return
    markers = [record async for record in _records(backend, context, STALE if id is None else (*STALE, id))]
    for each in {record.namespace[-1] for record in markers}:
        for embedder in embedders:
            await _delete_missing(backend, context, each, embedder)
    # The marker of a removal in progress must stay.
    old = [record for record in markers if record.created_at < context.now - _LONGEST_REMOVAL]
    if old:
        await backend.write_records(context, _deletions(old))


async def delete_vectors(backend: Backend, context: Context, id: str, seqs: Collection[int]) -> None:
    """Deletes the vectors of messages whose content has changed."""
    context = structs.replace(context, user=None)
    embedders = await _embedders(backend, context)
    if embedders:
        await Removal(backend, context, id, embedders).delete_vectors(seqs)


async def _embedders(backend: Backend, context: Context) -> list[str]:
    capabilities = backend.capabilities
    if not (capabilities.records and capabilities.keeps):
        return []
    return [record.key async for record in _records(backend, context, PLACES)]


async def _delete_missing(backend: Backend, context: Context, id: str, embedder: str) -> None:
    async for rows in chunks_of(backend, context, id, embedder):
        there = {message.id for message in await backend.find_messages(context, id, [row.id for row in rows])}
        gone = {row.seq for row in rows if row.id not in there}
        if gone:
            await _delete_from_chunk(backend, context, id, embedder, rows[0].seq // CHUNK, gone)


def is_embedding_progress(record: Record) -> bool:
    """Whether the record stores the progress of this store's embedder, which means nothing in another store."""
    if record.namespace[:2] == VECTORS:
        return record.key == STATE
    return record.namespace == PLACES or record.namespace[:2] == STALE


def is_derived(record: Record) -> bool:
    return record.namespace[:2] == VECTORS


async def _delete_from_chunk(
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
            continue  # another process is writing this chunk
        return
    raise Unavailable(f"other processes keep changing the vectors of conversation {id!r}: try again")


async def delete_embedders(backend: Backend, context: Context, is_meant: Callable[[str], bool]) -> None:
    """Deletes every vector of these embedders in a tenant, and their progress."""
    batch: list[Record] = []
    async for record in _records(backend, context, VECTORS):
        if is_meant(record.namespace[-1]):
            batch.append(record)
        if len(batch) == _PAGE:
            await backend.write_records(context, _deletions(batch))
            batch.clear()
    batch += [record async for record in _records(backend, context, PLACES) if is_meant(record.key)]
    if batch:
        await backend.write_records(context, _deletions(batch))


async def _delete(backend: Backend, context: Context, prefix: tuple[str, ...]) -> None:
    query = RecordQuery(prefix=prefix, limit=_PAGE)
    while (page := await backend.scan_records(context, query))[0]:
        await backend.write_records(context, _deletions(page[0]))


def _deletions(found: Iterable[Record]) -> list[RecordWrite]:
    return [RecordWrite(record.namespace, record.key, delete=True) for record in found]
