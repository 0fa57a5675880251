"""Meaning as numbers: what an embedder is, how its vectors are stored, and how similar two are.

A vector is stored as a direction in one byte for each dimension, with the id of its message and a digest of the
embedded text. So an outdated vector of a changed message is recognised. Vectors are stored in *chunks* of neighbouring
messages, each a record of the store: every backend can store them, and deletes and copies them with their conversation.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Awaitable, Callable, Iterable, Sequence
from hashlib import blake2b
from operator import mul
from typing import Any, Literal, Protocol, cast

import msgspec
from msgspec import Struct

from hansard.errors import Corrupt, ValidationError
from hansard.model import Message

CHUNK = 64
"""Messages of one chunk, by their seq."""
MOST_CHARACTERS = 8000
"""The first characters of a message that are embedded."""

TextKind = Literal["passage", "query"]
"""A stored message, or what somebody searches for: many models want different prefixes for the two."""


class Embedder(Protocol):
    """Turns texts into vectors.

    Vectors of different names are stored side by side. If the same name makes other vectors than before, `version` must
    change: a store refuses to compare vectors of two versions.
    """

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def dimensions(self) -> int: ...

    async def __call__(self, texts: Sequence[str], kind: TextKind) -> Sequence[Sequence[float]]: ...


class Embedding:
    """An embedder made from an async function of texts. The prefixes are put before the texts of each kind."""

    def __init__(
        self,
        function: Callable[[Sequence[str]], Awaitable[Sequence[Sequence[float]]]],
        *,
        name: str,
        dimensions: int,
        version: str = "1",
        query_prefix: str = "",
        passage_prefix: str = "",
    ) -> None:
        self.name = name
        self.version = version
        self.dimensions = dimensions
        self._function = function
        self._prefixes = {"query": query_prefix, "passage": passage_prefix}

    async def __call__(self, texts: Sequence[str], kind: TextKind) -> Sequence[Sequence[float]]:
        prefix = self._prefixes[kind]
        return await self._function([prefix + text for text in texts] if prefix else texts)


def checked(embedder: Any) -> Embedder:
    if not callable(embedder) or not _is_label(getattr(embedder, "name", None)):
        raise ValidationError(
            "embedder must be an async callable with a name (text) and dimensions: wrap a function as "
            "hansard.search.Embedding(function, name=…, dimensions=…)"
        )
    version, dimensions = getattr(embedder, "version", None), getattr(embedder, "dimensions", None)
    if not _is_label(version) or "@" in cast(str, version):
        raise ValidationError(f"the embedder's version is {version!r}: a short text without @, such as '1'")
    if not isinstance(dimensions, int) or isinstance(dimensions, bool) or not 1 <= dimensions <= 65_536:
        raise ValidationError(f"the embedder's dimensions are {dimensions!r}: a whole number from 1 to 65536")
    return cast(Embedder, embedder)


def _is_label(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value.encode("utf-8", "surrogatepass")) <= 120


def identity(embedder: Embedder) -> str:
    """Returns the name under which vectors are stored, so that those of two versions are never mixed."""
    return f"{embedder.name}@{embedder.version}"


def name_of(identity: str) -> str:
    """Returns the embedder's name. Stores of older versions of Hansard have it without a version."""
    return identity.rpartition("@")[0] or identity


# Messages


def text_of(message: Message) -> str:
    """Returns the text of a message, as it is read (`rules.end_lapsed`), to embed; nothing for one in progress."""
    from hansard.analysis import searchable  # imported late: deleting vectors needs no word tables

    return "" if message.status == "in_progress" else searchable(message)[:MOST_CHARACTERS].strip()


def digest_of(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def size_of(text: str) -> int:
    """Returns the bytes of a text: unlike characters, they say about as much in every script."""
    return len(text.encode("utf-8", "surrogatepass"))


# Vectors


def unit(vector: Iterable[float], dimensions: int) -> array[float]:
    """Returns the vector with length 1, or zeros. `ValueError` if it is invalid or has another size."""
    try:
        numbers = [float(each) for each in vector]
    except TypeError as error:
        raise ValueError(f"a vector must be numbers: {error}") from error
    if len(numbers) != dimensions:
        raise ValueError(f"a vector has {len(numbers)} dimensions, and not the {dimensions} of the embedder")
    length = math.hypot(*numbers)
    if not math.isfinite(length):
        raise ValueError("a vector has a number that is not finite")
    return array("f", [each / length for each in numbers] if length else numbers)


def stored(vector: array[float]) -> bytes:
    """Returns a vector as it is stored: a signed byte for each dimension, its largest number as 127.

    Only its direction counts, so the scale need not be stored. Against 32-bit floats this costs a fraction of a
    percent in a similarity, and saves three quarters of the space.
    """
    largest = max(map(abs, vector), default=0.0)
    return array("b", [round(127 * each / largest) for each in vector] if largest else [0] * len(vector)).tobytes()


def numbers_of(data: bytes, dimensions: int) -> array[float]:
    """Returns a stored vector with length 1. Older versions of Hansard stored 32-bit floats."""
    if len(data) == dimensions:
        return unit(array("b", data), dimensions)
    numbers = array("f", data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def is_readable(data: bytes, dimensions: int) -> bool:
    return len(data) in (dimensions, 4 * dimensions)


class VectorRow(Struct, frozen=True, array_like=True, gc=False):
    """The vector of one message."""

    seq: int
    id: str
    digest: bytes
    vector: bytes
    size: int = 0
    """Bytes of the embedded text; 0 if an older version of Hansard stored the vector."""


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


def scores(rows: Sequence[VectorRow], query: array[float]) -> list[float]:
    """Returns how similar each vector is to the query's: 1 for the same direction, 0 for none."""
    try:
        import numpy
    except ImportError:
        return [sum(map(mul, numbers_of(row.vector, len(query)), query)) for row in rows]
    wanted = numpy.asarray(query, dtype=numpy.float32)
    found: list[float] = [0.0] * len(rows)
    for size, kind in ((len(query), "<i1"), (4 * len(query), "<f4")):
        at = [number for number, row in enumerate(rows) if len(row.vector) == size]
        data = b"".join(rows[number].vector for number in at)
        matrix = numpy.frombuffer(data, dtype=kind).reshape(-1, len(query)).astype(numpy.float32)
        lengths = numpy.linalg.norm(matrix, axis=1)
        for number, score in zip(at, (matrix @ wanted / numpy.maximum(lengths, 1e-9)).tolist(), strict=True):
            found[number] = score
    return found
