"""Databases of agent frameworks: read as their own packages write them, and gone on with afterwards."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from google.adk.events import Event, EventActions
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types
from langchain_core.messages import AIMessage, HumanMessage, message_to_dict
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt
from redis import Redis
from tests.importers import more_exports
from tests.importers.test_importers import imported, texts
from tests.servers import postgres, redis

from hansard import connect
from hansard.errors import ValidationError
from hansard.importers import ImportReport, importer_for, open_source
from hansard.importers.load import Owner

PRESENT = {"postgres": postgres.why_absent(), "redis": redis.why_absent()}


def needs(server: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(PRESENT[server] is not None, reason=str(PRESENT[server]))


@pytest.fixture
def schema() -> Iterator[str]:
    name = postgres.new_schema()
    postgres.run(postgres.sql(f"CREATE SCHEMA {name}"))
    yield name
    postgres.drop(name)


def url_of(schema: str) -> str:
    base = postgres.url()
    return f"{base}{'&' if '?' in base else '?'}search_path={schema}"


# LangGraph


def model(state: MessagesState) -> dict[str, Any]:
    return {"messages": [AIMessage(f"You said {len(state['messages'])} things.")]}


def ask(state: MessagesState) -> dict[str, Any]:
    return {"messages": [AIMessage(f"Approved: {interrupt('Go on?')}")]}


def graph_with(checkpointer: Any) -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node(model)
    builder.add_node(ask)
    builder.add_edge(START, "model")
    builder.add_edge("model", "ask")
    return builder.compile(checkpointer=checkpointer)


def thread(id: str = "trip") -> Any:
    return {"configurable": {"thread_id": id}}


def langgraph_file(path: Path) -> Path:
    with SqliteSaver.from_conn_string(str(path)) as saver:
        graph = graph_with(saver)
        graph.invoke({"messages": [("user", "What is a heron?")]}, thread())
        graph.invoke({"messages": [("user", "Hello")]}, thread("other"))
    return path


SAID = [("user", "What is a heron?"), ("assistant", "You said 1 things.")]


async def goes_on(store: Any) -> None:
    """The graph was stopped at a question. It is answered here, and goes on."""
    graph = graph_with(store.langgraph_checkpointer)
    state = await graph.aget_state(thread())
    assert state.next == ("ask",)
    await graph.ainvoke(Command(resume="yes"), thread())
    assert await texts(store, "trip") == [*SAID, ("assistant", "Approved: yes")]
    assert [each async for each in graph.aget_state_history(thread())][-1].next == ("__start__",)


@pytest.mark.parametrize("url", ["memory://", "sqlite:///{}/store.db"])
async def test_a_thread_of_langgraph_goes_on(tmp_path: Path, url: str) -> None:
    path = langgraph_file(tmp_path / "checkpoints.sqlite")
    assert importer_for(open_source(path)).name == "langgraph"
    async with connect(url.format(tmp_path)) as store:
        dry = await imported(store, path, dry_run=True)
        report = await imported(store, path)
        assert (dry.new, dry.messages) == (report.new, report.messages) == (2, 4)
        assert report.problems == []
        assert await texts(store, "trip") == SAID
        again = await imported(store, path)
        assert (again.unchanged, again.messages) == (2, 0)
        await goes_on(store)


async def test_a_thread_of_langgraph_keeps_its_times_and_branches(tmp_path: Path) -> None:
    path = langgraph_file(tmp_path / "checkpoints.sqlite")
    with SqliteSaver.from_conn_string(str(path)) as saver:
        graph = graph_with(saver)
        first = [*graph.get_state_history(thread())][-1]
        graph.invoke({"messages": [("user", "And an egret?")]}, first.config)
        written = [datetime.fromisoformat(each.created_at) for each in graph.get_state_history(thread())]
    async with connect("memory://") as store:
        dry = await imported(store, path, dry_run=True)
        before = datetime.now(UTC)
        report = await imported(store, path)
        conversation = await store.get_conversation("trip")
        messages = await store.get_messages("trip")
        assert (report.branches, dry.messages) == (1, report.messages)
    assert conversation is not None
    assert conversation.created_at == min(written)
    assert messages
    assert {each.created_at for each in messages} <= set(written)
    assert max(each.created_at for each in messages) < before


async def test_a_thread_gets_its_owner(tmp_path: Path) -> None:
    path = langgraph_file(tmp_path / "checkpoints.sqlite")
    async with connect("memory://") as store:
        await imported(store, path, owner=Owner(user_id="ann"))
        conversation = await store.user("ann").get_conversation("trip")
        assert conversation is not None
        assert conversation.metadata["imported_from"] == "langgraph"


@dataclass
class Touching:
    """A class that does something when it is made, as a hostile checkpoint would choose one."""

    path: str

    def __post_init__(self) -> None:
        Path(self.path).touch()


@pytest.mark.parametrize("is_trusted", [True, False])
def test_only_a_trusted_checkpoint_chooses_classes(tmp_path: Path, is_trusted: bool) -> None:
    path, touched = langgraph_file(tmp_path / "evil.sqlite"), tmp_path / "touched"
    kind, body = JsonPlusSerializer().dumps_typed({"channel_values": {"messages": [Touching(str(touched))]}})
    touched.unlink()
    connection = sqlite3.connect(path)
    connection.execute("UPDATE checkpoints SET type = ?, checkpoint = ?", (kind, body))
    connection.commit()
    connection.close()
    source = open_source(path)
    source.is_trusted = is_trusted
    found = importer_for(source).read(source, ImportReport())
    assert [each.writer.count() for each in found if each.writer is not None] == [1, 1]
    assert touched.exists() == is_trusted


POSTGRES_SAVER = """
CREATE TABLE checkpoints (thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id TEXT NOT NULL,
    parent_checkpoint_id TEXT, type TEXT, checkpoint JSONB NOT NULL, metadata JSONB NOT NULL DEFAULT '{}',
    PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id));
CREATE TABLE checkpoint_blobs (thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', channel TEXT NOT NULL,
    version TEXT NOT NULL, type TEXT NOT NULL, blob BYTEA, PRIMARY KEY (thread_id, checkpoint_ns, channel, version));
CREATE TABLE checkpoint_writes (thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id TEXT,
    task_id TEXT NOT NULL, idx INTEGER NOT NULL, channel TEXT NOT NULL, type TEXT, blob BYTEA NOT NULL,
    task_path TEXT NOT NULL DEFAULT '', PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx));
"""


def _bytea(data: bytes) -> str:
    return f"'\\x{data.hex()}'"


def _text(value: object) -> str:
    return "NULL" if value is None else "'" + str(value).replace("'", "''") + "'"


def postgres_saver_rows() -> Iterator[str]:
    """A thread as `PostgresSaver` has it: JSON, with the values that are no plain ones as rows of their own."""
    saver, serde = InMemorySaver(), JsonPlusSerializer()
    graph_with(saver).invoke({"messages": [("user", "What is a heron?")]}, thread())
    blobs: set[tuple[str, str]] = set()
    for each in saver.list(thread()):
        place = each.config["configurable"]
        parent = each.parent_config["configurable"]["checkpoint_id"] if each.parent_config else None
        values = each.checkpoint["channel_values"]
        plain = {name: value for name, value in values.items() if isinstance(value, str | int | float | bool | None)}
        body = json.dumps(each.checkpoint | {"channel_values": plain})
        yield (
            f"INSERT INTO checkpoints VALUES ('trip', '', '{place['checkpoint_id']}', {_text(parent)}, NULL, "
            f"{_text(body)}, {_text(json.dumps(each.metadata))})"
        )
        for channel, version in each.checkpoint["channel_versions"].items():
            if channel in plain or (channel, str(version)) in blobs:
                continue
            blobs.add((channel, str(version)))
            kind, data = serde.dumps_typed(values[channel]) if channel in values else ("empty", b"")
            yield (
                f"INSERT INTO checkpoint_blobs VALUES ('trip', '', '{channel}', '{version}', '{kind}', {_bytea(data)})"
            )
        for number, (task, channel, value) in enumerate(each.pending_writes or ()):
            kind, data = serde.dumps_typed(value)
            yield (
                f"INSERT INTO checkpoint_writes VALUES ('trip', '', '{place['checkpoint_id']}', '{task}', {number}, "
                f"'{channel}', '{kind}', {_bytea(data)}, '')"
            )


@needs("postgres")
async def test_a_thread_of_langgraph_in_postgres_goes_on(schema: str) -> None:
    statements = [f"SET search_path = {schema}", POSTGRES_SAVER, *postgres_saver_rows(), "RESET search_path"]
    postgres.run(postgres.sql(*statements))
    async with connect("memory://") as store:
        report = await imported(store, url_of(schema))
        assert (report.source, report.new, report.messages) == ("langgraph", 1, 2)
        assert (await imported(store, url_of(schema))).unchanged == 1
        await goes_on(store)


# ADK


async def adk_file(path: Path) -> Path:
    service = SqliteSessionService(str(path))
    session = await service.create_session(
        app_name="helper", user_id="ann", session_id="adk-1", state={"step": 1, "user:name": "Ann", "app:tone": "dry"}
    )
    call = types.Part(function_call=types.FunctionCall(id="c1", name="look", args={"q": "heron"}))
    answer = types.Part(function_response=types.FunctionResponse(id="c1", name="look", response={"result": "A bird"}))
    said = [
        ("user", types.Content(role="user", parts=[types.Part(text="What is a heron?")]), {}),
        ("helper", types.Content(role="model", parts=[call]), {}),
        ("helper", types.Content(role="user", parts=[answer]), {"step": 2}),
        ("helper", types.Content(role="model", parts=[types.Part(text="A bird.")]), {}),
    ]
    for number, (author, content, delta) in enumerate(said, 1):
        event = Event(
            id=f"e{number}",
            invocation_id="i1",
            author=author,
            content=content,
            timestamp=1.7e9 + number,
            actions=EventActions(state_delta=delta),
        )
        await service.append_event(session, event)
    return path


async def test_a_session_of_adk_goes_on_with_its_state(tmp_path: Path) -> None:
    path = await adk_file(tmp_path / "adk.db")
    async with connect(f"sqlite:///{tmp_path}/store.db") as store:
        report = await imported(store, path)
        assert (report.source, report.new, report.messages, report.problems) == ("adk", 1, 4, [])
        assert report.losses == {}
        found = await store.get_messages("adk-1", last=10)
        assert [message.role for message in found] == ["user", "assistant", "tool", "assistant"]
        assert (await imported(store, path)).unchanged == 1
        service = store.adk_session_service()
        session = await service.get_session(app_name="helper", user_id="ann", session_id="adk-1")
        assert session is not None
        assert session.state == {"step": 2, "user:name": "Ann", "app:tone": "dry"}
        assert [event.id for event in session.events] == ["e1", "e2", "e3", "e4"]
        assert session.events[1].get_function_calls()[0].args == {"q": "heron"}
        more = Event(author="user", invocation_id="i2", content=types.Content(parts=[types.Part(text="And an egret?")]))
        await service.append_event(session, more)
        assert (await texts(store, "adk-1"))[-1] == ("user", "And an egret?")


def test_the_first_tables_of_adk_are_read_without_their_pickles(tmp_path: Path) -> None:
    script = """
    CREATE TABLE sessions (app_name TEXT, user_id TEXT, id TEXT, state TEXT, create_time TEXT, update_time TEXT);
    CREATE TABLE events (id TEXT, app_name TEXT, user_id TEXT, session_id TEXT, invocation_id TEXT, author TEXT,
        actions BLOB, timestamp TEXT, content TEXT);
    """
    content = json.dumps({"role": "user", "parts": [{"text": "What is a heron?"}]})
    path = more_exports.database(
        tmp_path / "old.db",
        script,
        ("sessions", ("helper", "ann", "old-1", "{}", "2026-01-02 03:04:05", "2026-01-02 03:04:05")),
        ("events", ("e1", "helper", "ann", "old-1", "i1", "user", b"cos\nsystem\n", "2026-01-02 03:04:06", content)),
    )
    source, report = open_source(path), ImportReport("adk")
    importer = importer_for(source)
    (conversation,) = importer.read(source, report)
    assert importer.name == "adk"
    assert conversation.messages[0].message.text == "What is a heron?"
    assert report.losses["actions of an event, which are a Python pickle"].count == 1


# LangChain


SPOKEN = (HumanMessage("What is a heron?"), AIMessage("A bird."))


@needs("postgres")
async def test_a_table_of_langchain_in_postgres(schema: str) -> None:
    bodies = [json.dumps(message_to_dict(each)) for each in SPOKEN]
    session = "6f6b8d1c-5f0e-4d3a-9b67-0f0a6f9c1e55"
    rows = [f"INSERT INTO chats (session_id, message) VALUES ('{session}', {_text(body)})" for body in bodies]
    table = (
        "CREATE TABLE chats (id SERIAL PRIMARY KEY, session_id UUID NOT NULL, message JSONB NOT NULL, "
        "created_at TIMESTAMPTZ NOT NULL DEFAULT '2026-01-02T03:04:05Z')"
    )
    postgres.run(postgres.sql(f"SET search_path = {schema}", table, *rows, "RESET search_path"))
    async with connect("memory://") as store:
        report = await imported(store, url_of(schema))
        assert (report.source, report.new, report.messages, report.problems) == ("langchain", 1, 2, [])
        assert await texts(store, session) == [("user", "What is a heron?"), ("assistant", "A bird.")]
        assert (await store.get_messages(session))[0].created_at.year == 2026
        assert (await imported(store, url_of(schema))).unchanged == 1


@needs("redis")
async def test_lists_of_langchain_in_redis() -> None:
    url = redis.fresh_port_url()
    client = Redis.from_url(url)
    for each in SPOKEN:
        client.lpush("message_store:one", json.dumps(message_to_dict(each)))
    client.lpush("message_store:bad", "{")
    client.lpush("chat*:two", json.dumps(message_to_dict(SPOKEN[0])))
    async with connect("memory://") as store:
        report = await imported(store, url)
        assert (report.source, report.messages, len(report.problems)) == ("langchain", 2, 1)
        assert await texts(store, "one") == [("user", "What is a heron?"), ("assistant", "A bird.")]
        client.lpush("message_store:one", json.dumps(message_to_dict(HumanMessage("Thanks!"))))
        assert (await imported(store, url)).messages == 1
        assert (await texts(store, "one"))[-1] == ("user", "Thanks!")
        await imported(store, f"{url}{'&' if '?' in url else '?'}prefix=chat*:")
        assert await texts(store, "two") == [("user", "What is a heron?")]
    client.close()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mysql://localhost/chats", "cannot import from mysql"),
        ("postgresql://ann:secret@127.0.0.1:1/x", "cannot read postgresql://ann:…@127"),
        ("redis://127.0.0.1:1/0", "cannot read redis"),
    ],
)
async def test_a_server_that_cannot_be_read_is_named_without_its_password(url: str, words: str) -> None:
    async with connect("memory://") as store:
        with pytest.raises(ValidationError, match=words) as error:
            await imported(store, url)
        assert "secret" not in str(error.value)
