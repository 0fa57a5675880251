"""Chooses the conversations of an export and reads them: one at a time, their messages page by page."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import AsyncIterator

from hansard.contract.types import Image
from hansard.exporters.exporter import Exporter, TreeMessage
from hansard.exporters.redaction import Redaction
from hansard.exporters.report import ExportReport
from hansard.model import Conversation, Message
from hansard.store import Store, read_query
from hansard.transfer.export import Numbered, TransferSource
from hansard.transfer.selection import Selection

PIECE = 64 << 10
"""Bytes of a piece of the file: writers yield smaller ones."""


async def export(
    store: Store, exporter: Exporter, selection: Selection, redaction: Redaction | None, report: ExportReport
) -> AsyncIterator[bytes]:
    """Yields the file."""
    report.format = exporter.name
    pieces: list[bytes] = []
    size = 0
    async for piece in exporter.write(_Source(store, selection, redaction).conversations(), report):
        pieces.append(piece)
        size += len(piece)
        if size >= PIECE:
            yield b"".join(pieces)
            pieces, size = [], 0
    if pieces:
        yield b"".join(pieces)


class _Source:
    def __init__(self, store: Store, selection: Selection, redaction: Redaction | None) -> None:
        self._store = store
        self._selection = selection
        self._redaction = redaction
        self._transfer = TransferSource(store._view, selection.choice)

    async def conversations(self) -> AsyncIterator[SourceConversation]:
        await self._transfer.check()
        async for id in self._transfer.conversations():
            found = await self._transfer.image(id)
            # None: it was deleted since it was listed.
            if found is None or not self._selection.accepts(found.image.conversation):
                continue
            conversation = SourceConversation(self._store, self._transfer, found, self._redaction)
            if await self._selection.finds(self._transfer.rows(found)):
                yield conversation


class SourceConversation:
    """A conversation of a store, as an `ExportedConversation`."""

    def __init__(self, store: Store, transfer: TransferSource, found: Numbered, redaction: Redaction | None) -> None:
        self._store = store
        self._transfer = transfer
        self._found = found
        self._redaction = redaction

    @property
    def conversation(self) -> Conversation:
        found = self._found.image.conversation
        return found if self._redaction is None else self._redaction.conversation(found)

    async def line(self) -> AsyncIterator[Message]:
        found = self._found.image.conversation
        async for message in self._store.iter_messages(found.id, branch=found.branch):
            yield self._redacted(message)

    async def tree(self) -> AsyncIterator[TreeMessage]:
        parents = _Parents(self._found)
        view = self._store._view
        async for rows in self._transfer.rows(self._found):
            followed = {row.message.id: parents.add(row.segment, row.message) for row in rows}
            messages = [row.message for row in rows]
            for message in await read_query.with_blobs(view, view.context(), messages, "inline"):
                yield TreeMessage(self._redacted(message), followed[message.id])

    def _redacted(self, message: Message) -> Message:
        return message if self._redaction is None else self._redaction.message(message)


class _Parents:
    """Finds what each message follows, for messages in the order of seq. Remembers their ids, not the messages."""

    def __init__(self, found: Numbered) -> None:
        self._numbers = found.numbers
        self._before = _paths(found.image)
        self._ids: dict[int, tuple[list[int], list[str]]] = {}
        """The seqs and ids of each segment."""

    def add(self, segment: int, message: Message) -> str | None:
        number = self._numbers[segment]
        seqs, ids = self._ids.setdefault(number, ([], []))
        parent = ids[-1] if ids else self._shared(number)
        seqs.append(message.seq)
        ids.append(message.id)
        return parent

    def _shared(self, number: int) -> str | None:
        """The last message that a segment shares with others."""
        for segment, upto in reversed(self._before.get(number, ())):
            seqs, ids = self._ids.get(segment, ([], []))
            if place := bisect_right(seqs, upto):
                return ids[place - 1]
        return None


def _paths(image: Image) -> dict[int, tuple[tuple[int, int], ...]]:
    """The segments that are read before each segment, and up to which seq."""
    found: dict[int, tuple[tuple[int, int], ...]] = {}
    for branch in image.branches:
        found[branch.segment] = branch.path
        for place, (segment, _) in enumerate(branch.path):
            found.setdefault(segment, branch.path[:place])
    return found
