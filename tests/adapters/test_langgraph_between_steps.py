"""Readers, other writers and failures between any two steps of putting a checkpoint of LangGraph."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Literal, cast

import pytest
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from tests.adapters.test_langgraph_saver import ask, chat, texts

from hansard import Message, Store, Unavailable
from hansard.backends.memory import MemoryBackend
from hansard.contract.backend import Backend
from hansard.testing.faulty import Fault, faulty

pytestmark = pytest.mark.anyio

CONFIG: Any = {"configurable": {"thread_id": "t"}}


class Interposed:
    """A backend that completes what others do before its Nth call."""

    def __init__(self, inner: Backend) -> None:
        self._inner = inner
        self._left = 0
        self._meanwhile: Callable[[], Awaitable[None]] | None = None

    def interpose(self, meanwhile: Callable[[], Awaitable[None]], at: int) -> None:
        self._meanwhile, self._left = meanwhile, at

    @property
    def was_reached(self) -> bool:
        return self._meanwhile is None

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not inspect.iscoroutinefunction(found):
            return found

        async def call(*args: Any, **kwargs: Any) -> Any:
            self._left -= 1
            if self._left == 0 and self._meanwhile is not None:
                meanwhile, self._meanwhile = self._meanwhile, None
                await meanwhile()
            return await found(*args, **kwargs)

        return call


def replacing(saver: BaseCheckpointSaver[Any]) -> Any:
    """A graph that replaces all messages by a summary of them."""

    def node(state: MessagesState) -> Any:
        return {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES), AIMessage(f"all {len(state['messages'])}", id="all")]}

    builder: Any = StateGraph(MessagesState)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    return builder.compile(checkpointer=saver)


async def say(graph: Any, text: str) -> list[Any]:
    """Asks with an id: a state that is read while it is stored has its message once, in the history or as a write."""
    answered: list[Any] = (await graph.ainvoke({"messages": [HumanMessage(text, id=text)]}, CONFIG))["messages"]
    return answered


async def messages_of(graph: Any) -> list[Any]:
    state: list[Any] = (await graph.aget_state(CONFIG)).values["messages"]
    return state


async def _continue_on_another_branch(at: int) -> bool:
    """Continues from a checkpoint whose branch is not the thread's, with a reader before the Nth call."""
    backend = Interposed(MemoryBackend())
    store = Store(cast(Backend, backend))
    graph = chat(store.langgraph_checkpointer)
    before = await ask(graph, "one")
    await ask(graph, "two")
    ends = [state.config async for state in graph.aget_state_history(CONFIG) if not state.next]
    await ask(graph, "instead", config=ends[-1])
    seen: list[Any] = []

    async def look() -> None:
        seen.extend(await messages_of(graph))

    backend.interpose(look, at)
    answered = await ask(graph, "three", config=ends[0])
    assert texts(answered) == ["one", "answer 1", "two", "answer 3", "three", "answer 5"]
    assert seen[:2] == (before if backend.was_reached else [])
    assert await messages_of(graph) == answered
    conversation = await store.get_conversation("t")
    assert conversation is not None
    assert conversation.message_count == 8, "what stood on the branch is not stored again"
    return backend.was_reached


async def test_a_reader_between_two_steps_of_going_on_from_another_branch_changes_nothing() -> None:
    at = 1
    while await _continue_on_another_branch(at):
        at += 1
    assert at > 20, "there are many steps"


async def _replace_all(at: int) -> bool:
    backend = Interposed(MemoryBackend())
    store = Store(cast(Backend, backend))
    graph = replacing(store.langgraph_checkpointer)
    await chat(store.langgraph_checkpointer).ainvoke({"messages": [("user", "one")]}, CONFIG)
    seen: list[list[str]] = []

    async def look() -> None:
        savers = (store.langgraph_checkpointer, store.tenant("default").langgraph_checkpointer)
        seen.extend([texts(await messages_of(replacing(saver))) for saver in savers])

    backend.interpose(look, at)
    await say(graph, "two")
    whole = (["one", "answer 1"], ["one", "answer 1", "two"], ["all 3"])
    assert all(state in whole for state in seen), seen
    assert texts(await messages_of(graph)) == ["all 3"]
    return backend.was_reached


async def test_a_reader_between_two_steps_of_replacing_all_messages_sees_the_old_ones_or_the_new_one() -> None:
    at = 1
    while await _replace_all(at):
        at += 1
    assert at > 15, "there are many steps"


async def _fail(at: int, when: Literal["before", "after"]) -> bool:
    inner = MemoryBackend()
    begun = Store(inner)
    await chat(begun.langgraph_checkpointer).ainvoke({"messages": [("user", "one")]}, CONFIG)
    fault = Fault(at, when)
    store = Store(faulty(inner, fault))
    graph = replacing(store.langgraph_checkpointer)
    try:
        await say(graph, "two")
    except Unavailable:
        assert fault.struck
    fault.at = 0
    whole = (["one", "answer 1"], ["one", "answer 1", "two"], ["all 3"])
    for saver in (store.langgraph_checkpointer, begun.langgraph_checkpointer):
        assert texts(await messages_of(replacing(saver))) in whole, fault
    answered = texts(await say(graph, "three"))
    assert answered in (["all 3"], ["all 4"], ["all 2"])
    for each in (begun, store):
        assert texts(list(await each.get_messages("t"))) == answered, fault
        assert texts(await messages_of(replacing(each.langgraph_checkpointer))) == answered, fault
    assert await begun.check() == []
    return fault.struck is not None


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_failure_between_two_steps_of_replacing_all_messages_loses_nothing(
    when: Literal["before", "after"],
) -> None:
    at = 1
    while await _fail(at, when):
        at += 1
    assert at > 15, "there are many steps"


async def test_a_message_of_others_that_is_read_while_a_graph_runs_stays(store: Store) -> None:
    """Reading it does not mean that the graph has seen it, and removed it from its state."""

    def first(state: MessagesState) -> Any:
        return {"messages": [AIMessage("first")]}

    async def second(state: MessagesState) -> Any:
        await store.append("t", [Message("user", "of others")])
        assert texts(await messages_of(graph)) == ["one", "first", "of others"]
        return {"messages": [AIMessage("second")]}

    builder: Any = StateGraph(MessagesState)
    builder.add_node("first", first)
    builder.add_node("second", second)
    builder.add_edge(START, "first")
    builder.add_edge("first", "second")
    graph = builder.compile(checkpointer=store.langgraph_checkpointer)
    await graph.ainvoke({"messages": [("user", "one")]}, CONFIG, durability="sync")
    assert texts(list(await store.get_messages("t"))) == ["one", "first", "of others", "second"]
    assert texts(await messages_of(graph)) == ["one", "first", "second", "of others"]
    assert len(await store.list_branches("t")) == 1


async def test_a_message_of_others_that_a_graph_removes_stays_removed(store: Store) -> None:
    graph = chat(store.langgraph_checkpointer)
    await ask(graph, "one")
    id = await store.append_message("t", "user", "of others")
    await graph.aupdate_state(CONFIG, {"messages": [RemoveMessage(id), HumanMessage("instead")]})
    for saver in (store.langgraph_checkpointer, store.tenant("default").langgraph_checkpointer):
        assert texts(await messages_of(chat(saver))) == ["one", "answer 1", "instead"]
    assert texts(list(await store.get_messages("t"))) == ["one", "answer 1", "instead"]
