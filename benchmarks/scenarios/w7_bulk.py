"""W7: bulk operations: appending in batches, importing a file, copying a store, each in its own process.

All are compared with the reference's bulk append, which is the engine's cost to store the messages. Imported and copied
messages are indexed for search, so there the reference builds FTS5's index, too. Memory must be constant: the peak at
the full size is compared with the peak at a tenth of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, partial
from pathlib import Path

from benchmarks.arena import Arena
from benchmarks.child import in_child
from benchmarks.contenders import PEERS
from benchmarks.measure import TimedContender, by_turns
from benchmarks.report import Comparison, Judge
from benchmarks.scenarios.bulk import Place, fill, verify_bulk
from benchmarks.scenarios.transfers import copy_store, export_file, import_file, offers

TITLE = "W7 bulk"
OURS = APPEND, IMPORT, COPY = "ours", "hansard import", "hansard copy"
INDEXED = "raw-indexed"
TARGETS = {
    "sqlite": {
        (APPEND, "raw"): 1.6,
        (IMPORT, INDEXED): 2.5,
        (COPY, INDEXED): 3.5,
        (IMPORT, "raw"): None,
        (COPY, "raw"): None,
    }
}
CONSTANT = 1.2


def run(arena: Arena) -> Iterator[Comparison]:
    arena.require_files()
    messages = arena.size(1_000_000, quick=50_000)
    whole, tenth = Bulk(arena, messages), Bulk(arena, messages // 10)
    title = f"{TITLE}, {messages:,} messages"
    yield from Judge(arena.roster, title, by_turns(whole.timed_contenders())).standings(TARGETS)
    by_turns(
        [
            TimedContender(timed_contender.name, timed_contender.portion, 1)
            for timed_contender in tenth.timed_contenders()
            if timed_contender.name in OURS
        ]
    )
    yield from memory(arena, whole, tenth)


def memory(arena: Arena, whole: Bulk, tenth: Bulk) -> Iterator[Comparison]:
    for timed_contender in OURS:
        title = arena.roster.title(timed_contender)
        large, small = (f"{title}, {bulk.messages:,}" for bulk in (whole, tenth))
        peaks = {large: whole.peaks.get(timed_contender, []), small: tenth.peaks.get(timed_contender, [])}
        yield Judge(arena.roster, f"{TITLE}, peak memory", peaks, unit="MiB").compare(large, small, CONSTANT)


class Bulk:
    """The workload at one size, and its memory peaks."""

    def __init__(self, arena: Arena, messages: int) -> None:
        self.arena = arena
        self.messages = messages
        self.peaks: dict[str, list[float]] = {}

    def timed_contenders(self) -> list[TimedContender]:
        rounds = self.arena.size(3, quick=2)
        kinds = self.arena.roster.of(["raw", INDEXED, "ours", "openai-agents"])
        timed_contenders = [
            TimedContender(kind.key, partial(self.fill, kind.key), 1 if kind.key in PEERS else rounds) for kind in kinds
        ]
        if offers("import_"):
            timed_contenders.append(TimedContender(IMPORT, self.load, rounds))
        if offers("copy_to"):
            timed_contenders.append(TimedContender(COPY, self.copy, rounds))
        return timed_contenders

    def fill(self, key: str, _round: int) -> float:
        place = self.arena.place()
        return self._done(key, key, place, in_child(fill, key, place, self.messages))

    def load(self, _round: int) -> float:
        place = self.arena.place()
        return self._done(IMPORT, "ours", place, in_child(import_file, place, self._file))

    def copy(self, _round: int) -> float:
        place = self.arena.place()
        return self._done(COPY, "ours", place, in_child(copy_store, self._source, place))

    def _done(self, timed_contender: str, key: str, place: Place, found: tuple[float, float]) -> float:
        seconds, peak = found
        self.peaks.setdefault(timed_contender, []).append(peak)
        in_child(verify_bulk, key, place, self.messages)
        self.arena.discard(place)
        return seconds / self.messages * 1e6

    @cached_property
    def _source(self) -> Place:
        place = self.arena.place()
        in_child(fill, "ours", place, self.messages)
        return place

    @cached_property
    def _file(self) -> Path:
        file = self.arena.place()[0].with_suffix(".jsonl")
        in_child(export_file, self._source, file)
        return file
