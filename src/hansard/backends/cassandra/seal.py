"""Parts: the older messages of a long conversation move to partitions of their own, so that none grows without a bound.

Part 0 has the head and the newest messages, so an append is one batch in it, and a tail one read. When it has `PART`
messages more than it keeps, a writer moves the oldest to a new part, in the three steps of `heads.py`. The last step
also deletes them from part 0. It fails if anything was changed or removed since the claim; then all begins again.

A message in a part is changed or removed by a row in part 0 that hides that of the part, which is deleted afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs

from hansard.backends.cassandra import read, rows
from hansard.backends.cassandra.connection import Link, Row, Statement
from hansard.backends.cassandra.heads import Heads
from hansard.backends.cassandra.read import ConversationView, Name
from hansard.backends.cassandra.rows import Head, SealedPart
from hansard.backends.shared import documents, message_walk

PART = 2000
"""Messages of a part, by their seq."""
KEPT = 500
"""Newest messages that stay in part 0: more than any tail that is read with the head."""
_TRIES = 5
_ALL = 2**31 - 1


class Sealer:
    def __init__(self, link: Link, heads: Heads) -> None:
        self._link = link
        self._heads = heads

    async def seal(self, name: Name, head: Head) -> None:
        """Moves messages to parts, if there are many. Called after each write."""
        tries = 0
        while head.state is not None and head.state.seq - head.sealed >= PART + KEPT and tries < _TRIES:
            sealed = await self._seal(name, head)
            if sealed is None:
                tries += 1
                now = await read.load(self._link, name)
                if now is None:
                    return
                sealed = now
            head = sealed

    async def _seal(self, name: Name, head: Head) -> Head | None:
        """Returns the head after it; None if another writer was faster."""
        part = head.claim or SealedPart(head.last_part + 1, head.sealed + PART)
        claim = await self._heads.swap(name, head, structs.replace(head, claim=part, last_part=part.number))
        if claim is None:
            return None
        moved = await self._moved(name, claim)
        await self._copy(name, claim, moved)

        def end(head: Head) -> Head | None:
            if (head.birth, head.era, head.edits) != (claim.birth, claim.era, claim.edits):
                return None
            parts = [*head.parts, part]
            return structs.replace(head, parts=parts, claim=None, overlaid=False, edits=head.edits + 1)

        return await self._heads.finish(name, claim, end, self._deletions(name, claim, moved))

    async def _moved(self, name: Name, claim: Head) -> list[Row]:
        """The rows of part 0 that belong to parts."""
        assert claim.state is not None
        assert claim.claim is not None
        view = ConversationView(self._link, name, claim, claim.state)
        found: list[Row] = []
        after = rows.NO_SEQ if claim.overlaid else claim.sealed
        for segment in message_walk.segments(claim.state):
            for kind in (rows.MESSAGE, rows.REFERENCE):
                found += await view.read("read_oldest", claim.era, kind, segment, after, claim.claim.upto, _ALL)
        return found

    async def _copy(self, name: Name, claim: Head, moved: Iterable[Row]) -> None:
        key = (self._link.prefix, *name)
        copies: dict[int, list[Row]] = {}
        for row in moved:
            era, kind, segment, seq, _, _, doc, _ = row
            part = claim.part_of(seq)
            if doc == rows.REMOVED:
                for each in (rows.MESSAGE, rows.REFERENCE):
                    await self._link.put("delete_part_rows", claim.n, *key, part, era, each, segment, seq)
                continue
            copies.setdefault(part, []).append(row)
            if kind == rows.MESSAGE:
                id = rows.message_row(row, name[1]).id
                place = documents.encode((segment, seq))
                copies.setdefault(rows.id_part(id), []).append((era, rows.ID, 0, 0, id, None, place, None))
        for part, some in copies.items():
            await self._link.put_many(
                ("put_part_row", (*key, part, era, kind, segment, seq, row_name, doc, body, claim.n))
                for era, kind, segment, seq, row_name, _, doc, body in some
            )

    def _deletions(self, name: Name, claim: Head, moved: Iterable[Row]) -> list[Statement]:
        """Deletes from part 0 what was copied."""
        assert claim.state is not None
        assert claim.claim is not None
        key = (self._link.prefix, *name)
        found: list[Statement] = [
            ("delete_sealed", (*key, claim.era, kind, segment, claim.claim.upto))
            for segment in message_walk.segments(claim.state)
            for kind in (rows.MESSAGE, rows.REFERENCE)
        ]
        messages = [row for row in moved if row[1] == rows.MESSAGE and row[6] != rows.REMOVED]
        ids = [rows.message_row(row, name[1]).id for row in messages]
        return [*found, *(("delete_row", (*key, claim.era, rows.ID, 0, 0, id)) for id in ids)]
