"""The checkpointer beside the framework's own, over random graphs; and the versions of messages that it stores."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage, ToolMessage, messages_from_dict
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from tests.adapters.langgraph_programs import CONFIG, Program, made, shape
from tests.adapters.test_langgraph_saver import ask, chat, texts

import hansard
from hansard import Message, Store
from hansard.adapters.langgraph.messages import draft_of, versions_of

pytestmark = pytest.mark.anyio

EXAMPLES = int(os.environ.get("HANSARD_EXAMPLES", "0"))
SEEDS = range(8) if not EXAMPLES else [random.randrange(10**9) for _ in range(EXAMPLES)]


@pytest.mark.parametrize("seed", SEEDS)
async def test_random_graphs_give_what_the_framework_s_saver_gives(seed: int) -> None:
    wanted = await Program(seed).run(InMemorySaver())
    async with hansard.connect("memory://") as store:
        program = Program(seed)
        assert await program.run(store.langgraph_checkpointer) == wanted
        fresh = program.graph(store.langgraph_checkpointer)
        history = [shape(each) async for each in fresh.aget_state_history(CONFIG)]
        assert history == wanted[-1], "and without what the saver remembers"


# Edits in place


def edited(message: Any, how: str) -> None:
    if how == "text":
        message.content[0]["text"] = "edited"
    elif how == "name":
        message.name = "edited"
    elif how == "deep":
        message.additional_kwargs["deep"]["n"].append("edited")
    elif how == "true":
        message.additional_kwargs["one"] = True
    elif how == "field":
        message.of_its_own = "edited"
    else:
        message.response_metadata["model"] = "edited"


@pytest.mark.parametrize("how", ["text", "name", "deep", "true", "field", "metadata"])
@pytest.mark.parametrize("is_given_back", [False, True])
async def test_an_edit_in_place_is_stored(store: Store, how: str, is_given_back: bool) -> None:
    blocks: Any = [{"type": "text", "text": "as it was"}]
    kwargs = {"deep": {"n": [1]}, "one": 1}

    def answer(state: MessagesState) -> Any:
        if len(state["messages"]) == 3:
            edited(state["messages"][0], how)
        return {"messages": [*(state["messages"][:1] if is_given_back else []), AIMessage("Yes")]}

    graph = chat(store.langgraph_checkpointer, answer)
    await graph.ainvoke({"messages": [HumanMessage(blocks, id="h", additional_kwargs=kwargs)]}, CONFIG)
    before = (await graph.aget_state(CONFIG)).config
    said = await ask(graph, "Again")
    fresh = chat(store.langgraph_checkpointer)
    for each in (graph, fresh):
        found = (await each.aget_state(CONFIG)).values["messages"]
        assert found == said
        assert repr(found) == repr(said), "True is not 1"
        first = (await each.aget_state(before)).values["messages"][0]
        assert first == HumanMessage(blocks, id="h", additional_kwargs=kwargs), "what it was stays with its checkpoint"


async def test_a_message_that_cannot_be_compared_any_more(store: Store) -> None:
    class Odd:
        def __eq__(self, other: object) -> bool:
            raise ValueError("cannot be compared")

        __hash__ = None  # type: ignore[assignment]

    saver = store.langgraph_checkpointer
    graph = chat(saver)
    await ask(graph, "Hi")
    found = await saver.aget_tuple(CONFIG)
    assert found is not None
    messages = found.checkpoint["channel_values"]["messages"]
    messages[0].additional_kwargs["odd"] = Odd()
    assert draft_of(messages[0]) is None


# Lines


async def test_a_state_that_holds_a_message_twice(store: Store) -> None:
    class Listing(MessagesState):
        messages: Any

    def twice(state: Any) -> Any:
        return {"messages": [*state["messages"], state["messages"][0]]}

    graph: Any = StateGraph(Listing)
    graph.add_node("twice", twice)
    graph.add_edge(START, "twice")
    made_one = graph.compile(checkpointer=store.langgraph_checkpointer)
    for message in (HumanMessage("Hi", id="1"), HumanMessage("Hi")):
        await made_one.ainvoke({"messages": [message]}, CONFIG)
        assert texts((await made_one.aget_state(CONFIG)).values["messages"]) == ["Hi", "Hi"]


async def test_forks_of_forks(store: Store) -> None:
    graph = chat(
        store.langgraph_checkpointer, lambda state: {"messages": [AIMessage("Yes", id=f"a{len(state['messages'])}")]}
    )
    await ask(graph, "Hi")
    first = (await graph.aget_state(CONFIG)).config
    await graph.ainvoke({"messages": [HumanMessage("One", id="1")]}, CONFIG)
    one = (await graph.aget_state(CONFIG)).config
    await graph.ainvoke({"messages": [HumanMessage("Two", id="2")]}, first)
    # The very message that the other line has, and its answer.
    await graph.ainvoke({"messages": [HumanMessage("One", id="1")]}, first)
    assert texts((await graph.aget_state(CONFIG)).values["messages"]) == ["Hi", "Yes", "One", "Yes"]
    await graph.ainvoke({"messages": [HumanMessage("More", id="3")]}, one)
    wanted = ["Hi", "Yes", "One", "Yes", "More", "Yes"]
    for each in (graph, chat(store.langgraph_checkpointer)):
        assert texts((await each.aget_state(CONFIG)).values["messages"]) == wanted
    assert texts(await store.get_messages("t")) == wanted


async def test_what_others_say_while_the_graph_runs_is_seen_next(store: Store) -> None:
    async def slow(state: MessagesState) -> Any:
        if len(state["messages"]) == 1:
            await store.append_message("t", "user", "And another thing")
        return {"messages": [AIMessage("Yes")]}

    graph = chat(store.langgraph_checkpointer, slow)
    await graph.ainvoke({"messages": [("user", "Hi")]}, CONFIG, durability="sync")
    for each in (graph, chat(store.langgraph_checkpointer)):
        assert texts((await each.aget_state(CONFIG)).values["messages"]) == ["Hi", "Yes", "And another thing"]
    assert texts(await ask(graph, "Well?")) == ["Hi", "Yes", "And another thing", "Well?", "Yes"]
    assert texts((await graph.aget_state(CONFIG)).values["messages"])[2:] == ["And another thing", "Well?", "Yes"]
    assert texts(await store.get_messages("t")) == ["Hi", "And another thing", "Yes", "Well?", "Yes"]


async def test_a_part_of_a_message_of_others_is_removed(store: Store) -> None:
    answers = [{"type": "tool_result", "tool_use_id": f"t{n}", "content": f"Rain {n}"} for n in range(2)]
    uses = [{"type": "tool_use", "id": f"t{n}", "name": "weather", "input": {}} for n in range(2)]
    await store.append_message("t", "user", "Weather?")
    await store.append_message("t", "assistant", uses, format="anthropic")
    await store.append_message("t", "user", answers, format="anthropic")
    graph = chat(store.langgraph_checkpointer)
    said = (await graph.aget_state(CONFIG)).values["messages"]
    assert texts(said)[2:] == ["Rain 0", "Rain 1"]
    await graph.aupdate_state(CONFIG, {"messages": [RemoveMessage(id=said[2].id)]})
    assert texts((await graph.aget_state(CONFIG)).values["messages"])[2:] == ["Rain 1"]
    assert texts(await ask(graph, "So?"))[2:] == ["Rain 1", "So?", "answer 4"]


# Versions


@pytest.mark.parametrize("which", range(8))
def test_a_version_makes_what_langchain_makes(which: int) -> None:
    message = made(7, which)
    draft = draft_of(message)
    assert draft is not None
    wanted = messages_from_dict([draft.row.content])[0]
    first, second = draft.version.make(), draft.version.make()
    assert first == second == wanted == message
    assert repr(first) == repr(wanted)
    assert first.model_dump_json() == wanted.model_dump_json()
    first.additional_kwargs["changed"] = True
    if isinstance(first.content, list):
        first.content.clear()
    assert draft.version.make() == second == message


@pytest.mark.parametrize(
    "content",
    [
        {
            "type": "ai",
            "data": {
                "content": "x",
                "additional_kwargs": {
                    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
                },
            },
        },
        {"type": "ai", "data": {"content": "x", "tool_calls": [{"name": "f", "args": {}, "id": "c"}]}},
        {
            "type": "ai",
            "data": {"content": "x", "usage_metadata": {"input_tokens": 1.0, "output_tokens": 2, "total_tokens": 3}},
        },
        {
            "type": "ai",
            "data": {
                "content": "x",
                "usage_metadata": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3, "cost": 1},
            },
        },
        {"type": "tool", "data": {"content": ["x", 1], "tool_call_id": 5}},
        {"type": "human", "data": {"content": "x", "id": 5, "own": [1]}},
        {"type": "human", "data": {"content": "x", "name": None, "type": "human"}},
        {"type": "AIMessageChunk", "data": {"content": "x", "tool_call_chunks": []}},
    ],
)
def test_json_is_read_as_langchain_reads_it(content: Any) -> None:
    (version,) = versions_of(Message("user", content, format="langchain", id="m"))
    assert version.make() == messages_from_dict([content])[0]


def test_what_json_would_change_is_no_row() -> None:
    for odd in ((1, 2), {1: "x"}, float("nan"), {1, 2}, b"x"):
        message: AnyMessage = ToolMessage("x", tool_call_id="c", artifact=odd)
        assert draft_of(message) is None


async def test_a_message_of_thousands_of_strings(store: Store) -> None:
    blocks: Any = [{"type": "text", "text": f"{number} says {'more ' * (number % 30)}"} for number in range(3000)]
    graph = chat(store.langgraph_checkpointer)
    await graph.ainvoke({"messages": [HumanMessage(blocks)]}, CONFIG)
    history = [each async for each in chat(store.langgraph_checkpointer).aget_state_history(CONFIG)]
    assert history[0].values["messages"][0].content == blocks
    await store.delete_message("t", (await store.get_messages("t"))[0].id)
    left = [each async for each in chat(store.langgraph_checkpointer).aget_state_history(CONFIG)]
    assert len(left) == len(history)
    assert "2999 says" not in repr(left)
