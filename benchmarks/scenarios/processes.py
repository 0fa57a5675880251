"""Eight processes write one file at once, and one more reads.

Each writer appends in turn to its own conversation and to one that all share. Afterwards, every message must be stored
once, and each writer's messages must be in the shared conversation in the order in which it wrote them. The
reader's slowest percent is compared with the same on the quiet file before. The reference's writers do not
share a conversation, because it has counters in memory. Eight writers on few processors also wait for a processor;
the reference shows how long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path
from time import monotonic

from benchmarks.arena import Arena
from benchmarks.child import SPAWN, drive, pool
from benchmarks.contenders import Contender, load
from benchmarks.measure import Series, check
from benchmarks.report import Comparison, Judge
from benchmarks.samples import number_of, sample
from benchmarks.scenarios.history import fill
from benchmarks.scenarios.read_timing import slowest_percent

TITLE = "8 processes write one file"
WRITERS = 8
SHARED, READ = "processes-shared", "processes-read"
TARGET = 10.0
STRIDE = 1_000_000
"""In the shared conversation, each writer numbers its messages from a multiple of this."""
PATIENCE = 120

Place = tuple[Path, str]
Span = tuple[float, float]


def run(arena: Arena) -> Iterator[Comparison]:
    arena.require_files()
    series = {kind.key: Session(arena, kind).series() for kind in arena.roster.of(["ours", "raw"])}
    appends = {key: found["append"] for key, found in series.items()}
    yield Judge(arena.roster, f"{TITLE}, append", appends).compare("ours", "raw")
    for key, found in series.items():
        title = arena.roster.title(key)
        busy, idle = f"{title}, busy", f"{title}, idle"
        judge = Judge(arena.roster, f"{TITLE}, p99 read", {busy: found["busy"], idle: found["idle"]})
        yield judge.compare(busy, idle, TARGET if key == "ours" else None)


class Session:
    """Rounds of eight writers for one contender, each round on a new file."""

    def __init__(self, arena: Arena, kind: type[Contender]) -> None:
        self.arena = arena
        self.kind = kind
        self.job = Job(kind.key, shares=kind.key != "raw", each=arena.size(400, quick=50))

    def series(self) -> Series:
        series: Series = {"idle": [], "busy": [], "append": []}
        for _ in range(self.arena.size(5, quick=2)):
            with self.arena.fresh(self.kind) as contender:
                self._round(contender, series)
        return series

    def _round(self, contender: Contender, series: Series) -> None:
        run = self.arena.run
        run(contender, fill(contender, READ, 1_000))
        series["idle"].append(run(contender, slowest_percent(contender, READ, (500).__gt__)))
        barrier = SPAWN.Barrier(WRITERS + 1)
        with pool(WRITERS, remember, barrier) as writers:
            place = contender.path, contender.url
            spans = [writers.submit(write, self.job, place, writer) for writer in range(WRITERS)]
            barrier.wait(PATIENCE)
            series["busy"].append(run(contender, slowest_percent(contender, READ, unfinished(spans))))
            series["append"].append(cost_of([span.result() for span in spans], self.job))
        run(contender, verify_all(contender, self.job))


@dataclass(frozen=True, slots=True)
class Job:
    """What each writer does."""

    key: str
    shares: bool
    each: int


def unfinished(futures: Sequence[Future[Span]]) -> Callable[[int], bool]:
    return lambda reads: reads < 2 or not all(future.done() for future in futures)


def cost_of(spans: Sequence[Span], job: Job) -> float:
    elapsed = max(end for _, end in spans) - min(begin for begin, _ in spans)
    return elapsed / (WRITERS * job.each) * 1e6


_start: Barrier | None = None


def remember(barrier: Barrier) -> None:
    """Stores the barrier in a child before its work: it can only be passed when the process is created."""
    global _start  # noqa: PLW0603
    _start = barrier


def write(job: Job, place: Place, writer: int) -> Span:
    contender = load(job.key)(*place)
    return drive(contender, _write(contender, job, writer))


async def _write(contender: Contender, job: Job, writer: int) -> Span:
    await contender.open()
    if _start is not None:
        _start.wait(PATIENCE)
    begin = monotonic()
    for number in range(job.each):
        if job.shares and number % 2:
            await contender.append(SHARED, sample(writer * STRIDE + number))
        else:
            await contender.append(own(writer), sample(number))
    end = monotonic()
    await contender.close()
    return begin, end


def own(writer: int) -> str:
    return f"processes-own-{writer}"


async def verify_all(contender: Contender, job: Job) -> None:
    step = 2 if job.shares else 1
    for writer in range(WRITERS):
        found = await numbers(contender, own(writer), job.each)
        check(found == list(range(0, job.each, step)), f"{own(writer)} holds {found[:5]} ...")
    if job.shares:
        shared = await numbers(contender, SHARED, WRITERS * job.each)
        for writer in range(WRITERS):
            found = [number % STRIDE for number in shared if number // STRIDE == writer]
            check(found == list(range(1, job.each, 2)), f"writer {writer}: {SHARED} holds {found[:5]} ...")


async def numbers(contender: Contender, conversation: str, at_most: int) -> list[int]:
    return [number_of(text) for text in contender.texts(await contender.last(conversation, at_most + 1))]
