"""W1, W2 and W3 on a Redis server that syncs its log before it answers (`appendfsync always`), started for this run.

The reference of all three is the bare command: an RPUSH per message, an LRANGE per read, one call after another or, in
W2, 64 tasks that each await their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from benchmarks.arena import Arena
from benchmarks.contenders import Contender, NotAvailable
from benchmarks.measure import Series, TimedContender, by_turns
from benchmarks.report import Comparison, Judge
from benchmarks.samples import samples
from benchmarks.scenarios import w1_sequential, w2_concurrent, w3_last
from benchmarks.scenarios.history import fill, verify, verify_last

TITLE = "Redis"
OURS, RAW, PEER = "ours-redis", "raw-redis", "redis-session"
W1 = {(OURS, RAW): 2.0, (OURS, PEER): 0.5, (PEER, RAW): None}
W2 = {(OURS, RAW): 1.0, (OURS, PEER): 0.5, (PEER, RAW): None}
W3 = {(OURS, RAW): 1.5, (PEER, RAW): None}


def run(arena: Arena) -> Iterator[Comparison]:
    try:
        from tests.servers.redis import Server, why_absent
    except ImportError as error:
        raise NotAvailable(f"{type(error).__name__}: {error.name}") from error
    if reason := why_absent():
        raise NotAvailable(reason)
    folder = arena.folder / "redis"
    folder.mkdir()
    server = Server(folder, appendonly="yes", appendfsync="always")
    try:
        kinds = arena.roster.of([RAW, OURS, PEER])
        for title, targets, series in _workloads(arena, server.url, kinds):
            judge = Judge(arena.roster, f"{TITLE} {title}", series)
            for (subject, reference), at_most in targets.items():
                yield judge.compare(subject, reference, at_most)
    finally:
        server.kill()


def _workloads(arena: Arena, url: str, kinds: list[type[Contender]]) -> Iterator[tuple[str, Any, Series]]:
    yield w1_sequential.TITLE, W1, _sequential(arena, url, kinds)
    yield w2_concurrent.TITLE, W2, _concurrent(arena, url, kinds)
    for length in [100, 5_000] if arena.options.quick else [100, 10_000, 100_000]:
        yield f"{w3_last.TITLE} of {length:,}", W3, _last(arena, url, kinds, length)


def _sequential(arena: Arena, url: str, kinds: list[type[Contender]]) -> Series:
    rounds = arena.size(20, quick=4)
    entrants = [w1_sequential.Entrant(arena, arena.open_at(kind, url), rounds) for kind in kinds]
    series = by_turns([TimedContender(one.contender.key, one.portion, rounds) for one in entrants])
    for one in entrants:
        arena.run(one.contender, verify(one.contender, w1_sequential.CONVERSATION, one.written))
    return series


def _concurrent(arena: Arena, url: str, kinds: list[type[Contender]]) -> Series:
    each = arena.size(100, quick=20)
    rounds = arena.size(7, quick=3)

    def portion(kind: type[Contender], _round: int) -> float:
        contender = arena.open_at(kind, url)
        return arena.run(contender, w2_concurrent.timed_tasks(contender, samples(each + 1)))

    return by_turns([TimedContender(kind.key, partial(portion, kind), rounds) for kind in kinds])


def _last(arena: Arena, url: str, kinds: list[type[Contender]], length: int) -> Series:
    branches = []
    for kind in kinds:
        contender = arena.open_at(kind, url)
        name = w3_last.name_of(length)
        arena.run(contender, fill(contender, name, length))
        arena.run(contender, verify_last(contender, name, length, w3_last.LAST))
        branches.append(
            TimedContender(kind.key, partial(w3_last.portion, arena, contender, name), arena.size(40, quick=5))
        )
    return by_turns(branches)
