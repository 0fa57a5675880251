"""A process that runs portions of operations on one store, as lines on its standard input ask.

With `--count` it counts instead of timing. Then the server is reached through a relay of this process.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from benchmarks.compare.operations import OPERATIONS, Place
from benchmarks.compare.relay import Relay
from benchmarks.compare.served import Served
from hansard import connect

_PAUSE = 0.15
"""Seconds in which what the preparation began ends: filling the search index is not part of an operation."""
Figures = dict[str, float]
Portion = Callable[[str, int], Awaitable[Figures]]


async def timed(place: Place, operation: str, count: int) -> Figures:
    calls = await OPERATIONS[operation](place, count)
    gc.collect()
    gc.freeze()
    began = time.process_time()
    await calls()
    return {"cpu": time.process_time() - began}


class Counter:
    """Counts the calls of functions in all threads that start after it, and what a server sees."""

    def __init__(self, relay: Relay | None, commits: Callable[[Any], Awaitable[int]]) -> None:
        self.calls = 0
        self._relay = relay
        self._commits = commits
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def _note(self, _frame: FrameType, event: str, _argument: Any) -> None:
        if event in ("call", "c_call"):
            self.calls += 1

    async def counted(self, place: Place, operation: str, count: int) -> Figures:
        calls = await OPERATIONS[operation](place, count)
        await asyncio.sleep(_PAUSE)
        commits, trips, made = await self._commits(place.store), self._trips(), self.calls
        await calls()
        made, trips = self.calls - made, self._trips() - trips
        return {"calls": made, "trips": trips, "commits": await self._commits(place.store) - commits}

    def _trips(self) -> int:
        return self._relay.trips if self._relay else 0


async def counter_of(backend: str, server: str, folder: str) -> Counter:
    if backend == "postgres":
        import asyncpg

        connection = await asyncpg.connect(f"postgresql://postgres@/postgres?host={server}")
        xmax = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
        socket = ".s.PGSQL.5432"
        return Counter(Relay(Path(folder) / socket, Path(server) / socket), lambda _: connection.fetchval(xmax))
    if backend == "redis":
        from redis.asyncio import Redis

        client = Redis(unix_socket_path=server)
        return Counter(Relay(Path(folder) / "redis.sock", Path(server)), lambda _: _written(client))
    return Counter(None, _committed if backend == "sqlite" else _none)


async def _written(client: Any) -> int:
    """Scripts and writing commands that a Redis ran: each is applied as one."""
    stats = await client.info("commandstats")
    wanted = ("eval", "evalsha", "fcall", "exec", "set", "hset", "zadd", "del")
    return sum(int(stats.get(f"cmdstat_{name}", {}).get("calls", 0)) for name in wanted)


async def _committed(store: Any) -> int:
    commits: int = store._backend.commits[0]  # the public API does not tell it
    return commits


async def _none(_store: Any) -> int:
    return 0


async def serve(given: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        if given.backend == "served":
            async with Served(folder) as served:
                await _answer(served.timed)
            return
        counter = await counter_of(given.backend, given.server, folder) if given.count else None
        async with connect(_url(given, folder)) as store:
            place = Place(store)
            await _answer(partial(counter.counted if counter else timed, place))


def _url(given: argparse.Namespace, folder: str) -> str:
    folder_of_socket = folder if given.count else given.server
    redis = f"{folder}/redis.sock" if given.count else given.server
    return {
        "memory": "memory://",
        "sqlite": f"sqlite:///{folder}/store.db",
        "files": f"file://{folder}/files?durability=process",
        "postgres": f"postgresql://postgres@/postgres?host={folder_of_socket}&schema={given.name}",
        "redis": f"redis+unix://{redis}?prefix={given.name}",
    }[given.backend]


async def _answer(portion: Portion) -> None:
    while line := await asyncio.to_thread(sys.stdin.readline):
        asked = json.loads(line)
        try:
            answer = await portion(asked["operation"], asked["count"])
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}  # type: ignore[dict-item]
        print(json.dumps(answer), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("backend", choices=["sqlite", "files", "postgres", "redis", "memory", "served"])
    parser.add_argument("name", help="of a schema or a prefix that nobody else uses")
    parser.add_argument("server", nargs="?", help="the folder or the socket of a server")
    parser.add_argument("--count", action="store_true")
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
