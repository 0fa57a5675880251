"""References to the history in place of messages: in values of every shape, and in stores of older versions."""

from __future__ import annotations

import json
import shutil
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import ormsgpack
import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, AIMessageChunk, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, Interrupt, Overwrite, Send
from pydantic import BaseModel
from tests.adapters import langgraph_golden
from tests.adapters.test_deletion import SECRET, records_of
from tests.adapters.test_langgraph_saver import CONFIG, ask, chat, texts

import hansard
from hansard import Corrupt, FormatMismatch, Store
from hansard.adapters.langgraph import forms, records, references, threads
from hansard.adapters.langgraph.versions import Version
from hansard.backends.memory import MemoryBackend
from hansard.backends.schemes import open_backend

pytestmark = pytest.mark.anyio

SERDE = JsonPlusSerializer(
    allowed_msgpack_modules=[(__name__, name) for name in ("Model", "Loose", "Data", "Frozen", "Pair")]
)
HEARD = HumanMessage(SECRET, id="h", additional_kwargs={"seen": 1})
CALL = AIMessage("", id="a", tool_calls=[{"name": "pay", "args": {"to": SECRET}, "id": "c"}])
RESULT = ToolMessage([{"type": "text", "text": SECRET}], tool_call_id="c", id="r", artifact={"rows": [1.0, True]})


class Own(JsonPlusSerializer):
    """A serializer of the user's own."""


class Model(BaseModel):
    question: HumanMessage
    said: list[AnyMessage]
    count: int = 3


class Loose(BaseModel, extra="allow"):
    anything: Any = None


@dataclass
class Data:
    question: BaseMessage
    more: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Frozen:
    said: list[Any]


class Pair(NamedTuple):
    name: str
    message: BaseMessage


VALUES: list[Any] = [
    HEARD,
    [HEARD, CALL, RESULT, "text", 1],
    {"deep": [{"er": (1, [HEARD])}], 7: CALL},
    deque([HEARD, RESULT], maxlen=5),
    Pair("x", HEARD),
    Model(question=HEARD, said=[HEARD, CALL, RESULT]),
    [Model(question=HEARD, said=[])],
    Data(HEARD, {"more": [CALL]}),
    Frozen([HEARD, {"a": RESULT}]),
    Send("node", {"messages": [HEARD]}),
    Send("node", Model(question=HEARD, said=[CALL])),
    [Interrupt(value={"ask": HEARD}, id="i")],
    Overwrite([HEARD]),
    Command(update={"messages": [HEARD]}, goto="node"),
    [("user", SECRET), ["ai", SECRET], {"role": "user", "content": SECRET}],
    {"type": "human", "content": [{"type": "text", "text": SECRET}], "own": 1},
    AIMessageChunk(content=SECRET, id="k"),
]


def nowhere(_: BaseMessage) -> None:
    return None


def lying(*messages: BaseMessage) -> Any:
    """Finds these messages, and the rows as which they are read."""
    versions = [Version(each.model_copy(deep=True)) for each in messages]
    places = [references.HistoryPosition(version, seq, version.id or "") for seq, version in enumerate(versions)]
    rows = {place.seq: [place.version] for place in places}
    return (lambda message: next((each for each in places if each.version.is_exactly(message)), None)), rows


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_values_come_back_as_they_were(value: Any) -> None:
    plain = SERDE.loads_typed(SERDE.dumps_typed(value))
    whole = references.dump(SERDE, value, nowhere)
    assert SECRET.encode() not in whole.data, "messages lie beside the value"
    assert whole.entries
    find, rows = lying(HEARD, CALL, RESULT)
    by_id = {
        version.id: [references.HistoryPosition(version, seq, version.id or "")] for seq, (version,) in rows.items()
    }
    referring = references.dump(SERDE, value, find)
    settled = references.refer_to_rows(whole, lambda id: by_id.get(id, []))
    for blob, known in ((whole, {}), (referring, rows), (settled, rows)):
        loaded = references.load(SERDE, blob, known)
        assert repr(loaded) == repr(plain)
        assert loaded == plain
    assert referring == settled
    assert repr(value).count("hansard") == 0, "the value itself is not changed"


def test_a_field_without_a_type_holds_what_langgraph_reads_there() -> None:
    value = Loose.model_validate({"anything": [HEARD], "own": CALL})
    find, rows = lying(HEARD, CALL)
    blob = references.dump(SERDE, value, find)
    assert SECRET.encode() not in blob.data
    assert references.load(SERDE, blob, rows) == SERDE.loads_typed(SERDE.dumps_typed(value))


def test_a_message_whose_row_is_gone_is_empty() -> None:
    find, _ = lying(HEARD, RESULT)
    blob = references.dump(SERDE, [HEARD, RESULT, ("user", "Hi"), {"note": SECRET}], find)
    loaded = references.load(SERDE, blob, {})
    assert loaded[:2] == [HumanMessage("", id="h"), ToolMessage("", tool_call_id="c", id="r")]
    assert loaded[2] == ["user", "Hi"]
    assert loaded[3] == {"note": SECRET}, "a string that is no message stays"


@pytest.mark.parametrize("value", ["\x00hansard:message:0", [HEARD, {"x": "\x00hansard:content:0"}]], ids=repr)
def test_a_text_that_looks_like_a_marker(value: Any) -> None:
    blob = references.dump(SERDE, value, nowhere)
    assert not blob.entries
    assert references.load(SERDE, blob, {}) == value


def test_a_value_that_holds_itself_is_left_to_the_serializer() -> None:
    value: list[Any] = [HEARD]
    value.append(value)
    serde = JsonPlusSerializer(pickle_fallback=True)
    loaded = references.load(serde, references.dump(serde, value, nowhere), {})
    assert loaded[0] == HEARD
    assert loaded[1] is loaded


def test_objects_without_messages_are_not_copied() -> None:
    value = {"model": Loose(anything=[1]), "document": Document("x"), "list": [("a", "b")]}
    assert references.replaced(value, references.Extraction(nowhere).leaf) is value


# In graphs


async def forgotten(store: Store, saver: Any = None) -> None:
    await store.delete_message("t", (await store.get_messages("t"))[0].id)
    assert SECRET not in await records_of(store)
    assert SECRET not in repr([each async for each in (saver or store.langgraph_checkpointer).alist(CONFIG)])


@pytest.fixture
async def memory() -> AsyncIterator[Store]:
    async with hansard.connect("memory://") as store:
        yield store


async def test_a_model_and_data_classes_that_are_sent(memory: Store) -> None:
    class State(MessagesState):
        found: Any

    def send(state: Any) -> Any:
        said = state["messages"]
        return [Send("look", Model(question=said[0], said=said)), Send("look", Data(said[0]))]

    builder: Any = StateGraph(State)
    builder.add_node("ask", lambda _: {"messages": [AIMessage("Looking")]})
    builder.add_node("look", lambda given: {"messages": [AIMessage(type(given).__name__)]})
    builder.add_edge(START, "ask")
    builder.add_conditional_edges("ask", send, ["look"])
    saver = memory.langgraph_checkpointer
    saver.serde = SERDE
    graph = builder.compile(checkpointer=saver)
    await graph.ainvoke({"messages": [HumanMessage(SECRET, id="h")]}, CONFIG, durability="sync")
    sent = [each.checkpoint["channel_values"].get("__pregel_tasks") async for each in saver.alist(CONFIG)]
    assert [type(each.arg) for tasks in sent for each in tasks or ()] == [Model, Data]
    assert SECRET not in await records_of(memory)
    await forgotten(memory, saver)


@pytest.mark.parametrize("durability", ["sync", "async"])
async def test_what_a_subgraph_says_leaves_no_copy_when_it_has_reached_the_root(memory: Store, durability: str) -> None:
    def inner(_: Any) -> Any:
        return {"messages": [AIMessage(SECRET)]}

    saver = memory.langgraph_checkpointer
    graph = nested(saver, inner)
    await graph.ainvoke({"messages": [("user", "Hi")]}, CONFIG, durability=durability)
    below = [each async for each in saver.alist(CONFIG) if each.config["configurable"]["checkpoint_ns"]]
    assert any(SECRET in repr(each.checkpoint["channel_values"].get("messages")) for each in below)
    assert any(SECRET in repr(each.pending_writes) for each in below)
    assert texts(await memory.get_messages("t")) == ["Hi", SECRET]
    assert SECRET not in await records_of(memory)
    await memory.delete_message("t", (await memory.get_messages("t"))[1].id)
    assert SECRET not in repr([each async for each in saver.alist(CONFIG)])


async def test_the_pending_writes_of_a_copied_thread_refer_to_its_rows(memory: Store) -> None:
    graph = langgraph_golden.stopping_graph(memory.langgraph_checkpointer)
    await graph.ainvoke({"messages": [HumanMessage(SECRET, id="h")]}, CONFIG, durability="sync")
    await memory.langgraph_checkpointer.acopy_thread("t", "copy")
    await memory.delete_conversation("t")
    copied = await memory.langgraph_checkpointer.aget_tuple(langgraph_golden.config("copy"))
    assert copied is not None
    assert repr(copied.pending_writes).count(SECRET) >= 2
    await memory.delete_message("copy", (await memory.get_messages("copy"))[0].id)
    assert SECRET not in await records_of(memory)


@pytest.mark.parametrize(("serde", "noted"), [(SERDE, 3), (Own(), 0)], ids=["shared", "own"])
async def test_what_is_noted_of_subgraphs_is_bounded(
    memory: Store, serde: Any, noted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "_MOST_SUBGRAPHS", 3)
    saver = memory.langgraph_checkpointer
    saver.serde = serde
    for number in range(5):
        below: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": f"inner:{number}"}}
        await saver.aput(below, empty_checkpoint(), {}, {})
    assert len(saver._threads.take_subgraphs("t")) == noted


def nested(saver: Any, node: Any) -> Any:
    inner: Any = StateGraph(MessagesState)
    inner.add_node("first", node)
    inner.add_node("second", lambda _: {})
    inner.add_edge(START, "first")
    inner.add_edge("first", "second")
    outer: Any = StateGraph(MessagesState)
    outer.add_node("inner", inner.compile())
    outer.add_edge(START, "inner")
    return outer.compile(checkpointer=saver)


async def test_a_chunk_that_a_node_returns(memory: Store) -> None:
    def answer(_: Any) -> Any:
        return {"messages": [AIMessageChunk(content=SECRET, id="k", response_metadata={"model": "x"})]}

    saver = memory.langgraph_checkpointer
    await ask(chat(saver, answer), "Hi")
    found = [each async for each in saver.alist(CONFIG)]
    written = [value for each in found for _, _, value in each.pending_writes or ()]
    assert [AIMessageChunk(content=SECRET, id="k", response_metadata={"model": "x"})] in written
    assert SECRET not in await records_of(memory)


async def test_what_a_node_changes_after_it_has_written_stays_as_written(memory: Store) -> None:
    saver = memory.langgraph_checkpointer
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    stored = await saver.aput(config, empty_checkpoint(), {}, {})
    message = HumanMessage("As written", id="h")
    await saver.aput_writes(stored, [("messages", [message])], "task")
    message.content = "Changed"
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"], checkpoint["channel_versions"] = {"messages": [message]}, {"messages": 1}
    await saver.aput(stored, checkpoint, {}, {"messages": 1})
    for each in (saver, memory.langgraph_checkpointer):
        before, after = await each.aget_tuple(stored), await each.aget_tuple(CONFIG)
        assert before is not None
        assert after is not None
        assert before.pending_writes == [("task", "messages", [HumanMessage("As written", id="h")])]
        assert after.checkpoint["channel_values"]["messages"] == [message]


async def test_a_serializer_of_the_user_s_own_turns_sharing_off(memory: Store) -> None:
    saver = memory.langgraph_checkpointer
    saver.serde = Own()
    graph = chat(saver)
    said = await ask(graph, "Hi", SECRET)
    assert await memory.get_messages("t") == []
    assert SECRET in await records_of(memory)
    again = memory.langgraph_checkpointer
    again.serde = Own()
    assert (await chat(again).aget_state(CONFIG)).values["messages"] == said


async def test_a_string_that_equals_a_message_is_no_copy_of_it(memory: Store) -> None:
    class State(MessagesState):
        note: str

    builder: Any = StateGraph(State)
    builder.add_node("model", lambda state: {"note": state["messages"][0].content})
    builder.add_edge(START, "model")
    graph = builder.compile(checkpointer=memory.langgraph_checkpointer)
    await ask(graph, SECRET)
    await memory.delete_message("t", (await memory.get_messages("t"))[0].id)
    values = (await graph.aget_state(CONFIG)).values
    assert texts(values["messages"]) == []
    assert values["note"] == SECRET


# Stores of older versions

GOLDEN = Path(__file__).parent / "golden" / "langgraph-1"


@pytest.fixture
def golden(tmp_path: Path) -> str:
    shutil.copytree(GOLDEN, tmp_path / "golden")
    return f"sqlite:///{tmp_path}/golden/store.db"


async def upgraded(url: str) -> int:
    backend = await open_backend(url, upgrade=True)
    try:
        return await forms.upgrade(backend)
    finally:
        await backend.close()


async def test_a_thread_of_an_older_version_asks_for_the_upgrade(golden: str) -> None:
    await (await open_backend(golden, upgrade=True)).close()  # of the storage, not of the checkpoints
    async with hansard.connect(golden) as store:
        saver = store.langgraph_checkpointer
        with pytest.raises(FormatMismatch, match="run `hansard upgrade`") as raised:
            await saver.aget_tuple(langgraph_golden.config("plain"))
        assert (raised.value.found, raised.value.wanted) == ("1", "2")
        for graph in (chat(saver), chat(store.langgraph_checkpointer)):
            with pytest.raises(FormatMismatch, match="run `hansard upgrade`"):
                await graph.ainvoke({"messages": [("user", "More")]}, langgraph_golden.config("plain"))


async def test_checkpoints_of_an_older_version_are_as_they_were(golden: str) -> None:
    assert await upgraded(golden) > 50
    assert await upgraded(golden) == 0
    wanted = json.loads((GOLDEN / "told.json").read_text())
    async with hansard.connect(golden) as store:
        told = await langgraph_golden.told(store)
        for name, states in wanted.items():
            assert told[name] == states, name
        assert await store.check() == []


MESSAGE = SERDE.dumps_typed([HEARD])[1]
ODD: list[tuple[str, bytes]] = [
    ("msgpack", b"\xc1 is no MessagePack"),
    ("msgpack", SERDE.dumps_typed([HEARD, "\x00hansard:message:0"])[1]),
    ("msgpack", ormsgpack.packb(ormsgpack.Ext(5, ormsgpack.packb(["langchain_core.messages.human", "HumanMessage"])))),
    ("msgpack", MESSAGE.replace(b"HumanMessage", b"AlienMessage")),
    ("json", b'[{"content": "Hi"}]'),
    ("null", b""),
]


@pytest.mark.parametrize(("tag", "data"), [*ODD, ("msgpack", MESSAGE)], ids=repr)
async def test_what_cannot_be_rewritten_is_kept(tag: str, data: bytes) -> None:
    backend = MemoryBackend()
    async with Store(backend) as store:
        await store.create_conversation("t", user_id="bob")
        old: Any = [None, {"channel_versions": {"x": 1}}, ["null", [b""]], {"x": [tag, [data]]}]
        # A user's records stay when the conversation gets another owner.
        mine = store.user("ann").records
        await mine.put((forms.CHECKPOINTS, "t"), "1", records.pack(old)[2:])
        assert await forms.upgrade(backend) == 1
        record = await mine.get((forms.CHECKPOINTS, "t"), "1")
        assert record is not None
        blob = records.read_saved(record).values["x"]
        assert (blob.entries == ()) == ((tag, data) in ODD)
        if not blob.entries:
            assert (blob.tag, blob.data) == (tag, data)
        else:
            assert references.load(SERDE, blob, {}) == [HEARD]


async def test_a_record_that_no_version_wrote_is_not_upgraded() -> None:
    backend = MemoryBackend()
    async with Store(backend) as store:
        await store.create_conversation("t")
        await store.records.put((forms.CHECKPOINTS, "t"), "1", b"something else", conversation_id="t")
        with pytest.raises(Corrupt, match="not a checkpoint of any version of Hansard"):
            await forms.upgrade(backend)


async def test_a_message_that_is_deleted_after_the_upgrade_leaves_no_copy(golden: str) -> None:
    await upgraded(golden)
    async with hansard.connect(golden) as store:
        for thread in langgraph_golden.THREADS:
            for row in await store.get_messages(thread):
                if SECRET in row.text:
                    await store.delete_message(thread, row.id)
        assert SECRET not in await records_of(store)
        plain = langgraph_golden.compiled(MessagesState, store.langgraph_checkpointer, langgraph_golden.answer)
        await langgraph_golden.ask(plain, "plain", HumanMessage("More", id="h9"))
        assert (await store.get_messages("plain"))[-2].text == "More"
