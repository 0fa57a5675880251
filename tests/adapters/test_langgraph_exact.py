"""What a graph's checkpoints must give back exactly, as LangGraph's own `InMemorySaver` does."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import _messages_delta_reducer
from langgraph.types import Overwrite

from hansard import sync

CONFIG: Any = {"configurable": {"thread_id": "t"}}


class Reversing:
    """Not a cipher, but it leaves no text readable."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "reversed", plaintext[::-1]

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        assert ciphername == "reversed"
        return ciphertext[::-1]


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sync.Store]:
    with sync.connect("memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/chats.db") as opened:
        yield opened


@pytest.fixture(params=[False, True], ids=["plain", "encrypted"])
def encrypts(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def saver_of(store: sync.Store, *, encrypts: bool = False) -> BaseCheckpointSaver[Any]:
    saver = store.langgraph_checkpointer
    if encrypts:
        saver.serde = EncryptedSerializer(Reversing())
    return saver


class Blocking:
    """A graph's blocking methods."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph

    def invoke(self, given: Any, config: Any = CONFIG) -> Any:
        return self._graph.invoke(given, config)

    def state(self, config: Any = CONFIG) -> Any:
        return self._graph.get_state(config)

    def history(self) -> list[Any]:
        return list(self._graph.get_state_history(CONFIG))

    def update(self, config: Any, values: Any, as_node: str | None) -> Any:
        return self._graph.update_state(config, values, as_node=as_node)


class Async:
    """The same through its async methods."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph

    def invoke(self, given: Any, config: Any = CONFIG) -> Any:
        return asyncio.run(self._graph.ainvoke(given, config))

    def state(self, config: Any = CONFIG) -> Any:
        return asyncio.run(self._graph.aget_state(config))

    def history(self) -> list[Any]:
        async def gather() -> list[Any]:
            return [each async for each in self._graph.aget_state_history(CONFIG)]

        return asyncio.run(gather())

    def update(self, config: Any, values: Any, as_node: str | None) -> Any:
        return asyncio.run(self._graph.aupdate_state(config, values, as_node=as_node))


@pytest.fixture(params=[Blocking, Async])
def mode(request: pytest.FixtureRequest) -> Any:
    return request.param


# Copies of a checkpoint


class Noted(TypedDict):
    messages: Annotated[list[AnyMessage], operator.add]
    value: Annotated[list[str], operator.add]
    name: str
    steady: str


def two_steps(saver: BaseCheckpointSaver[Any]) -> Any:
    def step(name: str) -> Any:
        return lambda _: {"value": [name], "name": name, "messages": [AIMessage(name, id=name)]}

    graph: Any = StateGraph(Noted)
    for name in ("a", "b"):
        graph.add_node(name, step(name))
    graph.add_edge(START, "a")
    graph.add_edge("a", "b")
    return graph.compile(checkpointer=saver)


def test_a_copy_of_a_checkpoint_has_its_values(store: sync.Store, encrypts: bool, mode: Any) -> None:
    begin = {"value": ["in"], "name": "in", "steady": "as it was", "messages": [HumanMessage("Hi", id="in")]}
    seen = []
    for saver in (InMemorySaver(), saver_of(store, encrypts=encrypts)):
        graph = mode(two_steps(saver))
        graph.invoke(begin)
        source = next(each for each in graph.history() if each.next == ("b",))
        copy = graph.update(source.config, None, "__copy__")
        assert graph.state(copy).values == source.values
        seen.append((source.values, graph.state(source.config).values, graph.invoke(None, copy), graph.state().values))
    assert seen[0] == seen[1]
    assert seen[1][2]["value"] == ["in", "a", "b"]
    again = mode(two_steps(saver_of(store, encrypts=encrypts)))
    assert again.state().values == seen[0][3], "and without what the saver remembers"


# Delta channels called `messages`


def gathered(value: list[Any], writes: Sequence[Any]) -> list[Any]:
    return [*(value or []), *(item for write in writes for item in (write if isinstance(write, list) else [write]))]


class Messages(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer)]


class Anything(TypedDict):
    messages: Annotated[list[Any], DeltaChannel(gathered)]


def writing(saver: BaseCheckpointSaver[Any], written: Any, state: Any) -> Any:
    graph: Any = StateGraph(state)
    graph.add_node("write", lambda _: {"messages": written})
    graph.add_edge(START, "write")
    return graph.compile(checkpointer=saver)


SUMMARY = AIMessage("summary", id="s")
MESSAGES: list[Any] = [
    Overwrite([SUMMARY]),
    Overwrite((SUMMARY, HumanMessage("Go on", id="g"))),
    {"__overwrite__": [SUMMARY]},
    {"value": [SUMMARY], "type": "__overwrite__"},
    Overwrite([]),
]
NO_MESSAGES: list[Any] = [
    [{"kind": "note", "n": 1}],
    {"role": "unheard of", "content": 1},
    Overwrite([{"role": "user"}, {"type": "tool", "content": 7, "n": 1.0}]),
    [("user", {"no": "text"}), ("a", "b"), (1, 2), (("user",), "b")],
    [1, None, 2.5, "a text", b"bytes", ["user", "Hi"]],
    7,
    None,
    Overwrite([{"kind": "note"}]),
    Overwrite([{"role": "user", "content": "Hi"}]),
    Overwrite(None),
    {"__overwrite__": {"kind": "note"}},
    {"__overwrite__": 1, "other": 2},
]


def states_of(mode: Any, saver: BaseCheckpointSaver[Any], begin: list[Any], written: Any, state: Any) -> list[Any]:
    graph = mode(writing(saver, written, state))
    graph.invoke({"messages": begin})
    graph.invoke({"messages": begin})
    return [graph.state().values, *(each.values for each in graph.history())]


@pytest.mark.parametrize("written", MESSAGES, ids=repr)
def test_a_delta_channel_that_is_overwritten(store: sync.Store, encrypts: bool, mode: Any, written: Any) -> None:
    begin = [HumanMessage("Hello", id="h")]
    theirs = states_of(mode, InMemorySaver(), begin, written, Messages)
    ours = states_of(mode, saver_of(store, encrypts=encrypts), begin, written, Messages)
    assert repr(ours) == repr(theirs)
    again = mode(writing(saver_of(store, encrypts=encrypts), written, Messages))
    assert again.state().values == theirs[0]


def test_messages_that_overwrite_others_stand_in_the_history(store: sync.Store, mode: Any) -> None:
    begin = [HumanMessage("Hello", id="h")]
    graph = mode(writing(saver_of(store), Overwrite([SUMMARY]), Messages))
    graph.invoke({"messages": begin})
    assert [(row.role, row.text) for row in store.get_messages("t")] == [("user", "Hello"), ("assistant", "summary")]
    store.delete_message("t", store.get_messages("t")[1].id)
    assert "summary" not in repr(graph.history())


@pytest.mark.parametrize("written", NO_MESSAGES, ids=repr)
def test_a_delta_channel_that_holds_no_messages(store: sync.Store, mode: Any, written: Any) -> None:
    begin = [{"kind": "begin"}, "text"]
    theirs = states_of(mode, InMemorySaver(), begin, written, Anything)
    assert repr(states_of(mode, saver_of(store), begin, written, Anything)) == repr(theirs)


# Messages with empty fields


def test_a_tool_message_without_the_id_of_its_call(store: sync.Store, encrypts: bool, mode: Any) -> None:
    said = [
        HumanMessage("Hi", id="h"),
        AIMessage("", tool_calls=[{"name": "f", "args": {}, "id": ""}], id="a"),
        ToolMessage("", tool_call_id="", id="t"),
        ToolMessage("x", tool_call_id="", name="f", id="n"),
    ]
    graph: Any = StateGraph(MessagesState)
    graph.add_node("say", lambda _: {"messages": said[1:]})
    graph.add_edge(START, "say")
    first = mode(graph.compile(checkpointer=saver_of(store, encrypts=encrypts)))
    first.invoke({"messages": said[:1]})
    again = mode(graph.compile(checkpointer=saver_of(store, encrypts=encrypts)))
    assert again.state().values["messages"] == said
    if not encrypts:
        assert [row.role for row in store.get_messages("t")] == ["user", "assistant", "tool", "tool"]


# Threads of other savers


def moved(old: BaseCheckpointSaver[Any], new: BaseCheckpointSaver[Any]) -> None:
    for each in reversed(list(old.list(CONFIG))):
        parent = each.parent_config["configurable"]["checkpoint_id"] if each.parent_config else None
        config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": parent}}
        stored = new.put(config, each.checkpoint, each.metadata, each.checkpoint["channel_versions"])
        for task_id, channel, value in each.pending_writes or ():
            new.put_writes(stored, [(channel, value)], task_id)


def answering(saver: BaseCheckpointSaver[Any]) -> Any:
    graph: Any = StateGraph(MessagesState)
    graph.add_node("answer", lambda state: {"messages": [AIMessage(f"answer {len(state['messages'])}")]})
    graph.add_edge(START, "answer")
    return graph.compile(checkpointer=saver)


@pytest.mark.parametrize("official", ["InMemorySaver", "SqliteSaver"])
def test_a_thread_of_an_official_saver_goes_on(
    store: sync.Store, encrypts: bool, mode: Any, official: str, tmp_path: Path
) -> None:
    with SqliteSaver.from_conn_string(str(tmp_path / "old.db")) as sqlite:
        old = sqlite if official == "SqliteSaver" else InMemorySaver()
        answering(old).invoke({"messages": [("user", "Hi")]}, CONFIG)
        new = saver_of(store, encrypts=encrypts)
        moved(old, new)
    graph = mode(answering(new))
    for question in ("Again", "And again"):
        graph.invoke({"messages": [("user", question)]})
    said = [message.content for message in graph.state().values["messages"]]
    assert said == ["Hi", "answer 1", "Again", "answer 3", "And again", "answer 5"]
    versions = [each.config["configurable"]["checkpoint_id"] for each in graph.history()]
    assert len(versions) == len(set(versions)) == 9
    found = new.get_tuple(CONFIG)
    assert found is not None
    assert all(isinstance(each, str) for each in found.checkpoint["channel_versions"].values())


def test_versions_go_on_as_they_began(store: sync.Store) -> None:
    ours, theirs = store.langgraph_checkpointer, InMemorySaver()
    assert [ours.get_next_version(None, None), ours.get_next_version(4, None)] == [1, 5]
    begun = theirs.get_next_version(None, None)
    following = ours.get_next_version(begun, None)
    assert begun < following < theirs.get_next_version(following, None) < ours.get_next_version("9" * 20, None)
    assert len(following.split(".")[0]) == len(begun.split(".")[0]) == 32
