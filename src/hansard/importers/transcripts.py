"""The lines of an agent's transcript file, kept so that the file can be written again, byte for byte.

A line that holds a message is kept as what surrounds the message's JSON; the JSON itself comes from the stored message.
So the line of a message that was deleted here is not written again. Every other line, and a line whose JSON cannot be
made again from its message, is kept whole. Lines are records of the conversation, in chunks, and go with it.

`store_lines` adds what is new: a transcript that has grown continues; from one that was written anew, lines that are
not stored yet are added. No line is removed when the file loses it.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Iterator, Sequence
from hashlib import blake2b

import msgspec
from msgspec import Struct, structs

from hansard.errors import Conflict, Corrupt, NotFound
from hansard.model import Message, Record
from hansard.store import Store

NAMESPACE = "transcript"
_CHUNK_LINES = 500
_CHUNK_BYTES = 1 << 20
_ATTEMPTS = 5
_LEVEL = 1
"""Of compression: as small as the usual one on transcripts, for two thirds of its work."""

_encode = msgspec.json.Encoder().encode


class TranscriptLine(Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """A line without its newline."""

    digest: bytes
    """Of the line, to find it again."""
    before: bytes
    """The bytes before the JSON of the message; the whole line if `after` is None."""
    after: bytes | None = None
    message_id: str | None = None


class PackedChunk(Struct, frozen=True, gc=False):
    """Some lines, as a record holds them."""

    start: int
    """How many lines are before it."""
    count: int
    value: bytes


class Transcript(Struct, frozen=True):
    """All lines of a file."""

    lines: list[TranscriptLine]
    ends_with_newline: bool = True
    size: int = 0
    """How many bytes the lines have, with their messages."""
    chunks: tuple[PackedChunk, ...] = ()
    """Instead of the lines, the chunks that records hold: see `packed`."""


class _Chunk(Struct, frozen=True, array_like=True):
    lines: list[TranscriptLine]
    digest: bytes
    """Of all lines from the first one of the transcript to the last one of this chunk."""
    ends_with_newline: bool = True


_NO_LINES = _Chunk([], b"")


def transcript_line(line: bytes, message: Message | None = None) -> TranscriptLine:
    """A line as it is stored. `message` is the message that it holds, whole or in one of its fields."""
    line = line.removesuffix(b"\n")
    digest = blake2b(line, digest_size=16).digest()
    if message is None:
        return TranscriptLine(digest, line)
    return TranscriptLine(digest, *_around(_native(message), line), message.id)


def _around(native: bytes, line: bytes) -> tuple[bytes, bytes | None]:
    """Returns what is before and after the JSON of a message; the whole line and None if it is not in it."""
    # The whole line, or its last value: as in most lines, and compared several times as fast as it is searched.
    if line == native:
        return b"", b""
    if line.endswith(native, 0, -1):
        return line[: -len(native) - 1], line[-1:]
    before, found, after = line.partition(native)
    return before, after if found else None


def _native(message: Message) -> bytes:
    """The JSON that a transcript has for a message."""
    content = message.content
    return _encode(content[0] if isinstance(content, list) and len(content) == 1 else content)


def packed(transcript: Transcript) -> Transcript:
    """Returns the transcript with its lines as records hold them: smaller, and ready to store."""
    return structs.replace(transcript, lines=[], chunks=_chunks_of(transcript))


def _chunks_of(transcript: Transcript) -> tuple[PackedChunk, ...]:
    if not transcript.lines:
        return transcript.chunks
    return tuple(_packed_chunks(0, _NO_LINES, transcript.lines, transcript.ends_with_newline))


def _lines_of(transcript: Transcript) -> list[TranscriptLine]:
    return transcript.lines or [line for chunk in transcript.chunks for line in _unpacked(chunk.value).lines]


async def store_lines(store: Store, conversation_id: str, transcript: Transcript) -> int:
    """Adds the lines that are not stored yet to a conversation, and returns how many those were."""
    view = await owners_view(store, conversation_id)
    for attempt in range(_ATTEMPTS):
        try:
            return await _add(view, conversation_id, transcript)
        except Conflict:
            # Somebody else stored lines of this transcript meanwhile.
            if attempt == _ATTEMPTS - 1:
                raise
    return 0


async def store_new_lines(store: Store, owner: str | None, conversation_id: str, transcript: Transcript) -> int:
    """The same for a conversation that this caller has just created, for this owner: it has no lines yet."""
    view = store if owner is None or store.user_id is not None else store.user(owner)
    chunks = _chunks_of(transcript)
    try:
        for chunk in chunks:
            await _put(view, conversation_id, chunk)
    except Conflict:
        # Somebody else stores the same transcript.
        return await store_lines(store, conversation_id, transcript)
    return sum(chunk.count for chunk in chunks)


async def append_lines(store: Store, conversation_id: str, transcript: Transcript, *, after: int) -> bool:
    """Adds lines after the first `after` ones of a transcript, without reading those.

    Returns False, and adds nothing, if there are not exactly as many.
    """
    view = await owners_view(store, conversation_id)
    last, chunk = await _last_chunk(view, conversation_id)
    if _count(last, chunk) != after or not chunk.ends_with_newline:
        return False
    if transcript.lines:
        await _write(view, conversation_id, last, chunk, transcript.lines, transcript.ends_with_newline)
    return True


async def raw_lines(store: Store, conversation_id: str) -> AsyncIterator[bytes]:
    """The lines of a transcript as they were in the file, each with its newline. None for other conversations."""
    view = await owners_view(store, conversation_id)
    natives: dict[str, bytes] | None = None
    held: bytes | None = None
    ends_with_newline = True
    async for record in view.records.iter((NAMESPACE, conversation_id), exact=True):
        chunk = _decoded(record)
        ends_with_newline = chunk.ends_with_newline
        for line in chunk.lines:
            if natives is None and line.message_id is not None:
                natives = await _natives(store, conversation_id)
            raw = _restored(line, natives or {})
            if raw is not None:
                if held is not None:
                    yield held + b"\n"
                held = raw
    if held is not None:
        yield held + b"\n" if ends_with_newline else held


async def has_lines(store: Store, conversation_id: str) -> bool:
    """Whether the lines of a transcript are stored for a conversation."""
    view = await owners_view(store, conversation_id)
    return bool((await view.records.scan((NAMESPACE, conversation_id), exact=True, limit=1)).items)


async def line_count(store: Store, conversation_id: str) -> int:
    """How many lines of a transcript are stored."""
    return _count(*await _last_chunk(await owners_view(store, conversation_id), conversation_id))


async def owners_view(store: Store, conversation_id: str) -> Store:
    """The records of a transcript are its owner's, whoever stored them."""
    conversation = await store.get_conversation(conversation_id)
    if conversation is None:
        raise NotFound(f"there is no conversation {conversation_id!r}")
    is_others = conversation.user_id is not None and store.user_id is None
    return store.user(conversation.user_id) if is_others and conversation.user_id else store


async def _natives(store: Store, conversation_id: str) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for branch in await store.list_branches(conversation_id):
        async for message in store.iter_messages(conversation_id, branch=branch.id):
            if message.id not in found:
                found[message.id] = _native(message)
    return found


def _restored(line: TranscriptLine, natives: dict[str, bytes]) -> bytes | None:
    """The line; None if its message is gone."""
    if line.message_id is None:
        return line.before
    native = natives.get(line.message_id)
    if native is None or line.after is None:
        return None if native is None else line.before
    return line.before + native + line.after


async def _add(view: Store, conversation_id: str, transcript: Transcript) -> int:
    place = (NAMESPACE, conversation_id)
    lines = _lines_of(transcript)
    last, chunk = await _last_chunk(view, conversation_id)
    count = _count(last, chunk)
    new: Sequence[TranscriptLine] = lines[count:]
    if len(lines) < count or _digest(b"", lines[:count]) != chunk.digest:
        known = {
            line.digest async for record in view.records.iter(place, exact=True) for line in _decoded(record).lines
        }
        new = [line for line in lines if line.digest not in known]
        if not new:
            return 0
    elif not new and transcript.ends_with_newline == chunk.ends_with_newline:
        return 0
    await _write(view, conversation_id, last, chunk, new, transcript.ends_with_newline)
    return len(new)


async def _last_chunk(view: Store, conversation_id: str) -> tuple[Record | None, _Chunk]:
    page = await view.records.scan((NAMESPACE, conversation_id), exact=True, order="desc", limit=1)
    last = page.items[0] if page.items else None
    return last, _decoded(last) if last is not None else _NO_LINES


def _count(last: Record | None, chunk: _Chunk) -> int:
    """How many lines there are up to the end of the last chunk."""
    return (int(last.key) if last is not None else 0) + len(chunk.lines)


async def _write(
    view: Store,
    conversation_id: str,
    last: Record | None,
    chunk: _Chunk,
    new: Sequence[TranscriptLine],
    ends_with_newline: bool,
) -> None:
    """Fills the last chunk, then begins others."""
    start, revision = (int(last.key), last.revision) if last is not None else (0, 0)
    for each in _packed_chunks(start, chunk, new, ends_with_newline):
        await _put(view, conversation_id, each, revision)
        revision = 0


async def _put(view: Store, conversation_id: str, chunk: PackedChunk, revision: int = 0) -> None:
    """Writes a chunk only if nobody has written it meanwhile."""
    await view.records.put(
        (NAMESPACE, conversation_id),
        f"{chunk.start:012d}",
        chunk.value,
        expected_revision=revision,
        conversation_id=conversation_id,
    )


def _packed_chunks(
    start: int, chunk: _Chunk, new: Sequence[TranscriptLine], ends_with_newline: bool
) -> Iterator[PackedChunk]:
    """Yields a chunk with the lines that it has room for, then chunks with the others."""
    lines, digest = [*chunk.lines], chunk.digest
    waiting = [*new]
    while True:
        size = sum(len(line.before) for line in lines)
        taken = 0
        while taken < len(waiting) and len(lines) < _CHUNK_LINES and (not lines or size < _CHUNK_BYTES):
            lines.append(waiting[taken])
            size += len(waiting[taken].before)
            taken += 1
        digest = _digest(digest, waiting[:taken])
        value = zlib.compress(msgspec.msgpack.encode(_Chunk(lines, digest, ends_with_newline)), _LEVEL)
        yield PackedChunk(start, len(lines), value)
        waiting = waiting[taken:]
        if not waiting:
            return
        start, lines = start + len(lines), []


def _digest(digest: bytes, lines: Sequence[TranscriptLine]) -> bytes:
    for line in lines:
        digest = blake2b(digest + line.digest, digest_size=16).digest()
    return digest


def _unpacked(value: bytes) -> _Chunk:
    return msgspec.msgpack.decode(zlib.decompress(value), type=_Chunk)


def _decoded(record: Record) -> _Chunk:
    try:
        return _unpacked(record.value)
    except (zlib.error, TypeError, msgspec.DecodeError) as error:
        where = f"record {record.key!r} of {record.namespace!r}"
        raise Corrupt(f"{where} is not a chunk of a transcript: {error}", where=where) from error


__all__ = [
    "Transcript",
    "TranscriptLine",
    "append_lines",
    "has_lines",
    "line_count",
    "owners_view",
    "raw_lines",
    "store_lines",
    "store_new_lines",
    "transcript_line",
]
