"""The lines of an export from wherever they come, a bounded amount at a time, without their ends."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from hansard.errors import ValidationError


class Readable(Protocol):
    """A file, as far as it is needed."""

    def read(self, size: int, /) -> bytes | str: ...


Lines = str | PathLike[str] | Readable | Iterable[bytes | str] | AsyncIterable[bytes | str]

_LINES = 500
_BYTES = 1 << 20


async def chunks(source: Any) -> AsyncIterator[list[bytes]]:
    """From the path of a file, a file, or lines."""
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
        # From a pipe, what is there already is enough.
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
