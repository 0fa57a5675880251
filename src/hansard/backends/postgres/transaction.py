"""One conversation as an operation sees it, in a transaction that holds the lock of its row.

So the state and the answers are current, and no other writer changes the conversation before the commit. Rows outside
the conversation are locked after it, always in the same order: blobs by their hashes, then usage rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import structs

from hansard import codec
from hansard.analysis import searchable
from hansard.backends.postgres import answers, rows, tenant_data
from hansard.backends.postgres.connection import Row
from hansard.backends.postgres.engine import Work
from hansard.backends.postgres.errors import Raced
from hansard.backends.postgres.state_cache import StampedState, new_stamp, stamped_state_of
from hansard.backends.postgres.tenant_data import Use, uses_of
from hansard.contract.storage import Applied, Changes, Found, Update, Wants, Wipe
from hansard.contract.types import Context, ConversationState, Draft, StoredBranch
from hansard.model import Message, to_micros

_MOST_BYTES = 32_000_000
"""Bytes of bodies in one statement: the server refuses a protocol message of more than a gigabyte."""


class PostgresTransaction:
    def __init__(self, work: Work, context: Context, id: str, before: StampedState | None) -> None:
        self.context = context
        self.id = id
        self.unindexed = 0
        """Messages that `apply` has left for the search index."""
        self._work = work
        self._link = work.link
        self._key = (work.tenant, id)
        self._before = before
        self._segment = before.last_segment if before else 0
        """The highest segment number used, also by this operation."""
        self._summaries: list[int] = []
        """The numbers of the summaries that were read."""
        self._no_tombstones: Sequence[str] = ()
        """The digests of tombstones that were read and are not stored."""
        self._records: list[Row] = []
        """The stored rows of the records that were read. They are locked."""
        self._uses: list[Use] = []
        self._released: list[str] = []
        """The hashes of blobs that lose a reference."""

    @classmethod
    async def begin(cls, work: Work, context: Context, id: str) -> PostgresTransaction:
        """Locks the conversation. A missing one cannot be locked: `apply` notices if another writer creates it."""
        row = await work.link.one("lock_conversation", work.tenant, id)
        if row is None:
            return cls(work, context, id, None)
        # A separate statement sees the changes of the last holder of the lock.
        branches = await work.link.one("find_branches", work.tenant, id)
        return cls(work, context, id, stamped_state_of(row, branches[0] if branches else None, work.tenant))

    @property
    def state(self) -> ConversationState | None:
        return self._before.state if self._before else None

    def new_segment(self) -> int:
        self._segment += 1
        return self._segment

    async def get(self, wants: Wants) -> Found:
        found = await answers.answer(self._link, self.context, self.id, structs.replace(wants, records=()))
        if wants.records:
            found["records"] = self._records = await tenant_data.lock_records(self._work, self.context, wants.records)
        if wants.summaries:
            self._summaries = [row[-1] for row in found["summaries"]]
        answer = answers.found_of(self.context, self.id, found)
        self._no_tombstones = [each for each in wants.tombstones if each not in answer.tombstones]
        return answer

    async def apply(self, changes: Changes) -> Applied:
        messages, summaries, records = await self._wipe(changes.wipes)
        messages += await self._remove(changes)
        if changes.state is not None:
            await self._save_state(changes.state, _largest(changes))
        for segment, fresh in changes.insert:
            await self._insert(segment, fresh)
        if changes.update is not None:
            await self._save_message(changes.update)
        await self._save_summaries(changes)
        uses = [*self._uses, *uses_of(self.id, changes.insert)]
        await tenant_data.use_blobs(self._work, uses, changes.blobs)
        blobs = await tenant_data.drop_blobs(self._work, self.context, self._released)
        await self._save_tenant_data(changes)
        return Applied(
            messages=messages, summaries=summaries + len(changes.lost_summaries), records=records, blobs=blobs
        )

    # Removals

    async def _wipe(self, wipes: Wipe) -> tuple[int, int, int]:
        """Returns how many messages, summaries and records were removed."""
        if wipes == "nothing":
            return 0, 0, 0
        if wipes == "everything":
            self._before = None
            self._work.changed[self.id] = None
            row = await self._link.one("wipe_everything", *self._key)
        else:
            row = await self._link.one("wipe_messages", *self._key)
        assert row is not None
        self._released += row[3]
        return row[0], row[1], row[2]

    async def _remove(self, changes: Changes) -> int:
        if changes.remove:
            places = [(segment, message.seq) for segment, message in changes.remove]
            row = await self._link.one("remove_messages", *self._key, *rows.columns(places, 2))
        elif changes.remove_runs:
            row = await self._link.one("remove_runs", *self._key, *answers.columns(changes.remove_runs))
        else:
            return 0
        assert row is not None
        self._released += row[1]
        return int(row[0])

    # The conversation and its branches

    async def _save_state(self, state: ConversationState, largest: int) -> None:
        before = self._before
        largest = max(largest, before.largest if before else 0)
        entry = StampedState(state, largest, self._segment, new_stamp())
        row = rows.conversation_row(state, entry.largest, entry.last_segment, entry.stamp)
        if before is not None:
            await self._link.run("save_conversation", *self._key, *row)
        else:
            await self._insert_conversation(row)
        if before is not None and before.state.conversation.user_id != state.conversation.user_id:
            # The owner is part of its messages' search terms.
            await self._link.run("queue_conversations", self._work.tenant, [self.id])
        await self._save_branches(before.state.branches if before else {}, state.branches)
        self._work.changed[self.id] = entry

    async def _insert_conversation(self, row: Row) -> None:
        if not await self._link.run("insert_conversation", *self._key, *row):
            raise Raced(f"conversation {self.id!r} was created by another writer at the same moment")
        # There was no row to lock, so another writer may have created and deleted the conversation since they were
        # read.
        if self._no_tombstones and await self._link.all("find_tombstones", self._work.tenant, self._no_tombstones):
            raise Raced(f"conversation {self.id!r} was deleted by another writer at the same moment")

    async def _save_branches(self, before: Mapping[str, StoredBranch], after: Mapping[str, StoredBranch]) -> None:
        for name in before.keys() - after.keys():
            await self._link.run("delete_branch", *self._key, name)
        alone = len(after) == 1
        # If the number of branches changes from or to one, the branches are saved too: their count moves.
        same_count_row = len(before) > 0 and (len(before) == 1) == alone
        for name, branch in after.items():
            old = before.get(name)
            if not same_count_row or old is None or not _is_saved(old, branch, alone=alone):
                await self._link.run("save_branch", *self._key, *rows.branch_row(branch, alone=alone))

    # Messages

    async def _insert(self, segment: int, fresh: Sequence[tuple[Message, Draft]]) -> None:
        for piece in _pieces(fresh):
            made = [rows.message_row(self.id, segment, message, draft) for message, draft in piece]
            await self._link.run("insert_messages", self._work.tenant, *rows.columns(made, rows.MESSAGE_WIDTH))
        self.unindexed += len(fresh)

    async def _save_message(self, update: Update) -> None:
        before, message, draft = update.before, update.after, update.draft
        place = (*self._key, update.segment, message.seq)
        extra = codec.encode_extra(message)
        if draft is None:
            await self._link.run("save_extra", *place, extra, message.pinned)
        else:
            format = None if message.format == "text" else rows.escaped(message.format)
            body = rows.body_of(draft.body, message.format)
            await self._link.run("save_message", *place, format, body, draft.size, extra, message.pinned)
        if searchable(before) != searchable(message):
            await self._link.run("queue_message", *place)
            self.unindexed += 1
        if before.blobs != message.blobs:
            released = await self._link.all("release_blobs", *self._key, [update.segment], [message.seq])
            self._released += [sha256 for (sha256,) in released]
            self._uses += [(self.id, update.segment, message.seq, ref.sha256) for ref in message.blobs]

    # Summaries, tombstones, usage, records

    async def _save_summaries(self, changes: Changes) -> None:
        if changes.lost_summaries:
            lost = [self._summaries[position] for position in changes.lost_summaries]
            await self._link.run("delete_summaries", *self._key, lost)
        if changes.new_summary is not None:
            await self._link.run("insert_summary", *self._key, *rows.summary_row(changes.new_summary))

    async def _save_tenant_data(self, changes: Changes) -> None:
        if changes.tombstones:
            now = to_micros(self.context.now)
            await self._link.run("add_tombstones", self._work.tenant, list(changes.tombstones), now)
        await tenant_data.add_usage(self._work, changes.usage)
        if changes.records:
            await tenant_data.save_records(self._work, self.context, changes.records, self._records)


def _is_saved(before: StoredBranch, after: StoredBranch, *, alone: bool) -> bool:
    """Returns whether the branch's row is up to date. The count of an only branch is the conversation's."""
    return before is after or (alone and rows.branch_row(before, alone=True) == rows.branch_row(after, alone=True))


def _largest(changes: Changes) -> int:
    """Returns the size of the largest new body."""
    sizes = [draft.size for _, fresh in changes.insert for _, draft in fresh]
    if changes.update is not None and changes.update.draft is not None:
        sizes.append(changes.update.draft.size)
    return max(sizes, default=0)


def _pieces(fresh: Sequence[tuple[Message, Draft]]) -> Iterator[list[tuple[Message, Draft]]]:
    piece: list[tuple[Message, Draft]] = []
    size = 0
    for pair in fresh:
        if piece and size + pair[1].size > _MOST_BYTES:
            yield piece
            piece, size = [], 0
        piece.append(pair)
        size += pair[1].size
    if piece:
        yield piece
