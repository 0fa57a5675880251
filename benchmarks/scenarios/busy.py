"""Reads while a writer is busy: the slowest percent of reads of the last 50, against the same on a quiet store.

Ours writes and reads on one loop, as a server does. The reference writes from a thread with its own connection, and
shows the effect of the engine and the machine. Idle and busy portions alternate; the ratio is between neighbours.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterator
from functools import partial

from benchmarks.arena import Arena, stepped
from benchmarks.contenders import Contender
from benchmarks.contenders.raw import Raw
from benchmarks.measure import TimedContender, by_turns, check
from benchmarks.report import Comparison, Judge
from benchmarks.samples import sample
from benchmarks.scenarios.history import fill, verify, verify_last
from benchmarks.scenarios.read_timing import LAST, slowest_percent

TITLE = "reads while a writer is busy, p99"
READ, WRITTEN = "busy-read", "busy-written"
TARGET = 10.0


def run(arena: Arena) -> Iterator[Comparison]:
    length = arena.size(10_000, quick=1_000)
    for kind in arena.roster.of(["ours", "raw"]):
        with arena.fresh(kind) as contender:
            arena.run(contender, fill(contender, READ, length))
            writer = Writer(contender)
            timed = idle_and_busy(arena, writer)
            series = by_turns(timed)
            arena.run(contender, verify_last(contender, READ, length, LAST))
            arena.run(contender, verify(contender, WRITTEN, writer.written))
        at_most = TARGET if kind.key == "ours" else None
        idle, busy = (each.name for each in timed)
        yield Judge(arena.roster, TITLE, series).compare(busy, idle, at_most)


def idle_and_busy(arena: Arena, writer: Writer) -> list[TimedContender]:
    rounds = arena.size(9, quick=3)
    reads = arena.size(1_000, quick=200)
    title = writer.contender.title
    return [
        TimedContender(f"{title}, idle", partial(idle_portion, arena, writer, reads), rounds),
        TimedContender(f"{title}, busy", partial(busy_portion, arena, writer, reads), rounds),
    ]


def idle_portion(arena: Arena, writer: Writer, reads: int, _round: int) -> float:
    return arena.run(writer.contender, slowest_percent(writer.contender, READ, reads.__gt__))


def busy_portion(arena: Arena, writer: Writer, reads: int, _round: int) -> float:
    before = writer.written
    if isinstance(writer.contender, Raw):
        p99 = writer.read_during_thread(writer.contender, reads)
    else:
        p99 = arena.run(writer.contender, writer.read_during_task(reads))
    check(writer.written > before, f"{writer.contender.title}: nothing was written while reading")
    return p99


class Writer:
    """Appends without a pause until it is stopped, and counts acknowledged messages."""

    def __init__(self, contender: Contender) -> None:
        self.contender = contender
        self.written = 0

    async def read_during_task(self, reads: int) -> float:
        stop = threading.Event()
        writing = asyncio.create_task(self._write(self.contender, stop))
        p99 = await slowest_percent(self.contender, READ, reads.__gt__)
        stop.set()
        await writing
        return p99

    def read_during_thread(self, raw: Raw, reads: int) -> float:
        stop = threading.Event()
        thread = threading.Thread(target=self._write_alone, args=(Raw(raw.path, raw.url), stop))
        thread.start()
        try:
            return stepped(slowest_percent(raw, READ, reads.__gt__))
        finally:
            stop.set()
            thread.join()

    def _write_alone(self, raw: Raw, stop: threading.Event) -> None:
        stepped(raw.open())
        stepped(self._write(raw, stop))
        stepped(raw.close())

    async def _write(self, contender: Contender, stop: threading.Event) -> None:
        for number in itertools.count(self.written):
            if stop.is_set():
                return
            await contender.append(WRITTEN, sample(number))
            self.written = number + 1
            if not contender.blocking:
                # A store that never suspends would block the loop, and the reader with it.
                await asyncio.sleep(0)
