"""A tenant, or a part of it, as lines of the export format: streamed, in constant memory.

A conversation is written as it was when its turn came: what is appended to it meanwhile is left out, by its seq.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from msgspec import Struct, structs

from hansard.contract.types import Row
from hansard.store.core import View
from hansard.transfer import lines
from hansard.transfer.lines import (
    BlobLine,
    CheckLine,
    ConversationLine,
    EndLine,
    EofLine,
    Header,
    SummaryLine,
)
from hansard.transfer.numbering import Numbered
from hansard.transfer.seal import Seal
from hansard.transfer.source import Choice, Source
from hansard.version import VERSION


async def export(view: View, choice: Choice) -> AsyncIterator[bytes]:
    """The lines of an export, each with its end."""
    async for block in Export(view, choice).blocks():
        for line in block:
            yield line + b"\n"


class Export:
    def __init__(self, view: View, choice: Choice) -> None:
        self._view = view
        self._source = Source(view, choice)
        self._seal = Seal()
        self._written_blobs: set[bytes] = set()
        self._total = EofLine()

    async def blocks(self) -> AsyncIterator[Sequence[bytes]]:
        await self._source.check()
        yield [lines.encode(self._header())]
        async for id in self._source.conversations():
            async for block in self._conversation(id):
                yield block
        async for owner, records in self._source.records():
            self._count(records=len(records))
            yield self._sealed([lines.record_line(owner, record) for record in records])
            yield self._sealed([CheckLine(self._seal.sha256)])
        yield self._sealed([structs.replace(self._total, sha256=self._seal.sha256)])

    def _header(self) -> Header:
        view = self._view
        return Header(tenant=view.tenant, user=view.user, exported_at=view.clock(), by=f"hansard {VERSION}")

    async def _conversation(self, id: str) -> AsyncIterator[Sequence[bytes]]:
        found = await self._source.image(id)
        if found is None:
            return  # it was deleted since it was listed
        image = found.image
        yield self._sealed([ConversationLine(image.conversation, image.seq, image.lanes)])
        count = 0
        async for rows in self._source.rows(found):
            if count:
                yield self._sealed([CheckLine(self._seal.sha256)])
            yield await self._new_blobs(rows)
            yield self._add(lines.message_lines(rows, found.numbers))
            count += len(rows)
        summaries = await self._source.summaries(id)
        yield self._sealed([SummaryLine(summary) for summary in summaries])
        changed = count != image.conversation.message_count or await self._is_gone(found)
        yield self._sealed([EndLine(count, self._seal.sha256, changed)])
        self._count(conversations=1, messages=count, summaries=len(summaries))

    async def _is_gone(self, found: Numbered) -> bool:
        return await self._source.image(found.image.conversation.id) is None

    async def _new_blobs(self, rows: Sequence[Row]) -> Sequence[bytes]:
        wanted = dict.fromkeys(ref.sha256 for row in rows for ref in row.message.blobs)
        new = [each for each in wanted if bytes.fromhex(each) not in self._written_blobs]
        if not new:
            return ()
        found = await self._source.blobs(new)
        self._written_blobs.update(map(bytes.fromhex, new))
        self._count(blobs=len(new))
        return self._sealed([BlobLine(sha256, found[sha256]) for sha256 in new])

    def _count(self, **more: int) -> None:
        changes = {name: getattr(self._total, name) + value for name, value in more.items()}
        self._total = structs.replace(self._total, **changes)

    def _sealed(self, block: Sequence[Struct]) -> Sequence[bytes]:
        return self._add([lines.encode(line) for line in block])

    def _add(self, block: Sequence[bytes]) -> Sequence[bytes]:
        self._seal.add(block)
        return block
