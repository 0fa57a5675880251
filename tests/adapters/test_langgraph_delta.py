"""A delta channel of messages, as DeepAgents has, and ordinary graphs on one thread: they share one history."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from deepagents import create_deep_agent
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import _messages_delta_reducer
from tests.adapters.test_deepagents import scripted
from tests.adapters.test_deletion import records_of

import hansard
from hansard import Store

pytestmark = pytest.mark.anyio

CONFIG: Any = {"configurable": {"thread_id": "t"}}


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'chats.db'}"
    async with hansard.connect(url) as opened:
        yield opened


class Delta(TypedDict):
    messages: Annotated[list[Any], DeltaChannel(_messages_delta_reducer)]


class Snapshots(TypedDict):
    messages: Annotated[list[Any], DeltaChannel(_messages_delta_reducer, snapshot_frequency=1)]


class Halves(TypedDict):
    messages: Annotated[list[Any], DeltaChannel(_messages_delta_reducer, snapshot_frequency=2)]


def plain(saver: Any, answer: str) -> Any:
    return _compiled(MessagesState, saver, answer)


def delta(saver: Any, answer: str) -> Any:
    return _compiled(Delta, saver, answer)


def snapshots(saver: Any, answer: str) -> Any:
    return _compiled(Snapshots, saver, answer)


def halves(saver: Any, answer: str) -> Any:
    return _compiled(Halves, saver, answer)


def _compiled(state: Any, saver: Any, answer: str) -> Any:
    builder: Any = StateGraph(state)
    builder.add_node("model", lambda _: {"messages": [AIMessage(answer)]})
    builder.add_edge(START, "model")
    return builder.compile(checkpointer=saver)


def deep(saver: Any, answer: str) -> Any:
    return create_deep_agent(scripted(AIMessage(answer)), checkpointer=saver)


async def ask(graph: Any, question: Any) -> list[str]:
    state = await graph.ainvoke({"messages": [question]}, CONFIG)
    return [message.text for message in state["messages"]]


async def state_of(graph: Any) -> list[str]:
    return [message.text for message in (await graph.aget_state(CONFIG)).values["messages"]]


async def history(store: Store) -> list[str]:
    return [message.text for message in await store.get_messages("t")]


TURNS = [(deep, "d1"), (plain, "p1"), (plain, "p2"), (deep, "d2"), (delta, "d3"), (plain, "p3"), (deep, "d4")]


@pytest.mark.parametrize("is_fresh", [False, True], ids=["one saver", "a saver for each turn"])
@pytest.mark.parametrize("begin", [0, 1], ids=["delta first", "plain first"])
async def test_graphs_of_both_kinds_take_turns_as_in_langgraphs_own_saver(
    store: Store, is_fresh: bool, begin: int
) -> None:
    ours, theirs = store.langgraph_checkpointer, InMemorySaver()
    for number, (graph, answer) in enumerate(TURNS[begin:]):
        ours = store.langgraph_checkpointer if is_fresh else ours
        # With an id, and without one: a delta channel leaves that away.
        question: Any = HumanMessage(f"q{number}", id=f"q{number}") if number % 2 else ("user", f"q{number}")
        said = await ask(graph(ours, answer), question)
        assert said == await ask(graph(theirs, answer), question)
        assert await history(store) == said
        assert await state_of(graph(store.langgraph_checkpointer, answer)) == said
    assert len(await store.list_branches("t")) == 1


@pytest.mark.parametrize("graph", [deep, delta, snapshots, halves])
async def test_a_delta_channel_hears_what_others_say_between_its_turns(store: Store, graph: Any) -> None:
    wanted: list[str] = []
    for number in range(4):
        said = await ask(graph(store.langgraph_checkpointer, f"a{number}"), ("user", f"q{number}"))
        wanted += [f"q{number}", f"a{number}"]
        assert said == wanted == await history(store)
        before = (await graph(store.langgraph_checkpointer, "").aget_state(CONFIG)).config
        await store.append_message("t", "user", f"Others say {number}")
        pinned = (await graph(store.langgraph_checkpointer, "").aget_state(before)).values["messages"]
        assert [message.text for message in pinned] == wanted, "a checkpoint that is named never changes"
        wanted.append(f"Others say {number}")
        assert await state_of(graph(store.langgraph_checkpointer, "")) == wanted


async def test_others_are_heard_when_the_other_kind_of_graph_goes_on(store: Store) -> None:
    wanted: list[str] = []
    for number, graph in enumerate([deep, plain, deep, delta, plain, deep]):
        said = await ask(graph(store.langgraph_checkpointer, f"a{number}"), ("user", f"q{number}"))
        wanted += [f"q{number}", f"a{number}"]
        assert said == wanted == await history(store)
        await store.append_message("t", "user", f"Others say {number}")
        wanted.append(f"Others say {number}")


async def test_what_is_said_during_a_run_is_heard_in_the_next(store: Store) -> None:
    async def slow(_: Any) -> Any:
        await store.append_message("t", "user", "Meanwhile")
        return {"messages": [AIMessage("a")]}

    builder: Any = StateGraph(Delta)
    builder.add_node("model", slow)
    builder.add_edge(START, "model")
    graph = builder.compile(checkpointer=store.langgraph_checkpointer)
    await graph.ainvoke({"messages": [("user", "q")]}, CONFIG, durability="sync")
    assert await history(store) == ["q", "Meanwhile", "a"]
    assert await ask(delta(store.langgraph_checkpointer, "b"), ("user", "r")) == ["q", "a", "Meanwhile", "r", "b"]
    assert await state_of(delta(store.langgraph_checkpointer, "")) == ["q", "a", "Meanwhile", "r", "b"]


async def test_a_deleted_message_that_a_delta_channel_heard_is_gone_from_it(store: Store) -> None:
    await ask(delta(store.langgraph_checkpointer, "a"), ("user", "q"))
    secret = "the heron sleeps at 4711 Marsh Lane"
    id = await store.append_message("t", "user", secret)
    for _ in range(3):
        assert secret in await ask(halves(store.langgraph_checkpointer, "b"), ("user", "r"))
    assert secret not in await records_of(store)
    await store.delete_message("t", id)
    assert secret not in "".join(await state_of(plain(store.langgraph_checkpointer, "")))


async def test_a_copy_has_what_a_delta_channel_heard(store: Store) -> None:
    await ask(delta(store.langgraph_checkpointer, "a"), ("user", "q"))
    await store.append_message("t", "user", "Others say")
    said = await ask(delta(store.langgraph_checkpointer, "b"), ("user", "r"))
    await store.langgraph_checkpointer.acopy_thread("t", "copy")
    await store.delete_conversation("t")
    copied: Any = {"configurable": {"thread_id": "copy"}}
    found = (await delta(store.langgraph_checkpointer, "").aget_state(copied)).values["messages"]
    assert [message.text for message in found] == said
    assert [message.text for message in await store.get_messages("copy")] == said


async def test_a_delta_channel_follows_a_switched_branch(store: Store) -> None:
    await ask(delta(store.langgraph_checkpointer, "a"), ("user", "q"))
    first = (await store.get_messages("t"))[0]
    branch = await store.branch("t", at=first.id)
    await store.append_message("t", "user", "Elsewhere", branch=branch.id)
    await store.switch_branch("t", branch.id)
    said = await ask(delta(store.langgraph_checkpointer, "b"), ("user", "r"))
    assert said == ["q", "Elsewhere", "r", "b"] == await history(store)
    assert await state_of(delta(store.langgraph_checkpointer, "")) == said


async def test_going_back_in_a_delta_channel_does_not_bring_back_what_was_left(store: Store) -> None:
    saver = store.langgraph_checkpointer
    await ask(delta(saver, "a"), ("user", "q"))
    before = (await delta(saver, "").aget_state(CONFIG)).config
    await ask(delta(saver, "left"), ("user", "to be left"))
    state = await delta(saver, "b").ainvoke({"messages": [("user", "r")]}, before)
    assert [message.text for message in state["messages"]] == ["q", "a", "r", "b"]
    assert await state_of(delta(store.langgraph_checkpointer, "")) == ["q", "a", "r", "b"]
    assert await ask(delta(store.langgraph_checkpointer, "c"), ("user", "s")) == ["q", "a", "r", "b", "s", "c"]
