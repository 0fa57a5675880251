"""Many vectors in memory: the nearest are found by comparing all of them, in native code.

The vectors are signed bytes, as they are stored, so the nearest are exact. Comparing a million vectors of 384
dimensions takes 0.14 seconds of processor time. A graph of neighbours (HNSW) would compare fewer, but takes a
millisecond for each vector that is added, and misses some of the nearest: see "Many vectors" in
docs/reference/retrieval.md.

What is here may be outdated, so callers check every candidate against the store. A vector takes one byte for each
dimension, and about 60 bytes for its row, which is packed with those of its chunk.

Needs the extra `hansard[vectors]`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from hansard.search import similarity, vectors
from hansard.search.similarity import Similar
from hansard.search.vectors import CHUNK, VectorRow

if TYPE_CHECKING:
    from numpy import ndarray

    Matrix = ndarray[Any, Any]

_BLOCK = 65_536
"""Vectors of one matrix. With blocks, an index grows without being copied."""
_SEQ_BITS = 40
_FREE = -1
"""The key of a slot without a vector."""


def is_installed() -> bool:
    return find_spec("usearch") is not None and find_spec("numpy") is not None


@cache
def _exact_search() -> tuple[Callable[..., Any], Any]:
    """Returns usearch's function, and its measure of similarity."""
    if find_spec("onnxruntime") is not None:
        # If the library of usearch is loaded first, that of onnxruntime crashes the process when it is loaded.
        with suppress(ImportError):
            import onnxruntime  # noqa: F401
    from usearch.compiled import MetricKind
    from usearch.index import search

    return search, MetricKind.Cos


class Candidates(Struct, frozen=True):
    """Messages that may have the best scores, by conversation."""

    rows: dict[str, dict[int, Similar]]
    """The candidates, and the neighbours that their scores need."""
    scored: dict[str, set[int]]
    """The seqs of the candidates: those with the nearest vectors, and their neighbours."""
    has_all: bool
    """Whether every vector with a positive similarity was taken."""
    least: float = 0.0
    """The similarity of the last of the nearest. No message that is no candidate has a higher score: its own vector and
    those of its neighbours, of which a score is the mean, are no nearer."""


class _Chunk(Struct, frozen=True):
    """Rows of neighbouring messages: packed, without their vectors, and the slots of these."""

    packed: bytes
    slots: array[int]

    @property
    def rows(self) -> list[VectorRow]:
        return vectors.unpack(self.packed, "the index")


class VectorIndex:
    """The vectors of many conversations. Threads may share it; every method is CPU-bound."""

    def __init__(self, dimensions: int) -> None:
        self._dimensions = dimensions
        self._blocks: list[tuple[Matrix, Matrix]] = []
        """Vectors, and their keys: the number of the conversation and the seq of the message."""
        self._used = 0
        """Slots that have or had a vector."""
        self._free: list[int] = []
        self._numbers: dict[str, int] = {}
        self._ids: list[str] = []
        """Conversations by their number."""
        self._chunks: dict[str, dict[int, _Chunk]] = {}
        self._counts: dict[str, int] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        return self._used - len(self._free)

    def count(self, ids: Iterable[str]) -> int:
        """Returns how many vectors these conversations have here."""
        return sum(self._counts.get(id, 0) for id in ids)

    def conversations(self) -> set[str]:
        return set(self._chunks)

    # Changes

    def replace(self, id: str, rows: Iterable[VectorRow]) -> None:
        """Replaces the vectors of a conversation; without rows, removes it."""
        given: dict[int, list[VectorRow]] = {}
        for row in sorted(rows, key=lambda row: row.seq):
            if vectors.is_readable(row.vector, self._dimensions):
                given.setdefault(row.seq // CHUNK, []).append(row)
        with self._lock:
            held = self._chunks.pop(id, {})
            number = self._number(id)
            chunks = {}
            for at in held.keys() | given.keys():
                if chunk := self._changed_chunk(number, held.get(at), given.get(at, [])):
                    chunks[at] = chunk
            self._counts.pop(id, None)
            if chunks:
                self._chunks[id] = chunks
                self._counts[id] = sum(map(len, given.values()))

    def _number(self, id: str) -> int:
        if id not in self._numbers:
            self._numbers[id] = len(self._ids)
            self._ids.append(id)
        return self._numbers[id]

    def _changed_chunk(self, number: int, held: _Chunk | None, rows: list[VectorRow]) -> _Chunk | None:
        packed = vectors.pack(structs.replace(row, vector=b"") for row in rows)
        if held is not None:
            if held.packed == packed:
                return held
            for slot in held.slots:
                self._clear(slot)
        if not rows:
            return None
        return _Chunk(packed, array("q", [self._fill(number << _SEQ_BITS | row.seq, row.vector) for row in rows]))

    def _fill(self, key: int, vector: bytes) -> int:
        """Puts a vector into a slot, and returns that."""
        import numpy

        if self._free:
            slot = self._free.pop()
        else:
            slot, self._used = self._used, self._used + 1
            if slot == len(self._blocks) * _BLOCK:
                shape = (_BLOCK, self._dimensions)
                self._blocks.append((numpy.zeros(shape, numpy.int8), numpy.full(_BLOCK, _FREE, numpy.int64)))
        if len(vector) != self._dimensions:
            vector = vectors.stored(vectors.numbers_of(vector, self._dimensions))
        matrix, keys = self._blocks[slot // _BLOCK]
        matrix[slot % _BLOCK] = numpy.frombuffer(vector, numpy.int8)
        keys[slot % _BLOCK] = key
        return slot

    def _clear(self, slot: int) -> None:
        matrix, keys = self._blocks[slot // _BLOCK]
        matrix[slot % _BLOCK] = 0
        keys[slot % _BLOCK] = _FREE
        self._free.append(slot)

    # Searches

    def near(
        self, query: array[float], count: int, among: Collection[str], also: Mapping[str, Collection[int]]
    ) -> Candidates:
        """Returns the messages with the `count` nearest vectors, if they are in one of these conversations.

        Their neighbours are candidates, too, and so are those of `also`.
        """
        with self._lock:
            found, has_all, least = self._nearest(query, count)
            scored = {id: set(seqs) for id, seqs in also.items() if id in self._chunks}
            for key in found:
                id = self._ids[key >> _SEQ_BITS]
                if id in among:
                    scored.setdefault(id, set()).update(similarity.neighbours(key & (1 << _SEQ_BITS) - 1))
            rows = self._similar(query, scored)
        return Candidates(rows, {id: seqs & rows[id].keys() for id, seqs in scored.items()}, has_all, least)

    def _nearest(self, query: array[float], count: int) -> tuple[list[int], bool, float]:
        """Returns the keys of the nearest vectors, whether no others have a positive similarity, and the least one."""
        import numpy

        search, metric = _exact_search()
        wanted = numpy.frombuffer(vectors.stored(query), numpy.int8)
        distances, keys = [numpy.empty(0)], [numpy.empty(0, numpy.int64)]
        for at, (matrix, block_keys) in enumerate(self._blocks):
            size = min(_BLOCK, self._used - at * _BLOCK)
            found = search(matrix[:size], wanted, min(count, size), metric, exact=True, threads=1)
            distances.append(found.distances)
            keys.append(block_keys[found.keys.astype(numpy.int64)])
        order = numpy.argsort(numpy.concatenate(distances), kind="stable")[:count]
        all_keys, all_distances = numpy.concatenate(keys)[order], numpy.concatenate(distances)[order]
        has_all = len(order) < count or bool(all_distances[-1] >= 1.0)
        least = 1.0 - float(all_distances[-1]) if len(order) else 0.0
        return all_keys[(all_keys != _FREE) & (all_distances < 1.0)].tolist(), has_all, least

    def _similar(self, query: array[float], scored: Mapping[str, Collection[int]]) -> dict[str, dict[int, Similar]]:
        """Returns these messages and their neighbours."""
        rows = [(id, row) for id, seqs in scored.items() for row in self._around(id, seqs)]
        found: dict[str, dict[int, Similar]] = {id: {} for id in scored}
        for (id, row), own in zip(rows, vectors.scores([row for _, row in rows], query), strict=True):
            found[id][row.seq] = Similar(row.seq, row.id, row.digest, row.size, own)
        return found

    def _around(self, id: str, seqs: Collection[int]) -> Iterable[VectorRow]:
        wanted = {near for seq in seqs for near in similarity.neighbours(seq)}
        for at in {seq // CHUNK for seq in wanted} & self._chunks[id].keys():
            chunk = self._chunks[id][at]
            for row, slot in zip(chunk.rows, chunk.slots, strict=True):
                if row.seq in wanted:
                    yield structs.replace(row, vector=self._blocks[slot // _BLOCK][0][slot % _BLOCK].tobytes())
