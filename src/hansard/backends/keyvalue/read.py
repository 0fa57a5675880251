"""One conversation at one moment: a head, and the tree that it names."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing

from msgspec import Raw

from hansard.backends.keyvalue import rows
from hansard.backends.keyvalue.rows import Anchor, MessageRow
from hansard.backends.keyvalue.tree import Root, Tree
from hansard.backends.shared import documents, message_walk
from hansard.contract.storage import Found, Placed, Run, Span, Wants
from hansard.contract.types import ConversationState, MessageQuery, Row, Slice
from hansard.model import Message, Summary


class StoredConversation:
    """An existing conversation. Every value that it returns is made for the caller."""

    def __init__(self, tree: Tree, anchor: Anchor, state: ConversationState) -> None:
        self._tree = tree
        self.root: Root = anchor.root
        self.state = state
        self.id = state.conversation.id

    # Rows

    async def walk(
        self, run: Run, *, newest_first: bool = False, expected: int | None = None
    ) -> AsyncGenerator[MessageRow, None]:
        async with aclosing(self._tree.scan(self.root, *_range(run), newest_first=newest_first)) as walked:
            async for _, value in walked:
                yield self._row(value)

    async def find(self, id: str) -> MessageRow | None:
        place = await self._tree.get(self.root, rows.id_key(id))
        if place is None:
            return None
        return await self.at(*documents.decode(place, tuple[int, int], f"the place of message {id!r}"))

    async def at(self, segment: int, seq: int) -> MessageRow | None:
        value = await self._tree.get(self.root, rows.message_key(segment, seq))
        return self._row(value) if value is not None else None

    def _row(self, value: Raw) -> MessageRow:
        return documents.decode(value, MessageRow, f"a message of conversation {self.id!r}")

    def message(self, row: MessageRow) -> Message:
        return rows.message_of(row, self.id)

    def placed(self, found: Iterable[MessageRow]) -> list[Placed]:
        return [(row.segment, self.message(row)) for row in found]

    async def summaries(self) -> list[tuple[bytes, Summary]]:
        """Returns the summaries, oldest first, with their keys."""
        found = await self._tree.items(self.root, *rows.SUMMARIES)
        return [(key, documents.decode(value, Summary, f"a summary of {self.id!r}")) for key, value in found]

    async def count_summaries(self) -> int:
        return await self._tree.count(self.root, *rows.SUMMARIES)

    # Answers

    async def answer(self, wants: Wants) -> Found:
        """Answers everything except blobs, tombstones and records."""
        found = [row for id in wants.ids if (row := await self.find(id))]
        if wants.newest is None:
            messages = [row async for row in message_walk.walk_all(self, wants.runs)]
        else:
            messages = await message_walk.newest(self, wants.runs, wants.newest)
        return Found(
            by_id={row.id: (row.segment, self.message(row)) for row in found},
            messages=self.placed(messages),
            spans=[await self.span(run) for run in wants.spans],
            last_time=await message_walk.last_time(self, wants.last_time_without) if wants.last_time_without else None,
            summaries=[summary for _, summary in await self.summaries()] if wants.summaries else (),
        )

    async def span(self, run: Run) -> Span:
        last = await message_walk.newest(self, [run], 1)
        if not last:
            return Span()
        count = await self._tree.count(self.root, *_range(run))
        async with aclosing(self.walk(run)) as walked:
            first = await anext(walked)
        return Span(count, first.seq, last[0].seq)

    # Reading

    async def messages(self, query: MessageQuery) -> Slice:
        found, more = await message_walk.select(self, query, self.message)
        return Slice([self.message(row) for row in found], more)

    async def pinned(self, run: Run) -> AsyncGenerator[MessageRow, None]:
        """The cost follows the number of pinned messages."""
        low, high = rows.pin_key(run.segment, run.after + 1), rows.pin_key(run.segment, run.upto + 1)
        for key, _ in await self._tree.items(self.root, low, high):
            if (row := await self.at(run.segment, int.from_bytes(key[9:]))) is not None:
                yield row

    async def rows(self, after_seq: int, limit: int, max_bytes: int) -> list[Row]:
        """Returns messages of all segments, ordered by seq."""
        found = await message_walk.rows_after(self, after_seq, limit, max_bytes)
        return [Row(segment, message) for segment, message in self.placed(found)]


def _range(run: Run) -> tuple[bytes, bytes]:
    return rows.message_key(run.segment, run.after + 1), rows.message_key(run.segment, run.upto + 1)
