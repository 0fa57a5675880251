"""Cassandra against raw calls of its driver: `python -m benchmarks.cassandra_ring`. Needs the extra `cassandra`.

Starts three nodes on loopback, or asks the cluster of `--url`. Ours and the raw call take turns in each round, so both
meet the same load; a line compares their medians with its bar.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

from tools.cassandra import Node, free_port, why_absent

from hansard import Message, Store
from hansard.backends.cassandra import CassandraBackend
from hansard.backends.cassandra.connection import Link, Statement
from hansard.backends.cassandra.options import options_of
from hansard.errors import TimedOut
from hansard.testing import processes
from hansard.urls import Url

_ADDRESSES = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
_WRITERS = 64
_TURNS = 3
"""Rounds of many writers, in which ours and the raw calls take turns."""
_PATIENCE = 10.0
"""Seconds that a writer may wait for one append, while processes write to one conversation."""
_BODY = b"Where is my order? It should have come on Tuesday."
_Call = Callable[[], Awaitable[object]]


@contextmanager
def ring() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="hansard-") as folder:
        ports = (free_port(_ADDRESSES[0]), free_port(_ADDRESSES[0]))
        nodes = [Node(Path(folder) / each, address=each, seeds=_ADDRESSES, ports=ports) for each in _ADDRESSES]
        try:
            for node in nodes:
                node.launch()
            for node in nodes:
                node.wait()
            yield f"cassandra://{','.join(_ADDRESSES)}:{ports[0]}/benchmark"
        finally:
            for node in nodes:
                node.kill()


class RawConversation:
    """The same rows by raw calls: a head that is swapped, a message, and the place of its id."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._id = secrets.token_hex(8)
        self._stamp: str | None = None
        self._seq = 0
        self.repeats = 0
        """Batches that were sent again after a time-out."""

    async def append(self) -> None:
        key = (self._link.prefix, "raw", self._id)
        stamp, self._seq = secrets.token_hex(8), self._seq + 1
        head: Statement = ("create_head", (*key, stamp, _BODY))
        if self._stamp is not None:
            head = ("swap_head", (stamp, _BODY, *key, self._stamp))
        message: Statement = ("put_row_with_body", (*key, 1, 5, 1, self._seq, "", _BODY, _BODY))
        place: Statement = ("put_new_row", (*key, 1, 1, 0, 0, secrets.token_hex(8), b"[1,1]"))
        while not await self._swap([head, message, place], stamp):
            self.repeats += 1
        self._stamp = stamp

    async def _swap(self, statements: list[Statement], stamp: str) -> bool:
        """A time-out leaves open whether the batch was applied: a serial read tells, as in a store."""
        try:
            return await self._link.swap(statements)
        except TimedOut:
            found = await self._link.read("read_head", "raw", self._id, 1, serial=True)
            return bool(found) and found[0][5] == stamp

    async def newest(self) -> None:
        assert len(await self._link.read("read_head", "raw", self._id, 51)) == 51


async def _timed(call: _Call) -> float:
    began = time.perf_counter()
    await call()
    return time.perf_counter() - began


async def _compare(ours: _Call, raw: _Call, rounds: int) -> tuple[float, float]:
    """Medians in seconds."""
    took: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        took[0].append(await _timed(ours))
        took[1].append(await _timed(raw))
    return statistics.median(took[0]), statistics.median(took[1])


async def _together(calls: list[_Call], times: int) -> float:
    """Calls a second, if each is repeated by a writer of its own."""

    async def work(call: _Call) -> None:
        for _ in range(times):
            await call()

    return len(calls) * times / await _timed(lambda: asyncio.gather(*map(work, calls)))


def _line(name: str, ours: float, raw: float, unit: str, bar: str, met: bool) -> None:
    print(f"{name:34} {ours:10.1f} {raw:10.1f} {unit:4} {ours / raw:6.2f}  bar {bar:7} {'met' if met else 'MISSED'}")


def measure_processes(url: str, times: int) -> None:
    """Prints the longest append while four processes write to one conversation."""
    writers = [processes.Writer(url, f"w{number}", batches=times, tasks=4) for number in range(4)]
    try:
        for writer in writers:
            writer.wait()
    finally:
        for writer in writers:
            writer.end()
    longest = max(writer.longest for writer in writers)
    _line("longest append, four processes", longest, _PATIENCE, "s", "<= 10 s", longest <= _PATIENCE)


async def measure(url: str, rounds: int) -> None:
    backend = CassandraBackend(*options_of(Url(url)))
    await backend.storage.open(upgrade=True)
    link = backend.storage.link
    async with Store(backend) as store:

        async def append(id: str) -> None:
            await store.append(id, [Message("user", _BODY.decode())])

        raw = RawConversation(link)
        for _ in range(60):
            await raw.append()
            await append("one")
        print(f"{'':34} {'Hansard':>10} {'raw':>10} {'':4} {'ratio':>6}")
        ours_ms, raw_ms = (1000 * each for each in await _compare(lambda: append("one"), raw.append, rounds))
        _line("one append", ours_ms, raw_ms, "ms", "<= 1.6", ours_ms <= 1.6 * raw_ms)
        ours_ms, raw_ms = (
            1000 * each for each in await _compare(lambda: store.get_messages("one", last=50), raw.newest, rounds)
        )
        _line("head and last 50", ours_ms, raw_ms, "ms", "<= 1.5", ours_ms <= 1.5 * raw_ms)
        raws = [RawConversation(link) for _ in range(_WRITERS)]
        own: list[_Call] = [partial(append, f"c{n}") for n in range(_WRITERS)]
        rates: list[tuple[float, float, float]] = []
        for _ in range(_TURNS):
            raw_rate = await _together([each.append for each in raws], max(2, rounds // 20))
            rate = await _together(own, max(2, rounds // 20))
            rates.append((raw_rate, rate, await _together([lambda: append("hot")] * _WRITERS, max(2, rounds // 20))))
        raw_rate, rate, hot = (statistics.median(each) for each in zip(*rates, strict=True))
        _line("64 writers, 64 conversations", rate, raw_rate, "/s", ">= 0.5", rate >= 0.5 * raw_rate)
        _line("64 writers, one conversation", hot, rate, "/s", ">= 1.5", hot >= 1.5 * rate)
        print(f"raw batches sent again after a time-out: {sum(each.repeats for each in raws)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", help="a cluster, with a keyspace; without it, three nodes are started")
    parser.add_argument("--rounds", type=int, default=200)
    given = parser.parse_args()
    if given.url is None and (reason := why_absent()):
        raise SystemExit(f"no node can be started: {reason}")
    with ring() if given.url is None else nullcontext(given.url) as url:
        own = f"{url}?prefix=b{secrets.token_hex(4)}"
        asyncio.run(measure(own, given.rounds))
        measure_processes(own, max(5, given.rounds // 10))


if __name__ == "__main__":
    main()
