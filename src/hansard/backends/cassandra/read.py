"""One conversation at one moment: its head, and the rows of its partition."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from typing import TypeVar

from hansard import rules
from hansard.backends.cassandra import connection, rows, uploads
from hansard.backends.cassandra.connection import Link, some_at_once
from hansard.backends.cassandra.rows import CassandraMessage, Head
from hansard.backends.shared import documents, message_walk
from hansard.contract.storage import Found, Placed, Run, Span, Wants
from hansard.contract.types import Context, ConversationState, MessageQuery, Row, Slice
from hansard.errors import Corrupt
from hansard.model import Message, Summary, from_micros

T = TypeVar("T")
Name = tuple[str, str]
"""Tenant and id."""
_PIECE = 200
_WHOLE_PART = 2**31 - 1
_HEADS = 32
"""Heads in one request: one node asks the others for all of them."""
_AT_ONCE = 8
"""Such requests at once: a search may need the heads of thousands of conversations."""
_NAMES = 200
"""Rows that are asked for by name at once."""


async def load(link: Link, name: Name, *, serial: bool = False) -> Head | None:
    found = await link.read("read_head", *name, 1, serial=serial)
    return head_of(found[0], name) if found else None


async def load_many(link: Link, tenant: str, ids: Iterable[str]) -> dict[str, Head | None]:
    """Some at once in one request, which costs much less than one for each."""
    wanted = list(dict.fromkeys(ids))
    asked = (wanted[first : first + _HEADS] for first in range(0, len(wanted), _HEADS))
    found = await some_at_once((link.read("read_heads", tenant, each) for each in asked), _AT_ONCE)
    return {row[-1]: head_of(row, (tenant, row[-1])) for each in found for row in each}


def head_of(row: connection.Row, name: Name) -> Head | None:
    """None when the first row of a partition is not a head: there is none then."""
    if row[1] != rows.HEAD or row[0] != rows.HEAD_ERA:
        return None
    return rows.decode_head(row[6], f"conversation {name[1]!r} of tenant {name[0]!r}")


async def look(
    link: Link,
    context: Context,
    id: str,
    ask: Callable[[ConversationView], Awaitable[T]],
    *,
    behind_walls: bool = False,
    tail: int = 0,
) -> T | None:
    """What is seen of a conversation at one moment; None when the context sees no such conversation.

    `tail` rows are read together with the head.
    """
    name = (context.tenant, id)
    while True:
        found = await link.read("read_head", *name, 1 + tail)
        head = head_of(found[0], name) if found else None
        if head is None or head.state is None:
            return None
        if not behind_walls and not rules.is_visible(head.state.conversation, context):
            return None
        view = ConversationView(link, name, head, head.state, found[1:] if tail else None, tail)
        try:
            answer = await ask(view)
        except Corrupt:
            if not await view.has_changed():
                raise
            continue
        if view.is_one_moment or not await view.has_changed():
            return answer


class ConversationView:
    """A conversation that is there. What it hands out is made for the call."""

    def __init__(
        self,
        link: Link,
        name: Name,
        head: Head,
        state: ConversationState,
        tail: Sequence[connection.Row] | None = None,
        asked: int = 0,
    ) -> None:
        self._link = link
        self.name = name
        self.id = name[1]
        self.head = head
        self.state = state
        self._tail = self._tail_of(tail) if tail is not None else []
        self._is_whole = tail is not None and len(self._tail) < asked and not head.parts
        """The segment of the tail has no other messages."""
        self.is_one_moment = True
        """Nothing was asked after the head."""

    async def has_changed(self) -> bool:
        """Whether something was changed or removed since. What was added is behind the last seq, and was not read."""
        now = await load(self._link, self.name)
        return now is None or (now.birth, now.edits) != (self.head.birth, self.head.edits)

    async def read(self, query: str, *arguments: object, part: int = 0, serial: bool = False) -> list[connection.Row]:
        self.is_one_moment = False
        return await self._link.read(query, *self.name, part, *arguments, serial=serial)

    # Rows

    def _tail_of(self, tail: Sequence[connection.Row]) -> list[CassandraMessage]:
        """The newest messages of the highest segment, as far as they came with the head."""
        sealed = self.head.sealed
        found = [row for row in tail if row[0] == self.head.era and row[1] == rows.MESSAGE and row[3] > sealed]
        return [rows.message_row(row, self.id) for row in found if row[2] == found[0][2]]

    async def walk(
        self, run: Run, *, newest_first: bool = False, expected: int | None = None
    ) -> AsyncGenerator[CassandraMessage, None]:
        piece = min(expected or _PIECE, _PIECE)
        after, upto = run.after, min(run.upto, self.state.seq)
        if newest_first:
            for row in self._known(run.segment):
                if after < row.seq <= upto:
                    yield row
                    upto = row.seq - 1
            if self._is_whole and (not self._tail or self._tail[0].segment == run.segment):
                return
        ranges = self._ranges(after, upto)
        for part, low, high in reversed(ranges) if newest_first else ranges:
            walk = self._walk_overlaid if part and self.head.overlaid else self._walk_part
            async for row in walk(part, Run(run.segment, low, high), piece, newest_first=newest_first):
                yield row
            piece = _PIECE

    def _ranges(self, after: int, upto: int) -> list[tuple[int, int, int]]:
        """The parts that have messages of this range, oldest first, each with its part of the range."""
        found = []
        for part in (*self.head.parts, rows.SealedPart(0, upto)):
            if after < min(upto, part.upto):
                found.append((part.number, after, min(upto, part.upto)))
                after = part.upto
        return found

    async def _walk_part(
        self, part: int, run: Run, piece: int, *, newest_first: bool
    ) -> AsyncGenerator[CassandraMessage, None]:
        after, upto = run.after, run.upto
        while after < upto:
            place = (self.head.era, rows.MESSAGE, run.segment, after, upto)
            found = await self.read("read_newest" if newest_first else "read_oldest", *place, piece, part=part)
            for each in found:
                yield rows.message_row(each, self.id)
            if len(found) < piece:
                return
            if newest_first:
                upto = found[-1][3] - 1
            else:
                after = found[-1][3]
            piece = _PIECE

    async def _walk_overlaid(
        self, part: int, run: Run, piece: int, *, newest_first: bool
    ) -> AsyncGenerator[CassandraMessage, None]:
        """The rows of a part, with those of part 0 instead of them."""
        place = (self.head.era, rows.MESSAGE, run.segment, run.after, run.upto, _WHOLE_PART)
        stored, changed = await asyncio.gather(
            self.read("read_oldest", *place, part=part), self.read("read_oldest", *place)
        )
        merged = {row[3]: row for row in (*stored, *changed)}
        for seq in sorted(merged, reverse=newest_first):
            if merged[seq][6] != rows.REMOVED:
                yield rows.message_row(merged[seq], self.id)

    def _known(self, segment: int) -> Sequence[CassandraMessage]:
        """Those of the tail, if they are the newest of this segment."""
        return self._tail if self._tail and self._tail[0].segment == segment else ()

    async def find(self, ids: Sequence[str]) -> list[CassandraMessage]:
        """Those of these messages that are there."""
        wanted = list(dict.fromkeys(ids))
        found = await self._places(wanted)
        known = {row[4] for row in found}
        found += await self.sealed_ids([id for id in wanted if id not in known])
        places = [documents.decode(row[6], tuple[int, int], f"the place of message {row[4]!r}") for row in found]
        return [row for row in await some_at_once(self.at(*place) for place in places) if row is not None]

    async def sealed_ids(self, ids: Sequence[str]) -> list[connection.Row]:
        """The places of those of these messages that parts have, or had."""
        found: list[connection.Row] = []
        buckets: dict[int, list[str]] = {}
        for id in ids if self.head.parts else ():
            buckets.setdefault(rows.id_part(id), []).append(id)
        for part, names in buckets.items():
            found += await self._places(names, part)
        return found

    async def _places(self, ids: Sequence[str], part: int = 0) -> list[connection.Row]:
        self.is_one_moment = False
        return await _named(self._link, self.name, part, self.head.era, rows.ID, ids)

    async def at(self, segment: int, seq: int, *, serial: bool = False) -> CassandraMessage | None:
        place = (self.head.era, rows.MESSAGE, segment, seq - 1, seq, 1)
        is_sealed = seq <= self.head.sealed
        found: list[connection.Row] = []
        if not is_sealed or self.head.overlaid:
            found = await self.read("read_newest", *place, serial=serial)
        if is_sealed and not found:
            found = await self.read("read_newest", *place, part=self.head.part_of(seq))
        return rows.message_row(found[0], self.id) if found and found[0][6] != rows.REMOVED else None

    async def everywhere(self, kind: int) -> list[connection.Row]:
        """The rows of a kind in all parts."""
        found = await self.kind(kind)
        for part in self.head.partitions:
            found += await self.read("read_kind", self.head.era, kind, part=part)
        return found

    async def kind(self, kind: int, era: int | None = None) -> list[connection.Row]:
        return await self.read("read_kind", self.head.era if era is None else era, kind)

    async def summaries(self) -> list[tuple[rows.RowKey, Summary]]:
        """Oldest first, with their keys."""
        found = sorted(await self.kind(rows.SUMMARY), key=lambda row: (row[3], row[4]))
        where = f"a summary of {self.id!r}"
        return [((row[0], row[1], row[2], row[3], row[4]), documents.decode(row[6], Summary, where)) for row in found]

    async def placed(self, found: Iterable[CassandraMessage]) -> list[Placed]:
        known = list(found)
        messages = await self.messages_of(known)
        return [(row.segment, message) for row, message in zip(known, messages, strict=True)]

    async def messages_of(self, found: Sequence[CassandraMessage]) -> list[Message]:
        if any(row.stored.upload is not None for row in found):
            self.is_one_moment = False
        return await messages_of(self._link, self.id, found)

    # Answers

    async def answer(self, wants: Wants) -> tuple[Found, list[CassandraMessage]]:
        """Answers everything except tombstones, blobs and records. Also returns the rows of the messages."""
        found = await self.find(wants.ids) if wants.ids else []
        if wants.newest is None:
            messages = [row async for row in message_walk.walk_all(self, wants.runs)]
        else:
            messages = await message_walk.newest(self, wants.runs, wants.newest)
        by_id = await self.placed(found)
        answer = Found(
            by_id={message.id: (segment, message) for segment, message in by_id},
            messages=await self.placed(messages),
            spans=[await self.span(run) for run in wants.spans],
            last_time=await message_walk.last_time(self, wants.last_time_without) if wants.last_time_without else None,
            summaries=[summary for _, summary in await self.summaries()] if wants.summaries else (),
        )
        return answer, [*found, *messages]

    async def span(self, run: Run) -> Span:
        seqs = await self._seqs(run)
        return Span(len(seqs), min(seqs), max(seqs)) if seqs else Span()

    async def _seqs(self, run: Run) -> list[int]:
        if self.head.overlaid:
            return [row.seq async for row in self.walk(run)]
        found: list[int] = []
        for part, low, high in self._ranges(run.after, min(run.upto, self.state.seq)):
            place = (self.head.era, rows.MESSAGE, run.segment, low, high)
            found += [seq for (seq,) in await self.read("read_seqs", *place, part=part)]
        return found

    # Reading

    async def messages(self, query: MessageQuery) -> Slice:
        found, more = await message_walk.select(self, query, self._without_content)
        return Slice(await self.messages_of(found), more)

    def _without_content(self, row: CassandraMessage) -> Message:
        return rows.message_of(row, "null" if row.stored.format != "text" else "", self.id)

    async def pinned(self, run: Run) -> AsyncGenerator[CassandraMessage, None]:
        """The cost follows the number of pinned messages."""
        place = (self.head.era, rows.PIN, run.segment, run.after, min(run.upto, self.state.seq))
        for seq in sorted(seq for (seq,) in await self.read("read_seqs", *place)):
            if (row := await self.at(run.segment, seq)) is not None:
                yield row

    async def rows(self, after_seq: int, limit: int, max_bytes: int) -> list[Row]:
        """Returns messages of all segments, ordered by seq."""
        found = await message_walk.rows_after(self, after_seq, limit, max_bytes)
        return [Row(segment, message) for segment, message in await self.placed(found)]


async def referred(
    link: Link, name: Name, era: int, birth: int, parts: Sequence[int]
) -> tuple[list[tuple[int, int, str]], list[str], list[tuple[str, tuple[str, ...], str]]]:
    """What all messages refer to (segment, seq, and what), their participants, and the records of this birth."""
    found = [row for part in (0, *parts) for row in await link.read("read_kind", *name, part, era, rows.REFERENCE)]
    people = await link.read("read_kind", *name, 0, era, rows.PARTICIPANT)
    ties = await link.read("read_kind", *name, 0, rows.BESIDE, rows.TIE) if birth else []
    records = [documents.decode(row[6], tuple[str, tuple[str, ...], str], "a tie") for row in ties if row[2] == birth]
    return [(row[2], row[3], row[4]) for row in found], [row[4] for row in people], records


async def messages_of(link: Link, id: str, found: Sequence[CassandraMessage]) -> list[Message]:
    large = [row.stored.upload for row in found if row.stored.upload is not None]
    bodies = await uploads.get_many(link, large) if large else {}
    return [rows.message_of(row, _body(row, bodies, id), id) for row in found]


def _body(row: CassandraMessage, bodies: dict[str, bytes], id: str) -> str:
    if row.stored.upload is not None:
        return bodies[row.stored.upload].decode()
    if row.body is None:
        raise Corrupt(f"message {row.stored.id!r} of conversation {id!r} has lost its body", where=id)
    return row.body


async def tombstones(link: Link, name: Name, digests: Sequence[str]) -> dict[str, datetime]:
    found = await _named(link, name, 0, rows.BESIDE, rows.TOMBSTONE, list(dict.fromkeys(digests)))
    return {row[4]: from_micros(documents.decode(row[6], int, "a tombstone")) for row in found}


async def _named(link: Link, name: Name, part: int, era: int, kind: int, names: Sequence[str]) -> list[connection.Row]:
    """The rows of a kind with these names."""
    pieces = (names[first : first + _NAMES] for first in range(0, len(names), _NAMES))
    found = await some_at_once(link.read("read_names", *name, part, era, kind, 0, 0, piece) for piece in pieces)
    return [row for each in found for row in each]
