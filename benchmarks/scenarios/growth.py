"""What it costs to grow: the same calls on a small store and on large ones, in processor time.

Calls alternate between the sizes. Reads and appends use as many conversations in each, spread over the whole store. A
bar is set where the cost may not depend on what is stored; the other rows show the work for each message. `growth`
measures calls, `maintenance` what reads the whole store and takes minutes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from benchmarks.arena import Arena
from benchmarks.contenders import NotAvailable
from benchmarks.measure import TimedContender, by_turns, check
from benchmarks.report import Comparison, Judge
from benchmarks.scenarios.growth_places import opened, processor_time
from benchmarks.scenarios.growth_store import CONVERSATIONS, EACH, GrownStore, grown
from benchmarks.scenarios.search_corpus import WORDS

TITLE = "growth"
WHOLE_TITLE = "growth, of what reads everything"
SMALL, LARGE = 10_000, 1_000_000


@dataclass(frozen=True, slots=True)
class MeasuredCall:
    name: str
    run: Callable[[GrownStore, int], Awaitable[None]]
    at_most: float | None
    calls: int = 20
    rounds: int = 20
    is_warm: bool = True
    """Whether what it reads is read once before."""


async def append(grown: GrownStore, number: int) -> None:
    id = grown.conversation(number)
    message_id = await grown.store.append_message(id, "user", f"one more word, number {number}")
    grown.appended.append((id, message_id))


async def last_50(grown: GrownStore, number: int) -> None:
    found = await grown.store.get_messages(grown.conversation(number), last=50)
    check(len(found) == 50, f"{len(found)} messages instead of 50")


async def newest_conversations(grown: GrownStore, number: int) -> None:
    check(len((await grown.store.list_conversations(limit=20)).items) == 20, "not 20 conversations")


async def conversations_of_a_user(grown: GrownStore, number: int) -> None:
    found = (await grown.store.list_conversations(user_id=grown.user(number), limit=20)).items
    check(len(found) == CONVERSATIONS, f"{len(found)} conversations of a user")


def search(word: str, order: str, *, own: bool = False) -> Callable[[GrownStore, int], Awaitable[None]]:
    async def run(grown: GrownStore, number: int) -> None:
        user = grown.user(number) if own else None
        hits = await grown.store.search(word, order=order, user_id=user, limit=10)  # type: ignore[arg-type]
        check(own or len(hits) > 0, f"{word} was not found")

    return run


async def erase(grown: GrownStore, number: int) -> None:
    receipt = await grown.store.erase_user(grown.last_user)
    check(receipt.messages >= CONVERSATIONS * EACH, f"{receipt.messages} messages of a user were erased")


async def find_user_to_erase(grown: GrownStore) -> None:
    """Skips those whom an earlier call has erased, and those whose conversations are read."""
    while grown.last_is_read or not (await grown.store.list_conversations(user_id=grown.last_user, limit=1)).items:
        grown.erased += 1


async def statistics(grown: GrownStore, number: int) -> None:
    found = await grown.store.stats()
    check(found.messages > grown.messages // 2, f"{found.messages} messages")


CALLS = (
    MeasuredCall("last 50", last_50, 1.3),
    MeasuredCall("newest conversations", newest_conversations, 1.3),
    MeasuredCall("newest conversations of a user", conversations_of_a_user, 1.3),
    MeasuredCall("search newest, rare word", search(WORDS["rare"], "newest"), 3.0),
    MeasuredCall("search newest, common word", search(WORDS["common"], "newest"), 3.0),
    MeasuredCall("search newest, common word of a user", search(WORDS["common"], "newest", own=True), 3.0),
    MeasuredCall("search best, rare word", search(WORDS["rare"], "relevance"), None, 2, 5, is_warm=False),
    MeasuredCall("statistics", statistics, None, 1, 5, is_warm=False),
    MeasuredCall("append", append, 1.3, is_warm=False),
    MeasuredCall("erase of one user", erase, 2.0, 1, 10, is_warm=False),
)


def run(arena: Arena) -> Iterator[Comparison]:
    with built(arena) as stores:
        for call in CALLS:
            print(call.name, file=sys.stderr, flush=True)
            yield from measured(arena, stores, call)
            for each in stores if call.run is append else ():
                arena.run_async(each.take_back())
        yield from starts(arena, stores)
    yield from compared(arena, "bytes a message", None, "B", {each: [each.bytes / each.messages] for each in stores})


def run_whole(arena: Arena) -> Iterator[Comparison]:
    """Measures what reads the whole store."""
    with built(arena) as stores:
        yield from checks(arena, stores)
        yield from backups(arena, stores)


@contextmanager
def built(arena: Arena) -> Iterator[list[GrownStore]]:
    sizes = arena.options.sizes or (arena.size(SMALL, quick=10_000), arena.size(LARGE, quick=20_000))
    if len(sizes) < 2 or any(size % (200 * EACH) for size in sizes):
        raise NotAvailable(f"needs two sizes or more, each a multiple of {200 * EACH:,}")
    with opened(arena) as place:
        stores: list[GrownStore] = []
        try:
            for size in sizes:
                print(f"building {size:,} messages", file=sys.stderr, flush=True)
                stores.append(arena.run_async(grown(place, size)))
            yield stores
        finally:
            for each in stores:
                arena.run_async(each.store.close())
        for each in stores:
            each.bytes = arena.run_async(place.bytes(each.messages))


def measured(arena: Arena, stores: list[GrownStore], call: MeasuredCall) -> Iterator[Comparison]:
    if call.is_warm:
        for each in stores:
            arena.run_async(_warm(each, call))
    turns = [TimedContender(each.title, partial(_portion, arena, each, call), call.rounds) for each in stores]
    series = by_turns(turns)
    yield from compared(arena, call.name, call.at_most, "us", {each: series[each.title] for each in stores})


async def _warm(grown: GrownStore, call: MeasuredCall) -> None:
    """Brings what is read from the disk: the time of that says nothing about the store."""
    for number in range(int(200 * grown.place.calls)):
        await call.run(grown, number)


def compared(
    arena: Arena, name: str, at_most: float | None, unit: str, series: dict[GrownStore, list[float]]
) -> Iterator[Comparison]:
    """Compares each larger store with the smallest."""
    first, *others = series
    judge = Judge(arena.roster, f"{TITLE}, {name}", {each.title: costs for each, costs in series.items()}, unit)
    for each in others:
        yield judge.compare(each.title, first.title, at_most)


def _portion(arena: Arena, grown: GrownStore, call: MeasuredCall, round: int) -> float:
    async def portion() -> float:
        if call.run is erase:
            await find_user_to_erase(grown)
        pids = await grown.place.pids()
        begin = processor_time(pids)
        calls = max(1, int(call.calls * grown.place.calls))
        for number in range(round * calls, (round + 1) * calls):
            await call.run(grown, number)
        cost = (processor_time(pids) - begin) / calls
        if call.run is append:
            await grown.index()
        return cost

    return arena.run_async(portion())


# What a process of its own needs

PROGRAM = """
import asyncio, json, re, sys, time
import hansard

async def main(url, task):
    begin = time.process_time()
    store = await hansard.connect(url)
    if task == "check":
        assert await store.check() == []
    await store.list_conversations(limit=20)
    cost = (time.process_time() - begin) * 1e6
    await store.close()
    with open("/proc/self/status") as status:
        peak = int(re.search(r"VmHWM:\\s+(\\d+)", status.read())[1])
    print(json.dumps([cost, peak / 1024]))

asyncio.run(main(*sys.argv[1:]))
"""


def starts(arena: Arena, stores: list[GrownStore]) -> Iterator[Comparison]:
    start = {each: [_process(each, "start") for _ in range(5)] for each in stores}
    yield from compared(arena, "start, and the first list", 1.3, "us", _column(start, 0))
    yield from compared(arena, "memory after the start", 1.3, "MiB", _column(start, 1))


def checks(arena: Arena, stores: list[GrownStore]) -> Iterator[Comparison]:
    checked = {each: [_process(each, "check")] for each in stores}
    by_message = {each: [cost / each.messages for cost in costs] for each, costs in _column(checked, 0).items()}
    yield from compared(arena, "check, client's work a message", None, "us", by_message)
    yield from compared(arena, "memory of check", 1.3, "MiB", _column(checked, 1))


def _process(grown: GrownStore, task: str) -> tuple[float, float]:
    done = subprocess.run([sys.executable, "-c", PROGRAM, grown.url, task], capture_output=True, text=True, check=False)
    check(done.returncode == 0, done.stderr[-2000:])
    cost, peak = json.loads(done.stdout)
    return cost, peak


def _column(series: dict[GrownStore, list[tuple[float, float]]], at: int) -> dict[GrownStore, list[float]]:
    return {each: [row[at] for row in rows] for each, rows in series.items()}


def backups(arena: Arena, stores: list[GrownStore]) -> Iterator[Comparison]:
    if not stores[0].store.capabilities.backup:
        return
    yield from compared(arena, "backup, a message", None, "us", {each: [_backup(arena, each)] for each in stores})


def _backup(arena: Arena, grown: GrownStore) -> float:
    target = arena.place()[0]

    async def backup() -> float:
        begin = processor_time(())
        await grown.store.backup(target)
        return (processor_time(()) - begin) / grown.messages

    cost = arena.run_async(backup())
    arena.discard((target, ""))
    return cost
