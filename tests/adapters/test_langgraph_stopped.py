"""Runs of LangGraph that are stopped, and others on the same thread that do not wait for their end."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.graph import START, MessagesState, StateGraph
from tests.adapters.test_langgraph_saver import ask, chat, texts

from hansard import Message, Store

pytestmark = pytest.mark.anyio

CONFIG: Any = {"configurable": {"thread_id": "t"}}


async def test_going_on_from_another_branch_stores_only_what_is_new(store: Store) -> None:
    graph = chat(store.langgraph_checkpointer)
    await ask(graph, "one", "two")
    ends = [state.config async for state in graph.aget_state_history(CONFIG) if not state.next]
    newest, first = ends[0], ends[-1]
    await ask(graph, "instead", config=first)
    conversation = await store.get_conversation("t")
    assert conversation is not None
    assert conversation.message_count == 6
    await ask(graph, "three", config=newest)
    conversation = await store.get_conversation("t")
    assert conversation is not None
    assert conversation.message_count == 8, "what stood on the branch is not stored again"
    assert texts(list(await store.get_messages("t"))) == ["one", "answer 1", "two", "answer 3", "three", "answer 5"]


@pytest.mark.parametrize("turns", [1, 2, 3, 5, 8, 13, 21])
async def test_a_checkpoint_that_is_cancelled_is_whole_when_the_caller_hears_of_it(store: Store, turns: int) -> None:
    saver: Any = store.langgraph_checkpointer
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    checkpoint = {**empty_checkpoint(), "channel_versions": {"messages": 1, "n": 1}}
    checkpoint["channel_values"] = {"messages": [HumanMessage("Hi", id="1"), AIMessage("Yes", id="2")], "n": 3}
    task = asyncio.ensure_future(saver.aput(config, checkpoint, {"step": 1}, {"messages": 1, "n": 1}))
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert texts(list(await store.get_messages("t"))) == ["Hi", "Yes"]
    for each in (saver, store.tenant("default").langgraph_checkpointer):
        found = await each.aget_tuple(config)
        assert found is not None
        assert found.checkpoint["channel_values"] == checkpoint["channel_values"]


@pytest.mark.parametrize("durability", ["async", "sync"])
async def test_a_run_that_does_not_wait_for_the_one_that_was_stopped_loses_nothing(
    store: Store, durability: str
) -> None:
    async def said(state: MessagesState) -> Any:
        await asyncio.sleep(0)
        return {"messages": [AIMessage(f"answer {len(state['messages'])}")]}

    builder: Any = StateGraph(MessagesState)
    builder.add_node("first", said)
    builder.add_node("second", said)
    builder.add_edge(START, "first")
    builder.add_edge("first", "second")
    graph = builder.compile(checkpointer=store.langgraph_checkpointer)
    before = await ask(graph, "one")
    chance = random.Random(7)
    for number in range(15):
        asked = {"messages": [("user", f"stopped {number}")]}
        task = asyncio.ensure_future(graph.ainvoke(asked, CONFIG, durability=durability))
        await asyncio.sleep(chance.random() * 0.05)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        if chance.random() < 0.5:
            state = (await graph.aget_state(CONFIG)).values["messages"]
            ids = [message.id for message in state]
            assert len(ids) == len(set(ids)), "no message is there twice"
            assert state[: len(before)] == before, "what was said before is still there"
    said_now = await ask(graph, "at last")
    assert said_now[: len(before)] == before
    assert texts(said_now)[-3] == "at last"
    assert await store.check() == []


async def test_a_message_that_two_runs_put_is_heard_once(store: Store) -> None:
    """The last checkpoint of a run that was stopped may be on its way while the next run begins."""
    said = await ask(chat(store.langgraph_checkpointer), "one")
    put_twice = (await store.get_messages("t"))[-1]
    await store.append("t", [Message("assistant", put_twice.content, format=put_twice.format)])
    for saver in (store.langgraph_checkpointer, store.tenant("default").langgraph_checkpointer):
        assert (await chat(saver).aget_state(CONFIG)).values["messages"] == said
    branch = await store.branch("t", at=(await store.get_messages("t"))[-1].id)
    assert branch.id != "main"
    assert (await chat(store.langgraph_checkpointer).aget_state(CONFIG)).values["messages"] == said


async def test_a_message_that_a_graph_has_changed_stays_changed_on_a_branch_of_others(store: Store) -> None:
    graph = chat(store.langgraph_checkpointer)
    said = await ask(graph, "one", "two")
    await graph.aupdate_state(CONFIG, {"messages": [AIMessage("changed", id=said[1].id)]})
    await store.branch("t", at=(await store.get_messages("t"))[-1].id)
    for saver in (store.langgraph_checkpointer, store.tenant("default").langgraph_checkpointer):
        state = (await chat(saver).aget_state(CONFIG)).values["messages"]
        assert texts(state) == ["one", "changed", "two", "answer 3"]
    state = await ask(chat(store.langgraph_checkpointer), "three")
    assert texts(state) == ["one", "changed", "two", "answer 3", "three", "answer 5"]
    assert await store.check() == []


async def test_blocking_runs_on_one_thread_take_turns(store: Store) -> None:
    """Each finds what the ones before it have stored, and stores only what is new."""
    saver: Any = store.langgraph_checkpointer
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    begun = HumanMessage("Hi", id="begun")

    def put(number: int) -> None:
        checkpoint = {**empty_checkpoint(), "channel_versions": {"messages": 1}}
        checkpoint["channel_values"] = {"messages": [begun, AIMessage(str(number), id=str(number))]}
        saver.put(config, checkpoint, {"step": 1}, {"messages": 1})

    await asyncio.gather(*(asyncio.to_thread(put, number) for number in range(6)))
    conversation = await store.get_conversation("t")
    assert conversation is not None
    assert conversation.message_count == 7
