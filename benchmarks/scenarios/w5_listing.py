"""W5: the newest 50 conversations of one user, among those of a hundred users.

There are no peers: openai-agents and langgraph cannot list by user, and google-adk's listing has no limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from time import perf_counter

from benchmarks.arena import Arena
from benchmarks.contenders import Lister
from benchmarks.measure import TimedContender, by_turns, check
from benchmarks.report import Comparison, Judge
from benchmarks.samples import sample

TITLE = "W5 newest 50 of a user"
USERS = 100
USER = "u_7"
LISTED = 50
CALLS = 20
TARGETS = {"sqlite": {("ours", "raw"): 1.5}, "postgresql": {("ours", "raw"): 1.5}}


def run(arena: Arena) -> Iterator[Comparison]:
    each = arena.size(1_000, quick=60)
    entrants = [one for one in arena.enter("raw", "ours") if isinstance(one, Lister)]
    for one in entrants:
        arena.run(one, fill(one, each))
        arena.run(one, verify(one, each))
    rounds = arena.size(40, quick=5)
    series = by_turns([TimedContender(one.key, partial(portion, arena, one), rounds) for one in entrants])
    title = f"{TITLE}, {each:,} among {each * USERS:,}"
    yield from Judge(arena.roster, title, series).standings(TARGETS)


async def fill(lister: Lister, each: int) -> None:
    """Creates one conversation of every user at a time, so that the order of a user's conversations is certain."""
    for number in range(each):
        owners = {name_of(user, number): f"u_{user}" for user in range(USERS)}
        await lister.start(owners, sample(number))


def name_of(user: int, number: int) -> str:
    return f"w5-{user}-{number}"


async def verify(lister: Lister, each: int) -> None:
    found = lister.names(await lister.newest(USER, LISTED))
    wanted = [name_of(7, number) for number in range(each - 1, each - 1 - LISTED, -1)]
    check(found == wanted, f"{lister.title}: the newest are {found[:3]} ..., not {wanted[:3]} ...")


def portion(arena: Arena, lister: Lister, _round: int) -> float:
    return arena.run(lister, timed_calls(lister)) / CALLS * 1e6


async def timed_calls(lister: Lister) -> float:
    # As in W3, the first call after another contender's turn is not timed.
    await lister.newest(USER, LISTED)
    begin = perf_counter()
    for _ in range(CALLS):
        await lister.newest(USER, LISTED)
    return perf_counter() - begin
