"""W2: 64 tasks with a conversation each, 100 sequential appends per task, all in one file.

The reference commits 64 rows per transaction, the most that waiting writers can share. Each repetition starts with
empty stores, and every conversation gets a first message before the timing, so that its creation is not timed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from time import perf_counter

from benchmarks.arena import Arena
from benchmarks.contenders import Contender, Reference
from benchmarks.measure import TimedContender, by_turns
from benchmarks.report import Comparison, Judge
from benchmarks.samples import Sample, samples
from benchmarks.scenarios.history import verify

TITLE = "W2 64 tasks"
TASKS = 64
CONVERSATIONS = [f"w2-{task}" for task in range(TASKS)]
TARGETS = {
    "sqlite": {("ours", "raw"): 2.0, ("ours", "openai-agents"): 0.12, ("our-openai-agents", "openai-agents"): 0.15},
    "postgresql": {("ours", "raw"): 2.5, ("ours", "openai-agents"): 0.05, ("ours", "langchain"): 0.05},
}


def run(arena: Arena) -> Iterator[Comparison]:
    repetitions = arena.size(7, quick=3)
    each = arena.size(100, quick=20)
    kinds = arena.roster.of(["raw", "ours", "openai-agents", "langchain", "our-openai-agents"])
    branches = [
        TimedContender(kind.key, partial(portion, arena, kind, max(1, each // kind.thrift)), repetitions)
        for kind in kinds
    ]
    yield from Judge(arena.roster, TITLE, by_turns(branches)).standings(TARGETS)


def portion(arena: Arena, kind: type[Contender], each: int, _round: int) -> float:
    with arena.fresh(kind) as contender:
        return arena.run(contender, timed_tasks(contender, samples(each + 1)))


async def timed_tasks(contender: Contender, batch: list[Sample]) -> float:
    for conversation in CONVERSATIONS:
        await contender.append(conversation, batch[0])
    begin = perf_counter()
    if isinstance(contender, Reference):
        await append_in_groups(contender, batch[1:])
    else:
        await asyncio.gather(*(append_all(contender, name, batch[1:]) for name in CONVERSATIONS))
    seconds = perf_counter() - begin
    for conversation in CONVERSATIONS:
        await verify(contender, conversation, len(batch))
    return seconds / (TASKS * (len(batch) - 1)) * 1e6


async def append_in_groups(reference: Reference, batch: list[Sample]) -> None:
    for sample in batch:
        await reference.group([(conversation, sample) for conversation in CONVERSATIONS])


async def append_all(contender: Contender, conversation: str, batch: list[Sample]) -> None:
    for sample in batch:
        await contender.append(conversation, sample)
