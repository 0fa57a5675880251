"""The lines of a journal: JSON objects that each carry a checksum, and how to read them on.

A journal is the truth about one conversation, one space of records, or what a tenant keeps beside them. A line is one
write, and the last thing in it is `"check"`: the CRC-32 of everything before it, begun with the number of the line, so
that a line which is damaged, moved or missing is noticed. A journal only grows, or is replaced by another file.

What a crash can leave is a *torn tail*: bytes at the very end that have no end of line, or holes in them that were
never written. Readers stop before it, the next writer takes it away. Any other damage is damage, in the last line too:
it was perhaps acknowledged.
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
    """A line from a JSON object."""
    inside = memoryview(body)[:-1]
    return b"".join((inside, _CHECKSUM % zlib.crc32(inside, number)))


def is_sound(line: bytes, number: int) -> bool:
    inside = memoryview(line)[:-_CHECKSUM_LENGTH]
    return line.endswith(b"\n") and line[-_CHECKSUM_LENGTH:] == _CHECKSUM % zlib.crc32(inside, number)


class ReadPosition(Struct):
    """How far a journal has been read, and of which file."""

    inode: int = 0
    size: int = 0
    lines: int = 0
    tail: bytes = b""
    """The end of the last line, checksum and all: a file of the same number and length may be another one."""
    mtime: int = -1
    """When the file was last changed, if it was read to its end."""

    def advance(self, line: bytes) -> None:
        self.size += len(line)
        self.lines += 1
        self.tail = line[-_TAIL_LENGTH:]


def inode_of(file_stat: os.stat_result) -> int:
    """A file's number, as SQLite can keep it."""
    return file_stat.st_ino & _INODE_MASK


def is_file(path: Path, position: ReadPosition) -> bool:
    """Whether the file at that path is the one that was read, to its end."""
    try:
        file_stat = os.stat(path)  # noqa: PTH116  many writes do this
    except OSError:
        return False
    found = (inode_of(file_stat), file_stat.st_size, file_stat.st_mtime_ns)
    return found == (position.inode, position.size, position.mtime)


def size_and_tail(fd: int) -> tuple[int, bytes]:
    """Size and last bytes of a file: another file of the same size may have its number and its time."""
    size = os.fstat(fd).st_size
    return size, disk.read(fd, max(0, size - _TAIL_LENGTH), _TAIL_LENGTH)


class Replayable(Protocol):
    """What is known of a journal by having read it."""

    @property
    def position(self) -> ReadPosition: ...

    def apply(self, line: bytes, at: int) -> None:
        """Takes in the line that begins at `at`."""


R = TypeVar("R", bound=Replayable)


def catch_up(fd: int, state: R, fresh: Callable[[], R], path: Path) -> R:
    """The state of an open journal: `state` read on, or `fresh` when it belongs to another file."""
    file_stat = os.fstat(fd)
    if not is_continuation(fd, file_stat, state.position):
        state = fresh()
        state.position.inode = inode_of(file_stat)
    if file_stat.st_size > state.position.size:
        read_new_lines(fd, state, path)
    return state


def is_continuation(fd: int, file_stat: os.stat_result, position: ReadPosition) -> bool:
    """Whether a file is the one that was read, perhaps with more at its end."""
    if inode_of(file_stat) != position.inode or file_stat.st_size < position.size:
        return False
    if file_stat.st_size == position.size and position.mtime not in (-1, file_stat.st_mtime_ns):
        return False
    return not position.size or disk.read(fd, position.size - _TAIL_LENGTH, _TAIL_LENGTH) == position.tail


def read_new_lines(fd: int, state: Replayable, path: Path) -> None:
    """Takes in the lines that follow, as far as they are whole."""
    # Twice, because what looks damaged may be a torn tail that a writer is replacing just now.
    if not _read_sound(fd, state, path) and not _read_sound(fd, state, path):
        raise damaged_line(path, state.position.lines + 1, "its checksum does not fit")


def _read_sound(fd: int, state: Replayable, path: Path) -> bool:
    """Takes in all lines that are sound. False when the next one is damaged."""
    with io.BufferedReader(io.FileIO(fd, closefd=False), 1 << 18) as file:
        file.seek(state.position.size)
        for line in file:
            number = state.position.lines + 1
            if is_sound(line, number):
                apply_line(state, line, path)
            elif line.endswith(b"\n"):
                # Holes that were never written may be anywhere in a torn tail.
                return b"\0" in line and not file.peek(1)
            else:
                # Cut off anywhere, it would also miss its brace: else only the end of the line is damaged.
                return not is_sound(line[:-1] + b"\n", number)
    return True


def apply_line(state: Replayable, line: bytes, path: Path) -> None:
    """Takes in the next line of a journal."""
    try:
        state.apply(line, state.position.size)
    except (msgspec.DecodeError, UnicodeDecodeError, LookupError, ValueError) as error:
        if isinstance(error, FormatMismatch):
            raise
        raise damaged_line(path, state.position.lines + 1, str(error)) from error
    state.position.advance(line)


def first_line(path: Path) -> bytes | None:
    """The line that says what a journal is; None when it has none that is whole."""
    try:
        with path.open("rb") as file:
            line = file.readline()
    except FileNotFoundError:
        return None
    return line if is_sound(line, 1) else None


def damaged_line(path: Path, number: int, why: str) -> Corrupt:
    return Corrupt(f"{path} is damaged in line {number}: {why}", where=f"{path}:{number}")


def line_at(fd: int, offset: int) -> int:
    """The number of the line that holds this byte."""
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
    """Where a JSON value stands in a journal, and its checksum."""

    offset: int
    length: int
    crc: int


def pieces(
    line: bytes, at: int, mark: bytes, values: Iterable[msgspec.Raw]
) -> Iterator[tuple[msgspec.Raw, ValuePosition]]:
    """The elements of an array that `mark` opens, with their places.

    Our own encoder puts exactly one byte between them. Before the array stand only strings and numbers, so that `mark`
    with its bare quotes is nowhere inside them.
    """
    offset = at + line.index(mark) + len(mark)
    for value in values:
        length = memoryview(value).nbytes
        yield value, ValuePosition(offset, length, zlib.crc32(value))
        offset += length + 1


_GAP = 4096
_RUN = 1 << 22


class HasPosition(Protocol):
    """A `ValuePosition`, or a tuple that has its fields among others."""

    @property
    def offset(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def crc(self) -> int: ...


def read_pieces(fd: int, wanted: Sequence[HasPosition], path: Path) -> list[bytes]:
    """The values at these places, each checked. Neighbours are read together."""
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
