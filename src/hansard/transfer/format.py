"""The export format: JSON Lines, specified in docs/reference/export-format.md.

One JSON object for each line. The first names the format and its version, the last one (`eof`) confirms that nothing is
missing. Between them each conversation is a run of lines, from `conversation` to `end`, and records follow. The lines
`check`, `end` and `eof` hold checksums: their `sha256` is the hash of every line between the first and them. So a
reader stores nothing that it has not checked.

Lines of messages have this encoder's field order, defaults left out and no spaces, so that the same content always
produces the same file.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import astuple

from hansard.contract.types import Image, Row, StoredBranch
from hansard.errors import Corrupt, FormatMismatch, ValidationError
from hansard.model import (
    MAIN,
    BlobRef,
    Conversation,
    Message,
    MessageScope,
    Participant,
    Rating,
    Record,
    Source,
    Status,
    Summary,
    Usage,
)

FORMAT = "export"
VERSION = 1

_encode = msgspec.json.Encoder().encode


class Header(Struct, frozen=True, kw_only=True):
    """The first line."""

    hansard: str = FORMAT
    version: int = VERSION
    tenant: str
    user: str | None = None
    exported_at: datetime
    by: str


class ConversationLine(Struct, frozen=True, tag="conversation", rename={"branches": "lanes"}):
    conversation: Conversation
    seq: int
    branches: tuple[StoredBranch, ...]

    @property
    def image(self) -> Image:
        return Image(self.conversation, self.seq, self.branches)


class BlobLine(Struct, frozen=True, tag="blob"):
    sha256: str
    data: bytes


class MessageLine(Struct, frozen=True, tag="message"):
    line: int
    message: Message


class SummaryLine(Struct, frozen=True, tag="summary"):
    summary: Summary


class CheckLine(Struct, frozen=True, tag="check"):
    sha256: str


class EndLine(Struct, frozen=True, tag="end", omit_defaults=True):
    """The end of a conversation. `changed`: messages of it were deleted while it was exported."""

    messages: int
    sha256: str
    changed: bool = False


class RecordLine(Struct, frozen=True, tag="record", omit_defaults=True, kw_only=True):
    """A record. Its value is JSON in `value`, or bytes in `data`; `owner` is the user who owns it."""

    namespace: tuple[str, ...]
    key: str
    value: Any = UNSET
    data: bytes | UnsetType = UNSET
    owner: str | None = None
    revision: int
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None = None
    conversation_id: str | None = None

    @property
    def record(self) -> Record:
        value = self.data if self.data is not UNSET else self.value
        times = self.created_at, self.updated_at, self.expires_at
        return Record(self.namespace, self.key, value, self.revision, *times, self.conversation_id)


class EofLine(Struct, frozen=True, tag="eof", kw_only=True):
    """The last line: what the file contains."""

    conversations: int = 0
    messages: int = 0
    summaries: int = 0
    records: int = 0
    blobs: int = 0
    sha256: str = ""


Line = ConversationLine | BlobLine | MessageLine | SummaryLine | CheckLine | EndLine | RecordLine | EofLine

_decode: Callable[[bytes], Line] = msgspec.json.Decoder(Line).decode


class _Canonical(Struct, frozen=True, omit_defaults=True):
    """A message as in its line: without the conversation's fields, and without defaults."""

    id: str
    seq: int
    role: str
    content: Any
    format: str
    created_at: datetime
    branch: str = MAIN
    participant: Participant | None = None
    mentions: tuple[str, ...] = ()
    scope: MessageScope | None = None
    status: Status = "complete"
    pinned: bool = False
    updated_at: datetime | None = None
    trace_id: str | None = None
    sources: tuple[Source, ...] = ()
    usage: Usage | None = None
    metadata: dict[str, Any] | None = None
    blobs: tuple[BlobRef, ...] = ()
    labels: tuple[str, ...] = ()
    ratings: tuple[Rating, ...] = ()
    edited_at: datetime | None = None
    prompt_id: str | None = None


class _CanonicalLine(Struct, frozen=True, tag="message"):
    line: int
    message: _Canonical


def message_line(line: int, message: Message) -> bytes:
    """Returns the line of a message, without its line end."""
    canonical = _Canonical(
        message.id,
        message.seq,
        message.role,
        message.content,
        message.format,
        message.created_at,
        message.branch,
        message.participant,
        message.mentions,
        message.scope,
        message.status,
        message.pinned,
        message.updated_at,
        message.trace_id,
        message.sources,
        message.usage,
        message.metadata,
        message.blobs,
        message.labels,
        message.ratings,
        message.edited_at,
        message.prompt_id,
    )
    return _encode(_CanonicalLine(line, canonical))


def message_lines(rows: Sequence[Row], numbers: Mapping[int, int]) -> list[bytes]:
    """Returns the lines of rows that have a storage's numbers."""
    return [message_line(numbers[row.segment], row.message) for row in rows]


def fingerprint(rows: Sequence[Row], numbers: Mapping[int, int]) -> bytes:
    """Returns the content of rows for comparison: faster than their lines, and as exact."""
    return _encode([(numbers[row.segment], astuple(row.message)) for row in rows])


def record_line(owner: str | None, record: Record) -> RecordLine:
    is_bytes = isinstance(record.value, bytes)
    return RecordLine(
        namespace=record.namespace,
        key=record.key,
        value=UNSET if is_bytes else record.value,
        data=record.value if is_bytes else UNSET,
        owner=owner,
        revision=record.revision,
        created_at=record.created_at,
        updated_at=record.updated_at,
        expires_at=record.expires_at,
        conversation_id=record.conversation_id,
    )


def encode(line: Struct) -> bytes:
    """Returns a line without its line end."""
    return _encode(line)


def decode(raw: bytes, number: int) -> Line:
    try:
        return _decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise damaged(number, f"it cannot be read: {error}") from error


def decode_header(raw: bytes) -> Header:
    """Returns the first line, or raises an error that tells what the file is instead."""
    try:
        found = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FormatMismatch("this is not a Hansard export: its first line is not JSON", wanted=FORMAT) from error
    if not isinstance(found, dict) or found.get("hansard") != FORMAT:
        raise FormatMismatch("this is not a Hansard export: its first line does not say so", wanted=FORMAT)
    if found.get("version") != VERSION:
        raise FormatMismatch(
            f"this export has version {found.get('version')}, and this Hansard reads version {VERSION}: "
            "install the version of Hansard that wrote it, or a newer one",
            found=str(found.get("version")),
            wanted=str(VERSION),
        )
    try:
        return msgspec.convert(found, Header)
    except msgspec.ValidationError as error:
        raise damaged(1, f"it cannot be read: {error}") from error


def damaged(number: int, what: str) -> Corrupt:
    return Corrupt(f"the export is damaged at line {number:,}: {what}", where=f"line {number}")


class Checksum:
    """The running hash of an export: every line after the first, each with one line feed."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, lines: Sequence[bytes]) -> None:
        """Adds lines without their line ends."""
        if lines:
            self._hash.update(b"\n".join(lines) + b"\n")

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()


# The lines of an export from any source, a bounded amount at a time, without their line ends


class Readable(Protocol):
    """The part of a file's interface that is needed."""

    def read(self, size: int, /) -> bytes | str: ...


Lines = str | PathLike[str] | Readable | Iterable[bytes | str] | AsyncIterable[bytes | str]

_LINES = 500
_BYTES = 1 << 20


async def chunks(source: Any) -> AsyncIterator[list[bytes]]:
    """Yields lines from the path of a file, a file, or lines."""
    if isinstance(source, AsyncIterable):
        async for line in source:
            yield [_bare(line)]
        return
    for chunk in _blocking(source):
        yield chunk


def _blocking(source: Any) -> Iterator[list[bytes]]:
    if isinstance(source, str | PathLike):
        with _opened(source) as file:
            yield from _blocks(file.read)
    elif hasattr(source, "read"):
        # From a pipe, read only what is available.
        yield from _blocks(getattr(source, "read1", source.read))
    elif isinstance(source, Iterable) and not isinstance(source, bytes):
        yield from _gathered(source)
    else:
        raise ValidationError("import_ takes the path of a file, a file, or lines")


def _opened(source: str | PathLike[str]) -> BinaryIO:
    try:
        return Path(source).open("rb")
    except (OSError, ValueError) as error:
        raise ValidationError(f"the export cannot be read: {str(error)[:300]}") from error


def _blocks(read: Callable[[int], bytes | str]) -> Iterator[list[bytes]]:
    begun: list[bytes] = []
    """The parts of a line that has not ended yet."""
    while block := read(_BYTES):
        data = block.encode() if isinstance(block, str) else block
        first, *rest = data.split(b"\n")
        begun.append(first)
        if rest:
            whole = [b"".join(begun), *rest[:-1]]
            begun = [rest[-1]]
            yield [line.rstrip(b"\r") for line in whole] if b"\r" in data else whole
    last = b"".join(begun)
    if last:
        yield [_bare(last)]


def _gathered(lines: Iterable[bytes | str]) -> Iterator[list[bytes]]:
    chunk: list[bytes] = []
    size = 0
    for line in lines:
        bare = _bare(line)
        chunk.append(bare)
        size += len(bare)
        if len(chunk) >= _LINES or size >= _BYTES:
            yield chunk
            chunk, size = [], 0
    yield chunk


def _bare(line: bytes | str) -> bytes:
    if not isinstance(line, bytes | str):
        raise ValidationError(f"a line of an export is text or bytes, not a {type(line).__name__}")
    return (line.encode("utf-8", "surrogatepass") if isinstance(line, str) else line).rstrip(b"\r\n")
