"""What was deleted, changed or erased is gone from every adapter, from its records, and from the file."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import list_sessions_from_store
from google.adk.events import Event, EventActions
from google.genai import types
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph
from msgspec import structs
from pydantic_ai import Agent, Tool
from pydantic_ai.conversation import Conversation
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import DeferredToolRequests

import hansard
from hansard import Store
from hansard.adapters.langgraph import forms, records
from hansard.model import Record

pytestmark = pytest.mark.anyio

SECRET = "the heron sleeps at 4711 Marsh Lane"
SESSION = "11111111-1111-4111-8111-111111111111"
KEY: Any = {"project_key": "proj", "session_id": SESSION}


async def records_of(store: Store) -> str:
    return repr([_plain(record) async for record in store.records.iter(())])


def _plain(record: Record) -> Record:
    is_checkpoint = record.namespace[0] in (forms.CHECKPOINTS, forms.WRITES)
    return structs.replace(record, value=records.unpack(record.value)) if is_checkpoint else record


class File:
    """A store in a file, whose bytes are looked at when it is closed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"sqlite:///{folder / 'chats.db'}"

    def holds(self, text: str) -> bool:
        forms = (text.encode(), text.encode("utf-16-le"), text.encode().hex().encode())
        return any(form in path.read_bytes() for path in self.folder.iterdir() for form in forms)


@pytest.fixture
def file(tmp_path: Path) -> File:
    return File(tmp_path)


async def remove(store: Store, how: str, id: str, message_id: str, content: Any) -> None:
    if how == "deleted":
        await store.delete_message(id, message_id)
    else:
        await store.update_message(id, message_id, content=content, format=None)
    await store.purge()


# Claude


def said(text: Any, role: str = "user") -> Any:
    return {"type": role, "uuid": str(uuid.uuid4()), "message": {"role": role, "content": text}}


async def talk_with_claude(store: Store, prompt: str, *, apart: bool = False) -> tuple[str, list[Any]]:
    """What Claude's process writes of a turn: it repeats the prompt before and after the message that says it."""
    sessions = store.claude_session_store()
    asked = said(prompt)
    line = prompt.replace("\n", " ").strip()
    batches: list[list[Any]] = [
        [{"type": "queue-operation", "operation": "enqueue", "content": prompt}],
        [asked, {"type": "mode", "mode": "normal"}, said("Noted.", "assistant")],
        [{"type": "last-prompt", "lastPrompt": line[:30] + "…", "leafUuid": asked["uuid"]}],
        [{"type": "ai-title", "aiTitle": "Birds"}],
    ]
    if not apart:
        batches[:2] = [[*batches[0], *batches[1]]]
    for batch in batches:
        await sessions.append(KEY, batch)
    return asked["uuid"], [entry for batch in batches for entry in batch]


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("how", ["deleted", "changed"])
async def test_claude_quotes_nothing_that_is_gone(store: Store, how: str, apart: bool) -> None:
    sessions: Any = store.claude_session_store()
    prompt = f"{SECRET},\nsays the log"
    message_id, entries = await talk_with_claude(store, prompt, apart=apart)
    assert await sessions.load(KEY) == entries
    assert (await sessions.list_session_summaries("proj"))[0]["data"]["first_prompt"].startswith(SECRET)
    assert (await sessions.list_session_summaries("proj"))[0]["data"]["last_prompt"].startswith(SECRET[:30])
    assert SECRET[:30] not in await records_of(store), "the prompt is stored once, as a message"
    await remove(store, how, SESSION, message_id, {**said("Something else"), "uuid": message_id})
    assert SECRET[:30] not in repr(await sessions.load(KEY))
    summary = (await sessions.list_session_summaries("proj"))[0]["data"]
    assert SECRET[:30] not in repr(summary)
    assert summary["ai_title"] == "Birds"
    assert len(await list_sessions_from_store(sessions, directory="/proj")) == 0, "another project"


@pytest.mark.parametrize("how", ["deleted", "changed"])
async def test_claude_leaves_no_bytes(file: File, how: str) -> None:
    async with hansard.connect(file.url) as store:
        message_id, _ = await talk_with_claude(store, SECRET)
        await remove(store, how, SESSION, message_id, {**said("Something else"), "uuid": message_id})
    assert not file.holds(SECRET[:30])


@pytest.mark.parametrize("how", ["the session", "the conversation", "the user"])
async def test_claude_leaves_no_bytes_of_titles_and_subagents(file: File, how: str) -> None:
    async with hansard.connect(file.url) as store:
        view = store.user("ann")
        sessions: Any = view.claude_session_store()
        asked = said("Hello")
        title = {"type": "ai-title", "aiTitle": SECRET, "sessionId": SESSION}
        await sessions.append(KEY, [asked, title, {"type": "summary", "summary": SECRET, "leafUuid": asked["uuid"]}])
        await sessions.append({**KEY, "subpath": "subagents/agent-1"}, [said(SECRET), {"type": "x", "note": SECRET}])
        assert SECRET in repr(await sessions.list_session_summaries("proj"))
        if how == "the session":
            await sessions.delete(KEY)
        elif how == "the conversation":
            await view.delete_conversation(SESSION)
        else:
            await store.erase_user("ann")
        assert await records_of(view) == "[]"
    assert not file.holds(SECRET[:30])


async def test_claude_forgets_a_user(file: File) -> None:
    async with hansard.connect(file.url) as store:
        await talk_with_claude(store.user("ann"), SECRET)
        await store.erase_user("ann")
        assert await store.user("ann").claude_session_store().load(KEY) is None
        assert await store.user("ann").claude_session_store().list_session_summaries("proj") == []
    assert not file.holds(SECRET[:30])


async def test_claude_keeps_nothing_of_a_batch_that_is_refused(store: Store) -> None:
    sessions: Any = store.claude_session_store()
    message_id, _ = await talk_with_claude(store, SECRET)
    await store.delete_message(SESSION, message_id)
    before, records = await sessions.load(KEY), await records_of(store)
    again = {**said(SECRET), "uuid": message_id}
    with pytest.raises(hansard.Conflict, match="was deleted"):
        await sessions.append(KEY, [{"type": "queue-operation", "content": SECRET}, again])
    assert await sessions.load(KEY) == before
    assert SECRET not in await records_of(store)
    assert records.count("claude-entries") == (await records_of(store)).count("claude-entries")


# LangGraph


def talking(store: Store, answer: Any, asked: list[BaseMessage]) -> Any:
    async def model(state: MessagesState) -> Any:
        asked[:] = state["messages"]
        return {"messages": [AIMessage(answer, id=str(uuid.uuid4()))]}

    builder = StateGraph(MessagesState)
    builder.add_node(model)
    builder.add_edge(START, "model")
    return builder.compile(checkpointer=store.langgraph_checkpointer)


CONTENTS: list[Any] = [
    SECRET,
    [{"type": "text", "text": SECRET}],
    [{"type": "text", "text": "Look:"}, {"type": "text", "text": f"well, {SECRET}"}],
]


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("side", ["question", "answer"])
async def test_langgraph_keeps_no_message_that_is_gone(file: File, side: str, content: Any) -> None:
    config: Any = {"configurable": {"thread_id": "trip"}}
    async with hansard.connect(file.url) as store:
        graph = talking(store, content if side == "answer" else "Noted.", [])
        await graph.ainvoke({"messages": [HumanMessage(content if side == "question" else "Hello")]}, config)
        assert SECRET not in await records_of(store), "what is said is stored once, as a message"
        rows = await store.get_messages("trip")
        gone = rows[0 if side == "question" else 1]
        await store.delete_message("trip", gone.id)
        await store.purge()
        assert SECRET not in repr([each async for each in store.langgraph_checkpointer.alist(config)])
        heard: list[BaseMessage] = []
        graph = talking(store, "Going on.", heard)
        await graph.ainvoke({"messages": [HumanMessage("And now?")]}, config)
        assert SECRET not in repr(heard)
        assert SECRET not in repr([each async for each in store.langgraph_checkpointer.alist(config)])
    assert not file.holds(SECRET)


async def test_langgraph_shows_what_a_message_became(file: File) -> None:
    config: Any = {"configurable": {"thread_id": "trip"}}
    async with hansard.connect(file.url) as store:
        graph = talking(store, "Noted.", [])
        await graph.ainvoke({"messages": [HumanMessage(CONTENTS[2])]}, config)
        row = (await store.get_messages("trip"))[0]
        data = {**row.content["data"], "content": "Something else"}
        await store.update_message("trip", row.id, content={**row.content, "data": data}, format=row.format)
        await store.purge()
        states = [each async for each in store.langgraph_checkpointer.alist(config)]
        assert SECRET not in repr(states)
        assert states[0].checkpoint["channel_values"]["messages"][0].content == "Something else"
    assert not file.holds(SECRET)


# ADK


async def test_adk_keeps_no_event_that_is_gone(file: File) -> None:
    place: Any = {"app_name": "trips", "user_id": "ann", "session_id": "oslo"}
    async with hansard.connect(file.url) as store:
        sessions, memories = store.adk_session_service(), store.adk_memory_service()
        session = await sessions.create_session(**place)
        content = types.Content(role="model", parts=[types.Part(text=SECRET)])
        # What an agent with an output_key does.
        actions = EventActions(state_delta={"answer": SECRET, "mood": "calm"})
        event = await sessions.append_event(session, Event(author="guide", content=content, actions=actions))
        await memories.add_session_to_memory(session)
        loaded: Any = await sessions.get_session(**place)
        listed = await sessions.list_sessions(app_name="trips", user_id="ann")
        assert loaded.state == listed.sessions[0].state == {"answer": SECRET, "mood": "calm"}
        assert SECRET not in await records_of(store)
        await store.delete_message("oslo", event.id)
        await store.purge()
        loaded = await sessions.get_session(**place)
        assert loaded.state == {"mood": "calm"}
        assert SECRET not in repr(await sessions.list_sessions(app_name="trips", user_id="ann"))
        assert (await memories.search_memory(app_name="trips", user_id="ann", query="heron")).memories == []
    assert not file.holds(SECRET)


async def test_adk_owns_what_it_adopts(file: File) -> None:
    place: Any = {"app_name": "trips", "user_id": "ann", "session_id": "oslo"}
    async with hansard.connect(file.url) as store:
        await store.append_message("oslo", "user", "Begun elsewhere")
        sessions = store.adk_session_service()
        session: Any = await sessions.get_session(**place)
        content = types.Content(role="user", parts=[types.Part(text=SECRET)])
        await sessions.append_event(session, Event(author="user", content=content))
        await store.erase_user("ann")
        assert await sessions.get_session(**place) is None
        assert await store.get_conversation("oslo") is None
    assert not file.holds(SECRET)


async def test_langgraph_owns_what_it_adopts(file: File) -> None:
    config: Any = {"configurable": {"thread_id": "trip", "user_id": "ann"}}
    async with hansard.connect(file.url) as store:
        await store.append_message("trip", "user", "Begun elsewhere")
        await talking(store, SECRET, []).ainvoke({"messages": [HumanMessage("Hello")]}, config)
        await store.erase_user("ann")
        assert await store.get_conversation("trip") is None
        assert await records_of(store) == "[]"
    assert not file.holds(SECRET)


# OpenAI Agents, Pydantic AI


async def test_openai_agents_keeps_no_item_that_is_gone(file: File) -> None:
    async with hansard.connect(file.url) as store:
        session = store.openai_session("trip")
        await session.add_items([{"role": "user", "content": SECRET}, {"role": "assistant", "content": "Noted."}])
        await store.delete_message("trip", (await store.get_messages("trip"))[0].id)
        await store.purge()
        assert await session.get_items() == [{"role": "assistant", "content": "Noted."}]
        assert await records_of(store) == "[]"
    assert not file.holds(SECRET)


async def test_pydantic_ai_keeps_no_call_that_is_gone(file: File) -> None:
    def asking(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[ToolCallPart("look", {"place": SECRET}, tool_call_id="c1")])

    async def look(place: str) -> str:
        return place

    async with hansard.connect(file.url) as store:
        tool = Tool(look, requires_approval=True)
        agent: Any = Agent(FunctionModel(asking), tools=[tool], output_type=[str, DeferredToolRequests])
        result = await agent.run("Where?", conversation=Conversation(conversation_id="c"))
        await store.pydantic_ai_store().save(result)
        loaded: Any = await store.pydantic_ai_store().load("c")
        assert loaded.deferred_tool_requests == result.output
        assert SECRET not in await records_of(store)
        await store.delete_message("c", (await store.get_messages("c"))[-1].id)
        await store.purge()
        loaded = await store.pydantic_ai_store().load("c")
        assert loaded.deferred_tool_requests is None
        assert SECRET not in repr(loaded)
    assert not file.holds(SECRET)
