"""A write as data: the conditions, the operations on the conversation's own keys, and those at other places.

On one server everything is one script, and so one step. In a cluster other places may be on other nodes: operations
that others will rely on (`before`) are done first; those that follow from the write (`after`) are stored with the
change and done later, at most once. See `shared.settling`.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from itertools import islice
from typing import Any

from msgspec import Struct

from hansard.backends.redis.keys import RedisKeys
from hansard.backends.redis.nodes import Nodes
from hansard.backends.redis.scripts import WRITE
from hansard.backends.shared.settling import WriteMark
from hansard.errors import Unsupported

_MANY = 1000
"""The most values of one operation that a script can pass on at once. Even, so that pairs stay together."""
_MOST = 1_000_000
"""The largest number of values that a server accepts in one command."""


class Operations:
    """Checks and operations for one script, and the keys that they name: see `scripts/write.lua`."""

    __slots__ = ("_numbers", "checks", "keys", "values")

    def __init__(self, *keys: str) -> None:
        self.keys = list(keys)
        self.checks: list[Any] = []
        self.values: list[Any] = []
        self._numbers = {key: number for number, key in enumerate(keys, 1)}

    def number(self, key: str) -> int:
        number = self._numbers.get(key)
        if number is None:
            self.keys.append(key)
            number = self._numbers[key] = len(self.keys)
        return number

    def check(self, key: str, field: str | bytes, value: Any) -> None:
        """The script changes something only if the field of this hash has this value; '' for no such field."""
        self.checks += (self.number(key), field, value)

    def add(self, name: str, key: str, *values: Any) -> None:
        self.values += (name, self.number(key), len(values), *values)

    def add_many(self, name: str, key: str, values: Iterable[Any]) -> None:
        """Adds one operation on many values, in pieces: for commands that may be repeated with more values."""
        rest = iter(values)
        while piece := tuple(islice(rest, _MANY)):
            self.values += (name, self.number(key), len(piece), *piece)

    def add_to(self, other: Operations) -> None:
        """Adds these checks and operations to others that run in the same script."""
        checks = iter(self.checks)
        for number, field, value in zip(checks, checks, checks, strict=True):
            other.check(self.keys[number - 1], field, value)
        at = 0
        while at < len(self.values):
            name, number, count = self.values[at : at + 3]
            other.add(name, self.keys[number - 1], *self.values[at + 3 : at + 3 + count])
            at += 3 + count

    def arguments(self, deadline: str = "") -> list[Any]:
        """Returns the values for the script `write`."""
        values = [deadline, len(self.checks) // 3, *self.checks, *self.values]
        if len(values) > _MOST:
            raise Unsupported(
                f"a write of {len(values):,} values is more than Redis accepts at once ({_MOST:,}): make it smaller",
                capability="atomic_batch",
            )
        return values

    async def run(self, nodes: Nodes, deadline: str = "") -> list[int]:
        """Returns the answer of the script `write`."""
        answer: list[int] = await WRITE.run(nodes, self.keys, self.arguments(deadline))
        return answer


def merged(steps: Iterable[Operations]) -> Operations:
    """Merges all of these into one script."""
    own = Operations()
    for step in steps:
        step.add_to(own)
    return own


class PlaceEffect(Struct, array_like=True, frozen=True):
    """The effects of a write at one place: see `scripts/apply.lua`."""

    keys: list[str]
    values: list[Any]


class WriteBatch:
    """One write to a conversation, its stamp `n`, and its random name."""

    def __init__(self, keys: RedisKeys, tenant: str, id: str, n: int, write: str, *, cluster: bool) -> None:
        self.keys = keys
        self.tenant = tenant
        self.id = id
        self.n = n
        self.write = write
        self.root = keys.conversation(tenant, id)
        self.own = Operations(f"{self.root}:head")
        self.before: dict[str, Operations] = {}
        self.after: dict[str, Operations] = {}
        self.uses: Set[str] = frozenset()
        """Blobs that the new messages refer to."""
        self._cluster = cluster

    @property
    def mark(self) -> WriteMark:
        return WriteMark(self.id, self.n, 0, tuple(sorted(self.uses)), name=f"{self.n}:{self.write}:{self.id}")

    @property
    def effects(self) -> list[PlaceEffect]:
        return [PlaceEffect(each.keys, each.values) for each in self.after.values() if each.values]

    @property
    def crosses(self) -> bool:
        """True if the write has operations at other places, in steps of their own."""
        return bool(self.before or self.after)

    def check(self, part: str, field: str, value: Any) -> None:
        self.own.check(f"{self.root}:{part}", field, value)

    def do(self, name: str, part: str, *values: Any) -> None:
        self.own.add(name, f"{self.root}:{part}", *values)

    def do_many(self, name: str, part: str, values: Iterable[Any]) -> None:
        self.own.add_many(name, f"{self.root}:{part}", values)

    def index(self, name: str, *values: Any, places: Iterable[str] | None = None) -> None:
        """Adds an operation on the search index, for these messages (`<segment> <seq>`) or for all.

        A cluster has no index: its servers know only their own keys.
        """
        if self._cluster:
            return
        queue, rest = self.keys.unindexed(self.tenant), iter(places or ())
        if places is None:
            self.own.add(name, queue, *values)
        while piece := tuple(islice(rest, _MANY)):
            self.own.add(name, queue, *values, *piece)

    def before_commit(self, root: str) -> Operations:
        """Operations at another place that must be done before the write is visible. They may be done in vain."""
        return self.before.setdefault(root, Operations()) if self._cluster else self.own

    def after_commit(self, root: str) -> Operations:
        """Operations at another place that follow from the write."""
        return self.after.setdefault(root, Operations(f"{root}:applied")) if self._cluster else self.own
