"""One conversation, as an operation sees it: decided on a head, and stored by swapping it."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterable

from msgspec import Raw, structs

from hansard import rules
from hansard.backends.keyvalue import rows
from hansard.backends.keyvalue.beside import Beside
from hansard.backends.keyvalue.functions import Functions, Token
from hansard.backends.keyvalue.keys import Keys, hashed
from hansard.backends.keyvalue.outbox import (
    LINGER,
    Effects,
    Gone,
    Outbox,
    Write,
    author_keys,
    keys_of,
    node_loader,
    reference_keys,
)
from hansard.backends.keyvalue.read import Kept
from hansard.backends.keyvalue.rows import Anchor, Stored
from hansard.backends.keyvalue.tree import Missing, Root, Tree
from hansard.backends.optimistic import Overtaken
from hansard.contract.storage import Applied, Changes, Found, Wants
from hansard.contract.types import Context, Head
from hansard.errors import Corrupt, Unsupported
from hansard.model import Conversation

TAIL_ITEMS = 32
TAIL_BYTES = 32 * 1024
"""What the head keeps of the newest messages before they move into the tree, all at once."""


class KeyValueTransaction:
    is_certain = True

    def __init__(
        self,
        functions: Functions,
        outbox: Outbox,
        beside: Beside,
        *,
        context: Context,
        id: str,
        found: tuple[Anchor | None, Token | None],
    ) -> None:
        self.context = context
        self.id = id
        self.has_applied = False
        self._outbox = outbox
        self._beside = beside
        self._keys = keys = Keys(context.tenant)
        self._anchor, self._token = found
        self._tree = Tree(node_loader(functions, keys))
        state = self.state
        self._kept = Kept(self._tree, self._anchor, state) if self._anchor and state else None
        self._segments = self._anchor.segments if self._kept and self._anchor else 0

    @property
    def state(self) -> Head | None:
        return self._anchor.state if self._anchor else None

    def new_segment(self) -> int:
        self._segments += 1
        return self._segments

    async def get(self, wants: Wants) -> Found:
        if wants.records:
            raise no_records()
        try:
            found = await self._kept.answer(wants) if self._kept else Found()
        except Missing as missing:
            raise await self._overtaken(missing) from missing
        return structs.replace(
            found,
            tombstones=await self._beside.buried(self._keys, list(wants.tombstones)),
            blobs={each: data for each in wants.blobs if (data := await self._beside.get_blob(self._keys, each))},
        )

    async def _overtaken(self, missing: Missing) -> Exception:
        """Why a node is not there: the head is of the past, or names what does not exist."""
        anchor, _ = await self._outbox.load(self._keys.head(self.id))
        if anchor is not None and self._anchor is not None and anchor.stamp == self._anchor.stamp:
            return Corrupt(f"conversation {self.id!r} misses a part of its messages: {missing}", where=str(missing))
        return Overtaken()

    async def apply(self, changes: Changes) -> Applied:
        if changes.records:
            raise no_records()
        work = Change(self._keys, self._tree, self.context, self.id, self._anchor, self._kept)
        try:
            write, applied = await work.plan(changes, self._segments)
        except Missing as missing:
            raise await self._overtaken(missing) from missing
        write.token = self._token
        write.names_tenant = work.is_new
        self.has_applied = True
        gone: Gone = await self._outbox.commit(self._keys, write)
        return structs.replace(applied, blobs=gone.blobs, records=gone.records)


def no_records() -> Unsupported:
    return Unsupported("records cannot be written in one step with messages here", capability="records")


class Change:
    """One `Changes`, made into the head that follows, and what belongs to it."""

    def __init__(
        self, keys: Keys, tree: Tree, context: Context, id: str, before: Anchor | None, kept: Kept | None
    ) -> None:
        self._keys = keys
        self._tree = tree
        self._context = context
        self._id = id
        self._before = before
        self._kept = kept
        self._stamp = secrets.token_hex(12)
        self._birth = before.birth if before and kept else self._stamp
        self._root = before.root if before and kept else Root()
        self._tail = list(before.tail) if before and kept else []
        self._batch: dict[bytes, Raw | None] = {}
        self._effects = Effects(put={}, drop=[], released=[])
        self._objects: dict[str, bytes] = {}
        self._blobs: dict[str, bytes | None] = {}
        self.is_new = kept is None

    async def plan(self, changes: Changes, segments: int) -> tuple[Write, Applied]:
        applied = await self._wipe(changes)
        gone = await self._gone(changes)
        for row in gone:
            self._remove(row)
        self._insert(changes)
        await self._update(changes)
        await self._summarise(changes)
        self._settle_effects(changes)
        await self._store_tree()
        anchor = self._anchor(changes, segments)
        write = Write(
            self._keys.head(self._id),
            None,
            anchor,
            self._context.now,
            self._effects,
            self._objects,
            blobs=self._blobs,
        )
        return write, structs.replace(
            applied,
            messages=applied.messages + len(gone),
            summaries=applied.summaries + len(changes.lost_summaries),
        )

    # What goes

    async def _wipe(self, changes: Changes) -> Applied:
        if changes.wipes == "nothing" or self._kept is None:
            return Applied()
        applied = Applied(
            messages=self._kept.state.conversation.message_count, summaries=await self._kept.count_summaries()
        )
        for row in self._tail:
            self._release(row)
        if self._root.children:
            self._effects.wipe = self._root
        self._root, self._tail = Root(), []
        if changes.wipes == "everything":
            self._effects.unbound = self._birth
            self._birth = self._stamp
            self.is_new = True
        return applied

    async def _gone(self, changes: Changes) -> list[Stored]:
        if self._kept is None or changes.wipes != "nothing":
            return []
        found = [await self._kept.at(segment, message.seq) for segment, message in changes.remove]
        removed = [row for row in found if row is not None]
        return [*removed, *[row async for row in self._kept.walk_all(changes.remove_runs)]]

    def _remove(self, row: Stored) -> None:
        self._release(row)
        if row in self._tail:
            self._tail.remove(row)
            return
        self._batch[rows.message_key(row.segment, row.seq)] = None
        self._batch[rows.id_key(row.id)] = None
        if row.pinned:
            self._batch[rows.pin_key(row.segment, row.seq)] = None

    def _release(self, row: Stored) -> None:
        self._effects.drop += keys_of(self._keys, self._birth, row)
        self._effects.released += [ref.sha256 for ref in row.blobs if ref.sha256 not in self._effects.released]

    # What comes

    def _insert(self, changes: Changes) -> None:
        for segment, fresh in changes.insert:
            for message, draft in fresh:
                row = rows.stored_of(segment, message, draft, self._stamp)
                self._tail.append(row)
                self._refer(row, changes)
                for key in author_keys(self._keys, self._birth, row):
                    self._effects.put[key] = rows.encode([self._id, row.id]).decode()
        self._tail.sort(key=lambda row: row.seq)

    def _refer(self, row: Stored, changes: Changes) -> None:
        self._objects |= dict.fromkeys(reference_keys(self._keys, row), b"")
        self._blobs |= {ref.sha256: changes.blobs.get(ref.sha256) for ref in row.blobs}

    async def _update(self, changes: Changes) -> None:
        if changes.update is None or self._kept is None:
            return
        update = changes.update
        before = await self._kept.at(update.segment, update.before.seq)
        if before is None:
            raise Missing(update.before.id)
        after = rows.changed(before, update.after, update.draft, self._stamp)
        if update.draft is not None:
            self._refer(after, changes)
            self._effects.drop += reference_keys(self._keys, before)
            self._effects.released += sorted({ref.sha256 for ref in before.blobs})
        if before in self._tail:
            self._tail[self._tail.index(before)] = after
        else:
            self._set(after)

    def _set(self, row: Stored) -> None:
        self._batch[rows.message_key(row.segment, row.seq)] = rows.raw(row)
        self._batch[rows.id_key(row.id)] = rows.raw((row.segment, row.seq))
        self._batch[rows.pin_key(row.segment, row.seq)] = rows.raw(True) if row.pinned else None

    async def _summarise(self, changes: Changes) -> None:
        if changes.lost_summaries and self._kept is not None and changes.wipes == "nothing":
            stored = await self._kept.summaries()
            self._batch |= {stored[position][0]: None for position in changes.lost_summaries}
        if changes.new_summary is not None:
            self._batch[rows.summary_key(self._n())] = rows.raw(changes.new_summary)

    # The result

    def _n(self) -> int:
        return (self._before.n if self._before else 0) + 1

    def _settle_effects(self, changes: Changes) -> None:
        effects, now = self._effects, self._context.now
        effects.usage = list(changes.usage)
        effects.graves = list(changes.tombstones)
        end = now + rules.TOMBSTONE_LIFE
        effects.put |= {self._keys.due_at(end, "grave", digest): "" for digest in changes.tombstones}

    async def _store_tree(self) -> None:
        """Moves a tail that has grown into the tree, and makes the nodes that follow from all changes."""
        if len(self._tail) > TAIL_ITEMS or sum(len(row.body) for row in self._tail) > TAIL_BYTES:
            for row in self._tail:
                self._set(row)
            self._tail = []
        if not self._batch:
            return
        numbers = itertools.count()
        prefix = f"{hashed(self._id)}/{self._stamp}"
        changed = await self._tree.change(self._root, self._batch, lambda: f"{prefix}-{next(numbers)}")
        self._root = changed.root
        self._objects |= {self._keys.node(name): data for name, data in changed.made.items()}
        self._effects.drop += [self._keys.node(name) for name in changed.dropped]

    def _anchor(self, changes: Changes, segments: int) -> Anchor:
        before, state = self._before, changes.state
        old = before.state.conversation if before and before.state else None
        listed = self._list(old, before.listed if before else "", state)
        if state is None:
            self._effects.put[self._keys.due_at(self._context.now + LINGER, "head", self._lingering())] = ""
            return Anchor(stamp=self._stamp, birth=self._birth, n=self._n())
        return Anchor(
            stamp=self._stamp,
            birth=self._birth,
            n=self._n(),
            state=state,
            root=self._root,
            tail=self._tail,
            segments=segments,
            listed=listed,
        )

    def _lingering(self) -> str:
        return f"{self._keys.head(self._id)}/{self._stamp}"

    def _list(self, old: Conversation | None, listed: str, state: Head | None) -> str:
        """Moves the entries in listings, if their places change."""
        stale = self._keys.entries(old, listed) if old else []
        if state is not None and old and self._keys.entries(state.conversation, listed) == stale:
            return listed
        self._effects.drop += stale
        if state is not None:
            fresh: Iterable[str] = self._keys.entries(state.conversation, self._stamp)
            self._effects.put |= dict.fromkeys(fresh, self._id)
        return self._stamp
