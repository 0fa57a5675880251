"""The checkpointer for LangGraph: the kit of the framework, real graphs, and the history that they share."""

from __future__ import annotations

import asyncio
import operator
import random
import string
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Annotated, Any, TypedDict, cast

import msgspec
import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, interrupt
from tests.test_sync import suspending

import hansard
from hansard import Corrupt, FormatMismatch, Message, Store, Unsupported, ValidationError, sync
from hansard.adapters.langgraph import forms, records
from hansard.adapters.langgraph.history_sync import store_messages
from hansard.adapters.langgraph.references import SerializedValue
from hansard.adapters.langgraph.threads import Thread
from hansard.backends.memory import MemoryBackend
from hansard.contract.backend import Backend

pytestmark = pytest.mark.anyio

CONFIG: Any = {"configurable": {"thread_id": "t"}}
SECRET = "my secret is very long, longer than the shortest text that is cut out of a record"
KIT = {"put", "put_writes", "get_tuple", "list", "delete_thread", "copy_thread", "delete_for_runs", "prune"}


def chat(saver: BaseCheckpointSaver[Any], answers: Callable[[MessagesState], Any] | None = None) -> Any:
    """A graph of one node that answers."""

    def model(state: MessagesState) -> Any:
        return {"messages": [AIMessage(f"answer {len(state['messages'])}")]}

    graph: Any = StateGraph(MessagesState)
    graph.add_node("model", answers or model)
    graph.add_edge(START, "model")
    graph.add_edge("model", END)
    return graph.compile(checkpointer=saver)


async def ask(graph: Any, *questions: str, config: Any = CONFIG) -> list[Any]:
    said: list[Any] = []
    for question in questions:
        said = (await graph.ainvoke({"messages": [("user", question)]}, config))["messages"]
    return said


def texts(messages: list[Any]) -> list[str]:
    return [message.text if isinstance(message, Message) else message.content for message in messages]


# The kit


async def test_the_framework_s_own_kit(store: Store) -> None:
    @checkpointer_test(name="Hansard")
    async def saver() -> AsyncIterator[BaseCheckpointSaver[Any]]:
        yield store.langgraph_checkpointer

    report = await validate(saver)
    results = report.to_dict()
    assert report.passed_all(), results
    assert {name for name, result in report.results.items() if result.passed} == KIT


# The history


async def test_messages_stand_in_the_history(store: Store) -> None:
    graph = chat(store.langgraph_checkpointer)
    said = await ask(graph, "Hi", "Again")
    rows = await store.get_messages("t")
    assert [(row.role, row.text, row.format) for row in rows] == [
        ("user", "Hi", "langchain"),
        ("assistant", "answer 1", "langchain"),
        ("user", "Again", "langchain"),
        ("assistant", "answer 3", "langchain"),
    ]
    assert (await graph.aget_state(CONFIG)).values["messages"] == said
    another = chat(store.langgraph_checkpointer)
    assert (await another.aget_state(CONFIG)).values["messages"] == said, "and without what the saver remembers"


async def test_what_others_said_is_seen_by_the_newest_checkpoint_only(store: Store) -> None:
    graph = chat(store.langgraph_checkpointer)
    await ask(graph, "Hi")
    pinned = (await graph.aget_state(CONFIG)).config
    use = {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Oslo"}}
    answer = {"type": "tool_result", "tool_use_id": "t1", "content": "Rain"}
    await store.append_message("t", "user", "From elsewhere")
    await store.append_message("t", "assistant", [{"type": "text", "text": "Hm"}, use], format="anthropic")
    await store.append_message("t", "user", [answer], format="anthropic")
    assert texts((await graph.aget_state(pinned)).values["messages"]) == ["Hi", "answer 1"]
    newest = (await graph.aget_state(CONFIG)).values["messages"]
    assert texts(newest) == ["Hi", "answer 1", "From elsewhere", "Hm", "Rain"]
    assert newest[3].tool_calls[0]["name"] == "weather"
    assert isinstance(newest[4], ToolMessage)
    assert texts(await ask(graph, "Again")) == [*texts(newest), "Again", "answer 6"]
    assert len(await store.get_messages("t")) == 7
    assert texts((await graph.aget_state(pinned)).values["messages"]) == ["Hi", "answer 1"]


async def test_a_conversation_that_others_began(store: Store) -> None:
    await store.append("t", [Message("user", "Hi"), Message("assistant", "Hello")])
    graph = chat(store.langgraph_checkpointer)
    assert texts((await graph.aget_state(CONFIG)).values["messages"]) == ["Hi", "Hello"]
    assert texts(await ask(graph, "Again")) == ["Hi", "Hello", "Again", "answer 3"]
    assert texts(await store.get_messages("t")) == ["Hi", "Hello", "Again", "answer 3"]
    assert len([each async for each in graph.aget_state_history(CONFIG)]) == 3


async def test_a_fork_goes_on_in_a_branch(store: Store) -> None:
    graph = chat(store.langgraph_checkpointer)
    await ask(graph, "Hi")
    past = (await graph.aget_state(CONFIG)).config
    await ask(graph, "One way")
    await ask(graph, "Another way", config=past)
    assert texts(await store.get_messages("t")) == ["Hi", "answer 1", "Another way", "answer 3"]
    assert texts(await store.get_messages("t", branch="main")) == ["Hi", "answer 1", "One way", "answer 3"]
    lines = {tuple(texts(each.values.get("messages", []))) async for each in graph.aget_state_history(CONFIG)}
    assert ("Hi", "answer 1", "One way", "answer 3") in lines
    assert ("Hi", "answer 1", "Another way", "answer 3") in lines


async def test_removing_and_editing(store: Store) -> None:
    graph = chat(store.langgraph_checkpointer)
    said = await ask(graph, "Hi", "Again")
    before = (await graph.aget_state(CONFIG)).config
    await graph.aupdate_state(CONFIG, {"messages": [RemoveMessage(id=said[0].id), RemoveMessage(id=said[1].id)]})
    assert texts((await graph.aget_state(CONFIG)).values["messages"]) == ["Again", "answer 3"]
    assert len(await store.get_messages("t")) == 4, "what is removed is hidden from the graph, not deleted"
    await graph.aupdate_state(CONFIG, {"messages": [AIMessage("better", id=said[3].id)]})
    assert texts((await graph.aget_state(CONFIG)).values["messages"]) == ["Again", "better"]
    assert texts(await store.get_messages("t")) == ["Hi", "answer 1", "Again", "better"]
    assert texts(await store.get_messages("t", branch="main"))[-1] == "answer 3"
    assert (await graph.aget_state(before)).values["messages"] == said


async def test_a_branch_that_others_chose(store: Store) -> None:
    graph = chat(store.langgraph_checkpointer)
    await ask(graph, "Hi", "Again")
    second = (await store.get_messages("t"))[2]
    await store.branch("t", before=second.id)
    await store.append_message("t", "user", "Edited")
    assert texts((await graph.aget_state(CONFIG)).values["messages"]) == ["Hi", "answer 1", "Edited"]
    assert texts(await ask(graph, "More")) == ["Hi", "answer 1", "Edited", "More", "answer 4"]
    assert texts(await store.get_messages("t")) == ["Hi", "answer 1", "Edited", "More", "answer 4"]


async def test_a_deleted_message_is_gone_from_every_checkpoint(store: Store) -> None:
    graph = chat(store.langgraph_checkpointer)
    await ask(graph, SECRET, "Again")
    config = {"configurable": {"thread_id": "t"}}
    await store.delete_message("t", (await store.get_messages("t"))[0].id)
    fresh = chat(store.langgraph_checkpointer)
    history = [each async for each in fresh.aget_state_history(config)]
    assert len(history) == 6
    assert all(SECRET not in repr(each) for each in history)
    async for record in store.records.iter():
        assert SECRET.encode() not in records.unpack(record.value)


async def test_a_short_message_that_is_deleted_is_gone_from_every_checkpoint(store: Store) -> None:
    graph = chat(store.langgraph_checkpointer)
    await ask(graph, "pin 4711", "messages", "Again")
    before = [each async for each in graph.aget_state_history({"configurable": {"thread_id": "t"}})]
    for message in (await store.get_messages("t"))[:3]:
        assert any(message.text in repr(each) for each in before)
        await store.delete_message("t", message.id)
    fresh = chat(store.langgraph_checkpointer)
    history = [each async for each in fresh.aget_state_history({"configurable": {"thread_id": "t"}})]
    assert len(history) == len(before), "a word that is also the name of a channel breaks nothing"
    assert "pin 4711" not in repr(history)
    async for record in store.records.iter():
        assert b"pin 4711" not in records.unpack(record.value)


class Late:
    """A backend in which a task's writes land after the next checkpoint has folded them, before it is known there."""

    def __init__(self) -> None:
        self._inner = MemoryBackend()
        self.folded, self.landed = asyncio.Event(), asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def write_records(self, context: Any, writes: Any) -> Any:
        kinds = [write.namespace[0] for write in writes if not write.delete]
        if kinds == ["langgraph-writes"]:
            await self.folded.wait()
        written = await self._inner.write_records(context, writes)
        if kinds == ["langgraph-writes"]:
            self.landed.set()
        if kinds == ["langgraph", "langgraph"]:
            self.folded.set()
            await self.landed.wait()
            for _ in range(10):
                await asyncio.sleep(0)
        return written


async def put_with_writes(saver: BaseCheckpointSaver[Any], stored: Any) -> None:
    """A step as LangGraph makes it: the writes of a task and the checkpoint that they lead to, at the same time."""
    message = HumanMessage(SECRET, id="h")
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = {"messages": [message]}
    checkpoint["channel_versions"] = {"messages": 1}
    await asyncio.gather(
        saver.aput_writes(stored, [("messages", [message])], "task"),
        saver.aput(stored, checkpoint, {}, {"messages": 1}),
    )


async def test_writes_that_land_while_they_are_folded_leave_no_copy() -> None:
    store = Store(cast(Backend, Late()))
    saver = store.langgraph_checkpointer
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    stored = await saver.aput(config, empty_checkpoint(), {}, {})
    await put_with_writes(saver, stored)
    async for record in store.records.iter():
        assert SECRET.encode() not in records.unpack(record.value)
    found = await store.langgraph_checkpointer.aget_tuple(stored)
    assert found is not None
    assert found.pending_writes == [("task", "messages", [HumanMessage(SECRET, id="h")])]


async def test_two_processes_that_go_on_from_one_checkpoint_leave_no_copy(store: Store) -> None:
    one, other = store.langgraph_checkpointer, store.langgraph_checkpointer
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    stored = await one.aput(config, empty_checkpoint(), {}, {})
    assert await other.aget_tuple(stored) is not None
    await put_with_writes(one, stored)
    await put_with_writes(other, stored)
    async for record in store.records.iter():
        assert SECRET.encode() not in records.unpack(record.value)
    assert len([each async for each in one.alist(CONFIG)]) == 3


async def test_deleting_a_conversation_takes_its_checkpoints(store: Store) -> None:
    saver = store.langgraph_checkpointer
    await ask(chat(saver), "Hi", config={"configurable": {"thread_id": "t", "user_id": "ann"}})
    assert (await store.list_conversations(user_id="ann")).items[0].id == "t"
    await store.erase_user("ann")
    assert await saver.aget_tuple(CONFIG) is None
    assert [record async for record in store.records.iter()] == []


async def test_what_another_version_wrote_is_refused_clearly(store: Store) -> None:
    saved = records.Saved(None, {"v": "abc"}, SerializedValue("msgpack", b""))
    no_text: Any = msgspec.Raw(msgspec.msgpack.encode(saved).replace(b"abc", b"ab\xff"))
    await store.create_conversation("t")
    for value in (records.pack(no_text), records.pack(saved)[:-3], b"", "text", None):
        await store.records.put(("langgraph", "t"), "1", value, conversation_id="t")
        with pytest.raises(Corrupt, match="this version"):
            await store.langgraph_checkpointer.aget_tuple(CONFIG)
    older, newer = records.pack(saved)[2:], forms.SIGN + b"\x03" + records.pack(saved)[2:]
    for value, remedy in ((older, "run `hansard upgrade`"), (newer, "install that version")):
        await store.records.put(("langgraph", "t"), "1", value, conversation_id="t")
        with pytest.raises(FormatMismatch, match=remedy):
            await store.langgraph_checkpointer.aget_tuple(CONFIG)


async def test_messages_that_json_cannot_hold_stay_in_the_checkpoint(store: Store) -> None:
    def answer(_: MessagesState) -> Any:
        return {"messages": [ToolMessage("3", tool_call_id="c1", artifact={1, 2})]}

    graph = chat(store.langgraph_checkpointer, answer)
    await ask(graph, "Hi")
    assert (await graph.aget_state(CONFIG)).values["messages"][-1].artifact == {1, 2}


async def test_an_encrypting_serializer_turns_sharing_off(store: Store) -> None:
    saver = store.langgraph_checkpointer
    saver.serde = EncryptedSerializer(_Reversing())
    graph = chat(saver)
    said = await ask(graph, "Hi", "Again")
    assert (await graph.aget_state(CONFIG)).values["messages"] == said
    assert await store.get_messages("t") == []


class _Reversing:
    """Not a cipher, but it leaves no text readable."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "reversed", plaintext[::-1]

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        assert ciphername == "reversed"
        return ciphertext[::-1]


async def test_a_message_that_a_node_changes_in_place_is_not_changed_for_others(store: Store) -> None:
    saver = store.langgraph_checkpointer
    await ask(chat(saver), "Hi", "Again")
    for _ in range(2):
        found = await saver.aget_tuple(CONFIG)
        assert found is not None
        messages = found.checkpoint["channel_values"]["messages"]
        assert texts(messages) == ["Hi", "answer 1", "Again", "answer 3"]
        assert [message.additional_kwargs for message in messages] == [{}] * 4
        messages[0].content = "changed"
        messages[1].additional_kwargs["changed"] = True


@pytest.mark.parametrize("is_copied", [False, True])
async def test_a_message_that_a_node_changes_in_place_and_gives_back_is_changed(store: Store, is_copied: bool) -> None:
    def answer(state: MessagesState) -> Any:
        asked = state["messages"][-1]
        asked.content = f"{asked.content}!"
        return {"messages": [asked.model_copy() if is_copied else asked, AIMessage("Yes")]}

    graph = chat(store.langgraph_checkpointer, answer)
    for number in range(1, 3):
        await ask(graph, "Hi")
        assert texts((await graph.aget_state(CONFIG)).values["messages"]) == ["Hi!", "Yes"] * number
    assert texts(await store.get_messages("t")) == ["Hi!", "Yes"] * 2


@pytest.mark.parametrize("is_heard", [False, True])
async def test_a_call_that_is_changed_in_place_is_changed(store: Store, is_heard: bool) -> None:
    def call(_: MessagesState) -> Any:
        return {"messages": [AIMessage("", tool_calls=[{"name": "pay", "args": {"sum": 1}, "id": "c"}])]}

    def review(state: Any) -> Any:
        state["messages"][-1].tool_calls[0]["args"]["sum"] = 2
        return {"messages": [state["messages"][-1]]}

    graph: Any = StateGraph(MessagesState)
    graph.add_sequence([call, review])
    graph.add_edge(START, "call")
    made = graph.compile(checkpointer=store.langgraph_checkpointer, interrupt_before=["review"] if is_heard else None)
    await ask(made, "Pay")
    if is_heard:
        await made.ainvoke(None, CONFIG)
    found = (await made.aget_state(CONFIG)).values["messages"]
    assert [each["args"] for each in found[-1].tool_calls] == [{"sum": 2}]
    assert len(found) == 2


async def test_a_message_that_is_changed_while_it_is_stored_is_stored_again() -> None:
    message = HumanMessage("Hi", id="1")

    class Meanwhile(Late):
        async def append(self, *given: Any) -> Any:
            message.content = "Hi!"
            return await self._inner.append(*given)

    store, thread = Store(cast(Backend, Meanwhile())), Thread("main")
    await store.create_conversation("t")
    for _ in range(2):
        await store_messages(store, "t", thread, [message], None, None)
    assert texts(await store.get_messages("t")) == ["Hi!"]
    await store.close()


async def test_what_others_change_is_seen_at_once(store: Store) -> None:
    saver = store.langgraph_checkpointer
    graph = chat(saver)
    await ask(graph, "Hi", "Again")
    rows = await store.get_messages("t")
    changed = {"type": "human", "data": {"content": "Changed", "id": rows[0].content["data"]["id"]}}
    await store.update_message("t", rows[0].id, content=changed, format="langchain")
    assert texts((await graph.aget_state(CONFIG)).values["messages"])[0] == "Changed"
    await store.delete_message("t", rows[1].id)
    assert texts((await graph.aget_state(CONFIG)).values["messages"]) == ["Changed", "Again", "answer 3"]
    assert texts(await ask(graph, "More")) == ["Changed", "Again", "answer 3", "More", "answer 4"]
    another = chat(store.langgraph_checkpointer)
    await ask(another, "From another process")
    assert texts(await ask(graph, "Last"))[-3:] == ["answer 6", "Last", "answer 8"]


async def test_what_others_are_still_writing_is_seen_as_it_is(store: Store) -> None:
    graph = chat(store.langgraph_checkpointer)
    await ask(graph, "Hi")
    await store.append("t", [Message("assistant", "The", id="m", status="in_progress")])
    for text in ("The heron", "The heron sleeps"):
        await store.update_message("t", "m", content=text)
        assert texts((await graph.aget_state(CONFIG)).values["messages"]) == ["Hi", "answer 1", text]


async def test_a_thread_that_others_deleted_begins_anew(store: Store) -> None:
    graph = chat(store.langgraph_checkpointer)
    await ask(graph, "Hi", "Again")
    await store.delete_conversation("t")
    assert texts(await ask(graph, "Hello")) == ["Hello", "answer 1"]
    assert texts(await store.get_messages("t")) == ["Hello", "answer 1"]


# Graphs


async def test_interrupts_and_parallel_tasks_in_order(store: Store) -> None:
    class State(TypedDict):
        seen: Annotated[list[str], operator.add]

    def ask_first(_: State) -> State:
        return {"seen": [str(interrupt("May I?"))]}

    graph: Any = StateGraph(State)
    for name in ("c", "a", "b"):
        graph.add_node(name, lambda _, name=name: {"seen": [name]})
        graph.add_edge(START, name)
        graph.add_edge(name, "ask")
    graph.add_node("ask", ask_first)
    compiled = graph.compile(checkpointer=store.langgraph_checkpointer)
    await compiled.ainvoke({"seen": []}, CONFIG)
    assert (await compiled.aget_state(CONFIG)).interrupts[0].value == "May I?"
    again = graph.compile(checkpointer=store.langgraph_checkpointer)
    assert (await again.ainvoke(Command(resume="yes"), CONFIG))["seen"] == ["a", "b", "c", "yes"]


async def test_pending_writes_come_in_order_and_the_first_holds(store: Store) -> None:
    saver = store.langgraph_checkpointer
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    stored = await saver.aput(config, empty_checkpoint(), {}, {})
    await saver.aput_writes(stored, [("x", 1), ("y", 2)], "task-2", "~2")
    await saver.aput_writes(stored, [("x", 3)], "task-1", "~1")
    await saver.aput_writes(stored, [("x", 4)], "task-1", "~1")
    await saver.aput_writes(stored, [("__error__", "first")], "task-3", "~3")
    await saver.aput_writes(stored, [("__error__", "last")], "task-3", "~3")
    found = await saver.aget_tuple(stored)
    assert found is not None
    assert found.pending_writes == [
        ("task-1", "x", 3),
        ("task-2", "x", 1),
        ("task-2", "y", 2),
        ("task-3", "__error__", "last"),
    ]


async def test_subgraphs_have_checkpoints_of_their_own(store: Store) -> None:
    saver = store.langgraph_checkpointer
    inner = StateGraph(MessagesState)
    inner.add_node("stop", lambda _: {"messages": [AIMessage(str(interrupt("?")))]})
    inner.add_edge(START, "stop")
    outer = StateGraph(MessagesState)
    outer.add_node("inner", inner.compile())
    outer.add_edge(START, "inner")
    graph = outer.compile(checkpointer=saver)
    await ask(graph, "Hi")
    assert len({each.config["configurable"]["checkpoint_ns"] async for each in saver.alist(CONFIG)}) == 2
    await graph.ainvoke(Command(resume="yes"), CONFIG)
    assert texts(await store.get_messages("t")) == ["Hi", "yes"]


def together(value: list[str], writes: Any) -> list[str]:
    return [*value, *(item for write in writes for item in write)]


class Growing(TypedDict):
    seen: Annotated[list[str], DeltaChannel(together, snapshot_frequency=5)]


def _delta_graph(saver: BaseCheckpointSaver[Any]) -> Any:
    graph = StateGraph(Growing)
    graph.add_node("more", lambda state: {"seen": [str(len(state["seen"]))]})
    graph.add_edge(START, "more")
    return graph.compile(checkpointer=saver)


async def test_delta_channels_and_a_prune_that_keeps_them(store: Store) -> None:
    saver = store.langgraph_checkpointer
    graph = _delta_graph(saver)
    for number in range(8):
        await graph.ainvoke({"seen": [f"q{number}"]}, CONFIG)
    wanted = [word for number in range(8) for word in (f"q{number}", str(2 * number + 1))]
    assert (await graph.aget_state(CONFIG)).values["seen"] == wanted
    await saver.acopy_thread("t", "copy")
    copied: Any = {"configurable": {"thread_id": "copy"}}
    assert (await graph.aget_state(copied)).values["seen"] == wanted
    await saver.aprune(["t"])
    assert (await graph.aget_state(CONFIG)).values["seen"] == wanted
    left = [each async for each in saver.alist(CONFIG)]
    assert 1 <= len(left) < 24
    assert (await _delta_graph(store.langgraph_checkpointer).aget_state(CONFIG)).values["seen"] == wanted


async def test_pruning_and_deleting_runs_keep_what_the_rest_needs(store: Store) -> None:
    class State(TypedDict):
        steady: str
        count: int

    graph_of: Any = StateGraph(State)
    graph_of.add_node("more", lambda state: {"count": state["count"] + 1})
    graph_of.add_edge(START, "more")
    saver = store.langgraph_checkpointer
    graph = graph_of.compile(checkpointer=saver)
    first: Any = {"configurable": {"thread_id": "t"}, "metadata": {"run_id": "first"}}
    await graph.ainvoke({"steady": "value", "count": 1}, first)
    await graph.ainvoke({"count": 5}, {**CONFIG, "metadata": {"run_id": "second"}})
    await saver.adelete_for_runs(["first"])
    assert (await graph.aget_state(CONFIG)).values == {"steady": "value", "count": 6}
    await saver.aprune(["t"])
    assert (await graph.aget_state(CONFIG)).values == {"steady": "value", "count": 6}
    await saver.aprune(["t"], strategy="delete")
    assert await saver.aget_tuple(CONFIG) is None


async def test_copies_share_nothing(store: Store) -> None:
    saver = store.langgraph_checkpointer
    graph = chat(saver)
    said = await ask(graph, "Hi", "Again")
    await saver.acopy_thread("t", "copy")
    await store.delete_conversation("t")
    assert (await graph.aget_state({"configurable": {"thread_id": "copy"}})).values["messages"] == said
    assert len(await store.get_messages("copy")) == 4


# Size, both modes


async def test_storage_is_linear(tmp_path: Path) -> None:
    draw = random.Random(7)
    words = ["".join(draw.choices(string.ascii_lowercase, k=draw.randint(2, 9))) for _ in range(2000)]
    shares = [1 / rank for rank in range(1, 2001)]

    def text() -> str:
        return " ".join(draw.choices(words, shares, k=150))[:500]

    sizes = {}
    async with hansard.connect(f"sqlite:///{tmp_path}/store.db?durability=off") as store:
        graph = chat(store.langgraph_checkpointer, lambda _: {"messages": [AIMessage(text())]})
        for turn in range(1, 121):
            await ask(graph, text())
            if turn in (60, 120):
                async for _ in store.admin.reindex():
                    pass
                await store.backup(tmp_path / f"{turn}.db")
                sizes[turn] = (tmp_path / f"{turn}.db").stat().st_size
    grown = sizes[120] - sizes[60]
    assert grown < 60 * 5_000, "so 400 turns take less than 2 MB"


@pytest.mark.parametrize("backend", [MemoryBackend, suspending])
def test_blocking_and_async_on_one_blocking_store(backend: Callable[[], Backend]) -> None:
    with sync.Store.over(backend()) as store:
        graph = chat(store.langgraph_checkpointer)
        graph.invoke({"messages": [("user", "Hi")]}, CONFIG)
        assert texts(asyncio.run(ask(graph, "Again"))) == ["Hi", "answer 1", "Again", "answer 3"]
        assert len(list(graph.get_state_history(CONFIG))) == 6
        saver = store.langgraph_checkpointer
        saver.copy_thread("t", "copy")
        saver.prune(["copy"])
        assert len(list(saver.list({"configurable": {"thread_id": "copy"}}, limit=5))) == 1
        saver.delete_for_runs(["none"])
        saver.delete_thread("copy")
        assert saver.get_tuple({"configurable": {"thread_id": "copy"}}) is None
        assert saver.get_delta_channel_history(config=CONFIG, channels=[]) == {}
        assert texts(store.get_messages("t")) == ["Hi", "answer 1", "Again", "answer 3"]


async def test_blocking_calls_of_an_async_store_come_from_other_threads() -> None:
    async with hansard.Store(suspending()) as store:
        graph = chat(store.langgraph_checkpointer)
        await asyncio.to_thread(graph.invoke, {"messages": [("user", "Hi")]}, CONFIG)
        assert len(await store.get_messages("t")) == 2
        with pytest.raises(Unsupported, match=r"hansard\.sync"):
            graph.get_state(CONFIG)


def test_human_messages_keep_everything() -> None:
    message: AnyMessage = HumanMessage([{"type": "text", "text": "Hi"}], name="ann", additional_kwargs={"x": [None, 1]})
    with sync.connect("memory://") as store:
        graph = chat(store.langgraph_checkpointer)
        graph.invoke({"messages": [message]}, CONFIG)
        found = chat(store.langgraph_checkpointer).get_state(CONFIG).values["messages"][0]
        assert found == message.model_copy(update={"id": found.id})


@pytest.mark.parametrize("thread_id", [None, ""])
async def test_a_run_without_a_thread_is_refused(thread_id: Any) -> None:
    """Otherwise all runs whose id was forgotten would read each other's messages."""
    async with hansard.connect("memory://") as store:
        graph, config = chat(store.langgraph_checkpointer), {"configurable": {"thread_id": thread_id}}
        with pytest.raises(ValidationError, match="in the config of the run"):
            await ask(graph, "Hello", config=config)
        assert (await store.list_conversations()).items == []
