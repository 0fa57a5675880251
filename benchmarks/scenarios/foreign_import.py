"""Imports of other programs' files, against openai-agents' session, which stores the same messages in batches.

Processor time is compared, not the clock: an import is work of the processor, and a busy machine does not change it.
Imported messages are indexed for search, which the session does not do. The peak of memory must not follow the file.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from time import process_time

from benchmarks.arena import Arena
from benchmarks.child import drive, in_child
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


def run(arena: Arena) -> Iterator[Comparison]:
    arena.require_files()
    messages = arena.size(1_000_000, quick=20_000)
    work = ImportWork(arena, messages)
    series = by_turns(work.timed_contenders(arena.size(3, quick=1)))
    judge = Judge(arena.roster, f"{TITLE}, {messages:,} messages", series)
    yield judge.compare(APPEND, SESSION, 1.0)
    for kind in FILES:
        yield judge.compare(title_of(kind), SESSION, AT_MOST)
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

    def timed_contenders(self, rounds: int) -> list[TimedContender]:
        appends = [kind.key for kind in self.arena.roster.of([APPEND, SESSION])]
        return [
            *(TimedContender(key, partial(self.append, key), rounds) for key in appends),
            *(TimedContender(title_of(kind), partial(self.load, kind), rounds) for kind in FILES),
        ]

    def append(self, key: str, _round: int) -> float:
        place = self.arena.place()
        seconds, _ = in_child(append_all, key, place, self.messages)
        self.arena.discard(place)
        return seconds / self.messages * 1e6

    def load(self, kind: str, _round: int) -> float:
        place = self.arena.place()
        name, make = FILES[kind]
        file = place[0].parent / f"{place[0].name}-{kind}" / name
        file.parent.mkdir()
        make(file, self.messages)
        seconds, peak = in_child(import_all, kind, place, file, self.messages)
        self.peaks[kind].append(peak)
        shutil.rmtree(file.parent)
        self.arena.discard(place)
        return seconds / self.messages * 1e6


def append_all(key: str, place: Place, messages: int) -> float:
    contender = load(key)(*place)
    return drive(contender, _append(contender, messages // BATCH))


async def _append(contender: Contender, conversations: int) -> float:
    await contender.open()
    seconds = 0.0
    for number in range(conversations):
        batch = samples(BATCH)
        begin = process_time()
        await contender.append_many(name_of(number), batch)
        seconds += process_time() - begin
    begin = process_time()
    await contender.close()
    return seconds + process_time() - begin


def import_all(kind: str, place: Place, file: Path, messages: int) -> float:
    return asyncio.run(_import(kind, place[1], file, messages))


async def _import(kind: str, url: str, file: Path, messages: int) -> float:
    from hansard import connect
    from hansard.importers import ImportReport, importer_for, importers, load, open_source

    # As for the session: its modules are loaded, and it is open, before its time begins.
    importers()
    store = await connect(url)
    begin = process_time()
    source = open_source(file)
    importer = importer_for(source)
    report = ImportReport(importer.name)
    await load(store, importer.read(source, report), report)
    source.close()
    await store.close()
    seconds = process_time() - begin
    check((importer.name, report.messages, report.problems) == (kind, messages, []), f"the import reports {report}")
    return seconds
