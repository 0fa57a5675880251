"""Conversations as this process remembers them, and how it reads them again.

A remembered state is never trusted: a write happens only if the last write is still the one that it was planned on, and
a read gets the head again if there was another. The cache only saves the round trip, or the transfer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from hansard.backends.redis.connection import Command
from hansard.backends.redis.keys import RedisKeys
from hansard.backends.redis.nodes import Nodes
from hansard.backends.redis.rows import StoredState, is_same_write, state_of
from hansard.backends.redis.scripts import READ
from hansard.backends.shared.optimistic import Overtaken

_MOST = 4096
_SCRIPTED = ("find", "last", "pinned", "span")
"""Commands that only the script `read` knows."""

Name = tuple[str, str]
"""A tenant, and the id of a conversation."""
Ask = tuple[Any, ...]
"""A command, the part of the conversation that it is about, and its values. The part '' is the root of all keys."""
_LAST_N: tuple[Ask, ...] = (("HGET", "graves", "n"),)


class SeenState(Struct, frozen=True):
    """A conversation at one moment, and the answers to other commands of that moment."""

    entry: StoredState | None
    answers: list[Any]


class RedisStateCache:
    def __init__(self, nodes: Nodes, keys: RedisKeys) -> None:
        self._nodes = nodes
        self._keys = keys
        self._known: OrderedDict[Name, StoredState] = OrderedDict()
        self._expected: dict[Name, StoredState] = {}

    async def read(self, name: Name, asks: Sequence[Ask] = (), *, write: bool = False) -> SeenState:
        """Reads the conversation with answers of the same moment.

        A writer's read follows everything that it has sent before.
        """
        root = self._keys.conversation(*name)
        known = self._known.get(name)
        if known is not None and not write:
            answers = await self._reschedule(root, known, asks)
            if answers is not None:
                return SeenState(known, answers)
        numbers = {f"{root}:head": 1}
        values: list[Any] = [f"{known.n} {known.write}" if known else ""]
        for command, part, *rest in asks:
            key = f"{root}:{part}" if part else root
            values += (command, numbers.setdefault(key, len(numbers) + 1), len(rest), *rest)
        fields, *answers = await READ.run(self._nodes, list(numbers), values, write=write)
        if fields is None:
            return SeenState(known, answers)
        if not fields:
            self.discard(name)
            return SeenState(None, answers)
        entry = state_of(dict(zip(fields[::2], fields[1::2], strict=True)), _where(name))
        self.put(name, entry)
        return SeenState(entry, answers)

    async def _reschedule(self, root: str, known: StoredState, asks: Sequence[Ask]) -> list[Any] | None:
        """Returns answers to plain commands, if the conversation has not changed while they were read."""
        commands: list[Command] = []
        for command, part, *rest in asks:
            if command in _SCRIPTED:
                return None
            commands.append((command, f"{root}:{part}", *rest))
        commands.append(("HMGET", f"{root}:head", "n", "write"))
        answers = await self._nodes.ask_together(root, commands)
        if answers is None or answers.pop() != [b"%d" % known.n, known.write.encode() or None]:
            return None
        return answers

    # Remembering

    def known(self, name: Name) -> StoredState | None:
        return self._known.get(name)

    def latest(self, name: Name) -> StoredState | None:
        """Returns the state after all writes that were sent, or else the state that was last read."""
        return self._expected.get(name) or self._known.get(name)

    def expect(self, name: Name, entry: StoredState) -> None:
        """Records a write that was sent: the next one of this process builds on it without waiting for the answer."""
        self._expected[name] = entry

    def put(self, name: Name, entry: StoredState) -> None:
        """Remembers a state that was read or acknowledged."""
        known = self._known.get(name)
        if known is None or known.n <= entry.n:
            self._known[name] = entry
            self._known.move_to_end(name)
            if len(self._known) > _MOST:
                self._known.popitem(last=False)
        if self._expected.get(name) is entry:
            del self._expected[name]

    def discard(self, name: Name) -> None:
        self._known.pop(name, None)
        self._expected.pop(name, None)

    def clear(self) -> None:
        self._known.clear()
        self._expected.clear()


class Moment:
    """A conversation at one stamp: the initial one, or else that of its first read.

    A later read that finds another stamp raises `Overtaken`. So all answers are of the same moment.
    """

    def __init__(
        self, states: RedisStateCache, name: Name, entry: StoredState | None = None, *, write: bool = False
    ) -> None:
        self.entry = entry
        self.was_read = False
        self.last_n = entry.n if entry else 0
        """The stamp of the conversation; if there is none, that of its deletion. Only writers read the latter."""
        self._states = states
        self._name = name
        self._write = write
        self._is_fixed = entry is not None

    async def read(self, asks: Sequence[Ask] = ()) -> list[Any]:
        if self._is_fixed:
            seen = await self._states.read(self._name, asks, write=self._write)
            if not is_same_write(seen.entry, self.entry):
                raise Overtaken
            self.was_read = True
            return seen.answers
        seen = await self._states.read(self._name, [*asks, *_LAST_N] if self._write else asks, write=self._write)
        deleted = seen.answers.pop() if self._write else None
        self.entry, self.last_n = seen.entry, seen.entry.n if seen.entry else int(deleted or 0)
        self._is_fixed = self.was_read = True
        return seen.answers


def _where(name: Name) -> str:
    return f"conversation {name[1]!r} of tenant {name[0]!r}"
