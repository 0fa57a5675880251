"""W1: appends to one conversation, each awaited before the next, so that each pays for its own commit.

All stores are open at once and append slices of 100 in turn; the ratio is computed per round. langgraph starts in the
middle of its history: its cost grows with the length, and its few operations would show only the cheap beginning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import perf_counter

from benchmarks.arena import Arena
from benchmarks.contenders import ADAPTERS, PEERS, Contender
from benchmarks.measure import TimedContender, by_turns
from benchmarks.report import Comparison, Judge
from benchmarks.samples import Sample, samples
from benchmarks.scenarios.history import fill, verify

TITLE = "W1 sequential append"
CONVERSATION = "w1"
SLICE = 100
TARGETS = {
    "sqlite": {
        ("ours", "raw"): 1.55,
        ("blocking", "raw"): 1.15,
        ("ours", "openai-agents"): 0.9,
        ("our-openai-agents", "openai-agents"): 0.95,
        ("our-google-adk", "google-adk"): 0.2,
    },
    "postgresql": {("ours", "raw"): 1.1, ("ours", "langchain"): 0.5, ("ours", "openai-agents"): None},
}


def run(arena: Arena) -> Iterator[Comparison]:
    rounds = arena.size(20, quick=4)
    entrants = [Entrant(arena, one, rounds) for one in arena.enter("raw", "ours", "blocking", *PEERS, *ADAPTERS)]
    series = by_turns([TimedContender(one.contender.key, one.portion, rounds) for one in entrants])
    for one in entrants:
        arena.run(one.contender, verify(one.contender, CONVERSATION, one.written))
    yield from Judge(arena.roster, TITLE, series).standings(TARGETS)


class Entrant:
    """A contender and its number of written messages."""

    def __init__(self, arena: Arena, contender: Contender, rounds: int) -> None:
        self.arena = arena
        self.contender = contender
        self.slice = SLICE // contender.thrift
        self.written = 0
        if contender.per_write > 1:
            self.written = rounds * SLICE // 2
            arena.run(contender, fill(contender, CONVERSATION, self.written))

    def portion(self, _round: int) -> float:
        batch = samples(self.slice, self.written)
        self.written += len(batch)
        self.contender.prepare(batch)
        seconds = self.arena.run(self.contender, timed_appends(self.contender, batch))
        return seconds / len(batch) * 1e6


async def timed_appends(contender: Contender, batch: Sequence[Sample]) -> float:
    step = contender.per_write
    if step > 1:
        writes = [batch[start : start + step] for start in range(0, len(batch), step)]
        begin = perf_counter()
        for write in writes:
            await contender.append_many(CONVERSATION, write)
        return perf_counter() - begin
    begin = perf_counter()
    for sample in batch:
        await contender.append(CONVERSATION, sample)
    return perf_counter() - begin
