"""W3: the last 50 messages of conversations of three lengths, all in one file.

The cost must depend on the 50 messages and not on the length, so the longest is also compared with the shortest. Peers
that load the whole history are left out of the longest.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from time import perf_counter

from benchmarks.arena import Arena
from benchmarks.contenders import ADAPTERS, PEERS, Contender
from benchmarks.measure import Series, TimedContender, by_turns
from benchmarks.report import Comparison, Judge
from benchmarks.scenarios.history import fill, verify_last

TITLE = "W3 last 50"
LAST = 50
READS = 20
TARGETS = {
    "sqlite": {
        ("ours", "raw"): 1.5,
        ("our-openai-agents", "openai-agents"): 0.8,
        ("our-google-adk", "google-adk"): 0.2,
    },
    "postgresql": {("ours", "raw"): 1.5},
}
FLAT = 1.25


def run(arena: Arena) -> Iterator[Comparison]:
    lengths = [100, 1_000, 5_000] if arena.options.quick else [100, 10_000, 100_000]
    entrants = arena.enter("raw", "ours", *PEERS, *ADAPTERS)
    timed_contenders = [
        timed_contender for one in entrants for timed_contender in contenders_by_length(arena, one, lengths)
    ]
    series = by_turns(timed_contenders)
    for length in lengths:
        judge = Judge(arena.roster, f"{TITLE} of {length:,}", at(series, length))
        yield from judge.standings(TARGETS)
    yield flatness(arena, series, lengths)


def contenders_by_length(arena: Arena, contender: Contender, lengths: list[int]) -> Iterator[TimedContender]:
    for length in lengths if contender.thrift == 1 else lengths[:-1]:
        arena.run(contender, fill(contender, name_of(length), length))
        arena.run(contender, verify_last(contender, name_of(length), length, LAST))
        timed_name = f"{contender.key}@{length}"
        rounds = arena.size(40, quick=5) if contender.thrift == 1 else 5
        yield TimedContender(timed_name, partial(portion, arena, contender, name_of(length)), rounds)


def portion(arena: Arena, contender: Contender, conversation: str, _round: int) -> float:
    reads = max(1, READS // contender.thrift)
    return arena.run(contender, timed_reads(contender, conversation, reads)) / reads * 1e6


async def timed_reads(contender: Contender, conversation: str, reads: int) -> float:
    # The first read after another contender's turn has a cold CPU cache, so it is not timed.
    await contender.last(conversation, LAST)
    begin = perf_counter()
    for _ in range(reads):
        await contender.last(conversation, LAST)
    return perf_counter() - begin


def name_of(length: int) -> str:
    return f"w3-{length}"


def at(series: Series, length: int) -> Series:
    suffix = f"@{length}"
    return {
        timed_contender.removesuffix(suffix): costs
        for timed_contender, costs in series.items()
        if timed_contender.endswith(suffix)
    }


def flatness(arena: Arena, series: Series, lengths: list[int]) -> Comparison:
    names = {length: f"hansard at {length:,}" for length in (lengths[0], lengths[-1])}
    renamed = {name: series.get(f"ours@{length}", []) for length, name in names.items()}
    judge = Judge(arena.roster, f"{TITLE}, flat", renamed)
    return judge.compare(names[lengths[-1]], names[lengths[0]], FLAT)
