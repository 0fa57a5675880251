"""A conversation with tool calls, begun in each framework and continued in each other one."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from agents import Agent, RunConfig, Runner, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.graph import START, MessagesState, StateGraph

from hansard import Store, formats

pytestmark = pytest.mark.anyio

CONVERSATION = "22222222-2222-4222-8222-222222222222"
QUESTION, CALL, RESULT, ANSWER = "What is 1 + 2?", "call_1", "3 it is", "The sum is 3."
HEARD = [("user", QUESTION), ("call", "add"), ("result", RESULT), ("assistant", ANSWER)]

Said = list[tuple[str, str]]


# Each begins with a question, a call, its result and an answer; and each tells what it would give its model.


async def openai_begins(store: Store) -> None:
    @function_tool
    def add(a: int, b: int) -> str:
        return f"{a + b} it is"

    model = ScriptedModel([[function_call("add", {"a": 1, "b": 2}, call_id=CALL)], [assistant_message(ANSWER)]])
    session = store.openai_session(CONVERSATION)
    agent = Agent(name="a", model=model, tools=[add])
    await Runner.run(agent, QUESTION, session=session, run_config=RunConfig(tracing_disabled=True))


async def openai_hears(store: Store) -> Said:
    model = ScriptedModel([[assistant_message("Yes.")]])
    session = store.openai_session(CONVERSATION)
    quiet = RunConfig(tracing_disabled=True)
    await Runner.run(Agent(name="a", model=model), "Sure?", session=session, run_config=quiet)
    assert model.last_call is not None
    heard: Said = []
    for item in model.last_call.input:
        known: Any = item
        if known.get("type") == "function_call":
            heard.append(("call", known["name"]))
        elif known.get("type") == "function_call_output":
            heard.append(("result", known["output"]))
        else:
            text = known["content"] if isinstance(known["content"], str) else known["content"][0]["text"]
            heard.append((known["role"], text))
    return heard


def _graph(store: Store, *answers: Any) -> Any:
    script = iter(answers)
    builder: Any = StateGraph(MessagesState)
    builder.add_node("model", lambda _: {"messages": next(script)})
    builder.add_edge(START, "model")
    return builder.compile(checkpointer=store.langgraph_checkpointer)


THREAD: Any = {"configurable": {"thread_id": CONVERSATION}}


async def langgraph_begins(store: Store) -> None:
    call = {"name": "add", "args": {"a": 1, "b": 2}, "id": CALL, "type": "tool_call"}
    said = [AIMessage("", tool_calls=[call]), ToolMessage(RESULT, tool_call_id=CALL), AIMessage(ANSWER)]
    await _graph(store, said).ainvoke({"messages": [("user", QUESTION)]}, THREAD)


async def langgraph_hears(store: Store) -> Said:
    state = await _graph(store, [AIMessage("Yes.")]).ainvoke({"messages": [("user", "Sure?")]}, THREAD)
    heard: Said = []
    for message in state["messages"][:-1]:
        if getattr(message, "tool_calls", None):
            heard.append(("call", message.tool_calls[0]["name"]))
        elif isinstance(message, ToolMessage):
            heard.append(("result", message.text))
        else:
            heard.append(("user" if message.type == "human" else "assistant", message.text))
    return heard


KEY: Any = {"project_key": "proj", "session_id": CONVERSATION}


def _entry(role: str, content: Any) -> Any:
    return {"type": role, "uuid": str(uuid.uuid4()), "message": {"role": role, "content": content}}


async def claude_begins(store: Store) -> None:
    """As its process does; that the process itself writes here and resumes from here is tested in `test_claude`."""
    use = {"type": "tool_use", "id": CALL, "name": "add", "input": {"a": 1, "b": 2}}
    result = {"type": "tool_result", "tool_use_id": CALL, "content": RESULT}
    entries = [
        {"type": "mode", "mode": "default"},
        _entry("user", QUESTION),
        _entry("assistant", [use]),
        _entry("user", [result]),
        _entry("assistant", [{"type": "text", "text": ANSWER}]),
    ]
    await store.claude_session_store().append(KEY, entries)


async def claude_hears(store: Store) -> Said:
    await store.claude_session_store().append(KEY, [_entry("user", "Sure?")])
    entries: Any = await store.claude_session_store().load(KEY)
    heard: Said = []
    for entry in entries:
        content = entry.get("message", {}).get("content", [])
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            if block["type"] == "tool_use":
                heard.append(("call", block["name"]))
            elif block["type"] == "tool_result":
                inner = block["content"]
                heard.append(("result", inner if isinstance(inner, str) else inner[0]["text"]))
            else:
                heard.append((entry["type"], block["text"]))
    return heard


BEGIN: dict[str, Callable[[Store], Awaitable[None]]] = {
    "claude": claude_begins,
    "langgraph": langgraph_begins,
    "openai": openai_begins,
}
HEAR: dict[str, Callable[[Store], Awaitable[Said]]] = {
    "claude": claude_hears,
    "langgraph": langgraph_hears,
    "openai": openai_hears,
}


@pytest.mark.parametrize(("first", "second"), list(itertools.product(BEGIN, HEAR)))
async def test_begun_in_one_and_continued_in_another(store: Store, first: str, second: str) -> None:
    await BEGIN[first](store)
    assert await HEAR[second](store) == [*HEARD, ("user", "Sure?")]


@pytest.mark.parametrize("order", list(itertools.permutations(HEAR)))
async def test_all_take_part_in_one_conversation(store: Store, order: tuple[str, ...]) -> None:
    await BEGIN[order[0]](store)
    for name in order:
        heard = await HEAR[name](store)
        assert heard[:4] == HEARD
        assert heard[-1] == ("user", "Sure?")
    rows = await store.get_messages(CONVERSATION)
    assert [row.text for row in rows].count("Sure?") == 3
    for format in ("anthropic", "openai.chat", "openai.responses", "gemini", "langchain"):
        assert formats.convert(rows, format).losses == [], format
    await store.delete_conversation(CONVERSATION)
    assert [record async for record in store.records.iter()] == []
