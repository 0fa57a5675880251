"""JSON encoding and decoding without changes to the content.

Content is any JSON value. It is encoded once, when it enters the store; decoding that returns a private copy, equal to
the caller's value. The fast path (encode, decode, compare, all in C) accepts whatever JSON can represent; only if it
fails does the slow path walk the value, to accept tuples as lists or to report exactly where and why not.

A *body* is content as text: the string itself for the format `text`, JSON for every other. Namespaces of records are
packed into bytes that sort as the tuples do, so that a prefix of a namespace is a range of keys.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from threading import Lock
from typing import Any

import msgspec
from msgspec import Struct

from hansard.errors import Corrupt, QuotaExceeded, Unavailable, ValidationError
from hansard.limits import Limits
from hansard.model import (
    MAIN,
    BlobRef,
    Message,
    MessageScope,
    Participant,
    Rating,
    Source,
    Status,
    Usage,
    to_micros,
)
from hansard.shown import shown

Path = tuple[str | int, ...]
_PIECE = 1 << 20
"""Characters of base64 that are decoded at once. No other thread runs meanwhile: see `python -m benchmarks.turns`."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_reading_types = Lock()
_read_types: set[Any] = set()


def prepare(*kinds: Any) -> None:
    """Makes msgspec read the annotations of types, before values of them are decoded or converted.

    Else it does so the first time, without a lock: two threads that do it at once crash the process.
    """
    if _read_types.issuperset(kinds):
        return
    with _reading_types:
        for kind in kinds:
            msgspec.json.Decoder(kind)
        _read_types.update(kinds)


# --- values -----------------------------------------------------------------------------------------------------------


_BRACKETS = re.compile(r"[\[\]{}]")


def encode(value: Any) -> str:
    """Returns the JSON text of a value that `snapshot` has accepted."""
    return _encode(value).decode()


def decode(text: str | bytes, where: str) -> Any:
    """Decodes JSON text that this store wrote; `where` names the location if it is damaged."""
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(f"unreadable JSON in {where}: {error}", where=where) from error


def is_deep(text: str, depth: int = 100) -> bool:
    """Returns whether JSON text may nest deeper than `depth`, which callers check before decoding foreign text.

    Deeper values cannot be walked. Brackets inside strings count too, so it may report too much.
    """
    if text.count("[") + text.count("{") <= depth:
        return False
    level = 0
    for bracket in _BRACKETS.findall(text):
        level += 1 if bracket in "[{" else -1
        if level > depth:
            return True
    return False


def snapshot(value: Any, what: str, *, depth: int = 200) -> tuple[str, Any]:
    """Returns the JSON text of `value` and a private copy of it. A `ValidationError` says where it is not JSON."""
    try:
        encoded = _encode(value)
        copy = _decode(encoded)
        if copy == value and _is_shallow(encoded, depth):
            return encoded.decode(), copy
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        pass
    plain = _plain(value, what, depth)
    encoded = _encode(plain)
    return encoded.decode(), _decode(encoded)


def _parsed(value: Any, what: str, *, depth: int = 200) -> tuple[str, Any]:
    """Like `snapshot`, for a value that was decoded from JSON: it is its own copy."""
    try:
        encoded = _encode(value)
        if _is_shallow(encoded, depth):
            return encoded.decode(), value
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        pass
    return snapshot(value, what, depth=depth)


def _is_shallow(encoded: bytes, depth: int) -> bool:
    """Whether it surely has at most so many levels. If it is not sure, the caller must walk the value."""
    # Each level takes two brackets. Those inside strings count too.
    return len(encoded) <= 2 * depth or encoded.count(b"[") + encoded.count(b"{") <= depth


def _plain(value: Any, where: str, depth: int) -> Any:
    """Returns `value` made of plain JSON types only, or raises an error that names the location."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return check_text(str.__str__(value), where)
    if isinstance(value, int):
        return _plain_int(int(value), where)
    if isinstance(value, float):
        return _plain_float(value, where)
    if isinstance(value, dict | list | tuple):
        if depth <= 0:
            raise ValidationError(f"{where} is nested too deeply, or contains itself")
        return _plain_container(value, where, depth - 1)
    if isinstance(value, bytes | bytearray | memoryview):
        raise ValidationError(
            f"{where} is bytes, which JSON cannot represent: decode it to text, or encode it as base64"
        )
    raise ValidationError(f"{where} is a {type(value).__name__}, which JSON cannot represent")


def _plain_container(value: dict[Any, Any] | list[Any] | tuple[Any, ...], where: str, depth: int) -> Any:
    if not isinstance(value, dict):
        return [_plain(item, _place(where, f"[{index}]"), depth) for index, item in enumerate(value)]
    for key in value:
        if not isinstance(key, str):
            raise ValidationError(f"{where} has the key {shown(key)}, a {type(key).__name__}: JSON keys are text")
    return {
        check_text(key, f"a key of {where}"): _plain(item, _place(where, f".{key}"), depth)
        for key, item in value.items()
    }


def _place(where: str, step: str) -> str:
    """Returns the path of a part, without its middle if it is long: it is the beginning of a message for people."""
    place = where + step
    return place if len(place) <= 160 else f"{place[:80]}…{place[-40:]}"


def _plain_int(value: int, where: str) -> int:
    try:
        str(value)
    except ValueError as error:
        raise ValidationError(f"{where} is an integer of more digits than Python will print: {error}") from error
    return value


def _plain_float(value: float, where: str) -> float:
    if not math.isfinite(value):
        raise ValidationError(f"{where} is {value}, which JSON cannot represent")
    return float(value)


def check_text(text: str, what: str) -> str:
    """Returns `text`, unless it has a lone surrogate, which UTF-8 cannot encode."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = f"U+{ord(text[error.start]):04X}"
        raise ValidationError(
            f"{what} has half of a surrogate pair ({half}) at character {error.start}: it is not Unicode text"
        ) from error
    return text


# --- bodies -----------------------------------------------------------------------------------------------------------


class EncodedBody(Struct, frozen=True, gc=False):
    """Content ready to store: its text, its private copy, and the blobs moved out of it."""

    text: str
    content: Any
    size: int
    refs: tuple[BlobRef, ...] = ()
    blobs: Mapping[str, bytes] = {}


def body_of(content: Any, format: str, limits: Limits, *, is_parsed: bool = False) -> EncodedBody:
    """Checks and encodes content, moving large base64 out of it.

    `is_parsed`: it was decoded from JSON for this call, so it needs neither a copy nor a comparison with one.
    """
    if isinstance(content, str) and format == "text":
        # A subclass, such as a member of a StrEnum, is stored as plain text.
        text = kept = content if type(content) is str else str.__str__(content)
        size = len(text) if text.isascii() else len(check_text(text, "content").encode())
    else:
        text, kept = (_parsed if is_parsed else snapshot)(content, "content", depth=limits.depth)
        size = len(text) if text.isascii() else len(text.encode())
    if size > limits.content_bytes:
        raise QuotaExceeded(
            f"content is {size:,} bytes; the limit is {limits.content_bytes:,} (Limits.content_bytes)",
            limit=limits.content_bytes,
            value=size,
        )
    if not limits.blob_bytes or size < limits.blob_bytes:
        return EncodedBody(text, kept, size)
    return _lift(text, kept, size, format, limits.blob_bytes)


def _lift(text: str, content: Any, size: int, format: str, blob_bytes: int) -> EncodedBody:
    refs: list[BlobRef] = []
    blobs: dict[str, bytes] = {}

    def lift(value: str, path: Path) -> str:
        found = unwrap_base64(value) if len(value) >= blob_bytes else None
        if found is None:
            return value
        prefix, data = found
        sha256 = sha256_of(data)
        blobs[sha256] = data
        refs.append(BlobRef(sha256, len(data), path, prefix))
        return ""

    lean = _map_text(content, (), lift)
    if not refs:
        return EncodedBody(text, content, size)
    return EncodedBody(lean if format == "text" else encode(lean), lean, size, tuple(refs), blobs)


def _map_text(value: Any, path: Path, change: Callable[[str, Path], str]) -> Any:
    if isinstance(value, str):
        return change(value, path)
    if isinstance(value, list):
        return [_map_text(item, (*path, index), change) for index, item in enumerate(value)]
    if isinstance(value, dict):
        return {key: _map_text(item, (*path, key), change) for key, item in value.items()}
    return value


def unwrap_base64(text: str) -> tuple[str, bytes] | None:
    """Returns `(prefix, bytes)` if encoding the bytes again returns exactly this text, else None."""
    prefix = ""
    if text.startswith("data:"):
        head, comma, text = text.partition(",")
        if not head.endswith(";base64"):
            return None
        prefix = head + comma
    if len(text) % 4:
        return None
    pieces = []
    for at in range(0, len(text), _PIECE):
        data = _from_base64(text[at : at + _PIECE])
        if data is None or (len(data) < _PIECE // 4 * 3 and at + _PIECE < len(text)):
            return None  # padding is allowed at the end only
        pieces.append(data)
    return prefix, b"".join(pieces)


def _from_base64(text: str) -> bytes | None:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    # Left-over bits in the last character decode to the same bytes: only the canonical spelling may be replaced.
    return data if base64.b64encode(data).decode() == text else None


IN_BUCKET = b"hansard: this blob is in a bucket"
"""What a storage holds in place of a blob that `hansard.backends.bucket_blobs` keeps elsewhere."""


def is_blob(sha256: str, data: object) -> bool:
    """Whether the bytes have this hash, or say that the blob is in a bucket."""
    return isinstance(data, bytes) and (data == IN_BUCKET or sha256_of(data) == sha256)


def check_blob(sha256: str, data: object, where: str) -> None:
    """Raises `Corrupt` if the bytes do not have this hash."""
    if data == IN_BUCKET and sha256_of(IN_BUCKET) != sha256:
        raise Unavailable(
            f"blob {sha256} of {where} is in a bucket: open the store with blobs='s3://…'", retryable=False
        )
    if not isinstance(data, bytes) or sha256_of(data) != sha256:
        raise Corrupt(f"blob {sha256} of {where} is damaged: its bytes have another hash", where=where)


def restore(content: Any, refs: tuple[BlobRef, ...], blobs: Mapping[str, bytes]) -> Any:
    """Returns content as the caller passed it: each blob restored to its place."""
    for ref in refs:
        text = ref.prefix + base64.b64encode(blobs[ref.sha256]).decode()
        content = _put(content, ref.path, text)
    return content


def _put(content: Any, path: Path, text: str) -> Any:
    if not path:
        return text
    place = content
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = text
    return content


def content_of(text: str, format: str, where: str) -> Any:
    """Decodes the content of a stored body."""
    return text if format == "text" else decode(text, where)


# --- the rest of a message --------------------------------------------------------------------------------------------


class Extra(Struct, frozen=True, omit_defaults=True, gc=False):
    """Fields that few messages have, stored as one JSON object next to the columns."""

    participant: Participant | None = None
    mentions: tuple[str, ...] = ()
    scope: MessageScope | None = None
    status: Status = "complete"
    pinned: bool = False
    updated_at: int | None = None
    trace_id: str | None = None
    sources: tuple[Source, ...] = ()
    usage: Usage | None = None
    metadata: dict[str, Any] | None = None
    blobs: tuple[BlobRef, ...] = ()
    branch: str = MAIN
    labels: tuple[str, ...] = ()
    ratings: tuple[Rating, ...] = ()
    edited_at: int | None = None
    prompt_id: str | None = None


@cache
def extra_decoder() -> msgspec.json.Decoder[Extra]:
    """Created on first use: creating it costs more than importing this module."""
    prepare(Extra)
    return msgspec.json.Decoder(Extra)


def encode_extra(message: Message) -> str | None:
    """Returns JSON of every field that is not its default; None for a plain message."""
    if not (
        message.participant
        or message.usage
        or message.sources
        or message.mentions
        or message.scope
        or message.trace_id is not None
        or message.pinned
        or message.blobs
        or message.labels
        or message.ratings
        or message.branch != MAIN
        or message.updated_at is not None
        or message.edited_at is not None
        or message.prompt_id is not None
        or message.status != "complete"
    ):
        # The common cases, by a shorter path.
        return None if message.metadata is None else f'{{"metadata":{_encode(message.metadata).decode()}}}'
    extra = Extra(
        message.participant,
        message.mentions,
        message.scope,
        message.status,
        message.pinned,
        to_micros(message.updated_at),
        message.trace_id,
        message.sources,
        message.usage,
        message.metadata,
        message.blobs,
        message.branch,
        message.labels,
        message.ratings,
        to_micros(message.edited_at),
        message.prompt_id,
    )
    return _encode(extra).decode()


def decode_extra(text: str, where: str) -> Extra:
    try:
        return extra_decoder().decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(f"unreadable fields in {where}: {error}", where=where) from error


# --- keys -------------------------------------------------------------------------------------------------------------


def pack_namespace(namespace: tuple[str, ...]) -> bytes:
    """Returns bytes that sort as the tuples do; those of a prefix are a prefix.

    A NUL ends each element, and one inside an element is followed by 0xFF, which no UTF-8 text contains.
    """
    return b"".join(element.encode().replace(b"\0", b"\0\xff") + b"\0" for element in namespace)


def unpack_namespace(packed: bytes) -> tuple[str, ...]:
    return tuple(element.replace(b"\0\xff", b"\0").decode() for element in _elements(packed))


def _elements(packed: bytes) -> Iterator[bytes]:
    start = place = 0
    while place < len(packed):
        place = packed.index(b"\0", place) + 1
        if packed[place : place + 1] != b"\xff":
            yield packed[start : place - 1]
            start = place


@lru_cache(1024)
def digest(*parts: str) -> str:
    """Returns a hash of ids, for tombstones: it recognises an id without storing it."""
    return sha256_of(pack_namespace(parts))


def sha256_of(data: bytes) -> str:
    import hashlib  # imported here: it takes as long as all of this package's values

    return hashlib.sha256(data).hexdigest()
