"""Exports a tenant, or a part of it, as lines of the export format: streamed, in constant memory.

A conversation is written as it was when its export began: messages appended meanwhile are left out, by their seq.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, structs

from hansard import codec, cursors, rules
from hansard.contract.types import Context, ConversationQuery, Image, RecordQuery, Row, StoredBranch
from hansard.errors import Corrupt
from hansard.model import Conversation, Record, Summary, to_micros
from hansard.store import marks, shares, vector_records
from hansard.store.core import View
from hansard.transfer.format import (
    BlobLine,
    CheckLine,
    Checksum,
    ConversationLine,
    EndLine,
    EofLine,
    Header,
    SummaryLine,
    encode,
    message_lines,
    record_line,
)
from hansard.transfer.selection import Choice, Selection
from hansard.version import VERSION


async def export(view: View, selection: Selection) -> AsyncIterator[bytes]:
    """Yields the lines of an export, each with its line end."""
    async for block in Export(view, selection).blocks():
        for line in block:
            yield line + b"\n"


class Export:
    def __init__(self, view: View, selection: Selection) -> None:
        self._view = view
        self._selection = selection
        self._source = TransferSource(view, selection.choice)
        self._checksum = Checksum()
        self._written_blobs: set[bytes] = set()
        self._total = EofLine()

    async def blocks(self) -> AsyncIterator[Sequence[bytes]]:
        await self._source.check()
        yield [encode(self._header())]
        if self._selection.has_filters:
            self._source.select_none()
        async for id in self._source.conversations():
            async for block in self._conversation(id):
                yield block
        async for owner, records in self._source.records():
            self._count(records=len(records))
            yield self._with_checksum([record_line(owner, record) for record in records])
            yield self._with_checksum([CheckLine(self._checksum.sha256)])
        yield self._with_checksum([structs.replace(self._total, sha256=self._checksum.sha256)])

    def _header(self) -> Header:
        view = self._view
        return Header(tenant=view.tenant, user=view.user, exported_at=view.clock(), by=f"hansard {VERSION}")

    async def _conversation(self, id: str) -> AsyncIterator[Sequence[bytes]]:
        found = await self._source.image(id)
        if found is None:
            return  # deleted since it was listed
        image, selection = found.image, self._selection
        if selection.has_filters:
            if not (selection.accepts(image.conversation) and await selection.finds(self._source.rows(found))):
                return
            self._source.select(id)
        yield self._with_checksum([ConversationLine(image.conversation, image.seq, image.branches)])
        count = 0
        async for rows in self._source.rows(found):
            if count:
                yield self._with_checksum([CheckLine(self._checksum.sha256)])
            yield await self._new_blobs(rows)
            yield self._add(message_lines(rows, found.numbers))
            count += len(rows)
        summaries = await self._source.summaries(id)
        yield self._with_checksum([SummaryLine(summary) for summary in summaries])
        changed = count != image.conversation.message_count or await self._is_gone(found)
        yield self._with_checksum([EndLine(count, self._checksum.sha256, changed)])
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
        return self._with_checksum([BlobLine(sha256, found[sha256]) for sha256 in new])

    def _count(self, **more: int) -> None:
        changes = {name: getattr(self._total, name) + value for name, value in more.items()}
        self._total = structs.replace(self._total, **changes)

    def _with_checksum(self, block: Sequence[Struct]) -> Sequence[bytes]:
        return self._add([encode(line) for line in block])

    def _add(self, block: Sequence[bytes]) -> Sequence[bytes]:
        self._checksum.add(block)
        return block


# Reading a store to copy or export, in pieces of bounded size

ROWS = 2000
BYTES = 8_000_000
_PAGE = 100
_RECORDS = 50


def pieces(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Splits rows where the blobs that they refer to exceed the limit in bytes."""
    start = size = 0
    for index, row in enumerate(rows):
        if row.message.blobs:
            size += sum(ref.size for ref in row.message.blobs)
            if size >= BYTES:
                yield rows[start : index + 1]
                start, size = index + 1, 0
    if start < len(rows):
        yield rows[start:]


def _checked_last(rows: Sequence[Row], after: int, id: str) -> int:
    """Returns the last seq of a page. `Corrupt` if seqs do not ascend: reading on from there would never end."""
    for row in rows:
        if row.message.seq <= after:
            where = f"message {row.message.id!r} of conversation {id!r}"
            raise Corrupt(f"{where} is not in the order of seq", where=where)
        after = row.message.seq
    return after


class TransferSource:
    def __init__(self, view: View, choice: Choice) -> None:
        self._view = view
        self._backend = view.backend
        self._choice = choice
        self._ids = frozenset(choice.conversation_ids or ())
        self._selected: set[int] | None = None
        """The hashes of the conversations whose records are wanted; None for all of the choice."""

    def select_none(self) -> None:
        """Leaves all records out but those of conversations that are selected from now on."""
        self._selected = set()

    def select(self, id: str) -> None:
        if self._selected is not None:
            self._selected.add(hash(id))

    async def check(self) -> None:
        """Checks that conversations that were requested by id exist."""
        for id in self._choice.conversation_ids or ():
            if await self._backend.get_conversation(self._view.context(), id) is None:
                raise rules.not_found(id)

    async def conversations(self) -> AsyncIterator[str]:
        """Yields the id of each conversation once. One that is written to meanwhile is not missed."""
        if self._choice.conversation_ids is not None:
            for id in dict.fromkeys(self._choice.conversation_ids):
                yield id
            return
        # By the time of the last change, ascending: a conversation that changes moves to the part that is still to be
        # read. Only the hash of an id is remembered, so that a large store costs little.
        seen: set[int] = set()
        async for conversation in self._changed_upwards():
            if hash(conversation.id) not in seen:
                seen.add(hash(conversation.id))
                yield conversation.id

    async def _changed_upwards(self) -> AsyncIterator[Conversation]:
        query = ConversationQuery(
            user_id=self._choice.user_id,
            agent_id=self._choice.agent_id,
            archived=None,
            sort="updated_at",
            newest_first=False,
            limit=_PAGE,
        )
        more = True
        while more:
            page, more = await self._backend.list_conversations(self._view.context(), query)
            for conversation in page:
                yield conversation
            if page:
                last = page[-1]
                query = structs.replace(query, above=(to_micros(cursors.sort_time(last, "updated_at")), last.id))

    async def image(self, id: str) -> Numbered | None:
        image = await self._backend.read_image(self._view.context(), id)
        return None if image is None else numbered(image)

    async def rows(self, of: Numbered) -> AsyncIterator[Sequence[Row]]:
        """Yields the messages that the image counts, of all segments, in the order of seq."""
        last, end = 0, of.image.seq
        while last < end:
            rows = await self._backend.read_rows(self._view.context(), of.image.conversation.id, last, ROWS, BYTES)
            if not rows:
                return
            last = _checked_last(rows, last, of.image.conversation.id)
            if last > end:
                rows = [row for row in rows if row.message.seq <= end]
            of.check(rows)
            for piece in pieces(rows):
                yield piece

    async def blobs(self, digests: Iterable[str]) -> dict[str, bytes]:
        wanted = list(dict.fromkeys(digests))
        found = await self._backend.get_blobs(self._view.context(), wanted) if wanted else {}
        for sha256 in wanted:
            if sha256 not in found:
                raise Corrupt(f"blob {sha256} is missing, but a message refers to it", where=f"blob {sha256}")
            codec.check_blob(sha256, found[sha256], f"tenant {self._view.tenant!r}")
        return found

    async def summaries(self, id: str) -> list[Summary]:
        return await self._backend.list_summaries(self._view.context(), id, None)

    # Records

    async def records(self) -> AsyncIterator[tuple[str | None, list[Record]]]:
        """Yields records, with the user who owns them.

        All of them; or, for a choice, those that belong to its conversations, and the chosen user's own. With filters,
        only those of the selected conversations.
        """
        if not self._backend.capabilities.records:
            return
        for owner in await self._owners():
            async for page in self._record_pages(owner):
                own = [record for record in page if not _is_of_this_store(record)]
                chosen = [record for record in own if await self._is_chosen(owner, record)]
                if chosen:
                    yield owner, chosen

    async def _owners(self) -> list[str | None]:
        """Returns the owners whose records are read; None is the tenant."""
        if self._view.user is not None:
            return [self._view.user]
        return [None, *await self._backend.record_owners(self._view.context())]

    async def _record_pages(self, owner: str | None) -> AsyncIterator[list[Record]]:
        query = RecordQuery(limit=_RECORDS)
        more = True
        while more:
            context = Context(self._view.tenant, self._view.clock(), owner)
            page, more = await self._backend.scan_records(context, query)
            yield page
            if page:
                query = structs.replace(query, after=(page[-1].namespace, page[-1].key))

    async def _is_chosen(self, owner: str | None, record: Record) -> bool:
        choice = self._choice
        if self._selected is not None:
            return record.conversation_id is not None and hash(record.conversation_id) in self._selected
        if choice.is_everything or (owner is not None and owner == choice.user_id and choice.agent_id is None):
            return True
        id = record.conversation_id
        if id is None:
            return False
        if choice.conversation_ids is not None:
            return id in self._ids
        context = self._view.context()
        conversation = await self._backend.get_conversation(context, id)
        query = ConversationQuery(user_id=choice.user_id, agent_id=choice.agent_id, archived=None)
        return conversation is not None and rules.matches(conversation, query, context)


# Segments are numbered from 1 in each conversation, whatever numbers a storage assigns. So the same conversation has
# the same image, and the same lines in an export, in every store.

Numbers = Mapping[int, int]
"""From a storage's numbers to ours."""


class Numbered(Struct, frozen=True):
    """An image with our numbers, and the mapping from its storage's. Its rows keep the storage's: there are many."""

    image: Image
    numbers: Numbers

    def check(self, rows: Sequence[Row]) -> None:
        """Checks that the rows are on segments that a branch reads: others cannot be copied."""
        for line in {row.segment for row in rows} - self.numbers.keys():
            where = f"conversation {self.image.conversation.id!r}"
            raise Corrupt(f"{where} has messages in segment {line}, which no branch reads", where=where)


def as_numbered(image: Image) -> Numbered:
    """Returns an image that already has our numbers, as in exports."""
    lines = {line for branch in image.branches for line, _ in (*branch.path, (branch.segment, 0))}
    return Numbered(image, {line: line for line in lines})


def numbered(image: Image) -> Numbered:
    """Returns the image with our numbers, and with its branches in the order of time: a storage may have another."""
    numbers: dict[int, int] = {}
    ordered = sorted(image.branches, key=lambda branch: (branch.created_at, branch.id))
    for branch in ordered:
        for line, _ in (*branch.path, (branch.segment, 0)):
            numbers.setdefault(line, len(numbers) + 1)
    branches = tuple(_renumbered(branch, numbers) for branch in ordered)
    return Numbered(structs.replace(image, branches=branches), numbers)


def _renumbered(branch: StoredBranch, numbers: dict[int, int]) -> StoredBranch:
    path = tuple((numbers[line], upto) for line, upto in branch.path)
    return structs.replace(branch, segment=numbers[branch.segment], path=path)


def _is_of_this_store(record: Record) -> bool:
    """Whether the record means nothing in another store."""
    return vector_records.is_embedding_progress(record) or marks.is_index(record) or shares.is_share(record)
