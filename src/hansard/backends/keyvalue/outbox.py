"""How a write reaches several keys, though only one of them can be swapped at once.

1. A *mark* is put, under the write's own stamp. It names all that the write is going to make before its swap, and is
   the write's *outbox*: it holds all that follows from it elsewhere, the effects.
2. The objects that the new head will name are put. Nobody sees them yet.
3. The head is swapped. It holds the stamp: from here on the write has happened.
4. The effects are applied and the mark is deleted: the write is *settled*.

A writer may die between any two steps. Nobody swaps a head while the mark of its stamp exists: the next writer first
settles what the last one left. Whoever reads what effects make (a listing, usage, a sweep) first settles the marks of
its tenant whose stamp is in their head. So a mark whose stamp is not in its head belongs to a write that has not
happened. If it is old, a sweep *fences* the head, by swapping it without a change, so that the write can never happen;
then it deletes what the write has made.

Effects may be applied several times, and late: every key that they make or delete has the stamp of a write in its name
and is never made again, usage counts by `n`, and tombstones keep the latest time. Whoever reads an entry of a listing
looks at the head, which knows the stamp of its entries.

A head that is gone cannot be fenced, so one that has nothing to hold any longer stays for a day without a state.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime, timedelta

from msgspec import Struct, structs

from hansard.backends.keyvalue import rows
from hansard.backends.keyvalue.beside import Beside
from hansard.backends.keyvalue.functions import Functions, Token
from hansard.backends.keyvalue.keys import Keys
from hansard.backends.keyvalue.rows import Anchor, Stored
from hansard.backends.keyvalue.tree import Missing, Root, Tree
from hansard.backends.optimistic import Overtaken
from hansard.errors import Unavailable
from hansard.model import UsageRow

ABANDONED = timedelta(hours=1)
"""A write whose mark is older than this is not going to happen."""
LINGER = timedelta(days=1)
"""How long a head without a state stays: longer than any request can be on its way."""
_REMEMBERED = 10_000


class Bound(Struct, frozen=True):
    """Records of an owner that belong to a conversation, which must still be there."""

    owner: str
    id: str
    birth: str


class Effects(Struct, omit_defaults=True):
    """What follows from a write under other keys."""

    put: dict[str, str] = {}
    drop: list[str] = []
    usage: list[UsageRow] = []
    graves: list[str] = []
    wipe: Root | None = None
    """A tree that no head names any longer."""
    released: list[str] = []
    """Blobs that may go."""
    unbound: str = ""
    """The birth of a conversation whose records go."""
    bound: list[Bound] = []


class Mark(Struct):
    head: str
    stamp: str
    birth: str
    n: int
    at: datetime
    made: list[str]
    blobs: list[str]
    effects: Effects


class Write(Struct):
    """A decided write: a new head in the place of the one with this token, and what belongs to it."""

    head: str
    token: Token | None
    anchor: Anchor
    at: datetime
    effects: Effects
    objects: dict[str, bytes] = {}
    """What to put before the swap: nodes and references."""
    names_tenant: bool = False
    """The tenant may have held nothing before."""
    blobs: dict[str, bytes | None] = {}
    """To put anew after the references to them; None where the bytes should be there."""

    def mark(self) -> Mark:
        anchor = self.anchor
        return Mark(
            self.head, anchor.stamp, anchor.birth, anchor.n, self.at, list(self.objects), list(self.blobs), self.effects
        )

    def is_plain(self) -> bool:
        return not self.objects and self.effects == Effects()


class Gone(Struct):
    """How many went with the effects of a write."""

    blobs: int = 0
    records: int = 0


class Outbox:
    def __init__(self, functions: Functions, beside: Beside) -> None:
        self._functions = functions
        self._beside = beside
        self._settled: dict[str, str] = {}
        """The stamp of a head whose mark is known to be gone."""
        self.drop_bound: Callable[[Keys, str, str, datetime], Awaitable[int]]
        """Set by `Records`: deletes the records under an owner's head that belong to a birth."""

    async def load(self, key: str) -> tuple[Anchor | None, Token | None]:
        found = await self._functions.get(key)
        return (rows.decode(found[0], Anchor, key), found[1]) if found else (None, None)

    # Writing

    async def begin(self, keys: Keys, head: str) -> tuple[Anchor | None, Token | None]:
        """The head, after its last write was settled."""
        anchor, token = await self.load(head)
        if anchor is not None and self._settled.get(head) != anchor.stamp:
            await self._settle(keys, keys.mark(anchor.stamp))
            self._remember(head, anchor.stamp)
        return anchor, token

    async def commit(self, keys: Keys, write: Write) -> Gone:
        """Stores a write, or raises `Overtaken`: then nothing was stored."""
        mark = write.mark()
        plain = write.is_plain()
        if not plain:
            await self._prepare(keys, write, mark)
        await self._swap(keys, write, mark, plain=plain)
        try:
            gone = Gone() if plain else await self._finish(keys, mark)
        except Unavailable as error:
            # Whatever became of this step, the write itself has happened.
            raise type(error)(str(error), retryable=error.retryable, outcome="unknown") from error
        self._remember(write.head, mark.stamp)
        return gone

    async def _prepare(self, keys: Keys, write: Write, mark: Mark) -> None:
        functions = self._functions
        try:
            await functions.put(keys.mark(mark.stamp), rows.encode(mark), None)
            if write.names_tenant:
                await functions.put(keys.name, keys.tenant.encode(), None)
            await functions.all(functions.put(key, value, None) for key, value in write.objects.items())
            await functions.all(self._beside.keep_blob(keys, each, data) for each, data in write.blobs.items())
        except Unavailable as error:
            # No head names any of it. A sweep removes it.
            raise type(error)(str(error), retryable=error.retryable, outcome="not_applied") from error

    async def _swap(self, keys: Keys, write: Write, mark: Mark, *, plain: bool) -> None:
        failed: Unavailable | None = None
        try:
            if await self._functions.put(write.head, rows.encode(write.anchor), write.token) is not None:
                return
        except Unavailable as error:
            failed = error
        # It may have been stored all the same: by a request that was repeated on its way, or whose answer got lost.
        anchor, _ = await self._look_again(write.head)
        if anchor is not None and anchor.stamp == mark.stamp:
            return
        if failed is not None:
            raise failed
        if not plain:
            if await self._functions.get(keys.mark(mark.stamp)) is None:
                what = "the write was either settled by others or given up: nobody can tell"
                raise Unavailable(what, outcome="unknown")
            await self._undo(keys, mark)
        raise Overtaken

    async def _look_again(self, head: str) -> tuple[Anchor | None, Token | None]:
        try:
            return await self.load(head)
        except Unavailable as error:
            raise type(error)(str(error), retryable=error.retryable, outcome="unknown") from error

    def _remember(self, head: str, stamp: str) -> None:
        if len(self._settled) >= _REMEMBERED:
            self._settled.clear()
        self._settled[head] = stamp

    # Settling

    async def settle(self, keys: Keys) -> None:
        """Finishes the writes of a tenant that have happened."""
        async for key in self._functions.keys(keys.marks):
            await self._settle(keys, key)

    async def clear(self, keys: Keys, now: datetime) -> None:
        """The same, and removes what old writes have left that did not happen."""
        async for key in self._functions.keys(keys.marks):
            mark = await self._settle(keys, key)
            if mark is not None and mark.at + ABANDONED <= now and await self._fence(keys, mark, now):
                await self._undo(keys, mark)

    async def _settle(self, keys: Keys, key: str) -> Mark | None:
        """Settles a write that has happened; returns the mark of one that has not."""
        found = await self._functions.get(key)
        if found is None:
            return None
        mark = rows.decode(found[0], Mark, key)
        anchor, _ = await self.load(mark.head)
        if anchor is None or anchor.stamp != mark.stamp:
            return mark
        await self._finish(keys, mark)
        return None

    async def _fence(self, keys: Keys, mark: Mark, now: datetime) -> bool:
        """Makes sure that a write cannot happen any longer. False when it has."""
        while True:
            anchor, token = await self.load(mark.head)
            if anchor is not None and anchor.stamp == mark.stamp:
                return False
            fence = secrets.token_hex(8)
            if anchor is None:
                await self._functions.put(keys.due_at(now + LINGER, "head", f"{mark.head}/{fence}"), b"", None)
                anchor = Anchor(stamp=fence)
            fenced = rows.encode(structs.replace(anchor, fence=fence))
            if await self._functions.put(mark.head, fenced, token) is not None:
                return True

    async def _undo(self, keys: Keys, mark: Mark) -> None:
        await self._drop(mark.made)
        for sha256 in mark.blobs:
            await self._beside.release_blob(keys, sha256, mark.at)
        await self._functions.delete(keys.mark(mark.stamp))

    async def _finish(self, keys: Keys, mark: Mark) -> Gone:
        gone = await self._apply(keys, mark)
        await self._functions.delete(keys.mark(mark.stamp))
        return gone

    async def _apply(self, keys: Keys, mark: Mark) -> Gone:
        functions, beside, effects = self._functions, self._beside, mark.effects
        await functions.all(functions.put(key, text.encode(), None) for key, text in effects.put.items())
        await functions.all(beside.bury(keys, digest, mark.at) for digest in effects.graves)
        await beside.spend(keys, mark.birth, mark.n, effects.usage)
        await self._drop(effects.drop)
        gone = Gone()
        if effects.wipe is not None:
            gone.blobs += await self._wipe(keys, mark, effects.wipe)
        for sha256 in effects.released:
            gone.blobs += await beside.release_blob(keys, sha256, mark.at)
        if effects.unbound:
            gone.records = await self._unbind(keys, effects.unbound, mark.at)
        for bound in effects.bound:
            await self._check_bound(keys, bound, mark.at)
        return gone

    async def _drop(self, names: Iterable[str]) -> None:
        await self._functions.all(self._functions.delete(name) for name in names)

    async def _wipe(self, keys: Keys, mark: Mark, root: Root) -> int:
        """Deletes a tree, each node after all that it names; returns how many blobs went with its messages."""
        tree = Tree(node_loader(self._functions, keys))
        return await self._wipe_nodes(keys, mark, tree, root.level, [child.name for child in root.children])

    async def _wipe_nodes(self, keys: Keys, mark: Mark, tree: Tree, level: int, names: list[str]) -> int:
        gone = 0
        birth = mark.effects.unbound or mark.birth
        for name in names:
            try:
                children = await tree.inner(name) if level > 0 else ()
                items = await tree.leaf(name) if level == 0 else ()
            except Missing:
                continue  # an earlier attempt has come so far, or somebody else who settles the same mark
            if level > 0:
                below = [child.name for child in children]
                gone += await self._wipe_nodes(keys, mark, tree, level - 1, below)
            else:
                found = [rows.decode(value, Stored, name) for key, value in items if key.startswith(b"m")]
                await self._drop(key for row in found for key in keys_of(keys, birth, row))
                for sha256 in {ref.sha256 for row in found for ref in row.blobs}:
                    gone += await self._beside.release_blob(keys, sha256, mark.at)
            await self._functions.delete(keys.node(name))
        return gone

    async def _unbind(self, keys: Keys, birth: str, now: datetime) -> int:
        gone = 0
        async for key in self._functions.keys(keys.bound(birth)):
            gone += await self.drop_bound(keys, f"{keys.spaces}{key.rpartition('/')[2]}", birth, now)
            await self._functions.delete(key)
        return gone

    async def _check_bound(self, keys: Keys, bound: Bound, now: datetime) -> None:
        """Records whose conversation went while they were written go with it."""
        anchor, _ = await self.load(keys.head(bound.id))
        if anchor is None or anchor.state is None or anchor.birth != bound.birth:
            await self.drop_bound(keys, keys.space(bound.owner), bound.birth, now)


def node_loader(functions: Functions, keys: Keys) -> Callable[[str], Awaitable[bytes | None]]:
    async def load(name: str) -> bytes | None:
        found = await functions.get(keys.node(name))
        return found[0] if found else None

    return load


def reference_keys(keys: Keys, row: Stored) -> list[str]:
    return [f"{keys.references(sha256)}{row.stamp}-{row.seq}" for sha256 in sorted({ref.sha256 for ref in row.blobs})]


def author_keys(keys: Keys, birth: str, row: Stored) -> list[str]:
    who = row.participant
    return [f"{keys.authors(who.id)}{birth}-{row.seq}"] if who is not None and who.kind == "user" else []


def keys_of(keys: Keys, birth: str, row: Stored) -> list[str]:
    """The keys that exist for one message."""
    return [*reference_keys(keys, row), *author_keys(keys, birth, row)]
