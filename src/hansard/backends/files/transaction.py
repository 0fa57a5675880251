"""One conversation as an operation sees it: reads are answered from the index, changes become one entry.

The conversation's lock is held as long as the transaction is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from msgspec import Raw, structs

from hansard.backends.files import entries
from hansard.backends.files.entries import JournalEntry
from hansard.backends.files.journals import OpenJournal
from hansard.backends.files.rows import MessagePosition
from hansard.backends.files.tenant import Tenant
from hansard.backends.files.writer import ConversationWriter
from hansard.backends.shared.optimistic import Overtaken
from hansard.contract.storage import NOTHING, Applied, Changes, Found, Placed, Wants
from hansard.contract.types import Context, ConversationState
from hansard.errors import Unsupported

STATE_ONLY = Wants()


class FilesTransaction:
    """`stack` owns the locks of the transaction.

    If there is nothing to lock, no tenant or no conversation of this id, the lock is created when the operation first
    needs it. So an operation that only finds that there is no conversation creates no files.
    """

    def __init__(self, tenant: Tenant, context: Context, id: str, stack: ExitStack) -> None:
        self.context = context
        self.id = id
        self._tenant = tenant
        self._stack = stack
        self._writer = stack.enter_context(tenant.writing(id))
        self._journal = self._writer.journal if self._writer else None
        self.state = self._journal.conversation_state if self._journal else None
        self._segments = 0
        """How many new segments the operation has asked for."""

    def new_segment(self) -> int:
        self._segments += 1
        return self._segments + (self._journal.state.last_segment() if self._journal else 0)

    async def get(self, wants: Wants) -> Found:
        if self._writer is None and wants.tombstones:
            # Lock first: a conversation may be created and deleted before we hold the lock, and its tombstones must
            # count.
            self._writer = self._create_writer()
        return answer(self._tenant, self._journal, wants)

    async def apply(self, changes: Changes) -> Applied:
        if changes.records:
            raise _no_records()
        writer = self._writer or self._create_writer()
        if changes.wipes == "everything":
            wiped = self._drop(writer, changes)
            if changes.state is None:
                return wiped
            self._journal = None
        if self._journal is None:
            # The process that created the tenant's folder may have died before it wrote the log.
            self._tenant.log.create_if_missing()
        assert changes.state is not None
        return self._store(writer, changes, changes.state)

    def _create_writer(self) -> ConversationWriter:
        writer = self._stack.enter_context(self._tenant.writing(self.id, create=True))
        assert writer is not None
        if writer.journal is not None:
            raise Overtaken
        return writer

    def _drop(self, writer: ConversationWriter, changes: Changes) -> Applied:
        gone = self._tenant.drop(writer, self.context.now, tombstone=bool(changes.tombstones))
        return Applied(messages=gone.messages, summaries=gone.summaries, records=gone.records, blobs=gone.blobs)

    def _store(self, writer: ConversationWriter, changes: Changes, state: ConversationState) -> Applied:
        """Writes one entry. Tombstones are written before it: a deletion without its tombstone could be undone."""
        before = self._journal.conversation_state if self._journal else None
        entry = JournalEntry(what=_what(before, changes, state), at=self.context.now, usage=list(changes.usage))
        entries.set_state(entry, before, state)
        entry.messages = self._messages(changes)
        gone, released = self._set_losses(entry, changes)
        if changes.tombstones:
            self._tenant.log.add_tombstones(changes.tombstones, self.context.now)
        # These are deletions: removed content must not stay in the journal.
        whole = entry.cleared or bool(changes.tombstones) or bool(entry.dropped and entry.removed)
        is_new = changes.update is None
        writer.commit(entry, blobs=changes.blobs, refers=_refers(changes), whole=whole, is_new=is_new)
        return structs.replace(gone, blobs=self._tenant.drop_blobs(released, self.context.now))

    def _messages(self, changes: Changes) -> list[Raw]:
        if (update := changes.update) is not None:
            size = update.draft.size if update.draft else self._size(update.after.id)
            return [entries.encode_message(update.segment, update.after, size, update.draft)]
        return [
            entries.encode_message(segment, message, draft.size, draft)
            for segment, fresh in changes.insert
            for message, draft in fresh
        ]

    def _size(self, message_id: str) -> int:
        assert self._journal is not None
        with self._journal.rows() as rows:
            row = rows.find(message_id)
        assert row is not None, "an update is of a message that is stored"
        return row.size

    def _set_losses(self, entry: JournalEntry, changes: Changes) -> tuple[Applied, set[str]]:
        """Sets the removals of an entry. Returns the counts, and the blobs that may be unused then."""
        if changes.new_summary is not None:
            entry.summary = changes.new_summary
        if self._journal is None:
            return Applied(), set()
        taken = (changes.remove, changes.remove_runs, changes.lost_summaries, changes.update)
        if changes.wipes != "messages" and not any(taken):
            return Applied(), set()
        summaries = self._journal.state.rest.summaries
        if changes.wipes == "messages":
            entry.cleared, entry.summaries = True, []
            with self._journal.rows() as rows:
                return Applied(messages=self._journal.state.count, summaries=len(summaries)), rows.digests()
        lost_messages = [message for _, message in changes.remove]
        entry.removed = [message.id for message in lost_messages]
        if changes.update is not None:
            lost_messages.append(changes.update.before)
        released = {ref.sha256 for message in lost_messages for ref in message.blobs}
        if changes.remove_runs and not entry.removed:
            with self._journal.rows() as rows:
                entry.removed = rows.ids(changes.remove_runs)
                released |= rows.digests(entry.removed)
        if lost := changes.lost_summaries:
            entry.summaries = [each for position, each in enumerate(summaries) if position not in lost]
        return Applied(messages=len(entry.removed), summaries=len(lost)), released


def _what(before: ConversationState | None, changes: Changes, state: ConversationState) -> str:
    """Returns a word for people who read the journal; no code depends on it."""
    if changes.wipes == "messages":
        return "clear"
    if changes.update is not None:
        return "update"
    if changes.new_summary is not None:
        return "summary"
    if changes.remove:
        return "delete" if changes.tombstones else "pop"
    if before is None:
        return "append" if changes.insert else "create"
    if len(before.branches) != len(state.branches):
        return "branch" if len(before.branches) < len(state.branches) else "delete branch"
    if changes.remove_runs:
        return "replace"
    return "append" if changes.insert else "change"


def _refers(changes: Changes) -> bool:
    """Whether new content refers to blobs."""
    update = changes.update
    return any(message.blobs for _, fresh in changes.insert for message, _ in fresh) or (
        update is not None and update.draft is not None and bool(update.after.blobs)
    )


def answer(tenant: Tenant, journal: OpenJournal | None, wants: Wants) -> Found:
    """Returns what `wants` asks for. `journal` is None if there is no conversation."""
    if wants.records:
        raise _no_records()
    tombstones = tenant.log.tombstones(wants.tombstones) if wants.tombstones else {}
    blobs = tenant.blobs.get(wants.blobs)
    if journal is None:
        return Found(tombstones=tombstones, blobs=blobs)
    if wants == STATE_ONLY:
        return NOTHING
    with journal.rows() as rows:
        named = [row for each in wants.ids if (row := rows.find(each))]
        found = rows.between(wants.runs, wants.newest)
        spans = [rows.span(run) for run in wants.spans]
        without = wants.last_time_without
        last_time = rows.last_time({*without.ids, *rows.ids(without.runs)}) if without else None
    return Found(
        by_id={placed[1].id: placed for placed in _placed(journal, named)},
        messages=_placed(journal, found),
        spans=spans,
        last_time=last_time,
        summaries=list(journal.state.rest.summaries) if wants.summaries else [],
        tombstones=tombstones,
        blobs=blobs,
    )


def _placed(journal: OpenJournal, rows: Sequence[MessagePosition]) -> list[Placed]:
    return [(row.segment, message) for row, message in zip(rows, journal.read(rows), strict=True)] if rows else []


def _no_records() -> Unsupported:
    return Unsupported(
        "files keep records in other journals than messages, and cannot commit both at once: use write_records",
        capability="records_with_append",
    )
