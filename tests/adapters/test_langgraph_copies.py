"""Copies of messages in what a graph writes beside its history; and checkpoints that others prune meanwhile."""

from __future__ import annotations

import asyncio
import operator
from typing import Annotated, Any, TypedDict, cast

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.channels import DeltaChannel
from langgraph.graph import START, MessagesState, StateGraph, add_messages
from langgraph.types import interrupt
from tests.adapters.test_deletion import SECRET, records_of
from tests.adapters.test_langgraph_saver import CONFIG, ask, chat, texts

import hansard
from hansard import Store
from hansard.adapters.langgraph import threads
from hansard.adapters.langgraph.messages import draft_of
from hansard.adapters.langgraph.versions import begin_with
from hansard.backends.memory import MemoryBackend
from hansard.contract.backend import Backend

pytestmark = pytest.mark.anyio


def everything(state: Any) -> Any:
    """What many nodes do: they give back the list that they were given, and more."""
    return {"messages": [*state["messages"], AIMessage("Noted.")]}


async def discard(store: Store) -> None:
    """Deletes the first message, and looks for it everywhere."""
    await store.delete_message("t", (await store.get_messages("t"))[0].id)
    assert SECRET not in await records_of(store)
    assert SECRET not in repr([each async for each in store.langgraph_checkpointer.alist(CONFIG)])


@pytest.mark.parametrize("content", [SECRET, "heron", [{"type": "text", "text": SECRET}]])
async def test_a_node_that_gives_the_whole_list_back(store: Store, content: Any) -> None:
    graph = chat(store.langgraph_checkpointer, everything)
    await graph.ainvoke({"messages": [HumanMessage(content, id="h")]}, CONFIG)
    said = await ask(graph, "More", "And more")
    tuples = [each async for each in store.langgraph_checkpointer.alist(CONFIG)]
    given = [value for each in tuples for _, name, value in each.pending_writes or () if name == "messages"]
    assert any(len(value) == len(said) for value in given), "what it gave back comes back"
    assert sum(value[0] == HumanMessage(content, id="h") for value in given) >= 3
    assert "heron" not in await records_of(store), "every message is stored once"
    await store.delete_message("t", (await store.get_messages("t"))[0].id)
    assert "heron" not in repr([each async for each in store.langgraph_checkpointer.alist(CONFIG)])


async def test_a_message_that_is_sent_again(store: Store) -> None:
    graph = chat(store.langgraph_checkpointer)
    for _ in range(2):
        await graph.ainvoke({"messages": [HumanMessage(SECRET, id="h")]}, CONFIG)
    assert texts(await store.get_messages("t")) == [SECRET, "answer 1", "answer 2"]
    await discard(store)


async def test_what_others_said_is_given_back(store: Store) -> None:
    await store.append_message("t", "user", SECRET)
    graph = chat(store.langgraph_checkpointer, everything)
    await ask(graph, "Well?")
    given = [each async for each in store.langgraph_checkpointer.alist(CONFIG)]
    assert repr(given).count(SECRET) > 2
    await discard(store)


async def test_a_channel_that_holds_messages_of_the_history(store: Store) -> None:
    class State(MessagesState):
        heard: list[Any]

    def model(state: State) -> Any:
        return {"messages": [AIMessage("Noted.")], "heard": state["messages"]}

    graph_of: Any = StateGraph(State)
    graph_of.add_node("model", model)
    graph_of.add_edge(START, "model")
    graph = graph_of.compile(checkpointer=store.langgraph_checkpointer)
    await ask(graph, SECRET, "More")
    values = (await graph.aget_state(CONFIG)).values
    assert texts(values["heard"]) == [SECRET, "Noted.", "More"]
    await discard(store)


async def test_a_subgraph_is_given_messages_of_the_history(store: Store) -> None:
    inner = StateGraph(MessagesState)
    inner.add_node("model", lambda _: {"messages": [AIMessage("Noted.")]})
    inner.add_edge(START, "model")
    outer = StateGraph(MessagesState)
    outer.add_node("inner", inner.compile())
    outer.add_edge(START, "inner")
    graph: Any = outer.compile(checkpointer=store.langgraph_checkpointer)
    for question in (SECRET, "More"):
        await graph.ainvoke({"messages": [("user", question)]}, CONFIG, durability="sync")
    assert texts(await store.get_messages("t")) == [SECRET, "Noted.", "More", "Noted."]
    await discard(store)


async def test_writes_that_wait_for_an_answer(store: Store) -> None:
    graph_of: Any = StateGraph(MessagesState)
    graph_of.add_node("whole", everything)
    graph_of.add_node("stop", lambda _: {"messages": [AIMessage(str(interrupt("May I?")))]})
    graph_of.add_edge(START, "whole")
    graph_of.add_edge(START, "stop")
    graph = graph_of.compile(checkpointer=store.langgraph_checkpointer)
    await graph.ainvoke({"messages": [("user", SECRET)]}, CONFIG, durability="sync")
    waiting = await store.langgraph_checkpointer.aget_tuple(CONFIG)
    assert waiting is not None
    assert SECRET in repr(waiting.pending_writes)
    await discard(store)


def appended(value: list[Any], writes: Any) -> list[Any]:
    for write in writes:
        value = cast("list[Any]", add_messages(cast(Any, value), write))
    return value


class Growing(TypedDict):
    messages: Annotated[list[Any], DeltaChannel(appended, snapshot_frequency=5)]


async def test_a_delta_channel_that_is_given_its_messages_back(store: Store) -> None:
    graph_of: Any = StateGraph(Growing)
    graph_of.add_node("whole", everything)
    graph_of.add_edge(START, "whole")
    graph = graph_of.compile(checkpointer=store.langgraph_checkpointer)
    for number in range(4):
        question = HumanMessage(SECRET if not number else f"question {number}", id=f"h{number}")
        await graph.ainvoke({"messages": [question]}, CONFIG)
    said = texts((await graph.aget_state(CONFIG)).values["messages"])
    assert said[::2] == [SECRET, "question 1", "question 2", "question 3"]
    assert texts(await store.get_messages("t"))[0] == SECRET
    assert texts(await store.get_messages("t")).count(SECRET) == 1


# Pruning while a graph runs


class Steady(TypedDict):
    steady: str
    count: Annotated[int, operator.add]


def counting(saver: Any, node: Any) -> Any:
    graph: Any = StateGraph(Steady)
    graph.add_node("one", lambda _: {"count": 1})
    graph.add_node("two", node)
    graph.add_node("three", lambda _: {"count": 1})
    graph.add_edge(START, "one")
    graph.add_edge("one", "two")
    graph.add_edge("two", "three")
    return graph.compile(checkpointer=saver)


@pytest.mark.parametrize("strategy", ["keep_latest", "delete"])
async def test_others_prune_while_a_graph_runs(store: Store, strategy: str) -> None:
    async def two(_: Steady) -> Any:
        await store.langgraph_checkpointer.aprune(["t"], strategy=strategy)
        return {"count": 1}

    graph = counting(store.langgraph_checkpointer, two)
    await graph.ainvoke({"steady": "value", "count": 0}, CONFIG, durability="sync")
    for each in (graph, counting(store.langgraph_checkpointer, two)):
        assert (await each.aget_state(CONFIG)).values == {"steady": "value", "count": 3}


class Between(MemoryBackend):
    """A backend in which something happens just before records are deleted."""

    meanwhile: Any = None

    async def write_records(self, context: Any, writes: Any) -> Any:
        if self.meanwhile is not None and sum(write.delete for write in writes) > 1:
            happen, self.meanwhile = self.meanwhile, None
            await happen()
        return await super().write_records(context, writes)


async def test_a_checkpoint_that_is_put_while_others_are_pruned() -> None:
    backend = Between()
    store = Store(cast(Backend, backend))
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def two(_: Steady) -> Any:
        arrived.set()
        await go_on.wait()
        return {"count": 1}

    graph = counting(store.langgraph_checkpointer, two)
    running = asyncio.create_task(graph.ainvoke({"steady": "value", "count": 0}, CONFIG, durability="sync"))
    await arrived.wait()

    async def happen() -> None:
        go_on.set()
        await running

    backend.meanwhile = happen
    await store.langgraph_checkpointer.aprune(["t"])
    assert backend.meanwhile is None
    assert (await graph.aget_state(CONFIG)).values == {"steady": "value", "count": 3}


# What is remembered


async def test_what_a_saver_remembers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_WEIGHT", 150_000)
    async with hansard.connect("memory://") as store:
        saver: Any = store.langgraph_checkpointer
        graph = chat(saver, lambda _: {"messages": [AIMessage([{"type": "text", "text": "long " * 4000}])]})
        configs: list[Any] = [{"configurable": {"thread_id": f"t{number}"}} for number in range(12)]
        for config in configs:
            await ask(graph, "Hi", config=config)
            # An older checkpoint, from which a run may go on, is remembered too.
            await graph.aget_state((await anext(graph.aget_state_history(config))).config)
            await ask(graph, "Again", config=config)
        kept = [id for id in (config["configurable"]["thread_id"] for config in configs) if saver._threads.get(id)]
        assert kept[-1] == "t11"
        assert 1 < len(kept) < 5, "each has 40,000 characters"
        assert [id for id in kept if saver._threads.latest(id)] == kept
        for config in configs:
            assert len(await ask(graph, "More", config=config)) == 6


def test_a_number_that_stands_alone_is_not_the_same_as_another() -> None:
    message = ToolMessage("x", tool_call_id="c", artifact=1, id="t")
    draft = draft_of(message)
    assert draft is not None
    assert begin_with([draft.version], [message])
    message.artifact = True
    assert not begin_with([draft.version], [message])


async def test_a_run_that_goes_on_in_what_it_was_given_changes_no_checkpoint(store: Store) -> None:
    saver = store.langgraph_checkpointer
    graph = chat(saver)
    await ask(graph, "Hi")
    found = await saver.aget_tuple(CONFIG)
    assert found is not None
    wanted = repr(found.checkpoint)
    await saver.aput_writes(found.config, [("other", 1)], "task")
    found.checkpoint["versions_seen"]["model"]["other"] = 7
    following = {**found.checkpoint, "id": "2f", "channel_values": {}}
    await saver.aput(found.config, cast(Any, following), {}, {})
    again = await store.langgraph_checkpointer.aget_tuple(found.config)
    assert again is not None
    assert repr(again.checkpoint) == wanted


def test_a_field_of_somebody_s_own_is_in_no_other_message() -> None:
    draft = draft_of(AIMessage("x", id="a", own="field"))
    assert draft is not None
    made: Any = draft.version.make()
    made.other = "field"
    assert {"own", "other", "content"} <= made.model_fields_set
    assert "own" in draft.version.make().model_fields_set
    assert "other" not in draft.version.make().model_fields_set
