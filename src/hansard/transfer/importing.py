"""Lines of the export format, checked and stored.

Nothing is stored before the seal that covers it has held. A file that is damaged or cut off is reported with its line;
what came before that stays, and the same import can simply be run again with a good file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from msgspec.structs import force_setattr, replace

from hansard.contract.types import Row
from hansard.model import Report, Summary
from hansard.transfer import lines, records
from hansard.transfer.checking import Checker
from hansard.transfer.chunks import Lines, chunks
from hansard.transfer.landing import Landing
from hansard.transfer.lines import (
    BlobLine,
    CheckLine,
    ConversationLine,
    EndLine,
    EofLine,
    Line,
    MessageLine,
    RecordLine,
    SummaryLine,
    damaged,
)
from hansard.transfer.numbering import as_numbered
from hansard.transfer.seal import Seal
from hansard.transfer.target import Target

_MOST_ROWS = 50_000
_MOST_BYTES = 256_000_000


async def import_lines(target: Target, source: Lines) -> Report:
    """Stores what the lines hold. A path is read as a file."""
    target.warn()
    before = await target.evictions()
    work = Import(target)
    async for chunk in chunks(source):
        await work.take(chunk)
    work.end()
    await target.note_evictions(before)
    return target.report


class Import:
    """One pass over a file. The lines since the last seal wait until it has held."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._seal = Seal()
        self._number = 0
        self._open: list[bytes] = []
        """Lines that the seal has not covered yet."""
        self._open_bytes = 0
        self._rows: list[Row] = []
        self._blobs: dict[str, bytes] = {}
        self._summaries: list[Summary] = []
        self._records: list[RecordLine] = []
        self._landing: Landing | None = None
        self._checker = Checker(target.view.limits)
        self._count = 0
        self._total = EofLine()
        self._has_ended = False

    async def take(self, chunk: Sequence[bytes]) -> None:
        """More lines of the file."""
        at = 0
        if chunk and not self._number:
            lines.decode_header(chunk[0])
            self._number = at = 1
        while at < len(chunk) and not self._has_ended:
            at, line = self._messages(chunk, at)
            if line is not None:
                await self._act(line)
                self._wait(chunk[at : at + 1])
                at += 1
        for raw in chunk[at:]:
            self._number += 1
            if raw:
                raise damaged(self._number, "there is more after its end")

    def _messages(self, chunk: Sequence[bytes], start: int) -> tuple[int, Line | None]:
        """Takes the messages from there on, up to a line that is another: its place, and the line."""
        check, id, rows = self._checker.message, self._checker.conversation_id, self._rows
        other = None
        at = start
        for at in range(start, len(chunk)):
            self._number += 1
            line = lines.decode(chunk[at], self._number)
            if type(line) is not MessageLine:
                other = line
                break
            message = line.message
            check(line.line, message, self._number)
            force_setattr(message, "conversation_id", id)
            rows.append(Row(line.line, message))
        end = at if other is not None else len(chunk)
        self._wait(chunk[start:end])
        return end, other

    def _wait(self, more: Sequence[bytes]) -> None:
        self._open += more
        self._open_bytes += sum(map(len, more))
        if len(self._open) > _MOST_ROWS or self._open_bytes > _MOST_BYTES:
            raise damaged(self._number, "there are too many lines without a check")

    async def _act(self, line: Line) -> None:
        match line:
            case ConversationLine():
                await self._begin(line)
            case BlobLine():
                self._blob(line)
            case SummaryLine():
                self._checker.summary(line, self._number)
                self._summaries.append(line.summary)
            case RecordLine():
                self._checker.record(line, self._number)
                self._records.append(line)
            case CheckLine():
                self._check(line.sha256)
                await self._flush()
            case EndLine():
                await self._end(line)
            case EofLine():
                await self._eof(line)

    # Seals

    def _check(self, sha256: str) -> None:
        self._seal.add(self._open)
        self._open = []
        self._open_bytes = 0
        if self._seal.sha256 != sha256:
            raise damaged(self._number, "the lines before it are not those that were written (their hash differs)")

    async def _flush(self) -> None:
        """Stores what the seal now covers."""
        if self._landing is not None and (self._rows or self._blobs):
            self._checker.messages(self._rows, self._number)
            await self._landing.take(self._rows, self._blobs)
        self._count += len(self._rows)
        self._rows, self._blobs = [], {}
        for owner in dict.fromkeys(line.owner for line in self._records):
            await records.put(self._target, owner, [line.record for line in self._records if line.owner == owner])
        self._add(records=len(self._records))
        self._records = []

    # Conversations

    async def _begin(self, line: ConversationLine) -> None:
        if self._landing is not None:
            raise damaged(self._number, "a conversation begins inside another")
        if self._records:
            raise damaged(self._number, "a conversation begins before the records are sealed")
        self._checker.conversation(line, self._number)
        self._landing = Landing(self._target, as_numbered(line.image))
        self._count = 0
        await self._landing.begin()

    def _blob(self, line: BlobLine) -> None:
        if self._landing is None:
            raise damaged(self._number, "a blob stands outside of a conversation")
        if hashlib.sha256(line.data).hexdigest() != line.sha256:
            raise damaged(self._number, "the blob is not the one that was written (its hash differs)")
        self._checker.blob(line)
        self._blobs[line.sha256] = line.data
        self._add(blobs=1)

    async def _end(self, line: EndLine) -> None:
        if self._landing is None:
            raise damaged(self._number, "a conversation ends that did not begin")
        self._check(line.sha256)
        await self._flush()
        if line.messages != self._count:
            raise damaged(self._number, f"{line.messages} messages were written, and {self._count} are there")
        if line.changed:
            where = f"conversation {self._checker.conversation_id!r}"
            self._target.lose(where, "messages of it were deleted while it was exported")
        await self._land(self._landing)
        self._add(conversations=1, messages=self._count, summaries=len(self._summaries))
        self._landing, self._summaries = None, []
        self._checker.leave()

    async def _land(self, landing: Landing) -> None:
        is_stored = await landing.finish(self._summaries)
        if landing.refusal is not None:
            self._target.conflict(landing.where, landing.refusal)
        elif not landing.is_closed:
            self._target.landed(is_stored=is_stored)

    # The end

    def _add(self, **more: int) -> None:
        changes = {name: getattr(self._total, name) + value for name, value in more.items()}
        self._total = replace(self._total, **changes)

    async def _eof(self, line: EofLine) -> None:
        if self._landing is not None:
            raise damaged(self._number, "the file ends inside a conversation")
        self._check(line.sha256)
        await self._flush()
        if replace(line, sha256="") != self._total:
            raise damaged(self._number, f"it counts {line}, but the file holds {self._total}")
        self._has_ended = True

    def end(self) -> None:
        if not self._number:
            raise damaged(1, "the file is empty")
        if not self._has_ended:
            raise damaged(self._number, "the file was cut off here: its last line is missing")
