"""One conversation at one moment: its head, and the rows of its partition."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import TypeVar

from hansard import rules
from hansard.backends.cassandra import connection, rows, uploads
from hansard.backends.cassandra.connection import Link
from hansard.backends.cassandra.rows import CassandraMessage, Head
from hansard.contract.storage import Found, Placed, Run, Span, Wants, Without
from hansard.contract.types import Context, ConversationState, MessageQuery, Row, Slice
from hansard.errors import Corrupt
from hansard.model import Message, Summary, from_micros
from hansard.rules.operations.common import runs_of

T = TypeVar("T")
Name = tuple[str, str]
"""Tenant and id."""
_PIECE = 200
_NAMES = 200
"""Rows that are asked for by name at once."""


async def load(link: Link, name: Name, *, serial: bool = False) -> Head | None:
    found = await link.read("read_head", *name, 1, serial=serial)
    return head_of(found[0], name) if found else None


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
        self._is_whole = tail is not None and len(self._tail) < asked
        """The segment of the tail has no other messages."""
        self.is_one_moment = True
        """Nothing was asked after the head."""

    async def has_changed(self) -> bool:
        """Whether something was changed or removed since. What was added is behind the last seq, and was not read."""
        now = await load(self._link, self.name)
        return now is None or (now.birth, now.edits) != (self.head.birth, self.head.edits)

    async def read(self, query: str, *arguments: object) -> list[connection.Row]:
        self.is_one_moment = False
        return await self._link.read(query, *self.name, *arguments)

    # Rows

    def _tail_of(self, tail: Sequence[connection.Row]) -> list[CassandraMessage]:
        """The newest messages of the highest segment, as far as they came with the head."""
        found = [row for row in tail if row[0] == self.head.era and row[1] == rows.MESSAGE]
        return [rows.message_row(row, self.id) for row in found if row[2] == found[0][2]]

    async def walk(
        self, run: Run, *, newest_first: bool = False, piece: int = _PIECE
    ) -> AsyncGenerator[CassandraMessage, None]:
        after, upto = run.after, min(run.upto, self.state.seq)
        if newest_first:
            for row in self._known(run.segment):
                if after < row.seq <= upto:
                    yield row
                    upto = row.seq - 1
            if self._is_whole and (not self._tail or self._tail[0].segment == run.segment):
                return
        while after < upto:
            place = (self.head.era, rows.MESSAGE, run.segment, after, upto)
            found = await self.read("read_newest" if newest_first else "read_oldest", *place, piece)
            for each in found:
                yield rows.message_row(each, self.id)
            if len(found) < piece:
                return
            if newest_first:
                upto = found[-1][3] - 1
            else:
                after = found[-1][3]
            piece = _PIECE

    def _known(self, segment: int) -> Sequence[CassandraMessage]:
        """Those of the tail, if they are the newest of this segment."""
        return self._tail if self._tail and self._tail[0].segment == segment else ()

    async def walk_all(
        self, runs: Sequence[Run], *, newest_first: bool = False, piece: int = _PIECE
    ) -> AsyncGenerator[CassandraMessage, None]:
        for run in reversed(runs) if newest_first else runs:
            async with aclosing(self.walk(run, newest_first=newest_first, piece=piece)) as walked:
                async for row in walked:
                    yield row

    async def newest(self, runs: Sequence[Run], count: int) -> list[CassandraMessage]:
        found: list[CassandraMessage] = []
        async with aclosing(self.walk_all(runs, newest_first=True, piece=min(count + 1, _PIECE))) as walked:
            async for row in walked:
                if len(found) == count:
                    break
                found.append(row)
        return found[::-1]

    async def find(self, ids: Sequence[str]) -> list[CassandraMessage]:
        """Those of these messages that are there."""
        wanted = list(dict.fromkeys(ids))
        places: list[tuple[int, int]] = []
        for first in range(0, len(wanted), _NAMES):
            names = wanted[first : first + _NAMES]
            found = await self.read("read_names", self.head.era, rows.ID, 0, 0, names)
            places += [rows.decode(row[6], tuple[int, int], f"the place of message {row[4]!r}") for row in found]
        return [row for row in await asyncio.gather(*(self.at(*place) for place in places)) if row is not None]

    async def at(self, segment: int, seq: int) -> CassandraMessage | None:
        found = await self.read("read_newest", self.head.era, rows.MESSAGE, segment, seq - 1, seq, 1)
        return rows.message_row(found[0], self.id) if found else None

    def segments(self) -> list[int]:
        """Every segment that holds messages: each message is read by some branch."""
        return sorted({segment for branch in self.state.branches.values() for segment, _ in rules.segments(branch)})

    async def kind(self, kind: int, era: int | None = None) -> list[connection.Row]:
        return await self.read("read_kind", self.head.era if era is None else era, kind)

    async def summaries(self) -> list[tuple[rows.RowKey, Summary]]:
        """Oldest first, with their keys."""
        found = sorted(await self.kind(rows.SUMMARY), key=lambda row: (row[3], row[4]))
        where = f"a summary of {self.id!r}"
        return [((row[0], row[1], row[2], row[3], row[4]), rows.decode(row[6], Summary, where)) for row in found]

    async def placed(self, found: Iterable[CassandraMessage]) -> list[Placed]:
        known = list(found)
        messages = await self.messages_of(known)
        return [(row.segment, message) for row, message in zip(known, messages, strict=True)]

    async def messages_of(self, found: Sequence[CassandraMessage]) -> list[Message]:
        large = [row.stored.upload for row in found if row.stored.upload is not None]
        bodies = await uploads.get_many(self._link, large) if large else {}
        if large:
            self.is_one_moment = False
        return [rows.message_of(row, self._body(row, bodies), self.id) for row in found]

    def _body(self, row: CassandraMessage, bodies: dict[str, bytes]) -> str:
        if row.stored.upload is not None:
            return bodies[row.stored.upload].decode()
        if row.body is None:
            raise Corrupt(f"message {row.stored.id!r} of conversation {self.id!r} has lost its body", where=self.id)
        return row.body

    # Answers

    async def answer(self, wants: Wants) -> tuple[Found, list[CassandraMessage]]:
        """Answers everything except tombstones, blobs and records. Also returns the rows of the messages."""
        found = await self.find(wants.ids) if wants.ids else []
        if wants.newest is None:
            messages = [row async for row in self.walk_all(wants.runs)]
        else:
            messages = await self.newest(wants.runs, wants.newest)
        by_id = await self.placed(found)
        answer = Found(
            by_id={message.id: (segment, message) for segment, message in by_id},
            messages=await self.placed(messages),
            spans=[await self.span(run) for run in wants.spans],
            last_time=await self.last_time(wants.last_time_without) if wants.last_time_without else None,
            summaries=[summary for _, summary in await self.summaries()] if wants.summaries else (),
        )
        return answer, [*found, *messages]

    async def span(self, run: Run) -> Span:
        place = (self.head.era, rows.MESSAGE, run.segment, run.after, min(run.upto, self.state.seq))
        seqs = [seq for (seq,) in await self.read("read_seqs", *place)]
        return Span(len(seqs), min(seqs), max(seqs)) if seqs else Span()

    async def last_time(self, without: Without) -> datetime | None:
        left = [await self._last_left(segment, without) for segment in self.segments()]
        last = max((row for row in left if row is not None), key=lambda row: row.seq, default=None)
        return from_micros(last.stored.created_at) if last else None

    async def _last_left(self, segment: int, without: Without) -> CassandraMessage | None:
        runs = [run for run in without.runs if run.segment == segment]
        upto = rules.NO_END
        for run in sorted(runs, key=lambda each: -each.upto):
            upto = run.after if run.upto >= upto else upto
        async with aclosing(self.walk(Run(segment, 0, upto), newest_first=True, piece=10)) as walked:
            async for row in walked:
                if row.stored.id not in without.ids and not any(run.after < row.seq <= run.upto for run in runs):
                    return row
        return None

    # Reading

    async def messages(self, query: MessageQuery) -> Slice:
        found: list[CassandraMessage] = []
        total, more = 0, False
        async with aclosing(self._selected(query)) as selected:
            async for row in selected:
                if not _is_selected(row, self.id, query):
                    continue
                if len(found) == query.limit or (query.max_bytes is not None and total >= query.max_bytes):
                    more = True
                    break
                found.append(row)
                total += row.stored.size
        return Slice(await self.messages_of(found), more)

    async def _selected(self, query: MessageQuery) -> AsyncGenerator[CassandraMessage, None]:
        """Rows of the branch in the order of the query, at least all that it wants."""
        runs = runs_of(self.state.branch(query.branch))
        if query.sort == "time":
            everything = [row async for row in self.walk_all(runs)]
            everything.sort(key=lambda row: (row.stored.created_at, row.seq), reverse=query.newest_first)
            for row in everything:
                yield row
            return
        above = query.above[1] if query.above else 0
        below = query.below[1] - 1 if query.below else rules.NO_END
        runs = [Run(run.segment, max(run.after, above), min(run.upto, below)) for run in runs]
        runs = [run for run in runs if run.after < run.upto]
        piece = min((query.limit or _PIECE) + 1, _PIECE)
        if query.pinned:
            walked = self._pinned(runs, query.newest_first)
        else:
            walked = self.walk_all(runs, newest_first=query.newest_first, piece=piece)
        async with aclosing(walked):
            async for row in walked:
                yield row

    async def _pinned(self, runs: Sequence[Run], newest_first: bool) -> AsyncGenerator[CassandraMessage, None]:
        """At the cost of their number."""
        for run in reversed(runs) if newest_first else runs:
            place = (self.head.era, rows.PIN, run.segment, run.after, min(run.upto, self.state.seq))
            seqs = sorted((seq for (seq,) in await self.read("read_seqs", *place)), reverse=newest_first)
            for seq in seqs:
                row = await self.at(run.segment, seq)
                if row is not None:
                    yield row

    async def rows(self, after_seq: int, limit: int, max_bytes: int) -> list[Row]:
        """Of all segments in the order of seq."""
        merged: list[CassandraMessage] = []
        end = rules.NO_END
        for segment in self.segments():
            part, more = await self._piece(Run(segment, after_seq, rules.NO_END), limit, max_bytes)
            merged += part
            end = min(end, part[-1].seq) if more else end
        merged.sort(key=lambda row: row.seq)
        taken: list[CassandraMessage] = []
        total = 0
        for row in merged:
            if row.seq > end or len(taken) == limit or (taken and total >= max_bytes):
                break
            taken.append(row)
            total += row.stored.size
        return [Row(segment, message) for segment, message in await self.placed(taken)]

    async def _piece(self, run: Run, limit: int, max_bytes: int) -> tuple[list[CassandraMessage], bool]:
        """The beginning of a run, and whether it continues."""
        found: list[CassandraMessage] = []
        total = 0
        async with aclosing(self.walk(run)) as walked:
            async for row in walked:
                if len(found) == limit or (found and total >= max_bytes):
                    return found, True
                found.append(row)
                total += row.stored.size
        return found, False


def _is_selected(row: CassandraMessage, id: str, query: MessageQuery) -> bool:
    """By all that can be asked of a message: its content is not among it."""
    message = rows.message_of(row, "null" if row.stored.format != "text" else "", id)
    return rules.is_between(message, query) and rules.is_wanted(message, query)


async def tombstones(link: Link, name: Name, digests: Sequence[str]) -> dict[str, datetime]:
    found: dict[str, datetime] = {}
    for first in range(0, len(digests), _NAMES):
        wanted = list(dict.fromkeys(digests[first : first + _NAMES]))
        for row in await link.read("read_names", *name, rows.BESIDE, rows.TOMBSTONE, 0, 0, wanted):
            found[row[4]] = from_micros(rows.decode(row[6], int, "a tombstone"))
    return found
