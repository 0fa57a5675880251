"""OpenAI's wire on loopback, through the official SDK, compared with a bare server that returns a constant.

Sequential `items.create` of one item and `items.list` of a page. A create is durable when it returns, so it is measured
on a file and in memory: the difference is the commit. Then pages at the beginning, in the middle and at the end of a
long conversation: the cost of a page must not depend on its position.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.arena import Arena
from benchmarks.contenders import NotAvailable
from benchmarks.measure import TimedContender, by_turns, check
from benchmarks.report import Comparison, Judge

if TYPE_CHECKING:
    from openai import OpenAI

TITLE = "the wire of OpenAI"
OURS, MEMORY, BARE = "hansard server", "hansard server, memory://", "bare server"
TARGET, LEVEL = 1.3, 1.3
SHORT, LONG = "short", "long"
_FILL = 1000


def run(arena: Arena) -> Iterator[Comparison]:
    arena.require_files()
    try:
        import openai

        from benchmarks import server, wire
    except ModuleNotFoundError as error:
        raise NotAvailable(f"{type(error).__name__}: {error.name}") from error
    url, items = arena.place()[1], arena.size(100_000, quick=2_000)
    places = asyncio.run(_fill(url, items))
    with ExitStack() as stack:
        servers = {OURS: server.ours(url), MEMORY: server.ours("memory://"), BARE: wire.bare_wire()}
        addresses = {name: stack.enter_context(each)[0] for name, each in servers.items()}
        clients = {
            name: stack.enter_context(openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0))
            for name, address in addresses.items()
        }
        yield from _calls(arena, clients)
        yield from _pages(arena, clients[OURS], places, items)


def _calls(arena: Arena, clients: dict[str, OpenAI]) -> Iterator[Comparison]:
    """Measures sequential calls: a create and a page."""
    from benchmarks.wire import PAGE, TEXT

    ids = {name: "conv_bare" if name == BARE else client.conversations.create().id for name, client in clients.items()}

    def create(name: str) -> None:
        given = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": TEXT}]}
        made = clients[name].conversations.items.create(ids[name], items=[given])  # type: ignore[list-item]
        check(len(made.data) == 1, "a create answered with other items")

    def page(name: str) -> None:
        found = clients[name].conversations.items.list(ids[name], limit=PAGE)
        check(len(found.data) == PAGE, "a page is not as long as it should be")

    count, rounds = arena.size(100, quick=10), arena.size(15, quick=2)
    for name in clients:
        _median(lambda name=name: create(name), PAGE + 30)  # type: ignore[misc]
    for what, call in (("items.create", create), ("items.list", page)):
        timed_contenders = [
            TimedContender(name, partial(_portion, partial(call, name), count), rounds) for name in clients
        ]
        judge = Judge(arena.roster, f"{TITLE}: {what}", by_turns(timed_contenders))
        yield judge.compare(OURS, BARE, TARGET)
        yield judge.compare(MEMORY, BARE, TARGET)
        yield judge.compare(OURS, MEMORY)


def _pages(arena: Arena, client: OpenAI, places: dict[str, str], items: int) -> Iterator[Comparison]:
    """Measures a page of a short conversation, and at three positions of a long one."""

    def page(conversation: str, after: str) -> None:
        found = client.conversations.items.list(conversation, limit=100, order="asc", after=after)
        check(len(found.data) == 100 and found.has_more, "a page is not as long as it should be")

    count, rounds = arena.size(30, quick=5), arena.size(15, quick=2)
    short = f"a page of {_FILL:,} items"
    timed_contenders = [TimedContender(short, partial(_portion, partial(page, SHORT, places["short"]), count), rounds)]
    names = {place: f"{place} of {items:,} items" for place in ("beginning", "middle", "end")}
    timed_contenders += [
        TimedContender(name, partial(_portion, partial(page, LONG, places[place]), count), rounds)
        for place, name in names.items()
    ]
    judge = Judge(arena.roster, f"{TITLE}: a page of a long conversation", by_turns(timed_contenders))
    for name in names.values():
        yield judge.compare(name, short, LEVEL)


async def _fill(url: str, items: int) -> dict[str, str]:
    """Creates a short and a long conversation. Returns the items after which pages are read."""
    from benchmarks.wire import item
    from hansard import connect
    from hansard.formats.openai_items import message_of

    async with connect(url) as store:
        for name, count in ((SHORT, _FILL), (LONG, items)):
            for first in range(0, count, _FILL):
                batch = [item(number) for number in range(first, first + _FILL)]
                await store.append(name, [message_of(each, str(each["id"])) for each in batch])
    at = {"short": _FILL // 2, "beginning": 100, "middle": items // 2, "end": items - 200}
    return {place: str(item(number)["id"]) for place, number in at.items()}


def _portion(call: Callable[[], None], count: int, _round: int) -> float:
    return _median(call, count)


def _median(call: Callable[[], None], count: int) -> float:
    """Returns the median of one call in microseconds."""
    times = []
    for _ in range(count):
        began = time.perf_counter()
        call()
        times.append((time.perf_counter() - began) * 1e6)
    return statistics.median(times)
