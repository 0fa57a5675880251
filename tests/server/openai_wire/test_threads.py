"""The Threads API through the official SDK, which calls it deprecated."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import openai
import pytest
from tests.server.kit import Served

from hansard.model import Message, Participant

pytestmark = pytest.mark.filterwarnings("ignore:The Assistants API:DeprecationWarning")


def texts(messages: Any) -> list[str]:
    return [message.content[0].text.value for message in messages]


def on(api: Served, coroutine: Any) -> Any:
    return asyncio.run_coroutine_threadsafe(coroutine, api.loop).result(30)


def test_a_thread_from_its_making_to_its_end(client: openai.OpenAI) -> None:
    threads = client.beta.threads
    made = threads.create(metadata={"topic": "orders"})
    assert re.fullmatch(r"thread_[0-9a-f]{48}", made.id)
    assert (made.object, made.tool_resources) == ("thread", None)
    assert threads.retrieve(made.id) == made
    assert threads.update(made.id, metadata={"a": "b"}).metadata == {"a": "b"}
    resources: Any = {"code_interpreter": {"file_ids": ["file_1"]}}
    assert threads.update(made.id, tool_resources=resources).metadata == {"a": "b"}, "what is not given stays"
    found = threads.retrieve(made.id).tool_resources
    assert found is not None
    assert found.to_dict() == resources
    gone = threads.delete(made.id)
    assert (gone.id, gone.object, gone.deleted) == (made.id, "thread.deleted", True)
    with pytest.raises(openai.NotFoundError):
        threads.retrieve(made.id)


def test_messages(client: openai.OpenAI) -> None:
    threads = client.beta.threads
    id = threads.create(messages=[{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]).id
    attachments: Any = [{"file_id": "file_1", "tools": [{"type": "file_search"}]}]
    parts: Any = [
        {"type": "text", "text": "three"},
        {"type": "image_file", "image_file": {"file_id": "file_2", "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "https://x.example/a.png"}},
    ]
    made = threads.messages.create(id, role="user", content=parts, attachments=attachments, metadata={"k": "v"})
    assert (made.object, made.thread_id, made.role, made.status) == ("thread.message", id, "user", "completed")
    assert [each.type for each in made.content] == ["text", "image_file", "image_url"]
    assert made.content[0].text.value == "three"  # type: ignore[union-attr]
    assert [each.to_dict() for each in made.attachments or ()] == attachments
    assert threads.messages.retrieve(made.id, thread_id=id) == made
    changed = threads.messages.update(made.id, thread_id=id, metadata={"n": "m"})
    assert (changed.metadata, changed.attachments) == ({"n": "m"}, made.attachments)
    assert texts(threads.messages.list(id)) == ["three", "two", "one"]
    gone = threads.messages.delete(made.id, thread_id=id)
    assert (gone.id, gone.object, gone.deleted) == (made.id, "thread.message.deleted", True)
    with pytest.raises(openai.NotFoundError):
        threads.messages.retrieve(made.id, thread_id=id)


def test_paging(client: openai.OpenAI) -> None:
    messages = client.beta.threads.messages
    id = client.beta.threads.create().id
    made = [messages.create(id, role="user", content=str(number)).id for number in range(25)]
    for limit in (1, 7, 100):
        assert [each.id for each in messages.list(id, order="asc", limit=limit)] == made
        assert [each.id for each in messages.list(id, limit=limit)] == made[::-1]
    page = messages.list(id, order="asc", limit=3, before=made[10])
    assert [each.id for each in page.data] == made[7:10]
    assert page.has_more
    page = messages.list(id, order="desc", limit=3, before=made[23])
    assert [each.id for each in page.data] == [made[24]]
    assert not page.has_more
    assert messages.list(id, run_id="run_1").data == []


def test_a_thread_shows_what_people_and_models_said(client: openai.OpenAI, api: Served) -> None:
    """Instructions, calls and results are left out, and do not make pages shorter."""
    talk: list[Message] = []
    for number in range(12):
        call = {"type": "function_call", "call_id": str(number), "name": "f", "arguments": "{}"}
        result = {"type": "function_call_output", "call_id": str(number), "output": "x"}
        talk += [
            Message("user", f"q{number}"),
            Message("assistant", call, format="openai.responses"),
            Message("tool", result, format="openai.responses"),
            Message("agent", f"a{number}", participant=Participant("agent", "helper"), metadata={"deep": {"a": 1}}),
        ]
    on(api, api.store.append("c", [Message("system", "Be kind."), *talk]))
    wanted = [text for number in range(12) for text in (f"q{number}", f"a{number}")]
    for limit in (1, 3, 100):
        assert texts(client.beta.threads.messages.list("c", order="asc", limit=limit)) == wanted
        assert texts(client.beta.threads.messages.list("c", limit=limit)) == wanted[::-1]
    page = client.beta.threads.messages.list("c", limit=5)
    assert (len(page.data), page.has_more) == (5, True)
    newest = page.data[0]
    assert (newest.role, newest.assistant_id, newest.metadata) == ("assistant", "helper", {})
    client.beta.threads.messages.update(newest.id, thread_id="c", metadata={"a": "b"})
    kept = on(api, api.store.get_message("c", newest.id)).metadata
    assert kept == {"a": "b", "deep": {"a": 1}}, "what a thread cannot show it cannot take away"


def test_one_history(client: openai.OpenAI, api: Served) -> None:
    id = client.beta.threads.create(messages=[{"role": "user", "content": "Where is my order?"}]).id
    item: Any = client.conversations.items.list(id).data[0]
    assert item.content[0].text == "Where is my order?"
    (stored,) = api.get(f"/conversations/{id}/messages").json()["items"]
    assert (stored["role"], stored["format"]) == ("user", "openai.chat")


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"role": "user"},
        {"role": "system", "content": "x"},
        {"role": "user", "content": 1},
        {"role": "user", "content": []},
        {"role": "user", "content": ["x"]},
        {"role": "user", "content": [{"type": "audio"}]},
        {"role": "user", "content": [{"type": "text"}]},
        {"role": "user", "content": [{"type": "image_url", "image_url": {}}]},
        {"role": "user", "content": "x", "attachments": ["x"]},
        {"role": "user", "content": "x", "metadata": {"k": "v" * 513}},
        {"role": "user", "content": "x", "colour": "red"},
    ],
)
def test_malformed_messages(client: openai.OpenAI, api: Served, given: Any) -> None:
    id = client.beta.threads.create().id
    answer = api.post(f"{api.address}/v1/threads/{id}/messages", json=given)
    assert answer.status_code == 400, answer.text
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    if "colour" not in given:
        assert api.post(f"{api.address}/v1/threads", json={"messages": [given]}).status_code == 400
    assert client.beta.threads.messages.list(id).data == []


def test_what_is_not_there(client: openai.OpenAI) -> None:
    threads = client.beta.threads
    empty = threads.create().id
    for call in (
        lambda: threads.retrieve("thread_never"),
        lambda: threads.update("thread_never", metadata={}),
        lambda: threads.delete("thread_never"),
        lambda: threads.messages.create("thread_never", role="user", content="x"),
        lambda: threads.messages.list("thread_never"),
        lambda: threads.messages.list("thread_never", after="x"),
        lambda: threads.messages.list("thread_never", run_id="x"),
        lambda: threads.messages.retrieve("msg_1", thread_id=empty),
        lambda: threads.messages.update("msg_1", thread_id=empty),
        lambda: threads.messages.delete("msg_1", thread_id=empty),
    ):
        with pytest.raises(openai.NotFoundError):
            call()
    for query in ({"after": "msg_1"}, {"before": "msg_1"}, {"after": "a", "before": "b"}, {"limit": 0}):
        with pytest.raises(openai.BadRequestError):
            threads.messages.list(empty, extra_query=query)
    with pytest.raises(openai.BadRequestError):
        threads.create(tool_resources={"file_search": {"vector_store_ids": ["a", "b"]}})
