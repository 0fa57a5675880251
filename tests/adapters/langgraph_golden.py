"""Threads of LangGraph in a store, and everything that their checkpoints say.

`python -c "from tests.adapters import langgraph_golden; langgraph_golden.main()" FOLDER` writes such a store with the
installed version of Hansard, and beside it what the checkpoints said then. The result is committed and never made
again: newer versions upgrade it, and must read the same.
"""

from __future__ import annotations

import asyncio
import json
import operator
import sys
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import _messages_delta_reducer
from langgraph.types import Send, interrupt
from pydantic import BaseModel

import hansard
from hansard import Store

SECRET = "the heron sleeps at 4711 Marsh Lane"
LONG = "It is a long story, longer than every other text in here."
THREADS = ("plain", "whole", "channel", "model", "subgraph", "interrupted", "delta", "turns", "fork", "others", "odd")


class Reversing:
    """Not a cipher, but it leaves no text readable."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "reversed", plaintext[::-1]

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        assert ciphername == "reversed"
        return ciphertext[::-1]


class Case(BaseModel):
    """A Pydantic model that holds messages."""

    question: HumanMessage
    said: list[AnyMessage]
    note: str


class Cases(TypedDict):
    messages: Annotated[list[AnyMessage], operator.add]
    case: Case
    notes: Annotated[list[str], operator.add]


class Halves(TypedDict):
    messages: Annotated[list[Any], DeltaChannel(_messages_delta_reducer, snapshot_frequency=2)]


class Heard(MessagesState):
    heard: list[Any]


def config(thread: str) -> Any:
    return {"configurable": {"thread_id": thread}}


def compiled(state: Any, saver: Any, node: Any) -> Any:
    builder: Any = StateGraph(state)
    builder.add_node("model", node)
    builder.add_edge(START, "model")
    return builder.compile(checkpointer=saver)


def answer(state: Any) -> Any:
    count = len(state["messages"])
    return {"messages": [AIMessage(f"Answer {count}: {LONG}", id=f"a{count}")]}


def whole(state: Any) -> Any:
    return {"messages": [*state["messages"], AIMessage("Noted.", id=f"a{len(state['messages'])}")]}


def case_graph(saver: Any) -> Any:
    builder: Any = StateGraph(Cases)

    def send(state: Any) -> Any:
        said = state["messages"]
        return [Send("look", Case(question=said[0], said=said, note="sent"))]

    builder.add_node("ask", lambda _: {"messages": [AIMessage("Looking", id="l")]})
    builder.add_node("look", lambda case: {"case": case, "notes": [case.note]})
    builder.add_edge(START, "ask")
    builder.add_conditional_edges("ask", send, ["look"])
    return builder.compile(checkpointer=saver)


def nested_graph(saver: Any) -> Any:
    inner = compiled(MessagesState, None, lambda _: {"messages": [AIMessage("From inside", id="inside")]})
    return compiled(MessagesState, saver, inner)


def stopping_graph(saver: Any) -> Any:
    builder: Any = StateGraph(MessagesState)
    builder.add_node("whole", whole)
    builder.add_node("stop", lambda state: {"messages": [AIMessage(str(interrupt(state["messages"])), id="s")]})
    builder.add_edge(START, "whole")
    builder.add_edge(START, "stop")
    return builder.compile(checkpointer=saver)


async def ask(graph: Any, thread: str, *questions: Any) -> None:
    for question in questions:
        await graph.ainvoke({"messages": [question]}, config(thread), durability="sync")


def human(text: str, id: str) -> HumanMessage:
    return HumanMessage(text, id=id)


async def fill(store: Store) -> None:
    """One thread for each way in which messages lie in checkpoints."""
    saver = store.langgraph_checkpointer
    plain = compiled(MessagesState, saver, answer)
    await ask(plain, "plain", ("user", SECRET), human("Again", "h2"), {"role": "user", "content": "And again"})
    await ask(compiled(MessagesState, saver, whole), "whole", human(SECRET, "h1"), human("More", "h2"))
    heard = lambda state: {"messages": [AIMessage("Noted.", id="n")], "heard": state["messages"]}  # noqa: E731
    await ask(compiled(Heard, saver, heard), "channel", human(SECRET, "h1"), human("More", "h2"))
    await case_graph(saver).ainvoke({"messages": [human(SECRET, "h1")], "notes": []}, config("model"))
    await ask(nested_graph(saver), "subgraph", human(SECRET, "h1"), human("More", "h2"))
    await ask(stopping_graph(saver), "interrupted", human(SECRET, "h1"))
    await ask(compiled(Halves, saver, answer), "delta", *(human(f"{n} {SECRET}", f"h{n}") for n in range(4)))
    await ask(compiled(Halves, saver, answer), "turns", ("user", SECRET))
    await store.append_message("turns", "user", "Others say", id="others-1")
    await ask(compiled(Halves, saver, answer), "turns", human("More", "h2"))
    await ask(plain, "fork", human("Hi", "h1"), human("One way", "h2"))
    first = [state async for state in plain.aget_state_history(config("fork")) if not state.next][-1]
    await plain.ainvoke({"messages": [human("Another way", "h3")]}, first.config, durability="sync")
    await plain.aupdate_state(config("fork"), {"messages": [RemoveMessage(id="h1"), AIMessage("Changed", id="a3")]})
    use = {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Oslo"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "Rain"}
    await store.append_message("others", "user", "From elsewhere", id="others-2")
    await store.append_message("others", "assistant", [use], format="anthropic", id="others-3")
    await store.append_message("others", "user", [result], format="anthropic", id="others-4")
    await ask(compiled(MessagesState, saver, whole), "others", human("So?", "h1"))
    odd = lambda _: {"messages": [ToolMessage("3", tool_call_id="c1", artifact={1, 2}, id="o")]}  # noqa: E731
    await ask(compiled(MessagesState, saver, odd), "odd", human("Hi", "h1"), human("More", "h2"))
    await ask(compiled(MessagesState, store.user("ann").langgraph_checkpointer, answer), "own", human("Mine", "h1"))
    await ask(compiled(MessagesState, store.tenant("acme").langgraph_checkpointer, answer), "apart", human("Hi", "h1"))
    await ask(compiled(MessagesState, encrypting(store), answer), "secret", human(SECRET, "h1"))


def encrypting(store: Store) -> Any:
    saver = store.langgraph_checkpointer
    saver.serde = EncryptedSerializer(Reversing())
    return saver


async def told(store: Store) -> dict[str, list[Any]]:
    """Everything that the checkpoints of all threads say, as JSON."""
    savers = dict.fromkeys(THREADS, store.langgraph_checkpointer)
    savers["own"] = store.user("ann").langgraph_checkpointer
    savers["apart"] = store.tenant("acme").langgraph_checkpointer
    savers["secret"] = encrypting(store)
    return {
        name: [_told(each) async for each in saver.alist(config(name))] + [_told(await saver.aget_tuple(config(name)))]
        for name, saver in savers.items()
    }


def _told(found: Any) -> Any:
    checkpoint = {name: value for name, value in found.checkpoint.items() if name != "channel_values"}
    return [
        repr(sorted(found.checkpoint["channel_values"].items())),
        repr(sorted(checkpoint.items())),
        repr(sorted(found.metadata.items())),
        repr(found.pending_writes),
        repr(found.parent_config),
    ]


async def make(folder: Path) -> None:
    folder.mkdir(parents=True)
    async with hansard.connect(f"sqlite:///{folder}/store.db") as store:
        await fill(store)
        said = await told(store)
    (folder / "told.json").write_text(json.dumps(said, indent=1) + "\n")


def main() -> None:
    asyncio.run(make(Path(sys.argv[1])))
