"""One conversation at one moment: a head, and the tree that it names."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from datetime import datetime

from msgspec import Raw

from hansard import rules
from hansard.backends.keyvalue import rows
from hansard.backends.keyvalue.rows import Anchor, MessageRow
from hansard.backends.keyvalue.tree import Root, Tree
from hansard.contract.storage import Found, Placed, Run, Span, Wants, Without
from hansard.contract.types import ConversationState, MessageQuery, Row, Slice
from hansard.model import Message, Summary, from_micros
from hansard.rules.operations.common import runs_of


class StoredConversation:
    """An existing conversation. Every value that it returns is made for the caller."""

    def __init__(self, tree: Tree, anchor: Anchor, state: ConversationState) -> None:
        self._tree = tree
        self.root: Root = anchor.root
        self.state = state
        self.id = state.conversation.id

    # Rows

    async def walk(self, run: Run, *, newest_first: bool = False) -> AsyncGenerator[MessageRow, None]:
        """Yields the messages of a run from either end."""
        async with aclosing(self._tree.scan(self.root, *_range(run), newest_first=newest_first)) as walked:
            async for _, value in walked:
                yield self._row(value)

    async def walk_all(self, runs: Sequence[Run], *, newest_first: bool = False) -> AsyncGenerator[MessageRow, None]:
        for run in reversed(runs) if newest_first else runs:
            async with aclosing(self.walk(run, newest_first=newest_first)) as walked:
                async for row in walked:
                    yield row

    async def newest(self, runs: Sequence[Run], count: int) -> list[MessageRow]:
        found: list[MessageRow] = []
        async with aclosing(self.walk_all(runs, newest_first=True)) as walked:
            async for row in walked:
                if len(found) == count:
                    break
                found.append(row)
        return found[::-1]

    async def find(self, id: str) -> MessageRow | None:
        place = await self._tree.get(self.root, rows.id_key(id))
        if place is None:
            return None
        return await self.at(*rows.decode(place, tuple[int, int], f"the place of message {id!r}"))

    async def at(self, segment: int, seq: int) -> MessageRow | None:
        value = await self._tree.get(self.root, rows.message_key(segment, seq))
        return self._row(value) if value is not None else None

    def _row(self, value: Raw) -> MessageRow:
        return rows.decode(value, MessageRow, f"a message of conversation {self.id!r}")

    def message(self, row: MessageRow) -> Message:
        return rows.message_of(row, self.id)

    def placed(self, found: Iterable[MessageRow]) -> list[Placed]:
        return [(row.segment, self.message(row)) for row in found]

    def segments(self) -> list[int]:
        """Returns every segment that holds messages: each message is read by some branch."""
        return sorted({segment for branch in self.state.branches.values() for segment, _ in rules.segments(branch)})

    async def summaries(self) -> list[tuple[bytes, Summary]]:
        """Returns the summaries, oldest first, with their keys."""
        found = await self._tree.items(self.root, *rows.SUMMARIES)
        return [(key, rows.decode(value, Summary, f"a summary of {self.id!r}")) for key, value in found]

    async def count_summaries(self) -> int:
        return await self._tree.count(self.root, *rows.SUMMARIES)

    # Answers

    async def answer(self, wants: Wants) -> Found:
        """Answers everything except blobs, tombstones and records."""
        found = [row for id in wants.ids if (row := await self.find(id))]
        if wants.newest is None:
            messages = [row async for row in self.walk_all(wants.runs)]
        else:
            messages = await self.newest(wants.runs, wants.newest)
        return Found(
            by_id={row.id: (row.segment, self.message(row)) for row in found},
            messages=self.placed(messages),
            spans=[await self.span(run) for run in wants.spans],
            last_time=await self.last_time(wants.last_time_without) if wants.last_time_without else None,
            summaries=[summary for _, summary in await self.summaries()] if wants.summaries else (),
        )

    async def span(self, run: Run) -> Span:
        last = await self.newest([run], 1)
        if not last:
            return Span()
        count = await self._tree.count(self.root, *_range(run))
        async with aclosing(self.walk(run)) as walked:
            first = await anext(walked)
        return Span(count, first.seq, last[0].seq)

    async def last_time(self, without: Without) -> datetime | None:
        left = [await self._last_left(segment, without) for segment in self.segments()]
        last = max((row for row in left if row is not None), key=lambda row: row.seq, default=None)
        return from_micros(last.created_at) if last else None

    async def _last_left(self, segment: int, without: Without) -> MessageRow | None:
        runs = [run for run in without.runs if run.segment == segment]
        upto = rules.NO_END
        for run in sorted(runs, key=lambda each: -each.upto):
            upto = run.after if run.upto >= upto else upto
        async with aclosing(self.walk(Run(segment, 0, upto), newest_first=True)) as walked:
            async for row in walked:
                if row.id not in without.ids and not any(run.after < row.seq <= run.upto for run in runs):
                    return row
        return None

    # Reading

    async def messages(self, query: MessageQuery) -> Slice:
        found: list[Message] = []
        total = 0
        async with aclosing(self._selected(query)) as selected:
            async for row in selected:
                message = self.message(row)
                if not (rules.is_between(message, query) and rules.is_wanted(message, query)):
                    continue
                if len(found) == query.limit or (query.max_bytes is not None and total >= query.max_bytes):
                    return Slice(found, True)
                found.append(message)
                total += row.size
        return Slice(found, False)

    async def _selected(self, query: MessageQuery) -> AsyncGenerator[MessageRow, None]:
        """Yields rows of the branch in the order of the query, at least all that it selects."""
        runs = runs_of(self.state.branch(query.branch))
        if query.sort == "time":
            everything = [row async for row in self.walk_all(runs)]
            everything.sort(key=lambda row: (row.created_at, row.seq), reverse=query.newest_first)
            for row in everything:
                yield row
            return
        above = query.above[1] if query.above else 0
        below = query.below[1] - 1 if query.below else rules.NO_END
        runs = [Run(run.segment, max(run.after, above), min(run.upto, below)) for run in runs]
        runs = [run for run in runs if run.after < run.upto]
        rows_of = self._pinned(runs, query.newest_first) if query.pinned else self._plain(runs, query.newest_first)
        async with aclosing(rows_of) as walked:
            async for row in walked:
                yield row

    def _plain(self, runs: Sequence[Run], newest_first: bool) -> AsyncGenerator[MessageRow, None]:
        return self.walk_all(runs, newest_first=newest_first)

    async def _pinned(self, runs: Sequence[Run], newest_first: bool) -> AsyncGenerator[MessageRow, None]:
        """Yields the pinned messages. The cost follows their number."""
        found: list[MessageRow] = []
        for run in runs:
            low, high = rows.pin_key(run.segment, run.after + 1), rows.pin_key(run.segment, run.upto + 1)
            for key, _ in await self._tree.items(self.root, low, high):
                row = await self.at(run.segment, int.from_bytes(key[9:]))
                found += [row] if row is not None else []
        for row in reversed(found) if newest_first else found:
            yield row

    async def rows(self, after_seq: int, limit: int, max_bytes: int) -> list[Row]:
        """Returns messages of all segments, ordered by seq."""
        merged: list[MessageRow] = []
        end = rules.NO_END
        for segment in self.segments():
            part, more = await self._piece(Run(segment, after_seq, rules.NO_END), limit, max_bytes)
            merged += part
            end = min(end, part[-1].seq) if more else end
        merged.sort(key=lambda row: row.seq)
        taken: list[Row] = []
        total = 0
        for row in merged:
            if row.seq > end or len(taken) == limit or (taken and total >= max_bytes):
                break
            taken.append(Row(row.segment, self.message(row)))
            total += row.size
        return taken

    async def _piece(self, run: Run, limit: int, max_bytes: int) -> tuple[list[MessageRow], bool]:
        """Returns the beginning of a run, and whether it continues."""
        found: list[MessageRow] = []
        async with aclosing(self.walk(run)) as walked:
            async for row in walked:
                if len(found) == limit or (found and sum(each.size for each in found) >= max_bytes):
                    return found, True
                found.append(row)
        return found, False


def _range(run: Run) -> tuple[bytes, bytes]:
    return rows.message_key(run.segment, run.after + 1), rows.message_key(run.segment, run.upto + 1)
