"""DeepAgents on the checkpointer and the store of LangGraph: messages and files are delta channels there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from deepagents import create_deep_agent
from deepagents.backends import StoreBackend
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage

from hansard import Store

pytestmark = pytest.mark.anyio

CONFIG: Any = {"configurable": {"thread_id": "t"}}


class Scripted(GenericFakeChatModel):
    def bind_tools(self, tools: Sequence[Any], **options: Any) -> Any:
        return self


def calling(name: str, id: str, **arguments: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": id, "type": "tool_call"}])


def scripted(*said: BaseMessage) -> Scripted:
    messages: Iterator[Any] = iter(said)
    return Scripted(messages=messages)


async def ask(agent: Any, question: str) -> dict[str, Any]:
    state: dict[str, Any] = await agent.ainvoke({"messages": [("user", question)]}, CONFIG)
    return state


async def test_messages_and_files_outlive_the_process(store: Store) -> None:
    write = calling("write_file", "c1", file_path="/a.txt", content="hello")
    first = create_deep_agent(scripted(write, AIMessage("Written.")), checkpointer=store.langgraph_checkpointer)
    await ask(first, "Write it")
    second = create_deep_agent(scripted(AIMessage("Yes.")), checkpointer=store.langgraph_checkpointer)
    state = await ask(second, "Is it there?")
    assert [message.type for message in state["messages"]] == ["human", "ai", "tool", "ai", "human", "ai"]
    assert list(state["files"]) == ["/a.txt"]
    rows = await store.get_messages("t")
    assert [row.role for row in rows] == ["user", "assistant", "tool", "assistant", "user", "assistant"]
    assert rows[-2].text == "Is it there?"


async def test_what_others_said_before_its_first_turn(store: Store) -> None:
    await store.append_message("t", "user", "The code word is heron.")
    agent = create_deep_agent(scripted(AIMessage("One"), AIMessage("Two")), checkpointer=store.langgraph_checkpointer)
    await ask(agent, "Go on")
    state = await ask(agent, "And on")
    assert state["messages"][0].content == "The code word is heron."
    assert len(state["messages"]) == len(await store.get_messages("t")) == 5


async def test_pruning_keeps_both(store: Store) -> None:
    saver = store.langgraph_checkpointer
    write = calling("write_file", "c1", file_path="/a.txt", content="hello")
    agent = create_deep_agent(scripted(write, AIMessage("Written."), AIMessage("Yes.")), checkpointer=saver)
    await ask(agent, "Write it")
    await saver.aprune(["t"])
    state = (await agent.aget_state(CONFIG)).values
    assert len(state["messages"]) == 4
    assert list(state["files"]) == ["/a.txt"]
    assert len((await ask(agent, "Sure?"))["messages"]) == 6


async def test_copies_have_the_messages_in_their_history(store: Store) -> None:
    saver = store.langgraph_checkpointer
    write = calling("write_file", "c1", file_path="/a.txt", content="hello")
    agent = create_deep_agent(scripted(write, AIMessage("Written."), AIMessage("Yes.")), checkpointer=saver)
    await ask(agent, "Write it")
    state = await ask(agent, "Sure?")
    await saver.acopy_thread("t", "copy")
    await store.delete_conversation("t")
    copied: Any = {"configurable": {"thread_id": "copy"}}
    found = (await create_deep_agent(scripted(), checkpointer=store.langgraph_checkpointer).aget_state(copied)).values
    assert (found["messages"], list(found["files"])) == (state["messages"], ["/a.txt"])
    rows = await store.get_messages("copy")
    assert [row.role for row in rows] == ["user", "assistant", "tool", "assistant", "user", "assistant"]


async def test_a_subagent_and_files_under_an_e_mail_address(store: Store) -> None:
    write = calling("write_file", "c2", file_path="/notes.txt", content="from below")
    model = scripted(
        calling("task", "c1", description="Note it", subagent_type="general-purpose"),
        write,
        AIMessage("Noted."),
        AIMessage("Done."),
    )
    files = store.langgraph_store
    agent = create_deep_agent(
        model,
        checkpointer=store.langgraph_checkpointer,
        store=files,
        backend=StoreBackend(namespace=lambda _: ("ann@example.com", "files"), store=files),
    )
    state = await ask(agent, "Note it")
    assert state["messages"][-1].content == "Done."
    found = await files.asearch(("ann@example.com",))
    assert [(item.key, item.value["content"]) for item in found] == [("/notes.txt", "from below")]
    await store.delete_conversation("t")
    assert (await agent.aget_state(CONFIG)).values == {}
