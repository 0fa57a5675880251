"""Random programs for LangGraph: graphs that speak, edit, remove, fork and are interrupted, on any checkpointer.

A program is made from a seed and run with any saver. What it gives is every state that the thread ever had, without ids
that differ by run, so that two savers can be compared.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Sequence
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import START, StateGraph, add_messages
from langgraph.types import Command, interrupt

CONFIG: Any = {"configurable": {"thread_id": "t"}}
NODES = ("left", "right", "last")


def latest(_: Any, new: Any) -> Any:
    return new


class Adding(TypedDict, total=False):
    messages: Annotated[list[Any], add_messages]
    notes: Annotated[list[str], operator.add]
    count: int


class Listing(TypedDict, total=False):
    messages: Annotated[list[Any], operator.add]
    notes: Annotated[list[str], operator.add]
    count: int


class Replacing(TypedDict, total=False):
    messages: Annotated[list[Any], latest]
    notes: Annotated[list[str], operator.add]
    count: int


class Program:
    """What is done on a thread. Nodes do what the plan of the step says."""

    def __init__(self, seed: int, steps: int = 10) -> None:
        self.draw = random.Random(seed)
        self.state = self.draw.choice([Adding, Adding, Adding, Listing, Replacing])
        self.steps = steps
        self.made = 0
        self.plan: dict[str, list[Any]] = {}

    async def run(self, saver: BaseCheckpointSaver[Any]) -> list[Any]:
        graph = self.graph(saver)
        seen: list[Any] = []
        for _ in range(self.steps):
            # Drawn for every step whatever happened in it, so that all savers see the same program.
            self.plan = {name: self.actions() for name in NODES}
            past = self.draw.randrange(8) if self.draw.random() < 0.25 else None
            kind = self.draw.choice(["ask", "ask", "ask", "update", "again"])
            given = self.actions()
            config = await self.place(graph, past)
            state = await graph.aget_state(config)
            await self.step(graph, kind, config, state, given)
            seen.append(shape(await graph.aget_state(CONFIG)))
        seen.append([shape(each) async for each in graph.aget_state_history(CONFIG)])
        return seen

    async def step(self, graph: Any, kind: str, config: Any, state: Any, given: list[Any]) -> None:
        asked = {"messages": [self.message(HumanMessage)], "notes": ["asked"]}
        if kind == "again" and any(task.interrupts for task in state.tasks):
            await graph.ainvoke(Command(resume="yes"), config, durability="sync")
        elif kind == "update":
            said = self.acted(list(state.values.get("messages", ())), given)
            await graph.aupdate_state(config, {"messages": said, "count": 7}, as_node="last")
        else:
            await graph.ainvoke(asked, config, durability="sync")

    async def place(self, graph: Any, past: int | None) -> Any:
        """The thread's newest checkpoint, or one of those before it."""
        if past is None:
            return CONFIG
        history = [each async for each in graph.aget_state_history(CONFIG)]
        return history[past % len(history)].config if history else CONFIG

    def graph(self, saver: BaseCheckpointSaver[Any]) -> Any:
        graph: Any = StateGraph(self.state)
        for name in NODES:
            graph.add_node(name, self.node(name))
        graph.add_edge(START, "left")
        graph.add_edge(START, "right")
        graph.add_edge(["left", "right"], "last")
        return graph.compile(checkpointer=saver)

    def node(self, name: str) -> Any:
        async def act(state: Any) -> Any:
            # The framework refuses to remove a message twice, and these two run side by side.
            actions = [each for each in self.plan[name] if name != "right" or each[0] != "remove"]
            if name == "last" and actions and actions[0][0] == "interrupt":
                return {"notes": [str(interrupt("May I?"))]}
            said = self.acted(state.get("messages", []), actions)
            if self.state is Replacing and name == "right":
                return {"notes": [name]}
            return (
                {"messages": said, "notes": [name], "count": state.get("count", 0) + 1}
                if name == "last"
                else {
                    "messages": said,
                    "notes": [name],
                }
            )

        return act

    def actions(self) -> list[Any]:
        kinds = ["say", "say", "say", "remove", "replace", "edit", "repeat", "interrupt", "drop"]
        found: list[Any] = []
        for _ in range(self.draw.randint(0, 3)):
            self.made += 1
            found.append((self.draw.choice(kinds), self.draw.random(), self.made, self.draw.randrange(8)))
        return found

    def acted(self, said: Sequence[BaseMessage], actions: list[Any]) -> list[Any]:
        """What a node gives back, having perhaps changed messages in place."""
        given: list[Any] = []
        for kind, where, number, which in actions:
            one = said[int(where * len(said))] if said else None
            if kind == "say" or one is None:
                given.append(made(number, which))
            elif kind == "remove" and self.state is Adding and one.id and one not in given:
                given = [each for each in given if each.id != one.id] + [RemoveMessage(id=one.id)]
            elif kind == "replace":
                given.append(made(number, which).model_copy(update={"id": one.id}))
            elif kind == "edit":
                change(one, number)
                # A saver need only look at channels that were written to.
                given.append(made(number + 1000, which))
            elif kind == "repeat":
                given.append(one)
        if self.state is Replacing:
            gone = {int(action[1] * len(said)) for action in actions if action[0] in ("drop", "remove")}
            return [*(each for at, each in enumerate(said) if at not in gone), *given]
        if self.state is Adding:
            gone_ids = {each.id for each in given if isinstance(each, RemoveMessage)}
            return [each for each in given if isinstance(each, RemoveMessage) or each.id not in gone_ids]
        return given

    def message(self, kind: type[BaseMessage]) -> BaseMessage:
        self.made += 1
        return kind(f"text {self.made}", id=f"h{self.made}")


def made(number: int, which: int) -> BaseMessage:
    """A message of one of the shapes that graphs have."""
    id = f"m{number}"
    text = f"text {number % 40}"
    calls: Any = [{"name": "pay", "args": {"sum": number, "to": ["a", {"b": None}]}, "id": f"c{number}"}]
    usage: Any = {"input_tokens": number, "output_tokens": 2, "total_tokens": number + 2}
    blocks: Any = [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": "data:,x"}}, "plain"]
    return (
        AIMessage(text, id=id),
        AIMessage(blocks, id=id, usage_metadata=usage, response_metadata={"model": "x", "n": [1, 1.0, True]}),
        AIMessage("", id=id, tool_calls=calls),
        ToolMessage(text, id=id, tool_call_id=f"c{number}", artifact={"rows": [number]}, status="error"),
        SystemMessage(text, id=id, name="guide"),
        HumanMessage(blocks[:2], id=id, additional_kwargs={"seen": 1}),
        AIMessage(text, id=id, additional_kwargs={"note": {"deep": [1, 2]}}, own_field="extra"),
        ToolMessage(
            [{"type": "text", "text": text}], id=id, tool_call_id="c", artifact={number} if number % 5 == 0 else None
        ),
    )[which]


def change(message: BaseMessage, number: int) -> None:
    """An edit in place, of whatever the message has."""
    ways = number % 6
    if isinstance(message.content, list) and isinstance(message.content[0], dict) and ways < 3:
        message.content[0]["text"] = f"edited {number}"
    elif isinstance(message, AIMessage) and message.tool_calls and ways < 4:
        message.tool_calls[0]["args"]["sum"] = -number
    elif ways == 4:
        message.additional_kwargs["edited"] = number
    elif ways == 5:
        # Equal, and another thing.
        message.additional_kwargs["seen"] = True
    elif ways == 3:
        message.name = f"name {number}"
    else:
        message.content = f"edited {number}"


def shape(state: Any) -> Any:
    """What can be compared of a state."""
    values = dict(state.values)
    values["messages"] = [
        (type(each).__name__, repr(sorted(each.model_dump().items()))) for each in values.get("messages", ())
    ]
    interrupts = [repr(each.value) for task in state.tasks for each in task.interrupts]
    metadata = {name: (state.metadata or {}).get(name) for name in ("source", "step")}
    return values, state.next, interrupts, metadata
