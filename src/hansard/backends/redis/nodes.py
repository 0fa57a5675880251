"""Finds the server of a key: the only one, or the node of a cluster that serves its slot.

Both kinds have the same methods. Every node has one connection for reads, which do not wait for writes to be synced,
and a few for writes: while one waits for the server, this process prepares the next round trip of another. Commands of
the same place always use the same connection, so that they arrive in the order in which they were sent.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from redis import exceptions
from redis.crc import key_slot

from hansard.backends.redis.connection import Command, RedisConnection, connector
from hansard.backends.redis.errors import translate
from hansard.backends.redis.options import Address, RedisOptions
from hansard.errors import Closed, HansardError, TimedOut, Unavailable

_PATIENCE = 10.0
"""Seconds for a cluster to elect a new primary, for calls that have not been applied."""
_PAUSE = 0.1
_WRITERS = 2


class Node:
    """One server, with its connections."""

    def __init__(self, options: RedisOptions, address: Address | None) -> None:
        self.where = options.where if address is None else f"Redis at {address[0]}:{address[1]}"
        connect = connector(options, address)
        self.reads = RedisConnection(connect, options, self.where, writes=False)
        self._writes = [RedisConnection(connect, options, self.where, writes=True) for _ in range(_WRITERS)]

    def connection(self, key: str, *, write: bool) -> RedisConnection:
        return self._writes[hash(key.partition("}")[0]) % _WRITERS] if write else self.reads

    async def any_key(self, pattern: str) -> bytes | None:
        """Returns a key of this server that matches the pattern. It may have to scan all keys."""
        cursor = b"0"
        while True:
            (answer,) = await self.reads.call(("SCAN", cursor, "MATCH", pattern, "COUNT", 10_000))
            cursor, found = _checked(answer, self.where)
            if found:
                first: bytes = found[0]
                return first
            if cursor == b"0":
                return None

    async def close(self) -> None:
        for connection in (self.reads, *self._writes):
            await connection.close()


class Nodes(Protocol):
    is_cluster: bool

    async def ask(self, key: str, command: Command, *, write: bool, changes: bool | None = None) -> Any:
        """Returns the answer of the server of the key. Refusals are translated; `NoScriptError` is for the caller.

        `write` sends the command after everything that this process has written before. A command that `changes`
        nothing (by default: any that is not a write) may be repeated if the connection is lost.
        """

    async def ask_many(self, commands: Sequence[tuple[str, Command]]) -> list[Any]:
        """Reads, each on the server of its key, in as few round trips as possible."""

    async def ask_together(self, key: str, commands: Sequence[Command]) -> list[Any] | None:
        """Reads keys of one place in immediate succession; None if that is not possible at the moment."""

    async def everywhere(self, command: Command) -> list[Any]:
        """Returns the answers of all servers that hold data."""

    async def any_key(self, pattern: str) -> bytes | None:
        """Returns a key that matches the pattern, on any server."""

    async def close(self) -> None: ...


class _Alive:
    """Refuses calls after closing, and in a forked child process."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._closed = False

    def check(self) -> None:
        if self._closed:
            raise Closed("this store was closed")
        if os.getpid() != self._pid:
            raise Unavailable("this store was opened before a fork: open it again in the child", retryable=False)

    def close(self) -> bool:
        """Returns False if there is nothing left to close, or it belongs to another process."""
        was, self._closed = self._closed, True
        return not was and os.getpid() == self._pid


def _checked(answer: Any, where: str) -> Any:
    if isinstance(answer, exceptions.NoScriptError):
        raise answer
    if isinstance(answer, Exception):
        raise translate(answer, where) from answer
    return answer


class SingleServer:
    """One server, perhaps with replicas that take over its address."""

    is_cluster = False

    def __init__(self, options: RedisOptions) -> None:
        self._alive = _Alive()
        self._node = Node(options, options.addresses[0] if options.addresses else None)

    async def ask(self, key: str, command: Command, *, write: bool, changes: bool | None = None) -> Any:
        self._alive.check()
        changing = write if changes is None else changes
        connection = self._node.connection(key, write=write)
        (answer,) = await (connection.call(command, changes=changing) if write else self._read(command))
        return _checked(answer, self._node.where)

    async def ask_many(self, commands: Sequence[tuple[str, Command]]) -> list[Any]:
        self._alive.check()
        if not commands:
            return []
        answers = await self._read(*(command for _, command in commands))
        return [_checked(answer, self._node.where) for answer in answers]

    async def _read(self, *commands: Command) -> list[Any]:
        try:
            return await self._node.reads.call(*commands)
        except TimedOut:
            raise
        except Unavailable:
            # A read may be repeated on a new connection: the server was restarted or has dropped the old one.
            return await self._node.reads.call(*commands)

    async def ask_together(self, key: str, commands: Sequence[Command]) -> list[Any] | None:
        self._alive.check()
        answers = await self._read(*commands)
        return [_checked(answer, self._node.where) for answer in answers]

    async def everywhere(self, command: Command) -> list[Any]:
        return [await self.ask("", command, write=False)]

    async def any_key(self, pattern: str) -> bytes | None:
        return await self._node.any_key(pattern)

    async def close(self) -> None:
        if self._alive.close():
            await self._node.close()


class Cluster:
    """The nodes of a Redis Cluster, and which slots each primary serves."""

    is_cluster = True

    def __init__(self, options: RedisOptions) -> None:
        self._alive = _Alive()
        self._options = options
        self._nodes: dict[Address, Node] = {}
        self._slots: list[tuple[int, int, Address]] = []
        self._refreshing: asyncio.Task[None] | None = None

    # The slot map

    async def refresh(self) -> None:
        """Reads the map again; concurrent callers share the answer."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.get_running_loop().create_task(self._load())
        await asyncio.shield(self._refreshing)

    async def _load(self) -> None:
        lost: HansardError | None = None
        for address in dict.fromkeys([*(address for _, _, address in self._slots), *self._options.addresses]):
            try:
                (slots,) = await self._node(address).reads.call(("CLUSTER", "SLOTS"))
                slots = _checked(slots, self._node(address).where)
            except HansardError as error:
                lost = error
                continue
            if slots:
                self._slots = [(low, high, _address(primary, address)) for low, high, primary, *_ in slots]
                return
            lost = Unavailable(f"{self._node(address).where} serves no slots: is it a node of a cluster?")
        raise lost or Unavailable("the URL names no node of the cluster")

    def _node(self, address: Address) -> Node:
        node = self._nodes.get(address)
        if node is None:
            node = self._nodes[address] = Node(self._options, address)
        return node

    def _serving(self, key: str) -> Node | None:
        slot = key_slot(key.encode())
        for low, high, address in self._slots:
            if low <= slot <= high:
                return self._node(address)
        return None

    # Calls

    async def ask(self, key: str, command: Command, *, write: bool, changes: bool | None = None) -> Any:
        self._alive.check()
        changing = write if changes is None else changes
        give_up = time.monotonic() + min(_PATIENCE, self._options.timeout)
        while True:
            node = self._serving(key)
            try:
                if node is None:
                    raise Unavailable(f"no node of the cluster serves the slot of {key!r}")
                (answer,) = await node.connection(key, write=write).call(command, changes=changing)
                answer = await self._follow(answer, key, command, write=write, changes=changing)
                return _checked(answer, node.where)
            except Unavailable as error:
                # A call that has not been applied may be repeated while the cluster elects a new primary.
                if error.outcome == "unknown" or not error.retryable or time.monotonic() > give_up:
                    raise
            await asyncio.sleep(_PAUSE)
            await self._refresh_if_it_can()

    async def _refresh_if_it_can(self) -> None:
        try:
            await self.refresh()
        except Unavailable:
            # The next try decides: it raises when its time is over.
            return

    async def _follow(self, answer: Any, key: str, command: Command, *, write: bool, changes: bool) -> Any:
        """Repeats the command on the node that the cluster names, permanently (MOVED) or for this once (ASK)."""
        for _ in range(5):
            if isinstance(answer, exceptions.MovedError):
                await self.refresh()
                connection = self._node((answer.host, answer.port)).connection(key, write=write)
                (answer,) = await connection.call(command, changes=changes)
            elif isinstance(answer, exceptions.AskError):
                connection = self._node((answer.host, answer.port)).connection(key, write=write)
                _, answer = await connection.call(("ASKING",), command, changes=changes)
            else:
                break
        return answer

    async def ask_many(self, commands: Sequence[tuple[str, Command]]) -> list[Any]:
        self._alive.check()
        groups: dict[int, tuple[Node, list[int]]] = {}
        answers: list[Any] = [None] * len(commands)
        alone: list[int] = []
        for at, (key, _) in enumerate(commands):
            node = self._serving(key)
            if node is None:
                alone.append(at)
            else:
                groups.setdefault(id(node), (node, []))[1].append(at)
        found = await asyncio.gather(
            *(node.reads.call(*(commands[at][1] for at in places)) for node, places in groups.values()),
            return_exceptions=True,
        )
        for (_, places), given in zip(groups.values(), found, strict=True):
            if isinstance(given, BaseException):
                alone += places
                continue
            for at, answer in zip(places, given, strict=True):
                answers[at] = answer
                if isinstance(answer, Exception):
                    alone.append(at)
        for at in alone:
            # After any failure: one by one, with the retries of a single call.
            answers[at] = await self.ask(*commands[at], write=False)
        return answers

    async def ask_together(self, key: str, commands: Sequence[Command]) -> list[Any] | None:
        self._alive.check()
        node = self._serving(key)
        try:
            answers = await node.reads.call(*commands) if node else []
        except Unavailable:
            return None
        return answers if answers and not any(isinstance(each, Exception) for each in answers) else None

    async def everywhere(self, command: Command) -> list[Any]:
        found = []
        for node in await self._primaries():
            (answer,) = await node.reads.call(command)
            found.append(_checked(answer, node.where))
        return found

    async def any_key(self, pattern: str) -> bytes | None:
        for node in await self._primaries():
            found = await node.any_key(pattern)
            if found is not None:
                return found
        return None

    async def _primaries(self) -> list[Node]:
        self._alive.check()
        if not self._slots:
            await self.refresh()
        return [self._node(address) for address in dict.fromkeys(address for _, _, address in self._slots)]

    async def close(self) -> None:
        if self._alive.close():
            for node in self._nodes.values():
                await node.close()


def _address(primary: Sequence[Any], asked: Address) -> Address:
    """Returns the address of a primary. A node may not know its own name: then it is the one that was asked."""
    host = primary[0].decode() if primary[0] else ""
    return (host if host not in ("", "?") else asked[0], primary[1])


def open_nodes(options: RedisOptions) -> SingleServer | Cluster:
    kind: Callable[[RedisOptions], SingleServer | Cluster] = Cluster if options.cluster else SingleServer
    return kind(options)
