"""A LangGraph graph in a long thread: the cost of its checkpointer per turn, through langgraph itself.

The graph has one node that answers, on an unchanged `MessagesState`. A turn is a question and an answer of 500
characters each; langgraph reads the newest checkpoint, puts three and stores the writes of two tasks. Only the calls of
the checkpointer are timed, not the graph itself.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

from benchmarks.arena import Arena
from benchmarks.contenders import Contender
from benchmarks.measure import TimedContender, by_turns, check
from benchmarks.report import Comparison, Judge
from benchmarks.samples import sample

TITLE = "LangGraph turn"
OURS, THEIRS = "our-langgraph", "langgraph"
TARGET = 0.3
TIMED = ("aget_tuple", "aput", "aput_writes")
CONFIG: dict[str, Any] = {"configurable": {"thread_id": "graph"}}


def run(arena: Arena) -> Iterator[Comparison]:
    turns = arena.size(1_000, quick=50)
    rounds = arena.size(20, quick=3)
    entrants = [Entrant(arena, one, turns) for one in arena.enter(OURS, THEIRS)]
    series = by_turns([TimedContender(one.contender.key, one.portion, rounds) for one in entrants])
    for one in entrants:
        one.verify(2 * (turns + rounds + 1))
    yield Judge(arena.roster, f"{TITLE} {turns:,}", series).compare(OURS, THEIRS, TARGET)


class Entrant:
    """A saver with a long thread, and a graph that continues it."""

    def __init__(self, arena: Arena, contender: Contender, turns: int) -> None:
        self.arena = arena
        self.contender = contender
        saver = contender.saver  # type: ignore[attr-defined]  # only savers enter here
        arena.run_async(_fill(saver, turns))
        self.seconds = 0.0
        for name in TIMED:
            setattr(saver, name, self._timed(getattr(saver, name)))
        self.graph = _graph(saver)
        self.portion(-1)

    def _timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        async def timed(*args: Any, **kwargs: Any) -> Any:
            begin = perf_counter()
            try:
                return await call(*args, **kwargs)
            finally:
                self.seconds += perf_counter() - begin

        return timed

    def portion(self, number: int) -> float:
        self.seconds = 0.0
        question = {"messages": [("user", _text(number))]}
        self.arena.run_async(self.graph.ainvoke(question, CONFIG))
        return self.seconds * 1e6

    def verify(self, count: int) -> None:
        state = self.arena.run_async(self.graph.aget_state(CONFIG))
        check(len(state.values["messages"]) == count, f"{self.contender.title} lost messages")


def _graph(saver: Any) -> Any:
    graphs = importlib.import_module("langgraph.graph")
    messages = importlib.import_module("langchain_core.messages")

    async def answer(state: Any) -> Any:
        return {"messages": [messages.AIMessage(_text(len(state["messages"])))]}

    builder = graphs.StateGraph(graphs.MessagesState)
    builder.add_node("answer", answer)
    builder.add_edge(graphs.START, "answer")
    return builder.compile(checkpointer=saver)


async def _fill(saver: Any, turns: int) -> None:
    """Stores the thread as a graph would have, in one checkpoint."""
    base = importlib.import_module("langgraph.checkpoint.base")
    kinds = importlib.import_module("langchain_core.messages")
    checkpoint = base.empty_checkpoint()
    version = saver.get_next_version(None, None)
    checkpoint["channel_values"] = {
        "messages": [
            kind(_text(2 * turn + side), id=f"{turn}.{side}")
            for turn in range(turns)
            for side, kind in enumerate((kinds.HumanMessage, kinds.AIMessage))
        ]
    }
    checkpoint["channel_versions"] = dict.fromkeys(("__start__", "messages", "branch:to:answer"), version)
    checkpoint["versions_seen"] = {
        "__input__": {},
        "__start__": {"__start__": version},
        "answer": {"branch:to:answer": version},
    }
    config = {"configurable": {"thread_id": "graph", "checkpoint_ns": ""}}
    await saver.aput(config, checkpoint, {"source": "loop", "step": 1, "parents": {}}, {"messages": version})


def _text(number: int) -> str:
    return (sample(abs(number)).text * 3)[:500]
