"""Writes that reach several keys, of which only one can be swapped at once: `shared.settling` over keys.

1. A *mark* is put, under the write's own stamp. It names everything that the write creates before its swap, and carries
   the effects.
2. The objects that the new head will name are put: nodes, references to blobs, entries in listings. Readers ignore
   whatever the head does not name.
3. The head is swapped. It holds the stamp: from here on the write has happened.
4. The effects are applied and the mark is deleted: the write is settled. If it put records into a conversation that was
   deleted meanwhile, another write removes them, which an entry of what is *due* announces before the mark goes.

No writer swaps a head while the mark of its stamp exists: the next writer first settles what the last one left. So a
mark whose stamp is not in its head belongs to a write that has not happened. If it is overdue, the head is *fenced*:
swapped without a change, so that the write can never happen. Then the objects of the write are deleted.

Effects may be applied several times, and late: every key that they create or delete has the stamp of a write in its
name and is never created again, usage counts by `n`, and tombstones keep the latest time.

**Records with messages** need two heads. The write first swaps the head of the space, which keeps its root and gets
another one that is *pending*: it counts once the head of the conversation has the write's stamp. Readers that find a
pending root check that head. A writer waits briefly for it, and then fences the conversation.

A head that is gone cannot be fenced, so an empty one stays for a day.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta

from msgspec import structs

from hansard.backends.keyvalue.functions import Functions, Token
from hansard.backends.keyvalue.keys import KeyValueKeys
from hansard.backends.keyvalue.rows import Anchor, MessageRow, PendingSpace
from hansard.backends.keyvalue.tenant_data import TenantData
from hansard.backends.keyvalue.tree import Item, MissingNode, Root, Tree
from hansard.backends.keyvalue.write import Bound, Effect, Intent, KeyValueWrite, objects_of_message
from hansard.backends.shared import documents
from hansard.backends.shared.optimistic import Overtaken
from hansard.backends.shared.settling import Outgoing, RemovedCounts, Settling, WriteMark
from hansard.errors import Unavailable

LINGER = timedelta(days=1)
"""How long an empty head stays: longer than any request can be delayed."""
_PENDING = 1.0
"""Seconds that writers of records wait for a pending write before they fence it."""
_REMEMBERED = 256

LoadedHead = tuple[Anchor | None, Token | None]
"""A head and its token."""


class KeyValuePartitions:
    def __init__(self, functions: Functions, tenant_data: TenantData) -> None:
        self._functions = functions
        self._tenant_data = tenant_data
        self._settled: dict[str, tuple[Anchor, Token]] = {}
        """Heads as this process has left them, settled."""
        self._settling: Settling[KeyValueWrite, Effect] = Settling(self, fence=self.fence)
        self.drop_bound: Callable[[KeyValueKeys, str, str, datetime], Awaitable[int]]
        """Set by `KeyValueRecords`: deletes the records of a space that belong to a birth."""

    async def load(self, key: str) -> LoadedHead:
        found = await self._functions.get(key)
        return (documents.decode(found[0], Anchor, key), found[1]) if found else (None, None)

    def tree(self, keys: KeyValueKeys) -> Tree:
        async def load(name: str) -> bytes | None:
            found = await self._functions.get(keys.node(name))
            return found[0] if found else None

        return Tree(load)

    # Writing

    def remembered(self, head: str) -> LoadedHead | None:
        return self._settled.get(head)

    async def begin(self, keys: KeyValueKeys, head: str) -> LoadedHead:
        """Returns the head, after settling its last write."""
        anchor, token = await self.load(head)
        known = self._settled.get(head)
        if anchor is not None and not (known and known[0].stamp == anchor.stamp):
            if anchor.stamp and not anchor.is_unmarked:
                await self.settle_stamp(keys, anchor.stamp)
            self._remember(head, anchor, token)
        return anchor, token

    async def write(self, write: KeyValueWrite) -> RemovedCounts:
        """Stores a write, or raises `Overtaken` if nothing was stored."""
        self._settled.pop(write.head, None)
        if write.is_plain:
            write.anchor = structs.replace(write.anchor, is_unmarked=True)
            gone = RemovedCounts() if await self.commit(write, 0) is not None else None
        else:
            gone = await self._settling.commit(write)
        if gone is None:
            raise Overtaken
        if write.new_token is not None:
            self._remember(write.head, write.anchor, write.new_token)
        return gone

    def _remember(self, head: str, anchor: Anchor, token: Token) -> None:
        if len(self._settled) >= _REMEMBERED:
            self._settled.clear()
        self._settled[head] = (anchor, token)

    async def settle(self, keys: KeyValueKeys) -> None:
        """Finishes the writes of a tenant that have happened, and abandons those that are overdue."""
        await self._settling.settle(keys.tenant)

    async def settle_stamp(self, keys: KeyValueKeys, stamp: str) -> None:
        found = await self._functions.get(keys.mark(stamp))
        if found is not None:
            await self._settling.settle_mark(keys.tenant, _mark(found[0], keys.mark(stamp))[0])

    # Spaces

    async def load_space(self, keys: KeyValueKeys, space: str) -> LoadedHead:
        """Returns the head of a space, without a pending root."""
        give_up = time.monotonic() + _PENDING
        while True:
            anchor, token = await self.begin(keys, space)
            if anchor is None or anchor.pending is None:
                return anchor, token
            pending = anchor.pending
            if await self._has_happened(pending):
                await self.settle_stamp(keys, pending.stamp)
            elif time.monotonic() < give_up:
                await self._functions.pause(0.01)
            else:
                await self.fence(keys.tenant, WriteMark(pending.head, pending.n, 0, carried=pending))
                if not await self._has_happened(pending):
                    await self._resolve(space, pending.stamp, applies=False)

    async def read_space(self, space: str) -> LoadedHead:
        """Returns the head of a space as it counts now."""
        while True:
            anchor, token = await self.load(space)
            if anchor is None or anchor.pending is None:
                return anchor, token
            pending = anchor.pending
            if await self._has_happened(pending):
                return _resolved(anchor, applies=True), token
            # A write that has happened is settled before its head moves on: then the space no longer has this pending
            # root.
            anchor, token = await self.load(space)
            if anchor is None or anchor.pending is None or anchor.pending.stamp == pending.stamp:
                return (_resolved(anchor, applies=False) if anchor else None), token

    async def _has_happened(self, write: PendingSpace | Intent) -> bool | None:
        anchor, _ = await self.load(write.head)
        return anchor.has(write.n, write.stamp) if anchor else False

    async def _resolve(self, space: str, stamp: str, *, applies: bool) -> None:
        """Makes the pending root of a write the root, or discards it."""
        while True:
            anchor, token = await self.load(space)
            if anchor is None or anchor.pending is None or anchor.pending.stamp != stamp:
                return
            if (
                await self._functions.put(space, documents.encode(_resolved(anchor, applies=applies)), token)
                is not None
            ):
                return

    # `settling.Partitions`

    async def put_mark(self, tenant: str, mark: WriteMark, seconds: int) -> int:
        intent: Intent = mark.carried
        intent.deadline = int(time.time()) + seconds
        await self._functions.put(KeyValueKeys(tenant).mark(intent.stamp), documents.encode(intent), None)
        return intent.deadline

    async def prepare(self, write: KeyValueWrite, deadline: int) -> bool:
        functions, keys = self._functions, write.keys
        objects = write.objects | ({keys.name: keys.tenant.encode()} if write.names_tenant else {})
        await functions.all(functions.put(key, value, None) for key, value in objects.items())
        await functions.all(self._tenant_data.keep_blob(keys, each, data) for each, data in write.blobs.items())
        if write.space is not None and not await self._put_pending(keys, write.follows.space, *write.space):
            await self.undo(write.tenant, write.mark)
            return False
        return True

    async def _put_pending(self, keys: KeyValueKeys, space: str, anchor: Anchor, token: Token | None) -> bool:
        assert anchor.pending is not None
        if token is None:
            await self._schedule_check(keys, space)
        if await self._functions.put(space, documents.encode(anchor), token) is not None:
            return True
        # The answer may have been lost.
        found, _ = await self.load(space)
        return found is not None and found.pending is not None and found.pending.stamp == anchor.pending.stamp

    async def commit(self, write: KeyValueWrite, deadline: int) -> Sequence[Outgoing[Effect]] | None:
        failed: Unavailable | None = None
        token = None
        try:
            token = await self._functions.put(write.head, documents.encode(write.anchor), write.token)
        except Unavailable as error:
            failed = error
        if token is None and not await self._is_stored(write, failed):
            # No other write uses the names that this one created, so they can be removed at once.
            if not write.is_plain:
                await self.undo(write.tenant, write.mark)
            return None
        write.new_token = token
        return [Outgoing(write.anchor.n, write.effects, None)]

    async def _is_stored(self, write: KeyValueWrite, failed: Unavailable | None) -> bool:
        """Returns whether a failed put was stored: by a retry on the way, or with its answer lost."""
        try:
            anchor, _ = await self.load(write.head)
        except Unavailable as error:
            raise type(error)(str(error), retryable=error.retryable, outcome="unknown") from error
        has_happened = anchor.has(write.anchor.n, write.anchor.stamp) if anchor else False
        if has_happened is None:
            raise Unavailable("too many other writes since to tell whether this one was stored", outcome="unknown")
        if failed is not None and not has_happened:
            raise failed
        return has_happened

    async def outbox(self, tenant: str, mark: WriteMark) -> Sequence[Outgoing[Effect]]:
        happened = await self._has_happened(mark.carried)
        return [Outgoing(mark.n, [(KeyValueKeys(tenant), mark.carried)], None)] if happened else []

    async def remove_outgoing(self, tenant: str, id: str, outgoing: Outgoing[Effect]) -> None:
        """Nothing to do: the mark carries the entry."""

    async def clear_mark(self, tenant: str, mark: WriteMark) -> None:
        keys, intent = KeyValueKeys(tenant), mark.carried
        lost = [bound for bound in intent.effects.bound if not await self._exists(bound)]
        due = keys.due_at(intent.at, "bound", intent.stamp)
        if lost:
            await self._functions.put(due, documents.encode(lost), None)
        await self._functions.delete(keys.mark(intent.stamp))
        if lost:
            # Only now: this is another write to the space, and the mark would keep it waiting for itself.
            await self.drop_lost(keys, lost, intent.at)
            await self._functions.delete(due)

    async def marks(self, tenant: str) -> Sequence[tuple[WriteMark, int]]:
        names = [key async for key in self._functions.keys(KeyValueKeys(tenant).marks)]
        found = await self._functions.all(self._functions.get(name) for name in names)
        return [_mark(each[0], name) for name, each in zip(names, found, strict=True) if each is not None]

    async def now(self, tenant: str) -> int:
        return int(time.time())

    async def fence(self, tenant: str, mark: WriteMark) -> None:
        """Ensures that a write can no longer happen, unless it has."""
        keys = KeyValueKeys(tenant)
        while True:
            anchor, token = await self.load(mark.id)
            if anchor is not None and anchor.n >= mark.n:
                return  # this write has happened, or another one
            fence = secrets.token_hex(8)
            if anchor is None:
                await self._schedule_check(keys, mark.id)
            fenced = documents.encode(structs.replace(anchor or Anchor(), fence=fence))
            if await self._functions.put(mark.id, fenced, token) is not None:
                return

    async def _schedule_check(self, keys: KeyValueKeys, head: str) -> None:
        """Schedules a check, by a sweep, of a new head that may never hold anything."""
        due = keys.due_at(datetime.now(UTC) + LINGER, "head", f"{head}/{secrets.token_hex(8)}")
        await self._functions.put(due, b"", None)

    async def undo(self, tenant: str, mark: WriteMark) -> None:
        keys, intent = KeyValueKeys(tenant), mark.carried
        # In this order: the next writer deletes the mark of a write that has happened before it swaps the head.
        if await self._has_happened(intent) or await self._functions.get(keys.mark(intent.stamp)) is None:
            return
        if intent.effects.space:
            await self._resolve(intent.effects.space, intent.stamp, applies=False)
        await self._drop(intent.made)
        for sha256 in intent.blobs:
            await self._tenant_data.release_blob(keys, sha256, intent.at)

    # Effects

    async def apply(self, id: str, n: int, effect: Effect) -> RemovedCounts:
        functions, tenant_data = self._functions, self._tenant_data
        keys, intent = effect
        effects = intent.effects
        if effects.space:
            await self._resolve(effects.space, intent.stamp, applies=True)
        await functions.all(functions.put(key, text.encode(), None) for key, text in effects.put.items())
        await functions.all(tenant_data.put_tombstone(keys, digest, intent.at) for digest in effects.tombstones)
        await tenant_data.add_usage(keys, intent.birth, n, effects.usage)
        await self._drop(effects.drop)
        blobs = await self._wipe(keys, intent, effects.wipe) if effects.wipe is not None else 0
        for sha256 in effects.released:
            blobs += await tenant_data.release_blob(keys, sha256, intent.at)
        records = await self._unbind(keys, effects.unbound, intent.at) if effects.unbound else 0
        return RemovedCounts(blobs, records)

    async def _drop(self, names: Iterable[str]) -> None:
        await self._functions.all(self._functions.delete(name) for name in names)

    async def _wipe(self, keys: KeyValueKeys, intent: Intent, root: Root) -> int:
        """Deletes a tree, each node after everything that it names; returns how many blobs went with its messages."""
        return await self._wipe_nodes(keys, intent, self.tree(keys), root.level, [each.name for each in root.children])

    async def _wipe_nodes(
        self, keys: KeyValueKeys, intent: Intent, tree: Tree, level: int, names: Sequence[str]
    ) -> int:
        gone = 0
        for name in names:
            try:
                if level > 0:
                    below = [child.name for child in await tree.inner(name)]
                    gone += await self._wipe_nodes(keys, intent, tree, level - 1, below)
                else:
                    gone += await self._wipe_leaf(keys, intent, name, await tree.leaf(name))
            except MissingNode:
                continue  # deleted by an earlier attempt, or by another process that settles the same mark
            await self._functions.delete(keys.node(name))
        return gone

    async def _wipe_leaf(self, keys: KeyValueKeys, intent: Intent, name: str, items: Sequence[Item]) -> int:
        found = [documents.decode(value, MessageRow, name) for key, value in items if key.startswith(b"m")]
        await self._drop(key for row in found for key in objects_of_message(keys, "", row))
        released = sorted({ref.sha256 for row in found for ref in row.blobs})
        return sum([await self._tenant_data.release_blob(keys, sha256, intent.at) for sha256 in released])

    async def _unbind(self, keys: KeyValueKeys, birth: str, now: datetime) -> int:
        entries = [key async for key in self._functions.keys(keys.bound(birth))]
        spaces = sorted({f"{keys.spaces}{entry.split('/')[-2]}" for entry in entries})
        return sum([await self.drop_bound(keys, space, birth, now) for space in spaces])

    async def _exists(self, bound: Bound) -> bool:
        anchor, _ = await self.load(bound.head)
        return anchor is not None and anchor.state is not None and anchor.birth == bound.birth

    async def drop_lost(self, keys: KeyValueKeys, lost: Sequence[Bound], now: datetime) -> int:
        """Removes records whose conversation was deleted while they were written."""
        return sum([await self.drop_bound(keys, bound.space, bound.birth, now) for bound in lost])


def _mark(data: bytes, where: str) -> tuple[WriteMark, int]:
    intent = documents.decode(data, Intent, where)
    return WriteMark(intent.head, intent.n, intent.n - 1, carried=intent), intent.deadline


def _resolved(anchor: Anchor, *, applies: bool) -> Anchor:
    pending = anchor.pending
    if pending is None or not applies:
        return structs.replace(anchor, pending=None)
    return structs.replace(anchor, root=pending.root, owner=pending.owner, pending=None)
