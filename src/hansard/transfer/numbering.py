"""Lines of messages numbered from 1 in each conversation, whatever numbers a storage gives them.

So the same conversation has the same image, and the same lines in an export, in every store.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, structs

from hansard.errors import Corrupt
from hansard.requests import Image, Lane, Row


class Numbered(Struct, frozen=True):
    """An image with our numbers, and what they stand for in its storage."""

    image: Image
    numbers: dict[int, int]

    def rows(self, rows: Sequence[Row]) -> Sequence[Row]:
        """Rows of the storage, with our numbers."""
        numbers = self.numbers
        if all(line == number for line, number in numbers.items()):
            return rows
        try:
            return [Row(numbers[row.line], row.message) for row in rows]
        except KeyError as error:
            id = self.image.conversation.id
            where = f"conversation {id!r}"
            raise Corrupt(f"{where} has messages on line {error}, which no branch reads", where=where) from error


def numbered(image: Image) -> Numbered:
    numbers: dict[int, int] = {}
    for lane in sorted(image.lanes, key=lambda lane: (lane.created_at, lane.id)):
        for line, _ in (*lane.path, (lane.line, 0)):
            numbers.setdefault(line, len(numbers) + 1)
    lanes = tuple(_renumbered(lane, numbers) for lane in image.lanes)
    return Numbered(structs.replace(image, lanes=lanes), numbers)


def _renumbered(lane: Lane, numbers: dict[int, int]) -> Lane:
    path = tuple((numbers[line], upto) for line, upto in lane.path)
    return structs.replace(lane, line=numbers[lane.line], path=path)
