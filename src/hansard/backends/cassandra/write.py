"""A write as data: the head that it makes, the rows that it adds and removes, and its effects elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from hansard.backends.cassandra import rows
from hansard.backends.cassandra.connection import Statement
from hansard.backends.cassandra.effects import WriteEffects
from hansard.backends.cassandra.read import Name
from hansard.backends.cassandra.rows import Head, RowKey
from hansard.backends.shared import documents
from hansard.backends.shared.settling import WriteMark

Cells = tuple[bytes, bytes | None]
"""The document of a row, and its body; None leaves the body as it is."""


class WriteIntent(Struct):
    """What a mark says of its write, beside its numbers."""

    id: str
    n: int
    stamp: str
    after: str | None
    """The stamp that it was decided on."""
    after_n: int
    era: int
    deadline: int = 0
    references: list[tuple[str, int, int]] = []
    """Blobs that its messages refer to: hash, segment and seq."""
    uploads: list[tuple[str, int, int]] = []
    row: str = ""
    """Where the mark is stored: see `mark_rows.py`."""
    at: int = 0
    """The time of the mark."""


class FoundIntent(WriteIntent):
    """Of a mark that was read. Its row belongs to its writer."""


class Write(Struct):
    name: Name
    before: Head | None
    head: Head
    follows: WriteEffects
    rows: dict[RowKey, Cells | None] = {}
    """None for a row to delete."""
    wiped: WriteEffects | None = None
    """The effects of the rows of the ended era."""
    ended: int | None = None
    """The era whose rows are all deleted."""
    untied: int | None = None
    """The birth of the conversation whose ties are all deleted."""
    checked: set[RowKey] = set()
    """Rows that must not be there yet."""
    uploads: dict[str, tuple[bytes, int, int]] = {}
    """To put first: the bytes, and the segment and seq of the message."""
    blobs: dict[str, bytes | None] = {}
    """To keep: the bytes, or None where they should be there."""
    references: list[tuple[str, int, int]] = []
    inline: int = 0
    """Bytes of the bodies in the rows."""

    @property
    def tenant(self) -> str:
        return self.name[0]

    @property
    def is_plain(self) -> bool:
        """Nothing happens in other partitions."""
        return not (self.is_outgoing or self.uploads or self.references)

    @property
    def is_outgoing(self) -> bool:
        return not all(each.is_empty for each in self.effects)

    @property
    def mark(self) -> WriteMark:
        head, before = self.head, self.before
        said = WriteIntent(
            self.name[1],
            head.n,
            head.stamp,
            before.stamp if before else None,
            before.n if before else 0,
            head.era,
            0,
            self.references,
            [(upload, segment, seq) for upload, (_, segment, seq) in self.uploads.items()],
        )
        return WriteMark(self.name[1], head.n, said.after_n, (), said)

    @property
    def effects(self) -> Sequence[WriteEffects]:
        return [self.follows] if self.wiped is None else [self.follows, self.wiped]

    def statements(self, prefix: str) -> list[Statement]:
        """One conditional batch."""
        key = (prefix, *self.name)
        found = [rows.swap_of(key, self.before, self.head)]
        if self.follows.ended is not None:
            found += [("delete_contents", (*key, self.ended)), ("delete_ids", (*key, self.ended))]
        elif self.ended is not None:
            found.append(("delete_era", (*key, self.ended)))
        if self.untied is not None:
            found.append(("delete_rows", (*key, rows.BESIDE, rows.TIE, self.untied)))
        for place, cells in self.rows.items():
            found.append(self._row(key, place, cells))
        if self.is_outgoing:
            stored = [self.follows] if self.follows.ended is not None else self.effects
            outgoing = (rows.BESIDE, rows.OUTGOING, 0, self.head.n, "")
            found.append(("put_row", (*key, *outgoing, documents.encode(stored))))
        return found

    def _row(self, key: tuple[str, str, str], place: RowKey, cells: Cells | None) -> Statement:
        if cells is None:
            return "delete_row", (*key, *place)
        doc, body = cells
        if body is not None:
            return "put_row_with_body", (*key, *place, doc, body)
        return ("put_new_row" if place in self.checked else "put_row"), (*key, *place, doc)
