"""One conversation, as an operation sees it: decided on a head, and stored by swapping it."""

from __future__ import annotations

import itertools
import secrets
from typing import TYPE_CHECKING

from msgspec import Raw, structs

from hansard import rules
from hansard.backends.keyvalue import rows
from hansard.backends.keyvalue.keys import KeyValueKeys, hashed
from hansard.backends.keyvalue.partitions import LINGER, LoadedHead
from hansard.backends.keyvalue.read import StoredConversation
from hansard.backends.keyvalue.records import RecordSpace, batch_of
from hansard.backends.keyvalue.rows import Anchor, MessageRow
from hansard.backends.keyvalue.tree import MissingNode, Root, is_gone
from hansard.backends.keyvalue.write import Effects, KeyValueWrite, objects_of_message
from hansard.backends.shared import documents, message_walk
from hansard.backends.shared.optimistic import Overtaken
from hansard.contract import storage as contract
from hansard.contract.storage import Applied, Changes, Wants
from hansard.contract.types import Context, ConversationState
from hansard.errors import Corrupt

if TYPE_CHECKING:
    from hansard.backends.keyvalue.storage import KeyValueStorage


class KeyValueTransaction:
    def __init__(
        self, storage: KeyValueStorage, context: Context, id: str, found: LoadedHead, *, is_certain: bool
    ) -> None:
        self.context = context
        self.id = id
        self.is_certain = is_certain
        self.has_applied = False
        self._storage = storage
        self._keys = KeyValueKeys(context.tenant)
        self._anchor, self._token = found
        self._tree = storage.partitions.tree(self._keys)
        self._kept = StoredConversation(self._tree, self._anchor, self.state) if self._anchor and self.state else None
        self._segments = self._anchor.segments if self._kept and self._anchor else 0
        self._space: RecordSpace | None = None
        """The records as the operation has read them; its changes are based on them."""

    @property
    def state(self) -> ConversationState | None:
        return self._anchor.state if self._anchor else None

    def new_segment(self) -> int:
        self._segments += 1
        return self._segments

    async def get(self, wants: Wants) -> contract.Found:
        try:
            if wants.records:
                self._space = await self._storage.records.begin(self.context)
            return await self._storage.answer(self.context, self._kept, wants, self._space)
        except MissingNode as missing:
            raise await self._overtaken(missing) from missing

    async def _overtaken(self, missing: MissingNode) -> Exception:
        """Returns why a node is missing: the head is outdated, or the data is damaged."""
        heads = {self._keys.head(self.id): self._token} | ({self._space.key: self._space.token} if self._space else {})
        for head, token in heads.items():
            if (await self._storage.partitions.load(head))[1] != token:
                return Overtaken()
        return Corrupt(f"conversation {self.id!r} lacks a part of its data: {missing}", where=str(missing))

    async def apply(self, changes: Changes) -> Applied:
        work = ChangePlan(self, self._anchor if self._kept else None, self._kept)
        try:
            write, applied = await work.plan(changes, self._segments, (self._anchor, self._token), self._space)
        except MissingNode as missing:
            raise await self._overtaken(missing) from missing
        self.has_applied = True
        gone = await self._storage.partitions.write(write)
        return structs.replace(applied, blobs=gone.blobs, records=gone.records)


class ChangePlan:
    """One `Changes`, turned into the next head and the objects that belong to it."""

    def __init__(self, tx: KeyValueTransaction, before: Anchor | None, stored: StoredConversation | None) -> None:
        self._keys = tx._keys
        self._tree = tx._tree
        self._context = tx.context
        self._id = tx.id
        self._before = before
        self._kept = stored
        self._stamp = secrets.token_hex(8)
        self._birth = before.birth if before else self._stamp
        self._root = before.root if before else Root()
        self._batch: dict[bytes, Raw | None] = {}
        self._effects = Effects(put={}, drop=[], released=[])
        self._objects: dict[str, bytes] = {}
        self._blobs: dict[str, bytes | None] = {}
        self._is_new = stored is None

    async def plan(
        self, changes: Changes, segments: int, found: LoadedHead, space: RecordSpace | None
    ) -> tuple[KeyValueWrite, Applied]:
        applied = await self._wipe(changes)
        gone = await self._gone(changes)
        for row in gone:
            self._remove(row)
        for segment, fresh in changes.insert:
            for message, draft in fresh:
                self._put(rows.stored_of(segment, message, draft, self._stamp), changes)
        await self._update(changes)
        await self._summarise(changes)
        await self._store_tree()
        anchor = self._anchor(changes, segments, found[0])
        self._effects.usage = list(changes.usage)
        self._effects.tombstones = list(changes.tombstones)
        end = self._context.now + rules.TOMBSTONE_LIFE
        self._effects.put |= {self._keys.due_at(end, "grave", digest): "" for digest in changes.tombstones}
        write = KeyValueWrite(
            self._keys,
            self._keys.head(self._id),
            found[1],
            anchor,
            self._context.now,
            self._effects,
            self._objects,
            self._is_new,
            self._blobs,
        )
        if changes.records and space is not None:
            await self._write_records(changes, write, space)
        summaries = applied.summaries + len(changes.lost_summaries)
        return write, structs.replace(applied, messages=applied.messages + len(gone), summaries=summaries)

    async def _write_records(self, changes: Changes, write: KeyValueWrite, space: RecordSpace) -> None:
        batch = batch_of(changes.records, {self._id: self._birth}, self._stamp)
        owner = self._context.user or ""
        change = await space.change(self._keys, self._stamp, owner, batch, self._context.now)
        if change is not None:
            self._effects.space = space.key
            self._effects.put |= change.effects.put
            self._effects.drop += change.effects.drop
            self._objects |= change.objects
            write.space = space.pending(write.head, write.anchor, change)
            write.names_tenant = True

    # Removals

    async def _wipe(self, changes: Changes) -> Applied:
        if changes.wipes == "nothing" or self._kept is None:
            return Applied()
        applied = Applied(
            messages=self._kept.state.conversation.message_count, summaries=await self._kept.count_summaries()
        )
        for key, value in self._root.fresh:
            if key.startswith(b"m") and not is_gone(value):
                self._release(documents.decode(value, MessageRow, "a message"))
        if self._root.children:
            self._effects.wipe = structs.replace(self._root, fresh=[])
        self._root = Root()
        if changes.wipes == "everything":
            self._effects.unbound = self._birth
            self._birth = self._stamp
            self._is_new = True
        return applied

    async def _gone(self, changes: Changes) -> list[MessageRow]:
        if self._kept is None or changes.wipes != "nothing":
            return []
        found = [await self._kept.at(segment, message.seq) for segment, message in changes.remove]
        removed = [row for row in found if row is not None]
        return [*removed, *[row async for row in message_walk.walk_all(self._kept, changes.remove_runs)]]

    def _remove(self, row: MessageRow) -> None:
        self._release(row)
        self._batch[rows.message_key(row.segment, row.seq)] = None
        self._batch[rows.id_key(row.id)] = None
        if row.pinned:
            self._batch[rows.pin_key(row.segment, row.seq)] = None

    def _release(self, row: MessageRow) -> None:
        self._effects.drop += objects_of_message(self._keys, self._id, row)
        self._effects.released += [ref.sha256 for ref in row.blobs if ref.sha256 not in self._effects.released]

    # Additions

    def _put(self, row: MessageRow, changes: Changes) -> None:
        self._set(row)
        self._objects |= objects_of_message(self._keys, self._id, row)
        self._blobs |= {ref.sha256: changes.blobs.get(ref.sha256) for ref in row.blobs}

    def _set(self, row: MessageRow) -> None:
        self._batch[rows.message_key(row.segment, row.seq)] = rows.raw(row)
        self._batch[rows.id_key(row.id)] = rows.raw((row.segment, row.seq))
        if row.pinned:
            self._batch[rows.pin_key(row.segment, row.seq)] = rows.raw(True)

    async def _update(self, changes: Changes) -> None:
        if changes.update is None or self._kept is None:
            return
        update = changes.update
        before = await self._kept.at(update.segment, update.before.seq)
        if before is None:
            raise MissingNode(update.before.id)
        after = rows.changed(before, update.after, update.draft, self._stamp)
        if before.pinned and not after.pinned:
            self._batch[rows.pin_key(before.segment, before.seq)] = None
        if update.draft is None:
            self._set(after)
        else:
            self._release(before)
            self._put(after, changes)

    async def _summarise(self, changes: Changes) -> None:
        if changes.lost_summaries and self._kept is not None and changes.wipes == "nothing":
            stored = await self._kept.summaries()
            self._batch |= {stored[position][0]: None for position in changes.lost_summaries}
        if changes.new_summary is not None:
            self._batch[rows.summary_key(self._before.n + 1 if self._before else 1)] = rows.raw(changes.new_summary)

    # The result

    async def _store_tree(self) -> None:
        """Creates the nodes that follow from all changes."""
        if not self._batch:
            return
        numbers = itertools.count()
        prefix = f"{hashed(self._id)}/{self._stamp}"
        changed = await self._tree.change(self._root, self._batch, lambda: f"{prefix}-{next(numbers)}")
        self._root = changed.root
        self._objects |= {self._keys.node(name): data for name, data in changed.made.items()}
        self._effects.drop += [self._keys.node(name) for name in changed.dropped]

    def _anchor(self, changes: Changes, segments: int, found: Anchor | None) -> Anchor:
        n, recent = rows.following(found, self._stamp)
        listed, due = self._list(changes.state), self._expire(changes.state)
        if changes.state is None:
            name = f"{self._keys.head(self._id)}/{self._stamp}"
            self._effects.put[self._keys.due_at(self._context.now + LINGER, "head", name)] = ""
            return Anchor(n=n, recent=recent, birth=self._birth)
        return Anchor(
            n=n,
            recent=recent,
            birth=self._birth,
            state=changes.state,
            root=self._root,
            segments=segments,
            listed=listed,
            due=due,
        )

    def _list(self, state: ConversationState | None) -> str:
        """Moves the entries in listings, if their positions change."""
        before = self._before
        stale = self._keys.entries(before.state.conversation, before.listed) if before and before.state else []
        if state is not None and before and self._keys.entries(state.conversation, before.listed) == stale:
            return before.listed
        self._effects.drop += stale
        if state is not None:
            self._objects |= dict.fromkeys(self._keys.entries(state.conversation, self._stamp), b"")
        return self._stamp

    def _expire(self, state: ConversationState | None) -> str:
        """Moves the expiry entry, if the time changes."""
        before = self._before
        old = before.state.conversation if before and before.state else None
        if old and before and state and old.expires_at == state.conversation.expires_at:
            return before.due
        if old and before and old.expires_at is not None:
            self._effects.drop.append(self._keys.expiry(old, before.due))
        if state is not None and state.conversation.expires_at is not None:
            self._effects.put[self._keys.expiry(state.conversation, self._stamp)] = self._id
        return self._stamp
