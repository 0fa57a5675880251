"""Where the stores of `growth` are: files, schemas of a PostgreSQL, or keyspaces of a Cassandra node.

A server's work counts as well: the processor time of its processes is read, so it must run on this machine. Cassandra
is started here, because the processes of another one are not known.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tools.cassandra import Node, why_absent

from benchmarks.arena import Arena
from benchmarks.contenders import NotAvailable

_SMALL = 10_000
_PATIENCE = 600.0
_LOOK = 10.0
"""Seconds for which a node is watched."""
_IDLE = 0.1
"""The part of a core that a node without work needs, and this process beside it."""


class Place(ABC):
    """The stores of one run, by their number of messages."""

    calls = 1.0
    """The part of the calls that are made, for servers on which each takes long."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.options = arena.options

    @abstractmethod
    def url(self, messages: int) -> str: ...

    def is_kept(self, messages: int) -> bool:
        """Whether a store stays for the next run. A small one does not: each run erases half of its users."""
        return self.options.keep and messages > _SMALL

    @abstractmethod
    async def bytes(self, messages: int) -> int:
        """Returns what a store takes, after it was closed."""

    async def pids(self) -> Sequence[int]:
        """Returns the processes of the server that work for this program."""
        return ()

    async def tidy(self, messages: int) -> None:
        """Does after the building what a server does later by itself."""
        return

    async def close(self) -> None:
        """Deletes the stores, unless they are kept."""
        return


class Files(Place):
    def __init__(self, arena: Arena) -> None:
        super().__init__(arena)
        self._paths: dict[int, tuple[Path, str]] = {}

    def url(self, messages: int) -> str:
        if messages not in self._paths:
            arena = self.arena
            place = arena.kept(f"growth-{messages}") if self.is_kept(messages) else arena.place()
            self._paths[messages] = place
        return self._paths[messages][1]

    async def bytes(self, messages: int) -> int:
        return self._paths[messages][0].with_suffix(".db").stat().st_size


class Schemas(Place):
    """Those of a PostgreSQL server."""

    def __init__(self, arena: Arena) -> None:
        super().__init__(arena)
        self._server: Any = None
        self._schemas: dict[int, str] = {}

    def _schema(self, messages: int) -> str:
        name = f"growth_{messages}" if self.is_kept(messages) else f"growth_{os.getpid()}_{messages}"
        self._schemas[messages] = name
        return name

    def url(self, messages: int) -> str:
        base = self.options.url
        return f"{base}{'&' if '?' in base else '?'}schema={self._schema(messages)}"

    async def _connection(self) -> Any:
        if self._server is None:
            self._server = await importlib.import_module("asyncpg").connect(self.options.url)
        return self._server

    async def pids(self) -> Sequence[int]:
        found = await (await self._connection()).fetch(
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'hansard'"
        )
        return [row[0] for row in found]

    async def bytes(self, messages: int) -> int:
        of_schema = f"relkind = 'r' AND relnamespace = '{self._schema(messages)}'::regnamespace"
        sql = f"SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE {of_schema}"
        return int(await (await self._connection()).fetchval(sql))

    async def tidy(self, messages: int) -> None:
        for table in ("conversations", "messages", "search", "search_queue"):
            vacuum = f"VACUUM ANALYZE {self._schema(messages)}.{table}"
            await (await self._connection()).execute(vacuum, timeout=3600)

    async def close(self) -> None:
        if self._server is not None:
            for messages, name in self._schemas.items():
                if not self.is_kept(messages):
                    await self._server.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")
            await self._server.close()


class Keyspaces(Place):
    """Those of a Cassandra node that is started for the run."""

    calls = 0.1

    def __init__(self, arena: Arena) -> None:
        super().__init__(arena)
        if reason := why_absent():
            raise NotAvailable(reason)
        self._folder = arena.kept("growth-cassandra")[0] if self.options.keep else arena.place()[0]
        self._node = Node(self._folder)
        self._node.start("-Xmx4g")  # with one gigabyte it fails when half a million messages are indexed

    def _keyspace(self, messages: int) -> str:
        return f"growth_{messages}" if self.is_kept(messages) else f"growth_{os.getpid()}_{messages}"

    def url(self, messages: int) -> str:
        return f"{self._node.url}/{self._keyspace(messages)}"

    async def pids(self) -> Sequence[int]:
        return [self._node.process.pid] if self._node.process else ()

    async def tidy(self, messages: int) -> None:
        """Waits until the node has compacted what was written: its processor time is that of the calls then."""
        give_up = time.monotonic() + _PATIENCE
        busy = True
        while busy and time.monotonic() < give_up:
            before = processor_time(await self.pids())
            await asyncio.sleep(_LOOK)
            busy = processor_time(await self.pids()) - before > _IDLE * _LOOK * 1e6

    async def bytes(self, messages: int) -> int:
        self._node.stop()  # writes out what it holds in memory
        files = (self._folder / "data" / self._keyspace(messages)).rglob("*")
        return sum(each.stat().st_size for each in files if each.is_file())

    async def close(self) -> None:
        self._node.stop()


_KINDS: dict[str, type[Place]] = {"sqlite": Files, "postgresql": Schemas, "cassandra": Keyspaces}


@contextmanager
def opened(arena: Arena) -> Iterator[Place]:
    scheme = arena.options.url.partition(":")[0]
    if scheme not in _KINDS:
        raise NotAvailable(f"measured on {', '.join(_KINDS)}")
    place = _KINDS[scheme](arena)
    try:
        yield place
    finally:
        arena.run_async(place.close())


def processor_time(pids: Sequence[int]) -> float:
    """Returns microseconds of this process and of these, with all their threads."""
    try:
        others = sum(time.clock_gettime(~pid << 3 | 2) for pid in pids)  # Linux
    except OSError as error:
        raise NotAvailable("needs a server on this machine, whose processor time can be read") from error
    return (time.process_time() + others) * 1e6
