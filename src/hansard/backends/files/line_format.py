"""The lines of a journal, JSON objects with a checksum, and how to read them.

A journal is the truth about one conversation, one space of records, or the tenant's own data. A line is one write, and
ends in `"check"`: the CRC-32 of everything before it, seeded with the line number, so that a damaged, moved or missing
line is noticed. A journal only grows, or is replaced by another file.

A crash can leave a *torn tail*: bytes at the very end that lack the end of line, or have holes that were never written.
Readers stop before it, and the next writer cuts it off. Anything else is damage, in the last line too, because that
write may have been acknowledged.
"""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import msgspec
from msgspec import Struct

from hansard.backends.files import disk
from hansard.errors import Corrupt, FormatMismatch

FORMAT = 1

_CHECKSUM = b',"check":"%08x"}\n'
_CHECKSUM_LENGTH = 21
_TAIL_LENGTH = 11
_INODE_MASK = (1 << 63) - 1


def make_line(body: bytes, number: int) -> bytes:
    """Returns a JSON object as a line with its checksum."""
    inside = memoryview(body)[:-1]
    return b"".join((inside, _CHECKSUM % zlib.crc32(inside, number)))


def is_sound(line: bytes, number: int) -> bool:
    inside = memoryview(line)[:-_CHECKSUM_LENGTH]
    return line.endswith(b"\n") and line[-_CHECKSUM_LENGTH:] == _CHECKSUM % zlib.crc32(inside, number)


class ReadPosition(Struct):
    """Up to where a journal was read, and which file it was."""

    inode: int = 0
    size: int = 0
    lines: int = 0
    tail: bytes = b""
    """The end of the last line with its checksum: another file may have the same inode and length."""
    mtime: int = -1
    """The file's modification time, if it was read to its end, else -1."""

    def advance(self, line: bytes) -> None:
        self.size += len(line)
        self.lines += 1
        self.tail = line[-_TAIL_LENGTH:]


def inode_of(file_stat: os.stat_result) -> int:
    """Returns a file's inode, limited to the integers of SQLite."""
    return file_stat.st_ino & _INODE_MASK


def is_file(path: Path, position: ReadPosition) -> bool:
    """Whether the file at that path is the one that was read, and was read to its end."""
    try:
        file_stat = os.stat(path)  # noqa: PTH116  many writes do this
    except OSError:
        return False
    found = (inode_of(file_stat), file_stat.st_size, file_stat.st_mtime_ns)
    return found == (position.inode, position.size, position.mtime)


def size_and_tail(fd: int) -> tuple[int, bytes]:
    """Returns size and last bytes of a file: another file may have the same size, inode and time."""
    size = os.fstat(fd).st_size
    return size, disk.read(fd, max(0, size - _TAIL_LENGTH), _TAIL_LENGTH)


class Replayable(Protocol):
    """A state that is built by reading a journal."""

    @property
    def position(self) -> ReadPosition: ...

    def apply(self, line: bytes, at: int) -> None:
        """Applies the line that begins at offset `at`."""


R = TypeVar("R", bound=Replayable)


def catch_up(fd: int, state: R, fresh: Callable[[], R], path: Path) -> R:
    """Brings `state` up to date with an open journal; a `fresh` one if `state` belongs to another file."""
    file_stat = os.fstat(fd)
    if not is_continuation(fd, file_stat, state.position):
        state = fresh()
        state.position.inode = inode_of(file_stat)
    if file_stat.st_size > state.position.size:
        read_new_lines(fd, state, path)
    return state


def is_continuation(fd: int, file_stat: os.stat_result, position: ReadPosition) -> bool:
    """Whether a file is the one that was read, possibly with more lines."""
    if inode_of(file_stat) != position.inode or file_stat.st_size < position.size:
        return False
    if file_stat.st_size == position.size and position.mtime not in (-1, file_stat.st_mtime_ns):
        return False
    return not position.size or disk.read(fd, position.size - _TAIL_LENGTH, _TAIL_LENGTH) == position.tail


def read_new_lines(fd: int, state: Replayable, path: Path) -> None:
    """Applies the lines after the position, as far as they are complete."""
    # Try twice: a torn tail that a writer is replacing at this moment looks like damage.
    if not _read_sound(fd, state, path) and not _read_sound(fd, state, path):
        raise damaged_line(path, state.position.lines + 1, "its checksum does not fit")


def _read_sound(fd: int, state: Replayable, path: Path) -> bool:
    """Applies the following sound lines. Returns False if the next line is damaged."""
    with io.BufferedReader(io.FileIO(fd, closefd=False), 1 << 18) as file:
        file.seek(state.position.size)
        for line in file:
            number = state.position.lines + 1
            if is_sound(line, number):
                apply_line(state, line, path)
            elif line.endswith(b"\n"):
                # Blocks that were never written may be anywhere in a torn tail.
                return b"\0" in line and not file.peek(1)
            else:
                # A line that was cut off is torn. If only its end of line is wrong, it is damaged.
                return not is_sound(line[:-1] + b"\n", number)
    return True


def apply_line(state: Replayable, line: bytes, path: Path) -> None:
    """Applies the next line of a journal."""
    try:
        state.apply(line, state.position.size)
    except (msgspec.DecodeError, UnicodeDecodeError, LookupError, ValueError) as error:
        if isinstance(error, FormatMismatch):
            raise
        raise damaged_line(path, state.position.lines + 1, str(error)) from error
    state.position.advance(line)


def first_line(path: Path) -> bytes | None:
    """Returns the first line, which describes the journal; None if it is missing or not complete."""
    try:
        with path.open("rb") as file:
            line = file.readline()
    except FileNotFoundError:
        return None
    return line if is_sound(line, 1) else None


def damaged_line(path: Path, number: int, why: str) -> Corrupt:
    return Corrupt(f"{path} is damaged in line {number}: {why}", where=f"{path}:{number}")


def line_at(fd: int, offset: int) -> int:
    """Returns the number of the line that holds the byte at `offset`."""
    number, at = 1, 0
    while at < offset:
        data = disk.read(fd, at, min(1 << 20, offset - at))
        if not data:
            break
        number += data.count(b"\n")
        at += len(data)
    return number


def check_format(found: int, path: str) -> None:
    if found > FORMAT:
        raise FormatMismatch(
            f"{path} is of format {found}, and this version of Hansard reads up to {FORMAT}: install a newer one",
            found=str(found),
            wanted=str(FORMAT),
        )


class ValuePosition(NamedTuple):
    """The offset and length of a JSON value in a journal, and its checksum."""

    offset: int
    length: int
    crc: int


def pieces(
    line: bytes, at: int, mark: bytes, values: Iterable[msgspec.Raw]
) -> Iterator[tuple[msgspec.Raw, ValuePosition]]:
    """Yields the elements of the array that `mark` opens, with their positions.

    Our encoder puts exactly one byte between them. Only strings and numbers precede the array, so `mark` with its
    unescaped quotes cannot occur in them.
    """
    offset = at + line.index(mark) + len(mark)
    for value in values:
        length = memoryview(value).nbytes
        yield value, ValuePosition(offset, length, zlib.crc32(value))
        offset += length + 1


_GAP = 4096
_RUN = 1 << 22


class HasPosition(Protocol):
    """A `ValuePosition`, or a tuple that includes its fields."""

    @property
    def offset(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def crc(self) -> int: ...


def read_pieces(fd: int, wanted: Sequence[HasPosition], path: Path) -> list[bytes]:
    """Returns the values at these positions and checks each. Neighbours are read together."""
    found: dict[int, bytes] = {}
    for run in _runs(sorted(wanted, key=_offset)):
        start = run[0].offset
        data = disk.read(fd, start, run[-1].offset + run[-1].length - start)
        for piece in run:
            offset, length = piece.offset, piece.length
            value = found[offset] = data[offset - start : offset - start + length]
            if len(value) != length or zlib.crc32(value) != piece.crc:
                raise damaged_line(path, line_at(fd, offset), "its checksum does not fit")
    return [found[piece.offset] for piece in wanted]


_offset = attrgetter("offset")


def _runs(wanted: Iterable[HasPosition]) -> Iterator[list[HasPosition]]:
    run: list[HasPosition] = []
    start = end = 0
    for piece in wanted:
        offset = piece.offset
        if run and (offset - end > _GAP or offset + piece.length - start > _RUN):
            yield run
            run = []
        if not run:
            start = offset
        run.append(piece)
        end = offset + piece.length
    if run:
        yield run
