"""W7: bulk. Appending in batches, importing a file, copying a store into another; each in a process of its own.

All are compared with the reference's bulk append: it is what the engine takes to store the messages, however
they arrive. What was imported or copied is indexed for search, so there the reference builds FTS5's index too. None may
hold what it moves in memory: the peak at the full size is compared with the peak at a tenth of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, partial
from pathlib import Path

from benchmarks.arena import Arena
from benchmarks.child import in_child
from benchmarks.contenders import PEERS
from benchmarks.measure import StoredBranch, by_turns
from benchmarks.report import Comparison, Judge
from benchmarks.scenarios.bulk import Place, fill, verify_bulk
from benchmarks.scenarios.moving import copy_store, export_file, import_file, offers

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
    arena.needs_files()
    messages = arena.size(1_000_000, quick=50_000)
    whole, tenth = Bulk(arena, messages), Bulk(arena, messages // 10)
    title = f"{TITLE}, {messages:,} messages"
    yield from Judge(arena.roster, title, by_turns(whole.branches())).standings(TARGETS)
    by_turns([StoredBranch(branch.name, branch.portion, 1) for branch in tenth.branches() if branch.name in OURS])
    yield from memory(arena, whole, tenth)


def memory(arena: Arena, whole: Bulk, tenth: Bulk) -> Iterator[Comparison]:
    for branch in OURS:
        title = arena.roster.title(branch)
        large, small = (f"{title}, {bulk.messages:,}" for bulk in (whole, tenth))
        peaks = {large: whole.peaks.get(branch, []), small: tenth.peaks.get(branch, [])}
        yield Judge(arena.roster, f"{TITLE}, peak memory", peaks, unit="MiB").compare(large, small, CONSTANT)


class Bulk:
    """The workload at one size: what it moves, and the memory peaks that it saw."""

    def __init__(self, arena: Arena, messages: int) -> None:
        self.arena = arena
        self.messages = messages
        self.peaks: dict[str, list[float]] = {}

    def branches(self) -> list[StoredBranch]:
        rounds = self.arena.size(3, quick=2)
        kinds = self.arena.roster.of(["raw", INDEXED, "ours", "openai-agents"])
        branches = [
            StoredBranch(kind.key, partial(self.fill, kind.key), 1 if kind.key in PEERS else rounds) for kind in kinds
        ]
        if offers("import_"):
            branches.append(StoredBranch(IMPORT, self.load, rounds))
        if offers("copy_to"):
            branches.append(StoredBranch(COPY, self.copy, rounds))
        return branches

    def fill(self, key: str, _round: int) -> float:
        place = self.arena.place()
        return self._done(key, key, place, in_child(fill, key, place, self.messages))

    def load(self, _round: int) -> float:
        place = self.arena.place()
        return self._done(IMPORT, "ours", place, in_child(import_file, place, self._file))

    def copy(self, _round: int) -> float:
        place = self.arena.place()
        return self._done(COPY, "ours", place, in_child(copy_store, self._source, place))

    def _done(self, branch: str, key: str, place: Place, found: tuple[float, float]) -> float:
        seconds, peak = found
        self.peaks.setdefault(branch, []).append(peak)
        in_child(verify_bulk, key, place, self.messages)
        self.arena.forget(place)
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
