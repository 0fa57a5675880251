"""References to items in the input of a response: each is looked up in the caller's view, and its item put in."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from tests.server.kit import Served, serving
from tests.server.openai_wire.conftest import client_of
from tests.server.openai_wire.endpoint import Endpoint, endpoint
from tests.server.openai_wire.kept import NPM_PACKAGES
from tests.server.openai_wire.samples import sample
from tests.server.openai_wire.test_node import installed, run

from hansard.server.key_file import KeyFile
from hansard.server.settings import Settings


@pytest.fixture(scope="module")
def model() -> Iterator[Endpoint]:
    with endpoint() as model:
        yield model


@pytest.fixture(scope="module")
def api(model: Endpoint) -> Iterator[Served]:
    with serving(settings=Settings(upstream=model.address)) as served:
        yield served


@pytest.fixture(scope="module")
def client(api: Served) -> Iterator[openai.OpenAI]:
    with client_of(api) as client:
        yield client


@pytest.fixture(autouse=True)
def fresh(model: Endpoint) -> None:
    model.output = None


def to(id: str) -> Any:
    return {"type": "item_reference", "id": id}


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def said_by(model: Endpoint, text: str, id: str) -> None:
    piece = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    model.output = [
        {"id": id, "type": "message", "role": "assistant", "status": "completed", "content": [piece]},
    ]


def heard(model: Endpoint) -> list[Any]:
    """What the endpoint was asked last: texts of messages, types of other items."""
    return [item["content"] if "content" in item else item["type"] for item in model.asked[-1]["input"]]


def refusal(caught: pytest.ExceptionInfo[openai.APIStatusError]) -> tuple[int, str | None, str | None]:
    return caught.value.status_code, caught.value.code, caught.value.param


def test_an_answer_of_before_is_put_in_its_place(client: openai.OpenAI, model: Endpoint) -> None:
    said_by(model, "a one", "msg_one")
    client.responses.create(model="m", input=[user("m one")])
    model.output = None
    given = [user("m one"), to("msg_one"), user("m two")]
    second = client.responses.create(model="m", input=given)
    assert heard(model) == ["m one", "a one", "m two"]
    assert model.asked[-1]["input"][1] == {"role": "assistant", "content": "a one"}
    client.responses.create(model="m", input="m three", previous_response_id=second.id)
    assert heard(model) == ["m one", "a one", "m two", model.says, "m three"], "it was recorded as what was said"


def test_a_reference_without_a_type(client: openai.OpenAI, model: Endpoint) -> None:
    said_by(model, "a", "msg_untyped")
    client.responses.create(model="m", input="q")
    bare: Any = {"id": "msg_untyped"}
    client.responses.create(model="m", input=[bare, user("go on")])
    assert heard(model) == ["a", "go on"]


def test_reasoning_a_call_and_its_answer(client: openai.OpenAI, model: Endpoint) -> None:
    call = {"type": "function_call", "id": "fc_r", "call_id": "call_r", "name": "find", "arguments": "{}"}
    model.output = [sample("reasoning") | {"id": "rs_r"}, call | {"status": "completed"}]
    client.responses.create(model="m", input=[user("q")])
    model.output = None
    answer: Any = {"type": "function_call_output", "call_id": "call_r", "output": "17"}
    client.responses.create(model="m", input=[user("q"), to("rs_r"), to("fc_r"), answer])
    asked = model.asked[-1]["input"]
    assert [item.get("type") for item in asked] == [None, "reasoning", "function_call", "function_call_output"]
    assert (asked[1]["id"], asked[2]["id"], asked[3]) == ("rs_r", "fc_r", answer)


def test_items_of_a_conversation(client: openai.OpenAI, model: Endpoint) -> None:
    first = client.conversations.create(items=[user("with it")])
    after = client.conversations.items.create(first.id, items=[user("after it")]).data[0].id
    made = client.conversations.items.list(first.id, order="asc").data[0].id
    assert made is not None
    assert after is not None
    client.responses.create(model="m", input=[to(made), to(after)])
    assert heard(model) == ["with it", "after it"]


@pytest.mark.parametrize("how", ["conversation", "previous_response_id"])
def test_beside_a_history(client: openai.OpenAI, model: Endpoint, how: str) -> None:
    """What the history holds is not said twice; what it does not is put in, and recorded."""
    said_by(model, "elsewhere", f"msg_else_{how}")
    client.responses.create(model="m", input="q")
    id = client.conversations.create().id
    said_by(model, "here", f"msg_here_{how}")
    first = client.responses.create(model="m", input="hello", conversation=id)
    after: Any = {"conversation": id} if how == "conversation" else {"previous_response_id": first.id}
    model.output = None
    given = [to(f"msg_here_{how}"), to(f"msg_else_{how}"), to(f"msg_else_{how}"), user("go on")]
    client.responses.create(model="m", input=given, **after)
    assert heard(model) == ["hello", "here", "elsewhere", "go on"]
    client.responses.create(model="m", input=[to(f"msg_else_{how}"), user("and on")], conversation=id)
    assert heard(model) == ["hello", "here", "elsewhere", "go on", model.says, "and on"]


def test_an_item_of_another_branch(client: openai.OpenAI, model: Endpoint) -> None:
    id = client.conversations.create().id
    first = client.responses.create(model="m", input="one", conversation=id)
    said_by(model, "the other way", "msg_branch")
    client.responses.create(model="m", input="two", conversation=id)
    model.output = None
    client.responses.create(model="m", input=[to("msg_branch"), user("three")], previous_response_id=first.id)
    assert heard(model) == ["one", model.says, "the other way", "three"]


@pytest.mark.parametrize("id", ["msg_never", "x" * 300, "a.0", "ü", "\0"])
@pytest.mark.parametrize("with_conversation", [True, False])
def test_what_is_not_there(client: openai.OpenAI, model: Endpoint, id: str, with_conversation: bool) -> None:
    where: Any = {"conversation": client.conversations.create().id} if with_conversation else {}
    asked = model.count
    with pytest.raises(openai.NotFoundError) as caught:
        client.responses.create(model="m", input=[user("q"), to(id)], **where)
    assert refusal(caught) == (404, "not_found", "input")
    assert model.count == asked, "nobody was asked"


@pytest.mark.parametrize("item", [{"type": "item_reference"}, {"type": "item_reference", "id": 5}, {"id": ""}, {}])
def test_what_is_no_reference(client: openai.OpenAI, item: Any) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="m", input=[item])
    assert str(caught.value.param).startswith("input[0].")


def test_what_was_deleted_is_not_there(client: openai.OpenAI, model: Endpoint) -> None:
    said_by(model, "gone", "msg_gone")
    id = client.conversations.create().id
    client.responses.create(model="m", input="q", conversation=id)
    kept = client.conversations.items.list(id, order="asc").data[0].id
    assert kept is not None
    client.conversations.items.delete("msg_gone", conversation_id=id)
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="m", input=[to("msg_gone")])
    client.responses.create(model="m", input=[to(kept)], store=False)
    client.conversations.delete(id)
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="m", input=[to(kept)])


def test_an_id_that_names_two_items_names_none(client: openai.OpenAI, model: Endpoint) -> None:
    """Some endpoints count from one in each response: nothing is guessed."""
    first, second = (client.conversations.create().id for _ in range(2))
    for text, id in (("one", first), ("another", second)):
        said_by(model, text, "msg_twice")
        client.responses.create(model="m", input="q", conversation=id)
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="m", input=[to("msg_twice")])
    assert refusal(caught) == (400, "invalid_value", "input")
    client.responses.create(model="m", input=[to("msg_twice"), user("go on")], conversation=second)
    assert heard(model) == ["q", "another", "go on"], "in a conversation it names the one there"


def test_nobody_reaches_across_a_wall(model: Endpoint, tmp_path: Path) -> None:
    keys = KeyFile(tmp_path / "keys.json")

    def key(**bound: Any) -> str:
        return keys.create("x", ["read", "write"], **bound)[1]

    ada, bob = key(tenant="acme", user="ada"), key(tenant="acme", user="bob")
    acme, evil = key(tenant="acme"), key(tenant="evil")
    with serving(f"sqlite:///{tmp_path}/a.db", Settings(upstream=model.address, keys=keys.path)) as api:

        def ask(token: str, *items: Any) -> httpx.Response:
            return api.post(
                api.address + "/v1/responses",
                json={"model": "m", "input": items},
                headers={"Authorization": f"Bearer {token}"},
            )

        said_by(model, "SECRET", "msg_walled")
        assert ask(ada, user("q")).is_success
        model.output = None
        for token in (bob, evil):
            answer = ask(token, to("msg_walled"))
            assert answer.status_code == 404
            assert answer.text.replace("msg_walled", "msg_nowhere") == ask(token, to("msg_nowhere")).text
        for token in (ada, acme):
            assert ask(token, to("msg_walled")).is_success
            assert heard(model) == ["SECRET"]
        said_by(model, "of bob", "msg_walled")
        assert ask(bob, user("q")).is_success
        model.output = None
        assert ask(bob, to("msg_walled")).is_success
        assert heard(model) == ["of bob"], "what others call by the same id is nobody else's affair"
        assert ask(ada, to("msg_walled")).is_success
        assert heard(model) == ["SECRET"]


def test_a_look_is_bounded(api: Served, client: openai.OpenAI, model: Endpoint) -> None:
    """One scan of at most 20 records and one read for each, however many conversations hold the id."""
    often: Any = {"type": "message", **user("same"), "id": "msg_often"}
    for _ in range(30):
        client.conversations.create(items=[often])
    backend = api.store.backend
    calls: list[str] = []

    def counting(name: str) -> Any:
        asked = getattr(backend, name)

        async def count(*given: Any) -> Any:
            calls.append(name)
            return await asked(*given)

        return count

    names = ("find_messages", "scan_records", "read_page", "list_conversations")
    counted = {name: counting(name) for name in names if hasattr(backend, name)}
    for name, count in counted.items():
        setattr(backend, name, count)
    try:
        client.responses.create(model="m", input=[to("msg_often")])
    finally:
        for name in counted:
            delattr(backend, name)
    assert calls.count("scan_records") == 1
    assert calls.count("find_messages") <= 20 + 1
    assert heard(model) == ["same"]


AI_SDK = ("ai@7.0.169", "@ai-sdk/openai@4.0.114", NPM_PACKAGES[1])
CHAT = """
import { createOpenAI } from "@ai-sdk/openai";
import { generateText } from "ai";
const openai = createOpenAI({ baseURL: process.argv[2], apiKey: "anything" });
const messages = [];
const said = [];
for (const content of ["m one", "m two", "m three"]) {
  messages.push({ role: "user", content });
  const answer = await generateText({ model: openai.responses("m"), messages, maxRetries: 0 });
  messages.push(...(answer.response?.messages ?? answer.responseMessages));
  said.push(answer.text);
}
console.log(JSON.stringify(said));
"""


def test_a_chat_of_the_ai_sdk(api: Served, model: Endpoint) -> None:
    """It names its earlier answers by reference, and knows no conversation."""
    folder = installed(AI_SDK)
    model.asked.clear()
    assert run(folder, CHAT, api.address + "/v1") == [model.says] * 3
    texts = [_text(item["content"]) for item in model.asked[-1]["input"]]
    assert texts == ["m one", model.says, "m two", model.says, "m three"]
    found = asyncio.run_coroutine_threadsafe(api.store.list_conversations(), api.loop).result(60).items
    assert len(found) >= 3


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(piece["text"] for piece in content)
