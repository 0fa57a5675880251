"""CrewAI's memory in records, blocking and async in one object.

A memory is a record whose namespace is its scope, label by label, and which includes its vector; a second record maps
its id to that namespace. A search compares the vector of every memory in the scope, exactly.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from math import sqrt
from operator import mul
from typing import Any, NamedTuple, cast

import msgspec
from crewai.memory.storage.backend import EmbeddingDimensionMismatchError
from crewai.memory.types import MemoryRecord, ScopeInfo

from hansard.adapters.blocking import Call
from hansard.errors import Conflict
from hansard.model import Record
from hansard.store import Store
from hansard.store.records import Delete, Put

MEMORIES = "crewai-memory"
PLACES = "crewai-memory-places"
SETTINGS = "crewai-memory-settings"


class StoredMemory(NamedTuple):
    memory: MemoryRecord
    namespace: tuple[str, ...]
    vector: Sequence[float]
    """Of length one; empty if the memory has none."""
    revision: int


class HansardMemoryStorage:
    """CrewAI's `StorageBackend`."""

    def __init__(self, store: Store, call: Call) -> None:
        self._store = store
        self._call = call

    # CrewAI's methods

    def save(self, records: list[MemoryRecord]) -> None:
        self._call(self.asave(records))

    def search(
        self,
        query_embedding: list[float],
        scope_prefix: str | None = None,
        categories: list[str] | None = None,
        metadata_filter: dict[str, Any] | None = None,
        limit: int = 10,
        min_score: float = 0.0,
    ) -> list[tuple[MemoryRecord, float]]:
        found = self._call(self.asearch(query_embedding, scope_prefix, categories, metadata_filter, limit, min_score))
        return cast("list[tuple[MemoryRecord, float]]", found)

    def delete(
        self,
        scope_prefix: str | None = None,
        categories: list[str] | None = None,
        record_ids: list[str] | None = None,
        older_than: datetime | None = None,
        metadata_filter: dict[str, Any] | None = None,
    ) -> int:
        return cast(int, self._call(self.adelete(scope_prefix, categories, record_ids, older_than, metadata_filter)))

    def update(self, record: MemoryRecord) -> None:
        """Replaces the memory of that id. Without a new vector it keeps its old one."""
        self._call(self.asave([record]))

    def touch_records(self, record_ids: list[str]) -> None:
        self._call(self._touch(record_ids))

    def get_record(self, record_id: str) -> MemoryRecord | None:
        found = self._call(self._by_id([record_id]))
        return found[0].memory if found else None

    def list_records(self, scope_prefix: str | None = None, limit: int = 200, offset: int = 0) -> list[MemoryRecord]:
        found = sorted(self._every(scope_prefix), key=lambda memory: _aware(memory.created_at), reverse=True)
        return found[offset : offset + limit]

    def get_scope_info(self, scope: str) -> ScopeInfo:
        memories = self._every(scope)
        times = sorted((memory.created_at for memory in memories), key=_aware)
        return ScopeInfo(
            path=_path(_labels(scope)),
            record_count=len(memories),
            categories=sorted({name for memory in memories for name in memory.categories}),
            oldest_record=times[0] if times else None,
            newest_record=times[-1] if times else None,
            child_scopes=_children(memories, scope),
        )

    def list_scopes(self, parent: str = "/") -> list[str]:
        return _children(self._every(parent), parent)

    def list_categories(self, scope_prefix: str | None = None) -> dict[str, int]:
        return dict(Counter(name for memory in self._every(scope_prefix) for name in memory.categories))

    def count(self, scope_prefix: str | None = None) -> int:
        return len(self._every(scope_prefix))

    def reset(self, scope_prefix: str | None = None) -> None:
        self._call(self._reset(scope_prefix))

    # Implementation

    async def asave(self, records: list[MemoryRecord]) -> None:
        """Saves memories, all or nothing. An existing one with the same id is replaced, whatever its scope."""
        if not records:
            return
        await self._check_length([len(record.embedding) for record in records if record.embedding])
        before = {found.memory.id: found for found in await self._by_id([record.id for record in records])}
        batch: list[Put | Delete] = []
        for record in {record.id: record for record in records}.values():
            old = before.get(record.id)
            namespace = (MEMORIES, *_labels(record.scope))
            if old is not None and old.namespace != namespace:
                batch.append(Delete(old.namespace, record.id))
            vector = _unit(record.embedding) if record.embedding else old.vector if old is not None else ()
            batch.append(Put(namespace, record.id, _packed(record, vector)))
            batch.append(Put((PLACES,), record.id, list(namespace)))
        await self._store.records.write(batch)

    async def asearch(
        self,
        query_embedding: list[float],
        scope_prefix: str | None = None,
        categories: list[str] | None = None,
        metadata_filter: dict[str, Any] | None = None,
        limit: int = 10,
        min_score: float = 0.0,
    ) -> list[tuple[MemoryRecord, float]]:
        """Returns the nearest memories by cosine similarity; negative similarities score 0."""
        await self._check_length([len(query_embedding)], is_new=False)
        query = _unit(query_embedding)
        scored = [
            (found.memory, sum(map(mul, query, found.vector)))
            async for found in self._scan(scope_prefix)
            if _fits(found.memory, categories, metadata_filter)
        ]
        scored.sort(key=lambda pair: pair[1], reverse=True)
        return [(memory, max(score, 0.0)) for memory, score in scored[:limit] if max(score, 0.0) >= min_score]

    async def adelete(
        self,
        scope_prefix: str | None = None,
        categories: list[str] | None = None,
        record_ids: list[str] | None = None,
        older_than: datetime | None = None,
        metadata_filter: dict[str, Any] | None = None,
    ) -> int:
        """Deletes the memories that match every given filter; without any filter, all."""
        if record_ids is not None:
            scope = _labels(scope_prefix)
            every = [each for each in await self._by_id(record_ids) if each.namespace[1 : len(scope) + 1] == scope]
        else:
            every = [each async for each in self._scan(scope_prefix)]
        unreachable = [
            each
            for each in every
            if _fits(each.memory, categories, metadata_filter)
            and (older_than is None or _aware(each.memory.created_at) < _aware(older_than))
        ]
        await self._drop(unreachable)
        return len(unreachable)

    async def _drop(self, unreachable: Iterable[StoredMemory]) -> None:
        batch: list[Put | Delete] = []
        for each in unreachable:
            batch += [Delete(each.namespace, each.memory.id), Delete((PLACES,), each.memory.id)]
        await self._store.records.write(batch)

    async def _reset(self, scope_prefix: str | None) -> None:
        await self._drop([each async for each in self._scan(scope_prefix)])
        if not _labels(scope_prefix):
            await self._store.records.delete((SETTINGS,), "vector")

    async def _touch(self, record_ids: Sequence[str]) -> None:
        now = datetime.now(UTC).replace(tzinfo=None)
        is_done = False
        while not is_done:
            # At the revision that was read: a memory deleted or replaced meanwhile must not be restored.
            batch = [
                Put(
                    each.namespace,
                    each.memory.id,
                    _packed(each.memory.model_copy(update={"last_accessed": now}), each.vector),
                    each.revision,
                )
                for each in await self._by_id(record_ids)
            ]
            with suppress(Conflict):
                await self._store.records.write(batch)
                is_done = True

    async def _by_id(self, ids: Sequence[str]) -> list[StoredMemory]:
        places = await self._store.records.get_many([((PLACES,), id) for id in dict.fromkeys(ids)]) if ids else []
        where = [(tuple(place.value), place.key) for place in places if place is not None]
        stored = await self._store.records.get_many(where) if where else []
        return [_found(record) for record in stored if record is not None]

    async def _scan(self, scope_prefix: str | None) -> AsyncIterator[StoredMemory]:
        async for record in self._store.records.iter((MEMORIES, *_labels(scope_prefix))):
            yield _found(record)

    def _every(self, scope_prefix: str | None) -> list[MemoryRecord]:
        async def read() -> list[MemoryRecord]:
            return [found.memory async for found in self._scan(scope_prefix)]

        return cast("list[MemoryRecord]", self._call(read()))

    async def _check_length(self, lengths: Sequence[int], *, is_new: bool = True) -> None:
        """Checks that all vectors of a store have the length of the first."""
        setting = await self._store.records.get((SETTINGS,), "vector")
        wanted = setting.value if setting is not None else (lengths[0] if lengths else 0)
        for length in lengths:
            if length != wanted:
                raise EmbeddingDimensionMismatchError(wanted, length)
        if is_new and setting is None and lengths:
            try:
                await self._store.records.put((SETTINGS,), "vector", wanted, expected_revision=0)
            except Conflict:
                await self._check_length(lengths)


def _labels(scope: str | None) -> tuple[str, ...]:
    return tuple(label for label in (scope or "").split("/") if label)


def _path(labels: Sequence[str]) -> str:
    return "/" + "/".join(labels)


def _children(memories: Iterable[MemoryRecord], parent: str | None) -> list[str]:
    depth = len(_labels(parent)) + 1
    return sorted({_path(labels[:depth]) for each in memories if len(labels := _labels(each.scope)) >= depth})


def _unit(vector: Sequence[float]) -> Sequence[float]:
    length = sqrt(sum(map(mul, vector, vector)))
    return array("f", [value / length for value in vector]) if length else array("f", vector)


def _packed(memory: MemoryRecord, vector: Sequence[float]) -> bytes:
    return msgspec.msgpack.encode([memory.model_dump(mode="json"), array("f", vector).tobytes()])


def _found(record: Record) -> StoredMemory:
    fields, data = msgspec.msgpack.decode(record.value, type=tuple[dict[str, Any], bytes])
    return StoredMemory(MemoryRecord.model_validate(fields), record.namespace, array("f", data), record.revision)


def _fits(memory: MemoryRecord, categories: list[str] | None, metadata: dict[str, Any] | None) -> bool:
    return (not categories or any(name in memory.categories for name in categories)) and all(
        memory.metadata.get(key) == value for key, value in (metadata or {}).items()
    )


def _aware(time: datetime) -> datetime:
    """CrewAI's times are in UTC but have no time zone."""
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
