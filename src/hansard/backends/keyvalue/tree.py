"""A sorted map in immutable objects, of which only the root is ever swapped.

A change writes new objects from the affected leaves up to the root, and never changes an object. So every root is a
consistent snapshot, and a root that lost its swap leaves only unreferenced objects behind. The root is stored inside
the head that is swapped; it has at most `FANOUT` children, so its size does not grow with the history.

The newest changes stay in the root itself (`Root.fresh`) and move into the leaves many at a time: most changes write no
object but the head.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import msgspec
from msgspec import Raw, Struct

from hansard.errors import Corrupt

FANOUT = 64
LEAF_ITEMS = 128
LEAF_BYTES = 64 * 1024
FRESH_ITEMS = 64
FRESH_BYTES = 32 * 1024
"""How many of the newest changes a root holds before they all move into the leaves."""
_REMEMBERED = 16

Item = tuple[bytes, Raw]
Load = Callable[[str], Awaitable[bytes | None]]
_GONE = b"null"
"""The value of a fresh item whose key was removed from the leaves. No other value is null."""


class Child(Struct, array_like=True, frozen=True):
    first: bytes
    """The lowest key that the child may contain."""
    name: str
    count: int


class Root(Struct, frozen=True, omit_defaults=True):
    level: int = 0
    """The number of levels of inner nodes between the root and its leaves."""
    children: list[Child] = []
    fresh: list[Item] = []
    """Sorted. They take precedence over the leaves' values of the same keys."""


_LEAF = msgspec.json.Decoder(list[Item])
_INNER = msgspec.json.Decoder(list[Child])
_encode = msgspec.json.Encoder().encode


class MissingNode(Exception):
    """A node is missing: the root that named it is outdated, or the store is damaged."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class Rewritten(Struct):
    """A changed tree: its root, the nodes to store before the root, and those that only the old root names."""

    root: Root
    made: dict[str, bytes]
    dropped: list[str]


def is_gone(value: Raw) -> bool:
    return len(value) == len(_GONE) and bytes(value) == _GONE


def within(items: Sequence[Item], low: bytes, high: bytes) -> Sequence[Item]:
    """Returns the items with `low <= key < high`."""
    begin = bisect_left(items, low, key=_key)
    return items[begin : bisect_left(items, high, begin, key=_key)]


def _key(item: Item) -> bytes:
    return item[0]


class Tree:
    """Reads and changes trees whose nodes `load` finds by name."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._read: dict[str, Any] = {}
        """The nodes that were read last: many keys of one request are in few of them."""

    async def _node(self, name: str, decoder: Any) -> Any:
        if name in self._read:
            return self._read[name]
        data = await self._load(name)
        if data is None:
            raise MissingNode(name)
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

    async def scan(
        self, root: Root, low: bytes, high: bytes, *, newest_first: bool = False
    ) -> AsyncGenerator[Item, None]:
        """Yields the items with `low <= key < high`, from either end. Reads only the leaves that are walked."""
        fresh = list(within(root.fresh, low, high))
        if not newest_first:
            fresh.reverse()  # popped from the end
        async with aclosing(self._stored(root, low, high, newest_first=newest_first)) as stored:
            async for item in stored:
                while fresh and (fresh[-1][0] > item[0] if newest_first else fresh[-1][0] < item[0]):
                    changed = fresh.pop()
                    if not is_gone(changed[1]):
                        yield changed
                if not fresh or fresh[-1][0] != item[0]:
                    yield item
        for changed in reversed(fresh):
            if not is_gone(changed[1]):
                yield changed

    async def _stored(self, root: Root, low: bytes, high: bytes, *, newest_first: bool) -> AsyncGenerator[Item, None]:
        """Yields the items of the leaves."""
        step = 1 if newest_first else -1
        rest = [(root.level, child) for child in _overlapping(root.children, low, high)[::step]]
        while rest:
            level, child = rest.pop()
            if level > 0:
                below = _overlapping(await self.inner(child.name), low, high)
                rest += [(level - 1, each) for each in below[::step]]
            else:
                for item in within(await self.leaf(child.name), low, high)[::-step]:
                    yield item

    async def items(self, root: Root, low: bytes, high: bytes) -> list[Item]:
        return [item async for item in self.scan(root, low, high)]

    async def get(self, root: Root, key: bytes) -> Raw | None:
        found = within(root.fresh, key, key + b"\0")
        if found:
            return None if is_gone(found[0][1]) else found[0][1]
        return await self._get_stored(root, key)

    async def _get_stored(self, root: Root, key: bytes) -> Raw | None:
        level, children = root.level, root.children
        while children:
            child = children[max(0, bisect_right(children, key, key=lambda each: each.first) - 1)]
            if level == 0:
                found = within(await self.leaf(child.name), key, key + b"\0")
                return found[0][1] if found else None
            level, children = level - 1, await self.inner(child.name)
        return None

    async def is_empty(self, root: Root) -> bool:
        if not root.fresh:
            return not root.children
        async with aclosing(self.scan(root, b"", b"\xff")) as found:
            async for _ in found:
                return False
        return True

    async def count(self, root: Root, low: bytes, high: bytes) -> int:
        total = await self._count(root.level, root.children, low, high)
        for key, value in within(root.fresh, low, high):
            total += (not is_gone(value)) - (await self._get_stored(root, key) is not None)
        return total

    async def _count(self, level: int, children: Sequence[Child], low: bytes, high: bytes) -> int:
        total = 0
        chosen = _overlapping(children, low, high)
        for at, child in enumerate(chosen):
            if 0 < at < len(chosen) - 1:
                total += child.count  # between two others of the range: all of it is in the range
            elif level == 0:
                total += len(within(await self.leaf(child.name), low, high))
            else:
                total += await self._count(level - 1, await self.inner(child.name), low, high)
        return total

    # Changing

    async def change(self, root: Root, batch: Mapping[bytes, Raw | None], name: Callable[[], str]) -> Rewritten:
        """Returns the tree with these values, and without the keys whose value is None. `name` names each new node."""
        changed = {key: Raw(_GONE) if value is None else value for key, value in batch.items()}
        items = sorted((dict(root.fresh) | changed).items())
        if not root.children:
            items = [item for item in items if not is_gone(item[1])]
        if len(items) <= FRESH_ITEMS and sum(len(value) for _, value in items) <= FRESH_BYTES:
            return Rewritten(Root(root.level, root.children, items), {}, [])
        work = _Work(self, name)
        children = await work.rewrite(root.level, root.children, items)
        level = root.level if children else 0
        while len(children) > FANOUT:
            children, level = work.inners(children), level + 1
        return Rewritten(Root(level, children), work.made, work.dropped)


def _overlapping(children: Sequence[Child], low: bytes, high: bytes) -> Sequence[Child]:
    firsts = [child.first for child in children]
    return children[max(0, bisect_right(firsts, low) - 1) : bisect_left(firsts, high)]


class _Work:
    def __init__(self, tree: Tree, name: Callable[[], str]) -> None:
        self._tree = tree
        self._name = name
        self.made: dict[str, bytes] = {}
        self.dropped: list[str] = []

    async def rewrite(self, level: int, children: Sequence[Child], changes: Sequence[Item]) -> list[Child]:
        if not children:
            return self.leaves(changes, appended=True)
        result: list[Child] = []
        begin = 0
        for at, child in enumerate(children):
            last = at + 1 == len(children)
            end = len(changes) if last else bisect_left(changes, children[at + 1].first, key=_key)
            part, begin = changes[begin:end], end
            result += await self._rewrite_child(level, child, part) if part else [child]
        return result

    async def _rewrite_child(self, level: int, child: Child, part: Sequence[Item]) -> list[Child]:
        self.dropped.append(child.name)
        if level > 0:
            children = await self.rewrite(level - 1, await self._tree.inner(child.name), part)
            return self.inners(children) if children else []
        items = await self._tree.leaf(child.name)
        merged = sorted((dict(items) | dict(part)).items())
        left = [item for item in merged if not is_gone(item[1])]
        return self.leaves(left, appended=bool(items) and part[0][0] > items[-1][0])

    def leaves(self, items: Sequence[Item], *, appended: bool) -> list[Child]:
        """Makes leaves of these items: full if they were appended, else half full, to leave room for insertions."""
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
