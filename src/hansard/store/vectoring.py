"""Where vectors lie among the records, and how they go: with their messages, whoever deletes those.

A process that deletes need not have an embedder. The records of `PLACES` say which embedders there are vectors of.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable

from msgspec import structs

from hansard.contract.backend import Backend
from hansard.contract.types import Context, RecordQuery, RecordWrite
from hansard.errors import Conflict
from hansard.model import Record
from hansard.search import vectors
from hansard.search.vectors import CHUNK, Row

VECTORS = ("hansard", "vectors")
PLACES = ("hansard", "embedding")
STATE = "state"
LONG_AGO = -(1 << 61)
_PAGE = 16
_TRIES = 100


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


async def chunks_of(backend: Backend, context: Context, id: str, embedder: str) -> AsyncIterator[list[Row]]:
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


async def forget(backend: Backend, context: Context, id: str, seqs: Collection[int] | None) -> None:
    """The vectors of messages that are gone; of the whole conversation, where it is not known which those are."""
    if not backend.capabilities.records or not backend.capabilities.keeps:
        return
    # Not the user's own space: vectors lie beside the messages.
    context = structs.replace(context, user=None)
    embedders = [record.key async for record in _records(backend, context, PLACES)]
    for embedder in embedders:
        if seqs is None:
            await _delete(backend, context, namespace(id, embedder))
        else:
            for chunk in {seq // CHUNK for seq in seqs}:
                await _thin_out(backend, context, id, embedder, chunk, seqs)


async def forget_missing(backend: Backend, context: Context, id: str) -> None:
    """The vectors of a conversation whose messages are not there, where only the storage knows which those are."""
    if not backend.capabilities.records or not backend.capabilities.keeps:
        return
    context = structs.replace(context, user=None)
    embedders = [record.key async for record in _records(backend, context, PLACES)]
    for embedder in embedders:
        async for rows in chunks_of(backend, context, id, embedder):
            there = {message.id for message in await backend.find_messages(context, id, [row.id for row in rows])}
            gone = {row.seq for row in rows if row.id not in there}
            if gone:
                await _thin_out(backend, context, id, embedder, rows[0].seq // CHUNK, gone)


def is_own_affair(record: Record) -> bool:
    """How far this store's embedding has come: of no meaning in another."""
    return record.namespace == PLACES or (record.namespace[:2] == VECTORS and record.key == STATE)


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


async def forget_embedders(backend: Backend, context: Context, is_meant: Callable[[str], bool]) -> None:
    """Every vector of a tenant that these embedders made, and how far they had come."""
    doomed: list[Record] = []
    async for record in _records(backend, context, VECTORS):
        if is_meant(record.namespace[-1]):
            doomed.append(record)
        if len(doomed) == _PAGE:
            await backend.write_records(context, _deletions(doomed))
            doomed.clear()
    doomed += [record async for record in _records(backend, context, PLACES) if is_meant(record.key)]
    if doomed:
        await backend.write_records(context, _deletions(doomed))


async def _delete(backend: Backend, context: Context, prefix: tuple[str, ...]) -> None:
    query = RecordQuery(prefix=prefix, limit=_PAGE)
    while (page := await backend.scan_records(context, query))[0]:
        await backend.write_records(context, _deletions(page[0]))


def _deletions(found: Iterable[Record]) -> list[RecordWrite]:
    return [RecordWrite(record.namespace, record.key, delete=True) for record in found]
