"""Capture: a recorded turn compared with its two appends, and the number of writes of a streamed reply.

The appends are the same two messages with the same fields. For a stream of 2,000 fragments, only the number of writes
counts: the question, the first fragment, the end, and one in each interval.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from time import perf_counter
from typing import Any, cast

from benchmarks.arena import Arena
from benchmarks.contenders.product import Ours
from benchmarks.measure import TimedContender, by_turns, check
from benchmarks.report import Comparison, Judge
from benchmarks.samples import sample
from hansard import Message, Participant
from hansard.capture import Capture

TITLE = "capture"
TURNS = 20
PIECES = 2_000
INTERVAL = 0.5
APPENDS, CAPTURED = "two appends", "a captured turn"
ALLOWED, WRITES = "writes that the clock allows", "writes of a streamed reply"
AGENT = Participant("agent", "agent")


def run(arena: Arena) -> Iterator[Comparison]:
    (ours,) = cast("list[Ours]", arena.enter("ours"))
    rounds = arena.size(40, quick=5)
    ways = {APPENDS: by_hand, CAPTURED: by_capture}
    series = by_turns(
        [TimedContender(name, partial(portion, arena, ours, way, name), rounds) for name, way in ways.items()]
    )
    for name in ways:
        arena.run(ours, verify(ours, name, rounds))
    yield Judge(arena.roster, TITLE, series).compare(CAPTURED, APPENDS, 1.2)
    writes, allowed = arena.run(ours, streamed(ours))
    counted = {WRITES: [float(writes)], ALLOWED: [allowed]}
    yield Judge(arena.roster, f"{TITLE}: {PIECES:,} pieces", counted, unit="writes").compare(WRITES, ALLOWED, 1.0)


def portion(arena: Arena, ours: Ours, way: Callable[..., Any], conversation: str, _round: int) -> float:
    return float(arena.run(ours, way(ours, conversation))) / TURNS * 1e6


async def by_hand(ours: Ours, conversation: str) -> float:
    begin = perf_counter()
    for number in range(TURNS):
        await ours.store.append(conversation, [Message("user", sample(number).text)], agent_id="agent")
        answer = Message("assistant", sample(number + 1).text, participant=AGENT)
        await ours.store.append(conversation, [answer], agent_id="agent")
    return perf_counter() - begin


async def by_capture(ours: Ours, conversation: str) -> float:
    @Capture(ours.store, agent_id="agent")
    async def agent(text: str, number: int) -> str:
        return sample(number + 1).text

    begin = perf_counter()
    for number in range(TURNS):
        await agent(sample(number).text, number, conversation_id=conversation)
    return perf_counter() - begin


async def verify(ours: Ours, conversation: str, rounds: int) -> None:
    found = await ours.store.get_conversation(conversation)
    check(found is not None and found.message_count == rounds * TURNS * 2, f"{conversation}: {found}")
    texts = [message.text for message in await ours.store.get_messages(conversation, last=TURNS * 2)]
    check(texts == [sample(at // 2 + at % 2).text for at in range(TURNS * 2)], f"{conversation}: {texts[:4]}")


async def streamed(ours: Ours) -> tuple[int, float]:
    """Returns how many writes a streamed reply took, and how many its duration allows."""
    writes = 0

    def counted(method: Callable[..., Any]) -> Callable[..., Any]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal writes
            writes += 1
            return await method(*args, **kwargs)

        return call

    store = ours.store.user("reader")  # a separate view, so that only its calls are counted
    store.append = counted(store.append)  # type: ignore[method-assign]
    store.update_message = counted(store.update_message)  # type: ignore[method-assign]

    async def agent(text: str) -> AsyncIterator[str]:
        for number in range(PIECES):
            yield f"{number} "
            await asyncio.sleep(0.001)

    begin = perf_counter()
    said = [piece async for piece in Capture(store, interval=INTERVAL)(agent)("count", conversation_id="streamed")]
    seconds = perf_counter() - begin
    reply = (await store.get_messages("streamed", last=1))[0]
    check(reply.text == "".join(said) and reply.status == "complete", f"streamed: {reply.status}")
    return writes, seconds / INTERVAL + 3
