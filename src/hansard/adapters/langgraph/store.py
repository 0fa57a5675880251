"""LangGraph's long-term store in records, blocking and async in one object.

An item is a record at the same namespace, below a root of its own; namespaces are always tuples, so labels may contain
dots, as e-mail addresses do. Items expire exactly. With an index, the vectors of an item are in a second record and are
compared one by one.
"""

from __future__ import annotations

import copy
import operator
from array import array
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from math import sqrt
from typing import Any, Literal, NamedTuple, cast

import msgspec
from langgraph.store.base import (
    NOT_PROVIDED,
    BaseStore,
    GetOp,
    IndexConfig,
    Item,
    ListNamespacesOp,
    MatchCondition,
    NamespacePath,
    NotProvided,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    ensure_embeddings,
    get_text_at_path,
)

from hansard.adapters.blocking import Call
from hansard.adapters.history import value_of
from hansard.adapters.langgraph.namespaces import Namespace, check_labels, check_new, checked, conditions
from hansard.errors import ValidationError
from hansard.model import Record, from_micros, to_micros
from hansard.store import Store
from hansard.store.records import Delete, Put

ITEMS = "langgraph-store"
VECTORS = "langgraph-store-vectors"

Vectors = dict[tuple[Namespace, str], list[list[float]]]


class StoredItem(msgspec.Struct, frozen=True, array_like=True):
    """The record of an item. A read that renews its lifetime changes the record: then `updated_at` is stored here."""

    value: dict[str, Any]
    ttl: float | None = None
    updated_at: int | None = None


class HansardStore(BaseStore):
    """LangGraph's `BaseStore`."""

    supports_ttl = True
    ttl_config: TTLConfig | None = None

    def __init__(self, store: Store, call: Call) -> None:
        self._store = store
        self._call = call
        self._index: IndexConfig | None = None

    def indexed(self, index: IndexConfig) -> HansardStore:
        """Returns the same store with search by meaning: `search(…, query=…)`."""
        made = copy.copy(self)
        made._index = index
        return made

    # The two methods that LangGraph requires

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        ops = checked(ops)
        texts, queries = self._to_embed(ops), _queries(ops)
        vectors: list[list[float]] = []
        if self._index is not None and (texts or queries):
            embed = ensure_embeddings(self._index["embed"])
            vectors = embed.embed_documents([text for _, text in texts]) if texts else []
            vectors += [embed.embed_query(query) for query in queries]
        return cast("list[Result]", self._call(self._run_batch(ops, texts, queries, vectors)))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        ops = checked(ops)
        texts, queries = self._to_embed(ops), _queries(ops)
        vectors: list[list[float]] = []
        if self._index is not None and (texts or queries):
            embed = ensure_embeddings(self._index["embed"])
            vectors = await embed.aembed_documents([text for _, text in texts]) if texts else []
            vectors += [await embed.aembed_query(query) for query in queries]
        return await self._run_batch(ops, texts, queries, vectors)

    # Convenience methods, without the rule against dots

    def get(self, namespace: Namespace, key: str, *, refresh_ttl: bool | None = None) -> Item | None:
        return cast("Item | None", self.batch([self._get_op(namespace, key, refresh_ttl)])[0])

    async def aget(self, namespace: Namespace, key: str, *, refresh_ttl: bool | None = None) -> Item | None:
        return cast("Item | None", (await self.abatch([self._get_op(namespace, key, refresh_ttl)]))[0])

    def put(
        self,
        namespace: Namespace,
        key: str,
        value: Mapping[str, Any] | None,
        index: Literal[False] | list[str] | None = None,
        *,
        ttl: float | NotProvided | None = NOT_PROVIDED,
    ) -> None:
        self.batch([self._put_op(namespace, key, value, index, ttl)])

    async def aput(
        self,
        namespace: Namespace,
        key: str,
        value: Mapping[str, Any] | None,
        index: Literal[False] | list[str] | None = None,
        *,
        ttl: float | NotProvided | None = NOT_PROVIDED,
    ) -> None:
        await self.abatch([self._put_op(namespace, key, value, index, ttl)])

    def delete(self, namespace: Namespace, key: str) -> None:
        self.batch([_delete_op(namespace, key)])

    async def adelete(self, namespace: Namespace, key: str) -> None:
        await self.abatch([_delete_op(namespace, key)])

    def search(
        self,
        namespace_prefix: Namespace,
        /,
        *,
        query: str | None = None,
        filter: Mapping[str, Any] | None = None,
        limit: int = 10,
        offset: int = 0,
        refresh_ttl: bool | None = None,
    ) -> list[SearchItem]:
        op = self._search_op(namespace_prefix, query, filter, (limit, offset), refresh_ttl)
        return cast("list[SearchItem]", self.batch([op])[0])

    async def asearch(
        self,
        namespace_prefix: Namespace,
        /,
        *,
        query: str | None = None,
        filter: Mapping[str, Any] | None = None,
        limit: int = 10,
        offset: int = 0,
        refresh_ttl: bool | None = None,
    ) -> list[SearchItem]:
        op = self._search_op(namespace_prefix, query, filter, (limit, offset), refresh_ttl)
        return cast("list[SearchItem]", (await self.abatch([op]))[0])

    def list_namespaces(
        self,
        *,
        prefix: NamespacePath | None = None,
        suffix: NamespacePath | None = None,
        max_depth: int | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[Namespace]:
        op = ListNamespacesOp(conditions(prefix, suffix), max_depth, limit, offset)
        return cast("list[Namespace]", self.batch([op])[0])

    async def alist_namespaces(
        self,
        *,
        prefix: NamespacePath | None = None,
        suffix: NamespacePath | None = None,
        max_depth: int | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[Namespace]:
        op = ListNamespacesOp(conditions(prefix, suffix), max_depth, limit, offset)
        return cast("list[Namespace]", (await self.abatch([op]))[0])

    # Their operations, checked before they are batched

    def _get_op(self, namespace: Namespace, key: str, refresh_ttl: bool | None) -> GetOp:
        check_labels(namespace)
        return GetOp(namespace, str(key), self._renews(refresh_ttl))

    def _put_op(
        self,
        namespace: Namespace,
        key: str,
        value: Mapping[str, Any] | None,
        index: Literal[False] | list[str] | None,
        ttl: float | NotProvided | None,
    ) -> PutOp:
        """A value of None deletes the item."""
        check_new(namespace)
        return PutOp(namespace, str(key), None if value is None else dict(value), index, self._life(ttl))

    def _search_op(
        self,
        prefix: Namespace,
        query: str | None,
        filter: Mapping[str, Any] | None,
        page: tuple[int, int],
        refresh_ttl: bool | None,
    ) -> SearchOp:
        check_labels(prefix)
        limit, offset = page
        return SearchOp(prefix, dict(filter or {}), limit, offset, query, self._renews(refresh_ttl))

    def _renews(self, refresh_ttl: bool | None) -> bool:
        return (self.ttl_config or {}).get("refresh_on_read", True) if refresh_ttl is None else refresh_ttl

    def _life(self, ttl: float | NotProvided | None) -> float | None:
        return (self.ttl_config or {}).get("default_ttl") if isinstance(ttl, NotProvided) else ttl

    # Implementation

    async def _run_batch(
        self,
        ops: list[Op],
        texts: list[tuple[tuple[Namespace, str], str]],
        queries: list[str],
        vectors: list[list[float]],
    ) -> list[Result]:
        """Runs a batch. All reads see the state before the batch; of several puts of one key the last wins."""
        of_query = dict(zip(queries, vectors[len(texts) :], strict=False))
        results: list[Result] = []
        for op in ops:
            if isinstance(op, GetOp):
                results.append(await self._get(op))
            elif isinstance(op, SearchOp):
                results.append(await self._search(op, of_query.get(op.query or "")))
            elif isinstance(op, ListNamespacesOp):
                results.append(await self._namespaces(op))
            else:
                results.append(None)
        embedded: Vectors = {}
        for (place, _), vector in zip(texts, vectors, strict=False):
            embedded.setdefault(place, []).append(vector)
        puts = {(op.namespace, op.key): op for op in ops if isinstance(op, PutOp)}
        await self._put(list(puts.values()), embedded)
        return results

    async def _get(self, op: GetOp) -> Item | None:
        record = await self._store.records.get((ITEMS, *op.namespace), op.key)
        if record is None:
            return None
        if op.refresh_ttl:
            await self._renew([record])
        return _item(record)

    async def _renew(self, found: list[Record]) -> None:
        batch = []
        for record in found:
            stored = _stored_item(record)
            if stored.ttl is not None:
                value = [stored.value, stored.ttl, stored.updated_at or to_micros(record.updated_at)]
                batch.append(Put(record.namespace, record.key, value, expires_at=timedelta(minutes=stored.ttl)))
        await self._store.records.write(batch)

    async def _put(self, ops: list[PutOp], embedded: Vectors) -> None:
        batch: list[Put | Delete] = []
        for op in ops:
            place, vector_place = (ITEMS, *op.namespace), (VECTORS, *op.namespace)
            vectors = embedded.get((op.namespace, op.key))
            life = timedelta(minutes=op.ttl) if op.ttl is not None else None
            if op.value is None:
                batch.append(Delete(place, op.key))
            else:
                batch.append(Put(place, op.key, [op.value, op.ttl], expires_at=life))
            if vectors and op.value is not None:
                data = msgspec.msgpack.encode([array("f", vector).tobytes() for vector in vectors])
                batch.append(Put(vector_place, op.key, data, expires_at=life))
            else:
                batch.append(Delete(vector_place, op.key))
        await self._store.records.write(batch)

    async def _search(self, op: SearchOp, query: list[float] | None) -> list[SearchItem]:
        end = op.offset + op.limit
        found: list[Scored] = []
        async for record in self._store.records.iter((ITEMS, *op.namespace_prefix)):
            if matches(_stored_item(record).value, op.filter or {}):
                found.append(Scored(None, record))
                if query is None and len(found) == end:
                    break
        if query is not None:
            found = await self._ranked(found, query)
        page = found[op.offset : end]
        if op.refresh_ttl:
            await self._renew([each.record for each in page])
        return [_search_item(each) for each in page]

    async def _ranked(self, found: list[Scored], query: list[float]) -> list[Scored]:
        """Ranks by the nearest of each item's vectors; items without any come last."""
        places = [((VECTORS, *each.record.namespace[1:]), each.record.key) for each in found]
        stored = await self._store.records.get_many(places) if places else []
        scored = [
            Scored(_nearest(vector_record, query) if vector_record is not None else None, each.record)
            for each, vector_record in zip(found, stored, strict=True)
        ]
        return sorted(scored, key=lambda each: -2.0 if each.score is None else each.score, reverse=True)

    async def _namespaces(self, op: ListNamespacesOp) -> list[Namespace]:
        every = {record.namespace[1:] async for record in self._store.records.iter((ITEMS,))}
        wanted = {name for name in every if all(_fits(name, each) for each in op.match_conditions or ())}
        cut = {name[: op.max_depth] for name in wanted} if op.max_depth is not None else wanted
        return sorted(cut)[op.offset : op.offset + op.limit]

    def _to_embed(self, ops: Iterable[Op]) -> list[tuple[tuple[Namespace, str], str]]:
        """Returns the texts of the items to put that the index covers."""
        if self._index is None:
            return []
        puts = {(op.namespace, op.key): op for op in ops if isinstance(op, PutOp)}
        texts = []
        for place, op in puts.items():
            if op.value is not None and op.index is not False:
                paths = op.index if op.index is not None else (self._index.get("fields") or ["$"])
                texts += [(place, text) for path in paths for text in get_text_at_path(op.value, path)]
        return texts


def _delete_op(namespace: Namespace, key: str) -> PutOp:
    check_labels(namespace)
    return PutOp(namespace, str(key), None)


class Scored(NamedTuple):
    score: float | None
    record: Record


def _queries(ops: Iterable[Op]) -> list[str]:
    return list(dict.fromkeys(op.query for op in ops if isinstance(op, SearchOp) and op.query))


def _stored_item(record: Record) -> StoredItem:
    return value_of(record, StoredItem)


def _times(record: Record, stored: StoredItem) -> tuple[datetime, datetime]:
    return record.created_at, record.updated_at if stored.updated_at is None else from_micros(stored.updated_at)


def _item(record: Record) -> Item:
    stored = _stored_item(record)
    created, updated = _times(record, stored)
    return Item(
        value=stored.value, key=record.key, namespace=record.namespace[1:], created_at=created, updated_at=updated
    )


def _search_item(each: Scored) -> SearchItem:
    stored = _stored_item(each.record)
    created, updated = _times(each.record, stored)
    return SearchItem(each.record.namespace[1:], each.record.key, stored.value, created, updated, each.score)


def _nearest(vector_record: Record, query: list[float]) -> float:
    vectors = [array("f", data) for data in msgspec.msgpack.decode(vector_record.value, type=list[bytes])]
    return max((_cosine(vector, query) for vector in vectors), default=-1.0)


def _cosine(one: Iterable[float], other: Iterable[float]) -> float:
    dot = first = second = 0.0
    for left, right in zip(one, other, strict=True):
        dot, first, second = dot + left * right, first + left * left, second + right * right
    return dot / sqrt(first * second) if first and second else 0.0


def _fits(name: Namespace, condition: MatchCondition) -> bool:
    path = tuple(condition.path)
    part = name[: len(path)] if condition.match_type == "prefix" else name[max(len(name) - len(path), 0) :]
    return len(part) == len(path) and all(want in ("*", label) for want, label in zip(path, part, strict=True))


_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": operator.eq,
    "$ne": operator.ne,
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


def matches(value: Any, wanted: Any) -> bool:
    """Whether a value matches a filter: equal, an object that contains it, or by operators. None is not a number."""
    if isinstance(wanted, dict):
        if any(key.startswith("$") for key in wanted):
            return all(_compare(value, key, other) for key, other in wanted.items())
        return isinstance(value, dict) and all(matches(value.get(key), other) for key, other in wanted.items())
    if isinstance(wanted, list | tuple):
        return isinstance(value, list) and len(value) == len(wanted) and all(map(matches, value, wanted))
    return bool(value == wanted)


def _compare(value: Any, name: str, wanted: Any) -> bool:
    if name not in _OPERATORS:
        raise ValidationError(f"unknown operator {name!r} in a filter: one of {', '.join(_OPERATORS)}")
    if name in ("$eq", "$ne"):
        return bool(_OPERATORS[name](value, wanted))
    limit = _number(wanted)
    if limit is None:
        raise ValidationError(f"{name} in a filter compares numbers, and {wanted!r} is none")
    number = _number(value)
    return number is not None and bool(_OPERATORS[name](number, limit))


def _number(value: Any) -> float | None:
    """Returns a number, also of a text that is one, as LangGraph does."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None
