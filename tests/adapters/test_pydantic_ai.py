"""Pydantic AI's conversation store, with its own agents, and beside the store that it ships."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import (
    Agent,
    BinaryContent,
    DeferredToolRequests,
    ImageUrl,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
)
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
    InMemoryConversationStore,
)
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelRequest, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import Tool
from tests.test_sync import suspending

from hansard import Store, sync
from hansard.backends.memory import MemoryBackend
from hansard.contract.backend import Backend

pytestmark = pytest.mark.anyio


def add(a: int, b: int) -> str:
    return f"{a + b} it is"


def adding(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """Calls the tool, then tells what it was told."""
    last = messages[-1].parts[-1]
    if isinstance(last, ToolReturnPart):
        return ModelResponse(parts=[TextPart(f"The tool said: {last.content}.")])
    return ModelResponse(parts=[ToolCallPart("add", {"a": 1, "b": 2}, tool_call_id="c1")])


def counting(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    return ModelResponse(parts=[TextPart(f"answer {len(messages)}")])


AGENT = Agent(FunctionModel(adding), tools=[add], system_prompt="Be exact.")
COUNTER = Agent(FunctionModel(counting))


def scripted(call_id: str, answer: str) -> Agent[None, str]:
    """An agent that calls the tool and then gives the answer."""

    def model(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        if isinstance(messages[-1].parts[-1], ToolReturnPart):
            return ModelResponse(parts=[TextPart(answer)])
        return ModelResponse(parts=[ToolCallPart("add", {"a": 1, "b": 2}, tool_call_id=call_id)])

    return Agent(FunctionModel(model), tools=[add], instructions="Be exact.")


def listening(heard: list[tuple[str, str]], answer: str) -> Agent[None, str]:
    """An agent that writes down what its model is told."""

    def model(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        for part in (part for message in messages for part in message.parts):
            if isinstance(part, ToolCallPart):
                heard.append(("call", part.tool_name))
            elif isinstance(part, ToolReturnPart):
                heard.append(("result", part.model_response_str()))
            elif isinstance(part, UserPromptPart | TextPart):
                said = part.content if isinstance(part.content, str) else str(part.content[0])
                heard.append(("user" if isinstance(part, UserPromptPart) else "assistant", said))
        return ModelResponse(parts=[TextPart(answer)])

    return Agent(FunctionModel(model))


async def talk(store: ConversationStore, prompt: Any, id: str = "c", scope: str | None = None) -> Conversation:
    conversation = await store.load(id, scope=scope) or Conversation(conversation_id=id)
    result = await COUNTER.run(prompt, conversation=conversation)
    await store.save(result, scope=scope)
    return result.conversation


def said(conversation: Conversation | None) -> list[str]:
    assert conversation is not None
    return [str(getattr(message.parts[-1], "content", "")) for message in conversation.messages]


async def revision(store: ConversationStore, id: str = "c") -> str:
    record = await store.read_record(id)
    assert record is not None
    return record.revision


async def test_an_agent_with_a_tool_goes_on(store: Store) -> None:
    conversations = store.pydantic_ai_store()
    assert await conversations.load("c") is None
    result = await AGENT.run("What is 1 + 2?", conversation=Conversation(conversation_id="c"))
    entries = await conversations.save(result, scope="ann")
    rows = await store.get_messages("c")
    assert [(row.role, row.text, row.id) for row in rows] == [
        ("user", "What is 1 + 2?", entries[0].id),
        ("assistant", "", entries[1].id),
        ("tool", "3 it is", entries[2].id),
        ("assistant", "The tool said: 3 it is.", entries[3].id),
    ]
    loaded = await store.pydantic_ai_store().load("c", scope="ann")
    assert loaded is not None
    assert loaded.messages == result.all_messages()
    assert loaded.usage == result.usage
    assert await conversations.load_entries("c") == entries
    again = await COUNTER.run("Sure?", conversation=loaded)
    await conversations.save(again)
    assert len(await store.get_messages("c")) == 6
    conversation = await store.get_conversation("c")
    assert conversation is not None
    assert conversation.user_id == "ann"
    assert (await store.usage())[0].input_tokens > 0


async def test_messages_come_back_equal(store: Store) -> None:
    conversations = store.pydantic_ai_store()
    picture = BinaryContent(b"\xff\xfe\x00" * 200, media_type="image/png")
    prompt = ["Look \x00 \U0001f600", picture, ImageUrl("https://example.com/a.png", media_type="image/png")]
    conversation = await talk(conversations, prompt)
    loaded = await conversations.load("c")
    assert loaded is not None
    plain = ModelMessagesTypeAdapter
    assert loaded.messages == plain.validate_json(plain.dump_json(conversation.messages))
    loaded.messages.clear()
    assert len((await conversations.load("c") or loaded).messages) == 2


async def test_a_window(store: Store) -> None:
    conversations = store.pydantic_ai_store()
    for number in range(4):
        await talk(conversations, f"{number}")
    window = await conversations.load("c", limit=3)
    assert said(window) == ["answer 5", "3", "answer 7"]
    assert window is not None
    await conversations.save(await COUNTER.run("more", conversation=window))
    assert said(await conversations.load("c"))[-2:] == ["more", "answer 4"]
    assert len(await store.get_messages("c")) == 10
    assert said(await conversations.load("c", limit=0)) == []
    entries = await conversations.load_entries("c", limit=2) or []
    everything = await conversations.load_entries("c") or []
    assert entries == everything[-2:]
    assert await store.pydantic_ai_store().read_entry(everything[4].id) == everything[4]
    with pytest.raises(LookupError):
        await conversations.read_entry("nowhere")
    with pytest.raises(LookupError):
        await conversations.read_history("nowhere")


async def test_two_writers_conflict_and_nothing_is_left_behind(store: Store) -> None:
    conversations = store.pydantic_ai_store()
    await talk(conversations, "Hi")
    one, other = await conversations.load("c"), await conversations.load("c")
    await conversations.save(await COUNTER.run("one", conversation=one))
    result = await COUNTER.run("other", conversation=other)
    with pytest.raises(ConversationConflict):
        await conversations.save(result)
    with pytest.raises(ConversationConflict):
        await conversations.save(Conversation(conversation_id="c"))
    assert said(await conversations.load("c")) == ["Hi", "answer 1", "one", "answer 3"]
    assert len(await store.get_messages("c")) == 4
    first, second = await conversations.load("c"), await conversations.load("c")
    saves = [
        conversations.save(await COUNTER.run(text, conversation=each)) for text, each in (("x", first), ("y", second))
    ]
    outcomes = await asyncio.gather(*saves, return_exceptions=True)
    assert sorted(isinstance(outcome, ConversationConflict) for outcome in outcomes) == [False, True]
    assert len(await store.get_messages("c")) == 6


async def test_what_others_say_makes_a_conversation_stale(store: Store) -> None:
    conversations = store.pydantic_ai_store()
    await talk(conversations, "Hi")
    stale = await conversations.load("c")
    await store.append_message("c", "user", "From elsewhere")
    with pytest.raises(ConversationConflict):
        await conversations.save(await COUNTER.run("more", conversation=stale))
    assert said(await talk(conversations, "again")) == ["Hi", "answer 1", "From elsewhere", "again", "answer 3"]
    await store.update_conversation("c", title="A title", expected_version=None)
    fresh = await conversations.load("c")
    await store.update_conversation("c", title="Another")
    await conversations.save(await COUNTER.run("a title is no message", conversation=fresh))


async def test_branches(store: Store) -> None:
    conversations = store.pydantic_ai_store()
    for text in ("1", "2", "3"):
        await talk(conversations, text)
    left = (await conversations.load_entries("c") or [])[-1].id
    back = await conversations.branch("c", at=2, expected_revision=await revision(conversations))
    assert said(back) == ["1", "answer 1"]
    assert said(await conversations.load("c")) == ["1", "answer 1"]
    await conversations.save(await COUNTER.run("2 again", conversation=back))
    assert [row.text for row in await store.get_messages("c")] == ["1", "answer 1", "2 again", "answer 3"]
    assert len(await store.list_branches("c")) == 2
    record = await conversations.read_record("c")
    assert record is not None
    assert record.branches == [left]
    restored = await conversations.branch("c", from_entry=left, expected_revision=record.revision)
    assert said(restored) == ["1", "answer 1", "2", "answer 3", "3", "answer 5"]
    assert len(await store.list_branches("c")) == 2, "the line that was left is active again"
    await conversations.save(await COUNTER.run("4", conversation=restored))
    assert [row.text for row in await store.get_messages("c")][-2:] == ["4", "answer 7"]
    with pytest.raises(ConversationConflict):
        await conversations.branch("c", at=0, expected_revision="old")
    with pytest.raises(UserError):
        await conversations.branch("c", from_entry="nowhere", expected_revision=await revision(conversations))


async def test_a_rewritten_history_branches_off(store: Store) -> None:
    conversations = store.pydantic_ai_store()
    conversation = await talk(conversations, "Hi")
    conversation = await talk(conversations, "long story")
    compact = [*conversation.messages[:2], ModelRequest(parts=[UserPromptPart("in short")])]
    await conversations.save(
        Conversation(conversation_id="c", messages=compact, revision=await revision(conversations))
    )
    assert said(await conversations.load("c")) == ["Hi", "answer 1", "in short"]
    assert [row.text for row in await store.get_messages("c", branch="main")][-1] == "answer 3"


async def test_forks_stand_on_their_own(store: Store) -> None:
    conversations = store.pydantic_ai_store()
    await talk(conversations, "1", scope="ann")
    await talk(conversations, "2", scope="ann")
    whole = await conversations.fork("c", new_conversation_id="whole", scope="bob")
    part = await conversations.fork("c", at=1, new_conversation_id="part")
    assert (len(whole.messages), len(part.messages)) == (4, 1)
    record = await conversations.read_record("part")
    assert record is not None
    assert (record.forked_from, record.scope) == ("c", "ann")
    with pytest.raises(ConversationConflict):
        await conversations.fork("c", new_conversation_id="whole")
    entries = await conversations.load_entries("c") or []
    assert await conversations.load_entries("whole") == entries
    await conversations.save(await COUNTER.run("on", conversation=whole))
    await conversations.delete("c")
    fresh = store.pydantic_ai_store()
    assert await fresh.load("c") is None
    assert said(await fresh.load("part")) == ["1"]
    assert await fresh.read_entry(entries[2].id) == entries[2]
    assert said(await fresh.load("whole", scope="bob")) == ["1", "answer 1", "2", "answer 3", "on", "answer 5"]
    lost = ConversationRecord(conversation_id="lost", head_id="nowhere")
    with pytest.raises(ConversationConflict):
        await fresh.write_record(lost, expected_revision=None)
    assert await store.get_conversation("lost") is None


async def test_scopes_are_walls_and_lists(store: Store) -> None:
    conversations = store.pydantic_ai_store()
    for id, scope in (("a1", "ann"), ("b1", "bob"), ("a2", "ann"), ("n", None)):
        await talk(conversations, "Hi", id, scope)
    assert await conversations.load("a1", scope="bob") is None
    with pytest.raises(ConversationConflict):
        await conversations.save(Conversation(conversation_id="a1"), scope="bob")
    await conversations.delete("a1", scope="bob")
    assert await conversations.load("a1") is not None
    assert [record.conversation_id for record in await conversations.list_conversations(scope="ann")] == ["a2", "a1"]
    await conversations.save(await COUNTER.run("more", conversation=await conversations.load("a1")))
    assert [each.conversation_id for each in await conversations.list_conversations(scope="ann")] == ["a1", "a2"]
    assert len(await conversations.list_conversations()) == 4
    assert len(await conversations.list_conversations(limit=2)) == 2
    await store.erase_user("ann")
    assert {each.conversation_id for each in await conversations.list_conversations()} == {"b1", "n"}
    for id in ("b1", "n"):
        await conversations.delete(id)
    assert [record async for record in store.records.iter()] == []


async def test_deferred_tools_wait_in_the_store(store: Store) -> None:
    conversations = store.pydantic_ai_store()
    tool = Tool(add, requires_approval=True)
    agent = Agent(FunctionModel(adding), tools=[tool], output_type=[str, DeferredToolRequests])
    result = await agent.run("What is 1 + 2?", conversation=Conversation(conversation_id="c"))
    await conversations.save(result)
    loaded = await store.pydantic_ai_store().load("c")
    assert loaded is not None
    assert loaded.deferred_tool_requests is not None
    output: Any = result.output
    assert loaded.deferred_tool_requests == output
    answers = loaded.deferred_tool_requests.build_results(approvals={"c1": True})
    done = await agent.run(conversation=loaded, deferred_tool_results=answers)
    await conversations.save(done)
    assert [row.text for row in await store.get_messages("c")][-1] == "The tool said: 3 it is."
    assert (await conversations.load("c") or loaded).deferred_tool_requests is None


async def test_it_does_what_the_shipped_store_does(store: Store) -> None:
    """The same calls on both: records and histories are the same, but for the ids and times of each."""

    async def story(conversations: ConversationStore) -> list[Any]:
        told: list[Any] = []
        for text in ("1", "2"):
            await talk(conversations, text, scope="ann")
        await conversations.save(await conversations.load("c") or Conversation())
        back = await conversations.branch("c", at=1, expected_revision=await revision(conversations))
        await conversations.save(await COUNTER.run("2b", conversation=back))
        await conversations.fork("c", at=2, new_conversation_id="f")
        for id in ("c", "f"):
            record = await conversations.read_record(id)
            assert record is not None
            entries = await conversations.load_entries(id) or []
            told.append((said(await conversations.load(id)), record.scope, record.forked_from, len(record.branches)))
            told.append(record.usage)
            told.append([entry.id == record.head_id for entry in entries])
            told.append([(entry.parent_id is None, entry.kind) for entry in entries])
        return told

    assert await story(store.pydantic_ai_store()) == await story(InMemoryConversationStore())


async def test_what_others_said(store: Store) -> None:
    await store.append_message("c", "system", "Be brief.")
    await store.append_message("c", "user", "Hi", user_id=None)
    call = {"type": "function_call", "call_id": "c9", "name": "add", "arguments": '{"a": 1}'}
    await store.append_message("c", "assistant", call, format="openai.responses")
    output = {"type": "function_call_output", "call_id": "c9", "output": "3"}
    await store.append_message("c", "tool", output, format="openai.responses")
    conversations = store.pydantic_ai_store()
    loaded = await conversations.load("c")
    assert loaded is not None
    kinds = [[part.part_kind for part in message.parts] for message in loaded.messages]
    assert kinds == [["system-prompt"], ["user-prompt"], ["tool-call"], ["tool-return"]]
    assert isinstance(loaded.messages[3].parts[0], ToolReturnPart)
    assert loaded.messages[3].parts[0].tool_name == "add"
    assert (await conversations.load("c") or loaded).messages == loaded.messages
    await conversations.save(await COUNTER.run("on", conversation=loaded))
    assert [row.format for row in await store.get_messages("c")][-2:] == ["pydantic_ai", "pydantic_ai"]
    branch = await conversations.branch("c", at=2, expected_revision=await revision(conversations))
    assert len(branch.messages) == 2


async def test_entries_written_by_hand(store: Store) -> None:
    conversations = store.pydantic_ai_store()
    entry = ConversationEntry(parent_id=None, message=ModelRequest(parts=[UserPromptPart("Hi")]))
    record = ConversationRecord(conversation_id="c", head_id=entry.id, scope="ann")
    await conversations.write_record(record, new_entries=[entry], expected_revision=None)
    assert await conversations.read_record("c") == record
    assert await conversations.read_entry(entry.id) == entry
    with pytest.raises(ConversationConflict):
        await conversations.delete_record("c", expected_revision="other")
    with pytest.raises(ConversationConflict):
        await conversations.write_record(record, expected_revision="other")
    await conversations.delete_record("c", expected_revision=record.revision)
    with pytest.raises(ConversationConflict):
        await conversations.delete_record("c", expected_revision=record.revision)


@pytest.mark.parametrize("backend", [MemoryBackend, suspending])
def test_on_a_blocking_store(backend: Callable[[], Backend]) -> None:
    with sync.Store.over(backend()) as store:
        conversations = store.pydantic_ai_store()
        assert said(asyncio.run(talk(conversations, "Hi"))) == ["Hi", "answer 1"]
        assert [message.text for message in store.get_messages("c")] == ["Hi", "answer 1"]
