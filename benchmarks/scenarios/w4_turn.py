"""W4: an agent's turn in a long conversation: read the last 50, append the question, append the answer."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter

from benchmarks.arena import Arena
from benchmarks.contenders import ADAPTERS, PEERS, Contender
from benchmarks.measure import TimedContender, by_turns
from benchmarks.report import Comparison, Judge
from benchmarks.samples import sample
from benchmarks.scenarios.history import fill, verify, verify_numbers

TITLE = "W4 turn"
CONVERSATION = "w4"
TURNS = 20
TARGETS = {
    "sqlite": {
        ("ours", "openai-agents"): 0.8,
        ("ours", "raw"): None,
        ("our-openai-agents", "openai-agents"): 0.8,
        ("our-langgraph", "langgraph"): 0.3,
        ("our-google-adk", "google-adk"): 0.2,
    },
    "postgresql": {("ours", "openai-agents"): 0.25, ("ours", "raw"): None},
}


def run(arena: Arena) -> Iterator[Comparison]:
    length = arena.size(10_000, quick=1_000)
    rounds = arena.size(25, quick=5)
    entrants = [Entrant(arena, one, length) for one in arena.enter("raw", "ours", *PEERS, *ADAPTERS)]
    series = by_turns([TimedContender(one.contender.key, one.portion, one.rounds(rounds)) for one in entrants])
    for one in entrants:
        arena.run(one.contender, verify(one.contender, CONVERSATION, one.written))
    yield from Judge(arena.roster, f"{TITLE} at {length:,}", series).standings(TARGETS)


class Entrant:
    """A contender in the middle of a long conversation."""

    def __init__(self, arena: Arena, contender: Contender, length: int) -> None:
        self.arena = arena
        self.contender = contender
        self.written = length
        arena.run(contender, fill(contender, CONVERSATION, length))

    def rounds(self, wanted: int) -> int:
        return wanted if self.contender.thrift == 1 else 5

    def portion(self, _round: int) -> float:
        turns = max(1, TURNS // self.contender.thrift)
        return self.arena.run(self.contender, self._turns(turns)) / turns * 1e6

    async def _turns(self, turns: int) -> float:
        seconds = 0.0
        for _ in range(turns):
            question, answer = sample(self.written), sample(self.written + 1)
            begin = perf_counter()
            history = await self.contender.turn(CONVERSATION, question, answer)
            seconds += perf_counter() - begin
            seen = self.contender.texts(history)
            verify_numbers(self.contender, CONVERSATION, seen, range(self.written - 50, self.written))
            self.written += 2
        return seconds
