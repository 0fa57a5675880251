"""The server on loopback, compared with a bare route of the same stack that only decodes and answers.

Appends over 64 connections; and single appends and reads of 50 messages, compared with the Store itself plus twice the
bare route. Servers and client are separate processes; the client writes raw HTTP. Single requests are measured first,
because the index is filled after many appends and would disturb them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial

from benchmarks.arena import Arena
from benchmarks.contenders import NotAvailable
from benchmarks.measure import TimedContender, by_turns
from benchmarks.report import Comparison, Judge

TITLE = "served over HTTP"
OURS, BARE, ALLOWED = "hansard server", "bare route", "Store + 2 bare routes"
CONNECTIONS = 64
BUSY_TARGET = 1 / 0.6
ALONE_TARGET = 1.0


def run(arena: Arena) -> Iterator[Comparison]:
    arena.require_files()
    try:
        from benchmarks import server
    except ModuleNotFoundError as error:
        raise NotAvailable(f"{type(error).__name__}: {error.name}") from error
    with server.ours(arena.place()[1]) as (address, _), server.bare_route() as (bare, _):
        own = _Own(arena.place()[1])
        requests = {"append": server.post("one"), "50 messages": server.get("one")}
        count = arena.size(200, quick=20)
        asyncio.run(server.alone(address, requests["append"], 60))
        for what, request in requests.items():
            rounds = arena.size(9, quick=2)
            series = by_turns(
                [
                    TimedContender(OURS, partial(_alone, address, request, count), rounds),
                    TimedContender(ALLOWED, partial(own.allowed, what, bare, request, count), rounds),
                ]
            )
            yield Judge(arena.roster, f"{TITLE}: {what}", series).compare(OURS, ALLOWED, ALONE_TARGET)
        yield _busy(arena, address, bare)


def _alone(address: str, request: bytes, count: int, _round: int) -> float:
    from benchmarks import server

    return asyncio.run(server.alone(address, request, count))


class _Own:
    """The Store's own times, on a separate file."""

    def __init__(self, url: str) -> None:
        self._url = url

    def allowed(self, what: str, bare: str, request: bytes, count: int, _round: int) -> float:
        from benchmarks import server

        append, read = asyncio.run(server.of_the_store(self._url, count))
        return (append if what == "append" else read) + 2 * asyncio.run(server.alone(bare, request, count))


def _busy(arena: Arena, address: str, bare: str) -> Comparison:
    from benchmarks import server

    seconds = 0.2 if arena.options.quick else 1.0

    def cost(where: str, _round: int) -> float:
        return 1e6 / asyncio.run(server.busy(where, CONNECTIONS, seconds)).per_second

    rounds = arena.size(9, quick=2)
    series = by_turns(
        [TimedContender(OURS, partial(cost, address), rounds), TimedContender(BARE, partial(cost, bare), rounds)]
    )
    return Judge(arena.roster, f"{TITLE}: append, {CONNECTIONS} connections", series).compare(OURS, BARE, BUSY_TARGET)
