"""Lines of messages numbered from 1 in each conversation, whatever numbers a storage gives them.

So the same conversation has the same image, and the same lines in an export, in every store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, structs

from hansard.contract.types import Image, Lane, Row
from hansard.errors import Corrupt

Numbers = Mapping[int, int]
"""From a storage's numbers to ours."""


class Numbered(Struct, frozen=True):
    """An image with our numbers, and how its storage's become ours. Its rows keep the storage's: there are many."""

    image: Image
    numbers: Numbers

    def check(self, rows: Sequence[Row]) -> None:
        """Rows on a line that no branch reads cannot be copied."""
        for line in {row.line for row in rows} - self.numbers.keys():
            where = f"conversation {self.image.conversation.id!r}"
            raise Corrupt(f"{where} has messages on line {line}, which no branch reads", where=where)


def as_numbered(image: Image) -> Numbered:
    """An image that has our numbers already, as those of exports have."""
    lines = {line for lane in image.lanes for line, _ in (*lane.path, (lane.line, 0))}
    return Numbered(image, {line: line for line in lines})


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
