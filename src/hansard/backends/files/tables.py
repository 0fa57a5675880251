"""Where the messages of a line stand, as columns of numbers: some forty bytes a message."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator
from typing import NamedTuple

from hansard.backends.files.lines import Piece


class Row(NamedTuple):
    """Where a message stands: its line and seq in the conversation, its bytes in the journal."""

    line: int
    seq: int
    created: int
    size: int
    piece: Piece


class Table:
    """The messages of one line, in the order of seq."""

    def __init__(self, line: int) -> None:
        self.line = line
        self.is_in_time = True
        """The order of seq is the order of time, too."""
        self.seq = array("q")
        self.created = array("q")
        self.size = array("q")
        self.offset = array("q")
        self.length = array("q")
        self.crc = array("I")

    def __len__(self) -> int:
        return len(self.seq)

    def columns(self) -> list[array[int]]:
        return [self.seq, self.created, self.size, self.offset, self.length, self.crc]

    def add(self, seq: int, created: int, size: int, piece: Piece) -> None:
        if self.created and created < self.created[-1]:
            self.is_in_time = False
        self.seq.append(seq)
        self.created.append(created)
        self.size.append(size)
        self.offset.append(piece.offset)
        self.length.append(piece.length)
        self.crc.append(piece.crc)

    def put(self, at: int, size: int, piece: Piece) -> None:
        """The message says something else now, elsewhere in the file."""
        self.size[at] = size
        self.offset[at], self.length[at], self.crc[at] = piece

    def remove(self, at: int) -> None:
        for column in self.columns():
            del column[at]

    def row(self, at: int) -> Row:
        piece = Piece(self.offset[at], self.length[at], self.crc[at])
        return Row(self.line, self.seq[at], self.created[at], self.size[at], piece)

    def rows(self, start: int, end: int) -> Iterator[Row]:
        return map(self.row, range(start, end))

    def find(self, seq: int) -> int:
        return bisect_left(self.seq, seq)

    def upto(self, seq: int) -> int:
        """How many of its messages have at most this seq."""
        return bisect_right(self.seq, seq)

    def before(self, created: int, seq: int) -> int:
        """How many lie before that place in time."""
        low, high = bisect_left(self.created, created), bisect_right(self.created, created)
        return bisect_left(self.seq, seq, low, high)

    def last(self, gone: Collection[int]) -> tuple[int, int]:
        """Seq and time of its last message that has not gone; zeros when there is none."""
        at = len(self) - 1
        while at >= 0 and self.seq[at] in gone:
            at -= 1
        return (self.seq[at], self.created[at]) if at >= 0 else (0, 0)

    def copy(self, start: int = 0, end: int | None = None) -> Table:
        twin = Table(self.line)
        twin.fill([column[start:end] for column in self.columns()])
        twin.is_in_time = self.is_in_time
        return twin

    def fill(self, columns: list[array[int]]) -> None:
        self.seq, self.created, self.size, self.offset, self.length, self.crc = columns
