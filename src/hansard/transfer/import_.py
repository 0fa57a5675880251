"""Checks and stores lines of the export format.

Nothing is stored before the checksum that covers it is verified. A damaged or truncated file is reported with its line;
what came before stays, and the same import can be repeated with a good file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec import UNSET
from msgspec.structs import force_setattr, replace

from hansard import cursors
from hansard.contract.types import Row
from hansard.errors import ValidationError
from hansard.limits import Limits
from hansard.model import ROLES, Message, Report, Summary
from hansard.store import checks
from hansard.transfer.conversation_import import ConversationImport
from hansard.transfer.export import as_numbered
from hansard.transfer.format import (
    BlobLine,
    CheckLine,
    Checksum,
    ConversationLine,
    EndLine,
    EofLine,
    Line,
    Lines,
    MessageLine,
    RecordLine,
    SummaryLine,
    chunks,
    damaged,
    decode,
    decode_header,
)
from hansard.transfer.target import TransferTarget, put_records

_MOST_ROWS = 50_000
_MOST_BYTES = 256_000_000


async def import_lines(target: TransferTarget, source: Lines) -> Report:
    """Stores the content of the lines. A path is read as a file."""
    target.warn()
    before = await target.evictions()
    work = Import(target)
    async for chunk in chunks(source):
        await work.take(chunk)
    work.end()
    await target.note_evictions(before)
    return target.report


class Import:
    """One pass over a file. The lines since the last checksum wait until it is verified."""

    def __init__(self, target: TransferTarget) -> None:
        self._target = target
        self._checksum = Checksum()
        self._number = 0
        self._open: list[bytes] = []
        """Lines that no checksum has covered yet."""
        self._open_bytes = 0
        self._rows: list[Row] = []
        self._blobs: dict[str, bytes] = {}
        self._summaries: list[Summary] = []
        self._records: list[RecordLine] = []
        self._import: ConversationImport | None = None
        self._checker = Checker(target.view.limits)
        self._count = 0
        self._total = EofLine()
        self._has_ended = False

    async def take(self, chunk: Sequence[bytes]) -> None:
        """Takes more lines of the file."""
        at = 0
        if chunk and not self._number:
            decode_header(chunk[0])
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
        """Takes the messages from `start` up to a line of another kind; returns its index and the line."""
        check, id, rows = self._checker.message, self._checker.conversation_id, self._rows
        other = None
        at = start
        for at in range(start, len(chunk)):
            self._number += 1
            line = decode(chunk[at], self._number)
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
                await self._start_conversation(line)
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

    # Checksums

    def _check(self, sha256: str) -> None:
        self._checksum.add(self._open)
        self._open = []
        self._open_bytes = 0
        if self._checksum.sha256 != sha256:
            raise damaged(self._number, "the lines before it are not those that were written (their hash differs)")

    async def _flush(self) -> None:
        """Stores what the checksum now covers."""
        if self._import is not None and (self._rows or self._blobs):
            self._checker.messages(self._rows, self._number)
            await self._import.take(self._rows, self._blobs)
        self._count += len(self._rows)
        self._rows, self._blobs = [], {}
        for owner in dict.fromkeys(line.owner for line in self._records):
            await put_records(self._target, owner, [line.record for line in self._records if line.owner == owner])
        self._add(records=len(self._records))
        self._records = []

    # Conversations

    async def _start_conversation(self, line: ConversationLine) -> None:
        if self._import is not None:
            raise damaged(self._number, "a conversation begins inside another")
        if self._records:
            raise damaged(self._number, "a conversation begins before the checksum of the records")
        self._checker.conversation(line, self._number)
        self._import = ConversationImport(self._target, as_numbered(line.image))
        self._count = 0
        await self._import.start_import()

    def _blob(self, line: BlobLine) -> None:
        if self._import is None:
            raise damaged(self._number, "a blob is outside of a conversation")
        if hashlib.sha256(line.data).hexdigest() != line.sha256:
            raise damaged(self._number, "the blob is not the one that was written (its hash differs)")
        self._checker.blob(line)
        self._blobs[line.sha256] = line.data
        self._add(blobs=1)

    async def _end(self, line: EndLine) -> None:
        if self._import is None:
            raise damaged(self._number, "a conversation ends that did not begin")
        self._check(line.sha256)
        await self._flush()
        if line.messages != self._count:
            raise damaged(self._number, f"{line.messages} messages were written, and {self._count} are there")
        if line.changed:
            where = f"conversation {self._checker.conversation_id!r}"
            self._target.lose(where, "messages of it were deleted while it was exported")
        await self._import_conversation(self._import)
        self._add(conversations=1, messages=self._count, summaries=len(self._summaries))
        self._import, self._summaries = None, []
        self._checker.leave()

    async def _import_conversation(self, conversation_import: ConversationImport) -> None:
        is_stored = await conversation_import.finish(self._summaries)
        if conversation_import.refusal is not None:
            self._target.conflict(conversation_import.where, conversation_import.refusal)
        elif not conversation_import.is_closed:
            self._target.count_conversation(is_stored=is_stored)

    # The end

    def _add(self, **more: int) -> None:
        changes = {name: getattr(self._total, name) + value for name, value in more.items()}
        self._total = replace(self._total, **changes)

    async def _eof(self, line: EofLine) -> None:
        if self._import is not None:
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


# Checks of a line's fields. Content is not checked again: any JSON is content.

_ROLES = frozenset(ROLES)
_SHORT = 64
"""An ASCII id of this length is within any limit."""
_SEQS = 1 << 30
"""Every storage can hold seqs below this."""
_LARGE = 1 << 53


class Checker:
    """Knows the current conversation, and the blobs that the file has contained so far."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._blobs: set[bytes] = set()
        self._lines: frozenset[int] = frozenset()
        self._last = 0
        self._end = 0
        self.conversation_id = ""

    def conversation(self, line: ConversationLine, number: int) -> None:
        conversation = line.conversation
        self._ids(number, conversation.id, *(branch.id for branch in line.branches))
        self._ids(number, *filter(None, (conversation.user_id, conversation.agent_id, conversation.audit_id)))
        names = [branch.id for branch in line.branches]
        if conversation.branch not in names or len(set(names)) != len(names):
            raise damaged(number, f"its branches are {names}, and the active one is {conversation.branch!r}")
        owned = [branch.segment for branch in line.branches]
        read = {place for branch in line.branches for place, _ in branch.path}
        if len(set(owned)) != len(owned) or min(*owned, *read, 1) < 1:
            raise damaged(number, "the segments of its branches do not have distinct numbers")
        self._times(number, conversation.created_at, conversation.updated_at, conversation.last_message_at)
        self._times(
            number, conversation.expires_at, conversation.archived_at, *(each.created_at for each in line.branches)
        )
        self._counts(number, _SEQS, line.seq, *(upto for branch in line.branches for _, upto in branch.path))
        self._counts(
            number, _LARGE, conversation.version, *(branch.from_seq or 0 for branch in line.branches), *owned, *read
        )
        self.conversation_id = conversation.id
        self._lines = frozenset(owned) | read
        self._last, self._end = 0, line.seq

    def leave(self) -> None:
        self._lines = frozenset()
        self._end = 0

    def message(self, line: int, message: Message, number: int) -> None:
        if not self._last < message.seq <= self._end:
            raise damaged(number, f"seq {message.seq} is not between {self._last} and {self._end}")
        self._last = message.seq
        if line not in self._lines:
            raise damaged(number, f"no branch of the conversation reads segment {line}")
        if message.role not in _ROLES:
            raise damaged(number, f"the role {message.role!r} is unknown")
        id = message.id
        if not id or len(id) > _SHORT or not id.isascii() or "\0" in id or id[0] == "c":
            self._message_id(number, id)
        if message.created_at.tzinfo is not UTC or message.updated_at is not None:
            self._times(number, message.created_at, message.updated_at, message.edited_at)
        if message.blobs:
            self._references(message, number)
        if message.format == "text" and not isinstance(message.content, str):
            raise damaged(number, "content of the format 'text' is not text")

    def _references(self, message: Message, number: int) -> None:
        """A message may refer only to blobs in its own file: otherwise it could name another conversation's blob."""
        for ref in message.blobs:
            if _digest(ref.sha256) not in self._blobs:
                raise damaged(number, f"blob {ref.sha256} does not come before the message that refers to it")

    def blob(self, line: BlobLine) -> None:
        self._blobs.add(_digest(line.sha256))

    def summary(self, line: SummaryLine, number: int) -> None:
        if not self._end and not self._lines:
            raise damaged(number, "a summary is outside of a conversation")
        if line.summary.conversation_id != self.conversation_id:
            raise damaged(number, "the summary belongs to another conversation")
        summary = line.summary
        self._counts(number, _LARGE, summary.from_seq, summary.to_seq, summary.token_count or 0)
        self._times(number, summary.created_at)

    def record(self, line: RecordLine, number: int) -> None:
        if self._lines:
            raise damaged(number, "a record is inside a conversation")
        if not line.namespace or (line.value is UNSET) == (line.data is UNSET):
            raise damaged(number, "the record has no namespace, or not one value")
        self._ids(number, line.key, *line.namespace, *filter(None, (line.owner, line.conversation_id)))
        self._counts(number, _LARGE, line.revision)
        self._times(number, line.created_at, line.updated_at, line.expires_at)

    def messages(self, rows: Sequence[Row], number: int) -> None:
        """Checks that ids are unique in a conversation; here, in the part that is stored at once."""
        if len({row.message.id for row in rows}) != len(rows):
            raise damaged(number, "two messages before it have the same id")

    def _message_id(self, number: int, id: str) -> None:
        self._ids(number, id)
        if id.startswith(cursors.PREFIX):
            raise damaged(number, f"the message id {id[:40]!r} looks like a cursor")

    def _counts(self, number: int, end: int, *counts: int) -> None:
        for count in counts:
            if not 0 <= count < end:
                raise damaged(number, f"the number {count} is out of range")

    def _ids(self, number: int, *ids: str) -> None:
        for id in ids:
            try:
                checks.id_of(id, f"the id {id[:40]!r}", self._limits)
            except ValidationError as error:
                raise damaged(number, str(error)) from error

    def _times(self, number: int, *times: datetime | None) -> None:
        for time in times:
            if time is not None and time.tzinfo is not UTC:
                raise damaged(number, f"the time {time.isoformat()} is not in UTC")


def _digest(sha256: str) -> bytes:
    try:
        return bytes.fromhex(sha256)
    except ValueError:
        return b""
