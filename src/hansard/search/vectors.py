"""Meaning as numbers: what an embedder is, how its vectors are stored, and how similar two are.

A vector is stored with unit length in 32-bit floats, with the id of its message and a digest of the embedded text. So
an outdated vector of a changed message is recognised. Vectors are stored in *chunks* of neighbouring messages, each a
record of the store: every backend can store them, and deletes and copies them with their conversation.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from hashlib import blake2b
from operator import mul
from typing import Any, Protocol, TypeVar, cast

import msgspec
from msgspec import Struct

from hansard.errors import Corrupt, ValidationError
from hansard.model import Message

CHUNK = 64
"""Messages of one chunk, by their seq."""
MOST_CHARACTERS = 8000
"""The first characters of a message that are embedded."""
RANK = 60
"""Dampens the advantage of the first ranks; the usual number."""

K = TypeVar("K", bound=Hashable)


class Embedder(Protocol):
    """Turns texts into vectors. A new `name` makes older vectors invalid."""

    @property
    def name(self) -> str: ...

    @property
    def dimensions(self) -> int: ...

    async def __call__(self, texts: Sequence[str]) -> Sequence[Sequence[float]]: ...


class Embedding:
    """An embedder made from an async function."""

    def __init__(
        self, function: Callable[[Sequence[str]], Awaitable[Sequence[Sequence[float]]]], *, name: str, dimensions: int
    ) -> None:
        self.name = name
        self.dimensions = dimensions
        self._function = function

    async def __call__(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        return await self._function(texts)


def checked(embedder: Any) -> Embedder:
    name, dimensions = getattr(embedder, "name", None), getattr(embedder, "dimensions", None)
    if not callable(embedder) or not isinstance(name, str) or not 0 < len(name.encode()) <= 256:
        raise ValidationError(
            "embedder must be an async callable with a name (text) and dimensions: wrap a function as "
            "hansard.search.Embedding(function, name=…, dimensions=…)"
        )
    if not isinstance(dimensions, int) or isinstance(dimensions, bool) or not 1 <= dimensions <= 65_536:
        raise ValidationError(f"the embedder's dimensions are {dimensions!r}: a whole number from 1 to 65536")
    return cast(Embedder, embedder)


# Messages


def text_of(message: Message) -> str:
    """Returns the text of a message, as it is read (`rules.end_lapsed`), to embed; nothing for one in progress."""
    from hansard.analysis import searchable  # imported late: deleting vectors needs no word tables

    return "" if message.status == "in_progress" else searchable(message)[:MOST_CHARACTERS].strip()


def digest_of(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()


# Vectors


def unit(vector: Iterable[float], dimensions: int) -> bytes:
    """Returns the vector as it is stored: of length 1, or zeros. `ValueError` if it is invalid or has another size."""
    try:
        numbers = [float(each) for each in vector]
    except TypeError as error:
        raise ValueError(f"a vector must be numbers: {error}") from error
    if len(numbers) != dimensions:
        raise ValueError(f"a vector has {len(numbers)} dimensions, and not the {dimensions} of the embedder")
    length = math.hypot(*numbers)
    if not math.isfinite(length):
        raise ValueError("a vector has a number that is not finite")
    return _bytes(array("f", [each / length for each in numbers] if length else numbers))


def _bytes(numbers: array[float]) -> bytes:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def numbers_of(data: bytes) -> array[float]:
    numbers = array("f")
    numbers.frombytes(data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


class VectorRow(Struct, frozen=True, array_like=True, gc=False):
    """The vector of one message."""

    seq: int
    id: str
    digest: bytes
    vector: bytes


class _VectorChunk(Struct, array_like=True):
    rows: list[VectorRow]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_VectorChunk).decode


def pack(rows: Iterable[VectorRow]) -> bytes:
    return _encode(_VectorChunk(sorted(rows, key=lambda row: row.seq)))


def unpack(value: object, where: str) -> list[VectorRow]:
    try:
        return _decode(value).rows  # type: ignore[arg-type]
    except (msgspec.DecodeError, TypeError) as error:
        raise Corrupt(f"the vectors of {where} cannot be read: run `hansard reindex`", where=where) from error


def scores(rows: Sequence[VectorRow], query: bytes) -> list[float]:
    """Returns how similar each vector is to the query's: 1 for the same direction, 0 for none."""
    if not rows:
        return []
    try:
        import numpy
    except ImportError:
        wanted = numbers_of(query)
        return [sum(map(mul, numbers_of(row.vector), wanted)) for row in rows]
    matrix = numpy.frombuffer(b"".join(row.vector for row in rows), dtype="<f4").reshape(len(rows), -1)
    return [float(each) for each in matrix @ numpy.frombuffer(query, dtype="<f4")]


# Fusion


def fused(rankings: Iterable[Sequence[K]]) -> list[tuple[float, K]]:
    """Combines several rankings by reciprocal rank: items near the top of several come first."""
    totals: dict[K, float] = {}
    for ranking in rankings:
        for at, key in enumerate(ranking, 1):
            totals[key] = totals.get(key, 0.0) + 1 / (RANK + at)
    return sorted(((score, key) for key, score in totals.items()), key=lambda pair: -pair[0])
