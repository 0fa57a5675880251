"""Imports of other programs' files, against openai-agents' session, which stores the same messages in batches.

The target is for the clock, as people wait for it. `hansard import` reads large files in a process of its own where
there is a second core; the processor time of both is compared too, without a target. Imported messages are indexed for
search, which the session does not do. The peak of memory, of both together, must not follow the file.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from contextlib import aclosing
from functools import partial
from pathlib import Path
from time import perf_counter

from benchmarks.arena import Arena
from benchmarks.child import drive, in_child, peaks_of_children
from benchmarks.contenders import Contender, load
from benchmarks.measure import TimedContender, by_turns, check
from benchmarks.report import Comparison, Judge
from benchmarks.samples import samples
from benchmarks.scenarios.bulk import Place, name_of
from benchmarks.scenarios.foreign_files import FILES
from benchmarks.scenarios.history import BATCH

TITLE = "import of other programs' files"
SESSION = "openai-agents"
APPEND = "ours"
AT_MOST = 2.5
MOST_MEMORY = 200.0
"""MiB, whatever the size of the file."""

Times = tuple[float, float]
"""Seconds of the processor, and on the clock."""


def run(arena: Arena) -> Iterator[Comparison]:
    arena.require_files()
    messages = arena.options.sizes[0] if arena.options.sizes else arena.size(1_000_000, quick=20_000)
    work = ImportWork(arena, messages)
    series = by_turns(work.timed_contenders(arena.size(3, quick=1)))
    judge = Judge(arena.roster, f"{TITLE}, {messages:,} messages", series)
    yield judge.compare(APPEND, SESSION, 1.0)
    for kind in FILES:
        yield judge.compare(title_of(kind), SESSION, AT_MOST)
    processor = Judge(arena.roster, f"{TITLE}, {messages:,} messages, processor time", work.of_the_processor)
    for name in (APPEND, *map(title_of, FILES)):
        yield processor.compare(name, SESSION, None)
    for kind in FILES:
        peaks = {title_of(kind): work.peaks[kind], "the limit": [MOST_MEMORY] * len(work.peaks[kind])}
        yield Judge(arena.roster, f"{TITLE}, peak memory", peaks, unit="MiB").compare(title_of(kind), "the limit", 1.0)


def title_of(kind: str) -> str:
    return f"import of {kind}"


class ImportWork:
    def __init__(self, arena: Arena, messages: int) -> None:
        self.arena = arena
        self.messages = messages
        self.peaks: dict[str, list[float]] = {kind: [] for kind in FILES}
        self.of_the_processor: dict[str, list[float]] = {}

    def timed_contenders(self, rounds: int) -> list[TimedContender]:
        appends = [kind.key for kind in self.arena.roster.of([APPEND, SESSION])]
        return [
            *(TimedContender(key, partial(self.append, key), rounds) for key in appends),
            *(TimedContender(title_of(kind), partial(self.load, kind), rounds) for kind in FILES),
        ]

    def append(self, key: str, _round: int) -> float:
        place = self.arena.place()
        times, _ = in_child(append_all, key, place, self.messages)
        self.arena.discard(place)
        return self._each_message(key, times)

    def load(self, kind: str, _round: int) -> float:
        place = self.arena.place()
        name, make = FILES[kind]
        file = place[0].parent / f"{place[0].name}-{kind}" / name
        file.parent.mkdir()
        make(file, self.messages)
        (times, others), peak = in_child(import_all, kind, place, file, self.messages)
        self.peaks[kind].append(peak + sum(others))
        shutil.rmtree(file.parent)
        self.arena.discard(place)
        return self._each_message(title_of(kind), times)

    def _each_message(self, name: str, times: Times) -> float:
        """Notes the processor time, and returns the time on the clock, both of a message in microseconds."""
        processor, clock = (seconds / self.messages * 1e6 for seconds in times)
        self.of_the_processor.setdefault(name, []).append(processor)
        return clock


def append_all(key: str, place: Place, messages: int) -> Times:
    contender = load(key)(*place)
    return drive(contender, _append(contender, messages // BATCH))


async def _append(contender: Contender, conversations: int) -> Times:
    await contender.open()
    spent = (0.0, 0.0)
    for number in range(conversations):
        batch = samples(BATCH)
        begin = _now()
        await contender.append_many(name_of(number), batch)
        spent = _sum(spent, _since(begin))
    begin = _now()
    await contender.close()
    return _sum(spent, _since(begin))


def _now() -> Times:
    return sum(os.times()[:4]), perf_counter()


def _since(begin: Times) -> Times:
    now = _now()
    return now[0] - begin[0], now[1] - begin[1]


def _sum(one: Times, other: Times) -> Times:
    return one[0] + other[0], one[1] + other[1]


def import_all(kind: str, place: Place, file: Path, messages: int) -> tuple[Times, list[float]]:
    """Returns also the peaks of the processes that the import has started."""
    with peaks_of_children() as peaks:
        times = asyncio.run(_import(kind, place[1], file, messages))
    return times, peaks


async def _import(kind: str, url: str, file: Path, messages: int) -> Times:
    from hansard import connect
    from hansard.importers import ImportReport, importer_for, importers, load, open_source
    from hansard.importers.reader_process import read_source

    # As for the session: its modules are loaded, and it is open, before its time begins.
    importers()
    store = await connect(url)
    begin = _now()
    source = open_source(file)
    importer = importer_for(source)
    report = ImportReport(importer.name)
    async with aclosing(read_source(source, importer, store.limits, report)) as read:
        await load(store, read, report)
    source.close()
    await store.close()
    spent = _since(begin)
    check((importer.name, report.messages, report.problems) == (kind, messages, []), f"the import reports {report}")
    return spent
