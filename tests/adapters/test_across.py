"""A conversation with tool calls, begun in each framework and continued in each other one."""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, RunConfig, Runner, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call
from google.genai import types
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.graph import START, MessagesState, StateGraph
from pydantic_ai.conversation import Conversation
from tests.adapters import crewai_environment, test_adk, test_pydantic_ai

import hansard
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


ADK: Any = {"app_name": "app", "user_id": "ann"}


def _adk_text(part: types.Part) -> tuple[str, str] | None:
    if part.function_call:
        return "call", str(part.function_call.name)
    if part.function_response:
        answer = part.function_response.response or {}
        return "result", str(answer.get("output", answer.get("result")))
    return None


async def adk_begins(store: Store) -> None:
    call = types.Part(function_call=types.FunctionCall(id=CALL, name="add", args={"a": 1, "b": 2}))
    runner, _ = test_adk.adder(store, call, types.Part(text=ANSWER))
    await runner.session_service.create_session(**ADK, session_id=CONVERSATION)
    await test_adk.run(runner, QUESTION, CONVERSATION)
    await runner.close()


async def adk_hears(store: Store) -> Said:
    runner, model = test_adk.adder(store, types.Part(text="Yes."))
    await test_adk.run(runner, "Sure?", CONVERSATION)
    await runner.close()
    heard: Said = []
    for content in model.asked[-1]:
        who = "assistant" if content.role == "model" else "user"
        heard += [_adk_text(part) or (who, part.text or "") for part in content.parts or []]
    return heard


async def pydantic_begins(store: Store) -> None:
    conversations = store.pydantic_ai_store()
    agent = test_pydantic_ai.scripted(CALL, ANSWER)
    await conversations.save(await agent.run(QUESTION, conversation=Conversation(conversation_id=CONVERSATION)))


async def pydantic_hears(store: Store) -> Said:
    conversations = store.pydantic_ai_store()
    heard: Said = []
    agent = test_pydantic_ai.listening(heard, "Yes.")
    await conversations.save(await agent.run("Sure?", conversation=await conversations.load(CONVERSATION)))
    return heard


BEGIN: dict[str, Callable[[Store], Awaitable[None]]] = {
    "adk": adk_begins,
    "claude": claude_begins,
    "langgraph": langgraph_begins,
    "openai": openai_begins,
    "pydantic": pydantic_begins,
}
HEAR: dict[str, Callable[[Store], Awaitable[Said]]] = {
    "adk": adk_hears,
    "claude": claude_hears,
    "langgraph": langgraph_hears,
    "openai": openai_hears,
    "pydantic": pydantic_hears,
}


@pytest.fixture(params=["memory", "sqlite"])
async def quick(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """Every pair on these; every framework on every backend comes below."""
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/store.db?durability=off"
    async with hansard.connect(url) as opened:
        yield opened


@pytest.mark.parametrize(("first", "second"), list(itertools.product(BEGIN, HEAR)))
async def test_begun_in_one_and_continued_in_another(quick: Store, first: str, second: str) -> None:
    await BEGIN[first](quick)
    assert await HEAR[second](quick) == [*HEARD, ("user", "Sure?")]


# Calls that are made at once: some vocabularies have a message for each.


async def openai_asks_twice(store: Store) -> None:
    @function_tool
    def add(a: int, b: int) -> str:
        return f"{a + b} it is"

    calls = [function_call("add", {"a": 1, "b": number}, call_id=f"c{number}") for number in (2, 3)]
    model = ScriptedModel([calls, [assistant_message(ANSWER)]])
    session, agent = store.openai_session(CONVERSATION), Agent(name="a", model=model, tools=[add])
    await Runner.run(agent, QUESTION, session=session, run_config=RunConfig(tracing_disabled=True))


async def claude_asks_twice(store: Store) -> None:
    uses = [{"type": "tool_use", "id": f"c{number}", "name": "add", "input": {"b": number}} for number in (2, 3)]
    results = [{"type": "tool_result", "tool_use_id": use["id"], "content": "it is"} for use in uses]
    said = [*(_entry("assistant", [use]) for use in uses), *(_entry("user", [result]) for result in results)]
    entries = [_entry("user", QUESTION), *said, _entry("assistant", [{"type": "text", "text": ANSWER}])]
    await store.claude_session_store().append(KEY, entries)


ASK_TWICE = {"openai": openai_asks_twice, "claude": claude_asks_twice}


@pytest.mark.parametrize("first", ASK_TWICE)
async def test_calls_made_at_once_are_answered_before_a_graph_hears_more(quick: Store, first: str) -> None:
    """Chat Completions refuses a call that the next message does not answer."""
    await ASK_TWICE[first](quick)
    await _graph(quick, [AIMessage("Yes.")]).ainvoke({"messages": [("user", "Sure?")]}, THREAD)
    await ASK_TWICE[first](quick)
    asked = ["human", "ai c2", "tool c2", "ai c3", "tool c3", "ai"]
    state = await _graph(quick, [AIMessage("Yes.")]).ainvoke({"messages": [("user", "Sure?")]}, THREAD)
    for messages in (state["messages"], (await _graph(quick).aget_state(THREAD)).values["messages"]):
        assert [_named(message) for message in messages] == [*asked, "human", "ai", *asked, "human", "ai"]
    checkpoints = [each async for each in quick.langgraph_checkpointer.alist(THREAD)]
    oldest = checkpoints[-1].checkpoint["channel_values"]["messages"]
    assert [_named(message) for message in oldest] == [*asked, "human"][: len(oldest)], "told in the same order"
    assert len(oldest) >= len(asked)
    assert await quick.check() == []


def _named(message: Any) -> str:
    ids = [call["id"] for call in getattr(message, "tool_calls", None) or []]
    return " ".join([message.type, *ids, *([message.tool_call_id] if message.type == "tool" else [])])


async def test_calls_made_at_once_are_one_answer_to_claude(quick: Store) -> None:
    """Its process pairs the results with the calls of one answer, and drops others."""
    await openai_asks_twice(quick)
    entries: Any = await quick.claude_session_store().load(KEY)
    answers = [entry["message"].get("id") for entry in entries]
    assert [entry["type"] for entry in entries] == ["user", "assistant", "assistant", "user", "user", "assistant"]
    assert answers[1] == answers[2] is not None
    assert answers[5] not in (None, answers[1])


NAMES = list(HEAR)
ORDERS = [(*NAMES[turn:], *NAMES[:turn]) for turn in range(len(NAMES))]


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: order[0])
async def test_all_take_part_in_one_conversation(store: Store, order: tuple[str, ...]) -> None:
    await BEGIN[order[0]](store)
    for name in order:
        heard = await HEAR[name](store)
        assert heard[:4] == HEARD, name
        assert heard[-1] == ("user", "Sure?"), name
    rows = await store.get_messages(CONVERSATION)
    assert [row.text for row in rows].count("Sure?") == len(order)
    for format in ("anthropic", "openai.chat", "openai.responses", "gemini", "langchain"):
        assert formats.convert(rows, format).losses == [], format
    found = await store.search("sum", conversation_id=CONVERSATION)
    assert [hit.message.text for hit in found] == [ANSWER]
    assert (await store.window(CONVERSATION, messages=50))[0].text == QUESTION
    await store.delete_conversation(CONVERSATION)
    left = [record async for record in store.records.iter()]
    assert [record for record in left if record.namespace != ("adk-app-state",)] == []


@pytest.mark.parametrize("name", HEAR)
async def test_json_of_nobody_s_vocabulary_is_heard_as_text(quick: Store, name: str) -> None:
    await BEGIN[name](quick)
    await quick.append_message(CONVERSATION, "user", {"order": 17})
    heard = await HEAR[name](quick)
    assert heard[:4] == HEARD
    assert "17" in str(heard[4:])


# CrewAI, which has an environment of its own: a store that two processes share.

ABSENT = crewai_environment.why_absent()


def crewai(home: Path, begins: list[str], hears: list[str]) -> list[Said]:
    """One process for all stores: CrewAI takes its time to start."""
    words = [*(("begin", url) for url in begins), *(("hear", url) for url in hears)]
    said = crewai_environment.run("tests/adapters/crewai_talk.py", CONVERSATION, *itertools.chain(*words), home=home)
    lines = [line.removeprefix("heard: ") for line in said.splitlines() if line.startswith("heard: ")]
    return [[(who, text) for who, text in json.loads(line)] for line in lines]


@pytest.mark.skipif(ABSENT is not None, reason=str(ABSENT))
async def test_what_crewai_begins_others_continue_and_the_other_way_round(tmp_path: Path) -> None:
    ours = {name: f"sqlite:///{tmp_path}/crewai-{name}.db" for name in HEAR}
    theirs = {name: f"sqlite:///{tmp_path}/{name}.db" for name in BEGIN}
    for name, url in theirs.items():
        async with hansard.connect(url) as store:
            await BEGIN[name](store)
    for name, heard in zip(theirs, crewai(tmp_path, list(ours.values()), list(theirs.values())), strict=True):
        assert heard == [*HEARD, ("user", "Sure?")], name
    for name, url in ours.items():
        async with hansard.connect(url) as store:
            assert await HEAR[name](store) == [*HEARD, ("user", "Sure?")], name
