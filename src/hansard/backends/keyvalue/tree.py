"""A sorted map in immutable objects, of which only the root is ever swapped.

A change writes new objects from the leaves that it touches up to the root, and never changes an object. So whoever
holds a root reads one moment, and a root that lost its swap leaves nothing but objects that nobody names. The root is
kept inside of the head that is swapped; it has at most `FANOUT` children, so its size does not follow the history.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from hansard.errors import Corrupt

FANOUT = 64
LEAF_ITEMS = 128
LEAF_BYTES = 64 * 1024
_REMEMBERED = 16

Item = tuple[bytes, Raw]
Load = Callable[[str], Awaitable[bytes | None]]


class Child(Struct, array_like=True, frozen=True):
    first: bytes
    """No key below it is less than this."""
    name: str
    count: int


class Root(Struct, frozen=True):
    level: int = 0
    """How many levels of inner nodes lie between the root and its leaves."""
    children: list[Child] = []


_LEAF = msgspec.json.Decoder(list[Item])
_INNER = msgspec.json.Decoder(list[Child])
_encode = msgspec.json.Encoder().encode


class Missing(Exception):
    """A node is not there: the root that named it is of the past, or the store is damaged."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class Rewritten(Struct):
    """A changed tree: its root, the nodes to store before it is named, and those that only the old root names."""

    root: Root
    made: dict[str, bytes]
    dropped: list[str]


class Ask(Struct):
    """A range of keys, `low <= key < high`, and how much of it."""

    low: bytes
    high: bytes
    limit: int | None = None
    max_bytes: int | None = None
    newest_first: bool = False
    found: list[Item] = []
    bytes: int = 0

    def is_full(self) -> bool:
        return (self.limit is not None and len(self.found) >= self.limit) or (
            self.max_bytes is not None and self.bytes >= self.max_bytes
        )

    def overlaps(self, children: Sequence[Child]) -> Sequence[Child]:
        firsts = [child.first for child in children]
        begin = max(0, bisect_right(firsts, self.low) - 1)
        chosen = children[begin : bisect_left(firsts, self.high)]
        return chosen[::-1] if self.newest_first else chosen

    def add(self, items: Sequence[Item]) -> None:
        chosen = [item for item in items if self.low <= item[0] < self.high]
        for item in reversed(chosen) if self.newest_first else chosen:
            if self.is_full():
                return
            self.found.append(item)
            self.bytes += len(item[1])


class Tree:
    """Reads and changes trees whose nodes `load` finds by name."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._read: dict[str, Any] = {}
        """The nodes that were read last: many keys of one question lie in few of them."""

    async def _node(self, name: str, decoder: Any) -> Any:
        if name in self._read:
            return self._read[name]
        data = await self._load(name)
        if data is None:
            raise Missing(name)
        while len(self._read) >= _REMEMBERED:
            del self._read[next(iter(self._read))]
        try:
            return self._read.setdefault(name, decoder.decode(data))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise Corrupt(f"node {name!r} cannot be read: {error}", where=name) from error

    async def leaf(self, name: str) -> list[Item]:
        items: list[Item] = await self._node(name, _LEAF)
        return items

    async def inner(self, name: str) -> list[Child]:
        children: list[Child] = await self._node(name, _INNER)
        return children

    # Reading

    async def take(
        self,
        root: Root,
        low: bytes,
        high: bytes,
        *,
        limit: int | None = None,
        max_bytes: int | None = None,
        newest_first: bool = False,
    ) -> list[Item]:
        """The items of a range from either end, until there are `limit` or their values have `max_bytes`."""
        ask = Ask(low, high, limit, max_bytes, newest_first, [])
        await self._visit(root.level, root.children, ask)
        return ask.found

    async def _visit(self, level: int, children: Sequence[Child], ask: Ask) -> None:
        for child in ask.overlaps(children):
            if ask.is_full():
                return
            if level == 0:
                ask.add(await self.leaf(child.name))
            else:
                await self._visit(level - 1, await self.inner(child.name), ask)

    async def get(self, root: Root, key: bytes) -> Raw | None:
        found = await self.take(root, key, key + b"\0")
        return found[0][1] if found else None

    async def count(self, root: Root, low: bytes, high: bytes) -> int:
        return await self._count(root.level, root.children, low, high)

    async def _count(self, level: int, children: Sequence[Child], low: bytes, high: bytes) -> int:
        total = 0
        chosen = Ask(low, high).overlaps(children)
        for at, child in enumerate(chosen):
            if 0 < at < len(chosen) - 1:
                total += child.count  # between two others of the range: all of it lies in the range
            elif level == 0:
                total += sum(low <= key < high for key, _ in await self.leaf(child.name))
            else:
                total += await self._count(level - 1, await self.inner(child.name), low, high)
        return total

    # Changing

    async def change(self, root: Root, batch: Mapping[bytes, Raw | None], name: Callable[[], str]) -> Rewritten:
        """The tree with these values, and without the keys whose value is None. `name` names each new node."""
        work = _Work(self, name)
        changes = sorted(batch.items())
        children = await work.rewrite(root.level, root.children, changes)
        level = root.level if children else 0
        while len(children) > FANOUT:
            children, level = work.inners(children), level + 1
        return Rewritten(Root(level, children), work.made, work.dropped)


class _Work:
    def __init__(self, tree: Tree, name: Callable[[], str]) -> None:
        self._tree = tree
        self._name = name
        self.made: dict[str, bytes] = {}
        self.dropped: list[str] = []

    async def rewrite(
        self, level: int, children: Sequence[Child], changes: Sequence[tuple[bytes, Raw | None]]
    ) -> list[Child]:
        if not children:
            return self.leaves([(key, value) for key, value in changes if value is not None], appended=True)
        result: list[Child] = []
        begin = 0
        for at, child in enumerate(children):
            last = at + 1 == len(children)
            end = len(changes) if last else bisect_left(changes, children[at + 1].first, key=lambda each: each[0])
            part, begin = changes[begin:end], end
            result += await self._rewrite_child(level, child, part) if part else [child]
        return result

    async def _rewrite_child(self, level: int, child: Child, part: Sequence[tuple[bytes, Raw | None]]) -> list[Child]:
        if level > 0:
            children = await self.rewrite(level - 1, await self._tree.inner(child.name), part)
            self.dropped.append(child.name)
            return self.inners(children) if children else []
        items = await self._tree.leaf(child.name)
        self.dropped.append(child.name)
        merged = dict(items)
        for key, value in part:
            if value is None:
                merged.pop(key, None)
            else:
                merged[key] = value
        return self.leaves(sorted(merged.items()), appended=bool(items) and part[0][0] > items[-1][0])

    def leaves(self, items: Sequence[Item], *, appended: bool) -> list[Child]:
        """Leaves of these items: full ones where they came at the end, else half full, for what comes between."""
        whole = len(items) <= LEAF_ITEMS and sum(len(value) for _, value in items) <= LEAF_BYTES
        share = 1 if appended or whole else 2
        made: list[Child] = []
        part: list[Item] = []
        size = 0
        for item in items:
            if part and (len(part) >= LEAF_ITEMS // share or size + len(item[1]) > LEAF_BYTES // share):
                made.append(self._store(part[0][0], part, len(part)))
                part, size = [], 0
            part.append(item)
            size += len(item[1])
        return [*made, self._store(part[0][0], part, len(part))] if part else made

    def inners(self, children: Sequence[Child]) -> list[Child]:
        if len(children) <= FANOUT:
            parts = [children]
        else:
            half = FANOUT // 2
            parts = [children[at : at + half] for at in range(0, len(children), half)]
        return [self._store(part[0].first, part, sum(child.count for child in part)) for part in parts]

    def _store(self, first: bytes, content: Sequence[Any], count: int) -> Child:
        name = self._name()
        self.made[name] = _encode(content)
        return Child(first, name, count)
