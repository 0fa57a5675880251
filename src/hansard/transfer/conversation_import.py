"""The import of one conversation into a target.

Messages that the target already has are compared first. If they are equal, the rest is stored after them; so an import
that was interrupted, or whose source has grown since, continues where it ended. If anything differs, the conversation
is a conflict and is left alone. If requested, every piece that was stored is read back and compared, to the byte; the
counts are always compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from hansard import codec, rules
from hansard.contract.backend import Capabilities
from hansard.contract.types import Draft, Image, Restore, RestoredRow, Row, StoredBranch
from hansard.errors import ConversationNotFound
from hansard.model import MAIN, NOT_YET, Conversation, Message, Summary
from hansard.store import marks
from hansard.transfer.export import BYTES, Numbered, Numbers, as_numbered, numbered
from hansard.transfer.format import encode, fingerprint
from hansard.transfer.target import TransferTarget


class _Piece(Struct, frozen=True):
    rows: Sequence[Row] = ()
    blobs: Mapping[str, bytes] = {}


_NOTHING = _Piece()


class ConversationImport:
    def __init__(self, target: TransferTarget, given: Numbered) -> None:
        self._target = target
        self._backend = target.backend
        self._given = given
        self._fit = fit(given, target.capabilities)
        self._image = self._fit.image
        self._numbers = self._fit.numbers
        self._id = given.image.conversation.id
        self._times = not target.capabilities.own_times
        self._theirs: Numbered | None = None
        self._reached = 0
        """The seq up to which the target already had messages."""
        self._last = 0
        self._count = 0
        self._pending: _Piece | None = None
        """The newest piece waits, so that the last one can be stored together with the end."""
        self._has_settled = False
        self.where = f"conversation {self._id!r}"
        self.is_closed = False
        """Nothing more is imported."""
        self.refusal: str | None = None
        """What the target has instead, if that is the reason."""
        self.is_new = False
        self.stored = 0

    async def start_import(self) -> None:
        context = self._target.view.context()
        self._target.admit(self._image)
        expires_at = self._image.conversation.expires_at
        if expires_at is not None and expires_at <= context.now:
            self.is_closed = True
            self._target.lose(self.where, f"it expired at {expires_at.isoformat()}, and was left out")
            return
        found = await self._backend.read_image(context, self._id)
        self.is_new = found is None
        if found is not None:
            self._theirs = numbered(found)
            self._reached = found.seq
            self._refuse(_difference(self._image, self._theirs.image, times=self._times))

    def _refuse(self, why: str | None) -> None:
        if why is not None:
            self.is_closed = True
            self.refusal = why
            self._pending = None

    def missing_blobs(self, rows: Sequence[Row]) -> set[str]:
        """Returns the blobs whose bytes must come with these rows."""
        if self.is_closed or not self._target.capabilities.keeps:
            return set()
        fresh = [row for row in rows if row.message.seq > self._reached]
        if self._fit.inline:
            return {ref.sha256 for row in rows for ref in row.message.blobs}
        return self._target.unknown_blobs(fresh)

    # Messages

    async def take(self, rows: Sequence[Row], blobs: Mapping[str, bytes]) -> None:
        """Takes more rows, in the order of seq."""
        if self.is_closed:
            await self._target.put_blobs(blobs)
            return
        if not self._fit.is_exact:
            rows = list(self._fit.rows(rows, self._given.numbers, blobs))
            blobs = {} if self._fit.inline else blobs
        there = sum(row.message.seq <= self._reached for row in rows) if self._last < self._reached else 0
        if there:
            await self._compare(rows[:there])
        if there < len(rows) and self.refusal is None and await self._has_compared_all():
            await self._queue(_Piece(rows[there:] if there else rows, blobs))
        elif self.refusal is not None:
            await self._target.put_blobs(blobs)

    async def _compare(self, rows: Sequence[Row]) -> None:
        different = await self._differs(rows)
        if different is not None:
            self._refuse(f"the target holds other messages: {different}")
        else:
            await self._note_ratings(rows)  # an interrupted import may have stored only the messages

    async def _has_compared_all(self) -> bool:
        """Whether all messages of the target have been compared: it may have more."""
        if not self._has_settled and self._reached > self._last:
            for row in await self._read_back(self._last, 1):
                self._refuse(f"the target holds a message {row.message.id!r} that the source does not")
        self._has_settled = True
        return self.refusal is None

    async def _queue(self, piece: _Piece) -> None:
        before, self._pending = self._pending, piece
        if before is not None:
            await self._store(before, done=False)

    async def _store(self, piece: _Piece, *, done: bool) -> bool:
        """Stores a piece and reads it back. False if the target refuses it."""
        target = self._target
        rows = tuple([_restored(row, self._numbers) for row in piece.rows])
        restore = Restore(self._image, rows, piece.blobs, done)
        try:
            await self._backend.restore(target.view.context(), restore)
        except ConversationNotFound:
            self._refuse("its id is taken")
            return False
        await self._note_ratings(piece.rows)
        if done or self._theirs is None:
            await self._read_target()
        if target.capabilities.keeps:
            await self._verify(piece)
        target.report.messages += len(piece.rows)
        self.stored += len(piece.rows)
        target.sent_blobs(piece.blobs)
        target.moved()
        return True

    async def _note_ratings(self, rows: Sequence[Row]) -> None:
        messages = [row.message for row in rows if row.message.ratings]
        await marks.note_ratings(self._backend, self._target.view.context(), self._id, messages)

    async def _read_target(self) -> None:
        found = await self._backend.read_image(self._target.view.context(), self._id)
        self._theirs = None if found is None else numbered(found)

    async def _verify(self, piece: _Piece) -> None:
        if not self._target.reads_back:
            self._passed(piece.rows)
            return
        different = await self._differs(piece.rows)
        if different is not None:
            self._target.lose(self.where, f"what was stored differs: {different}", verified=False)
        for sha256 in await self._target.missing_blobs(piece.blobs):
            self._target.lose(self.where, f"blob {sha256} was not stored", verified=False)

    # Comparing

    async def _differs(self, rows: Sequence[Row]) -> str | None:
        """Returns how the next messages of the target differ from these; None if they do not."""
        if not rows:
            return None
        found = await self._read_back(self._last, len(rows))
        self._passed(rows)
        numbers = self._theirs.numbers if self._theirs is not None else {}
        if fingerprint(found, numbers) == fingerprint(rows, self._numbers):
            return None
        return self._first_difference(rows, found, numbers)

    def _passed(self, rows: Sequence[Row]) -> None:
        if rows:
            self._last = rows[-1].message.seq
            self._count += len(rows)

    def _first_difference(self, rows: Sequence[Row], found: Sequence[Row], numbers: Numbers) -> str | None:
        if len(found) < len(rows):
            return f"{len(rows) - len(found)} messages are missing"
        for row, their in zip(rows, found, strict=True):
            given, message = row.message, their.message
            if self._target.capabilities.own_ids and message.id != given.id:
                self._target.renamed(self._id, given.id, message.id)
            alike = Row(their.segment, as_given(message, given, self._target.capabilities))
            if fingerprint([alike], numbers) != fingerprint([row], self._numbers):
                return f"message {given.id!r} (seq {given.seq}) is not the same"
        return None

    async def _read_back(self, after: int, count: int) -> list[Row]:
        """Returns the next messages of the target."""
        found: list[Row] = []
        while self._theirs is not None and len(found) < count:
            context = self._target.view.context()
            rows = await self._backend.read_rows(context, self._id, after, count - len(found), BYTES)
            if not rows:
                break
            self._theirs.check(rows)
            found += rows
            after = rows[-1].message.seq
        return found

    # The end

    async def finish(self, summaries: Sequence[Summary]) -> bool:
        """Stores the rest, and sets the conversation's own times and version. False if it was already equal."""
        if self.is_closed or not await self._has_compared_all():
            return False
        for loss in self._fit.losses:
            self._target.lose(self.where, loss)
        is_same = self._pending is None and self._is_same(self._theirs)
        if not is_same and not await self._store(self._pending or _NOTHING, done=True):
            return False
        if self._target.capabilities.keeps:
            if not self._is_same(self._theirs):
                self._target.lose(self.where, "what was stored of the conversation itself differs", verified=False)
            await self._put_summaries(self._that_cover_messages(summaries))
            metadata = self._image.conversation.metadata
            await marks.note_conversation(self._backend, self._target.view.context(), self._id, metadata)
        self._target.moved()
        return not is_same

    def _is_same(self, theirs: Numbered | None) -> bool:
        if theirs is None:
            return False
        ours, found, times = self._image, theirs.image, self._times
        # Messages that were deleted while we read are in the image's counts but not in the target's.
        is_whole = ours.conversation.message_count == self._count
        return (
            found.conversation.message_count == self._count
            and _fields(found.conversation, times=times) == _fields(ours.conversation, times=times)
            and _shape(found, counts=is_whole, times=times) == _shape(ours, counts=is_whole, times=times)
            and found.seq >= ours.seq
        )

    def _that_cover_messages(self, summaries: Sequence[Summary]) -> list[Summary]:
        """Returns the summaries without those whose range ends after the last message, which older versions stored."""
        wrong = [summary for summary in summaries if summary.to_seq > self._image.seq]
        for summary in wrong:
            what = f"a summary to seq {summary.to_seq} covers messages that do not exist: the last is {self._image.seq}"
            self._target.lose(self.where, what)
        return [summary for summary in summaries if summary not in wrong]

    async def _put_summaries(self, summaries: Sequence[Summary]) -> None:
        context = self._target.view.context()
        there = await self._backend.list_summaries(context, self._id, None)
        if there != list(summaries[: len(there)]):
            self._refuse("the target holds other summaries")
            return
        branches = {branch.id for branch in self._image.branches}
        for summary in summaries[len(there) :]:
            if summary.branch in branches:
                await self._backend.put_summary(context, summary)
                self._target.report.summaries += 1
        if summaries[len(there) :]:
            await self._verify_summaries(summaries, branches)

    async def _verify_summaries(self, summaries: Sequence[Summary], branches: set[str]) -> None:
        there = await self._backend.list_summaries(self._target.view.context(), self._id, None)
        if there != [summary for summary in summaries if summary.branch in branches]:
            self._target.lose(self.where, "its summaries differ", verified=False)


def _restored(row: Row, numbers: Numbers) -> RestoredRow:
    message = row.message
    body = message.content if message.format == "text" else codec.encode(message.content)
    size = len(body) if body.isascii() else len(body.encode())
    return RestoredRow(
        numbers[row.segment], Draft(message, body, size + _lifted(message) if message.blobs else size, True)
    )


def _lifted(message: Message) -> int:
    """Returns the size of the base64 that became blobs."""
    return sum(len(ref.prefix) + (ref.size + 2) // 3 * 4 for ref in message.blobs)


def _fields(conversation: Conversation, *, times: bool) -> bytes:
    """Returns the conversation's own fields, without those that follow from its messages and summaries."""
    bare = structs.replace(conversation, message_count=0, last_message_at=None, summary=None)
    return encode(bare if times else structs.replace(bare, created_at=NOT_YET, updated_at=NOT_YET))


def _shape(image: Image, *, counts: bool, times: bool) -> dict[str, StoredBranch]:
    """Returns the branches, in any order."""
    bare: dict[str, Any] = {}
    if not counts:
        bare["count"] = 0
    if not times:
        bare["created_at"] = NOT_YET
    return {branch.id: structs.replace(branch, **bare) for branch in image.branches}


def _difference(ours: Image, theirs: Image, *, times: bool) -> str | None:
    """Returns why the target's conversation cannot be an earlier copy of ours; None if it may be one."""
    mine, found = ours.conversation, theirs.conversation
    if times and found.created_at != mine.created_at:
        return f"the target holds another one, made at {found.created_at.isoformat()}"
    if found.version > mine.version:
        return f"the target's was written to since: it is at version {found.version}, ours at {mine.version}"
    if theirs.seq > ours.seq:
        return f"the target's was written to since: its last seq is {theirs.seq}, ours {ours.seq}"
    if _shape(theirs, counts=False, times=times) != _shape(ours, counts=False, times=times):
        return "the target's has other branches"
    return None


# Adapts a conversation to what the target can store, and reports the differences. Only the active branch is stored, and
# blobs become content again. Ids and times that a storage assigns itself are not differences: the comparison ignores
# them, and records which id became which.


class Fit(Struct, frozen=True):
    """How one conversation is stored in a target."""

    image: Image
    """As the target will store it."""
    numbers: Numbers
    """From the rows' numbers to the image's."""
    alone: StoredBranch | None = None
    """The only branch that is stored, as the source has it."""
    inline: bool = False
    losses: tuple[str, ...] = ()

    @property
    def is_exact(self) -> bool:
        return self.alone is None and not self.inline

    def rows(self, rows: Sequence[Row], numbers: Numbers, blobs: Mapping[str, bytes]) -> Iterator[Row]:
        """Yields the rows to store, with our numbers."""
        for row in rows:
            line, message = numbers[row.segment], row.message
            if self.alone is not None:
                if not rules.sees(self.alone, line, message.seq):
                    continue
                line, message = 1, structs.replace(message, branch=MAIN)
            if self.inline and message.blobs:
                content = codec.restore(message.content, message.blobs, blobs)
                message = structs.replace(message, content=content, blobs=())
            yield Row(line, message)


def fit(given: Numbered, capabilities: Capabilities) -> Fit:
    image = given.image
    inline = not capabilities.blobs
    if capabilities.branches or len(image.branches) == 1:
        return Fit(image, as_numbered(image).numbers if inline else given.numbers, inline=inline)
    conversation = image.conversation
    active = next(branch for branch in image.branches if branch.id == conversation.branch)
    branch = StoredBranch(MAIN, 1, count=active.count, created_at=conversation.created_at)
    cut = structs.replace(conversation, branch=MAIN, message_count=active.count)
    gone = [other.id for other in image.branches if other.id != active.id]
    loss = f"only the active branch {active.id!r} was kept, without {', '.join(map(repr, gone))}"
    return Fit(Image(cut, image.seq, (branch,)), {1: 1}, active, inline, (loss,))


def as_given(theirs: Message, given: Message, capabilities: Capabilities) -> Message:
    """Returns what the target returned, without the ids and times that it may choose."""
    changes: dict[str, Any] = {}
    if capabilities.own_ids:
        changes["id"] = given.id
    if capabilities.own_times:
        changes |= {"created_at": given.created_at, "updated_at": given.updated_at}
    return structs.replace(theirs, **changes) if changes else theirs
