"""A write as data: what must still hold, what to do to the conversation's own keys, and what to do elsewhere.

On one server everything is one script, and so one step. In a cluster other places may be on other nodes: what others
will rely on (`before`) is done first, what follows (`after`) is written down with the change and done later, at most
once. See `settling`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from hansard.backends.redis.keys import Keys
from hansard.errors import Unsupported

_MANY = 1000
"""Values that one operation gets: a script can only hand on so many at once. Even, so that pairs stay together."""
_MOST = 1_000_000
"""Values that a server takes in one command."""


class Operations:
    """A list of operations for one script, and the keys that they name."""

    __slots__ = ("_numbers", "keys", "values")

    def __init__(self, *keys: str) -> None:
        self.keys = list(keys)
        self.values: list[Any] = []
        self._numbers = {key: number for number, key in enumerate(keys, 1)}

    def number(self, key: str) -> int:
        number = self._numbers.get(key)
        if number is None:
            self.keys.append(key)
            number = self._numbers[key] = len(self.keys)
        return number

    def add(self, name: str, key: str, *values: Any) -> None:
        self.values += (name, self.number(key), len(values), *values)

    def into(self, other: Operations) -> None:
        """Adds these operations to others, where both run in one script."""
        at = 0
        while at < len(self.values):
            name, number, count = self.values[at : at + 3]
            other.add(name, self.keys[number - 1], *self.values[at + 3 : at + 3 + count])
            at += 3 + count

    def add_many(self, name: str, key: str, values: Iterable[Any]) -> None:
        """One operation on many values, in pieces: for commands that may be repeated with more."""
        rest = iter(values)
        while piece := tuple(islice(rest, _MANY)):
            self.values += (name, self.number(key), len(piece), *piece)


class Batch:
    def __init__(self, keys: Keys, tenant: str, id: str, n: int, *, cluster: bool) -> None:
        self.keys = keys
        self.tenant = tenant
        self.id = id
        self.n = n
        self.root = keys.conversation(tenant, id)
        self.own = Operations(f"{self.root}:head")
        self.checks: list[Any] = []
        self.must_hold = 0
        """How many of the checks, from the first, say that the conversation is what the plan was made on."""
        self.before: dict[str, Operations] = {}
        self.after: dict[str, Operations] = {}
        self.uses: set[str] = set()
        """Blobs that the conversation will refer to."""
        self._cluster = cluster

    def check(self, part: str, field: str, value: Any) -> None:
        """The write happens only if a field of one of the conversation's hashes has this value; '' for no field."""
        self.checks += (self.own.number(f"{self.root}:{part}"), field, value)

    def do(self, name: str, part: str, *values: Any) -> None:
        self.own.add(name, f"{self.root}:{part}", *values)

    def do_many(self, name: str, part: str, values: Iterable[Any]) -> None:
        self.own.add_many(name, f"{self.root}:{part}", values)

    def first(self, root: str) -> Operations:
        """For operations at another place that must be done when the write is seen. They may be done in vain."""
        return self.before.setdefault(root, Operations()) if self._cluster else self.own

    def then(self, root: str) -> Operations:
        """For operations at another place that follow from the write."""
        return self.after.setdefault(root, Operations(f"{root}:applied")) if self._cluster else self.own

    def command(self, deadline: str = "") -> tuple[Sequence[str], list[Any]]:
        """Keys and values for the script `write`."""
        values = [deadline, len(self.checks) // 3, *self.checks, *self.own.values]
        if len(values) > _MOST:
            raise Unsupported(
                f"a write of {len(values):,} values is more than Redis takes at once ({_MOST:,}): make it smaller",
                capability="atomic_batch",
            )
        return self.own.keys, values
