"""Responses and Chat Completions, passed on to a model endpoint: history added, answers recorded, all or nothing."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from tests.server.kit import Served, serving
from tests.server.openai_wire.conftest import client_of
from tests.server.openai_wire.endpoint import Endpoint, endpoint
from tests.wait import PATIENCE, until

import hansard
from hansard.server.settings import Settings


class Kit:
    def __init__(self, api: Served, client: openai.OpenAI, model: Endpoint) -> None:
        self.api = api
        self.client = client
        self.model = model
        self.id = client.conversations.create().id

    def texts(self, id: str | None = None) -> list[str]:
        found: Any = self.client.conversations.items.list(id or self.id, order="asc", limit=100).data
        return [item.content[0].text for item in found]

    def stored(self) -> list[Any]:
        found: list[Any] = self.api.get(f"/conversations/{self.id}/messages").json()["items"]
        return found

    def asked(self) -> list[Any]:
        """What the endpoint was asked last."""
        asked = self.model.asked[-1]
        return asked["input"] if "input" in asked else asked["messages"]  # type: ignore[no-any-return]

    @contextmanager
    def answering(self, input: Any, previous_response_id: str) -> Iterator[list[openai.APIStatusError]]:
        """While the endpoint thinks about a request. Afterwards it has answered, and a refusal is in the list."""
        failures: list[openai.APIStatusError] = []

        def ask() -> None:
            try:
                self.client.responses.create(model="m", input=input, previous_response_id=previous_response_id)
            except openai.APIStatusError as error:
                failures.append(error)

        before, self.model.waits = self.model.count, threading.Event()
        asking = threading.Thread(target=ask)
        asking.start()
        try:
            until(lambda: self.model.count > before)
            yield failures
        finally:
            self.model.waits.set()
            asking.join(PATIENCE)
            self.model.waits = None


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Served, openai.OpenAI, Endpoint]]:
    with (
        endpoint() as model,
        serving(settings=Settings(upstream=model.address, upstream_key="sk-up")) as api,
        client_of(api) as client,
    ):
        yield api, client, model


@pytest.fixture
def kit(served: tuple[Served, openai.OpenAI, Endpoint]) -> Kit:
    api, client, model = served
    model.asked, model.keys, model.read, model.says, model.breaks = [], [], [], "It is on its way.", ""
    model.id, model.done = None, "data: [DONE]"
    return Kit(api, client, model)


class TestResponses:
    def test_in_a_conversation(self, kit: Kit) -> None:
        answer = kit.client.responses.create(model="m", input="Where is my order?", conversation=kit.id)
        assert answer.output_text == "It is on its way."
        assert answer.conversation is not None
        assert answer.conversation.id == kit.id
        assert kit.texts() == ["Where is my order?", "It is on its way."]
        kit.model.says = "Tomorrow."
        kit.client.responses.create(
            model="m", input=[{"role": "user", "content": "When?"}], conversation={"id": kit.id}
        )
        assert [item["content"] for item in kit.asked()] == ["Where is my order?", "It is on its way.", "When?"]
        assert kit.texts()[2:] == ["When?", "Tomorrow."]
        assert "conversation" not in kit.model.asked[-1], "the endpoint knows nothing of it"
        assert kit.model.keys[-1] == "Bearer sk-up", "and is asked with the server's own key"
        usage = kit.stored()[1]["usage"]
        assert usage == {
            "input_tokens": 5,
            "output_tokens": 7,
            "cached_tokens": 2,
            "reasoning_tokens": 3,
            "model": "m-1",
        }

    def test_streaming(self, kit: Kit) -> None:
        texts, last = [], None
        with kit.client.responses.create(model="m", input="hi", conversation=kit.id, stream=True) as stream:
            for event in stream:
                if event.type == "response.output_text.delta":
                    texts.append(event.delta)
                if event.type == "response.completed":
                    last = event.response
                    assert kit.texts() == ["hi", "It is on its way."], "recorded before it says that it is complete"
        assert "".join(texts) == "It is on its way."
        assert last is not None
        assert last.conversation is not None
        assert last.conversation.id == kit.id

    def test_going_on_from_a_response(self, kit: Kit) -> None:
        first = kit.client.responses.create(model="m", input="one")
        kit.model.says = "two"
        second = kit.client.responses.create(model="m", input="and", previous_response_id=first.id)
        assert second.previous_response_id == first.id
        assert [item["content"] for item in kit.asked()] == ["one", "It is on its way.", "and"]
        kit.client.responses.create(model="m", input="or", previous_response_id=first.id)
        assert [item["content"] for item in kit.asked()] == ["one", "It is on its way.", "or"], "as a branch"
        with pytest.raises(openai.NotFoundError):
            kit.client.responses.create(model="m", input="x", previous_response_id="resp_never")

    def test_going_on_from_a_response_on_another_branch(self, kit: Kit) -> None:
        ask = kit.client.responses.create
        first = ask(model="m", input="one")
        here = ask(model="m", input="here", previous_response_id=first.id)
        ask(model="m", input="there", previous_response_id=first.id)
        again = ask(model="m", input="on", previous_response_id=here.id)
        said = [item["content"] for item in kit.asked() if item["role"] == "user"]
        assert said == ["one", "here", "on"]
        ask(model="m", input="and on", previous_response_id=again.id)
        said = [item["content"] for item in kit.asked() if item["role"] == "user"]
        assert said == ["one", "here", "on", "and on"]

    def test_going_on_from_the_middle_of_another_branch(self, kit: Kit) -> None:
        ask = kit.client.responses.create
        first = ask(model="m", input="one")
        here = ask(model="m", input="here", previous_response_id=first.id)
        ask(model="m", input="further", previous_response_id=here.id)
        ask(model="m", input="there", previous_response_id=first.id)
        ask(model="m", input="on", previous_response_id=here.id)
        said = [item["content"] for item in kit.asked() if item["role"] == "user"]
        assert said == ["one", "here", "on"]

    def test_what_cannot_be_recorded_leaves_the_active_branch_as_it_is(self, kit: Kit) -> None:
        first = kit.client.responses.create(model="m", input="one")
        kit.client.responses.create(model="m", input="two", previous_response_id=first.id)
        (made,) = kit.api.get("/conversations?limit=1").json()["items"]
        given = [{"id": "msg_taken", "role": "user", "content": "or"}]
        with kit.answering(given, first.id) as failures:
            taken = {"messages": [{"id": "msg_taken", "role": "user", "content": "three"}]}
            kit.api.post(f"/conversations/{made['id']}/messages", json=taken)
        assert [each.code for each in failures] == ["duplicate_item"]
        found = kit.api.get(f"/conversations/{made['id']}/messages?last=1").json()["items"]
        assert [each["content"] for each in found] == ["three"]

    @pytest.mark.parametrize("stream", [False, True])
    def test_responses_of_the_same_id_are_not_taken_for_each_other(self, kit: Kit, stream: bool) -> None:
        kit.model.id = f"resp_always_{stream}"

        def ask(input: str, **options: Any) -> str:
            answer: Any = kit.client.responses.create(model="m", input=input, stream=stream, **options)
            if not stream:
                return str(answer.id)
            named = [event.response.id for event in answer if hasattr(event, "response")]
            assert len(set(named)) == 1, "by one name from its beginning to its end"
            return str(named[-1])

        one, two = ask("one"), ask("two")
        assert one != two
        for input, previous in (("one", one), ("two", two)):
            ask("and", previous_response_id=previous)
            assert [item["content"] for item in kit.asked()] == [input, "It is on its way.", "and"]

    def test_what_is_deleted_meanwhile_stays_deleted(self, kit: Kit) -> None:
        first = kit.client.responses.create(model="m", input="one")
        (made,) = kit.api.get("/conversations?limit=1").json()["items"]
        with kit.answering("two", first.id) as failures:
            kit.api.delete(f"/conversations/{made['id']}")
        assert [each.status_code for each in failures] == [404]
        assert kit.api.get(f"/conversations/{made['id']}").status_code == 404
        with pytest.raises(openai.NotFoundError):
            kit.client.responses.create(model="m", input="x", previous_response_id=first.id)

    def test_what_shall_not_be_stored_is_not(self, kit: Kit) -> None:
        newest = kit.api.get("/conversations?limit=1").json()
        answer = kit.client.responses.create(model="m", input="one", store=False)
        assert kit.api.get("/conversations?limit=1").json() == newest
        with pytest.raises(openai.NotFoundError):
            kit.client.responses.create(model="m", input="two", previous_response_id=answer.id + "x")

    @pytest.mark.parametrize("stream", [False, True])
    @pytest.mark.parametrize("breaks", ["refuse", "fail"])
    def test_a_refusal_is_passed_on(self, kit: Kit, breaks: str, stream: bool) -> None:
        kit.model.breaks = breaks
        with pytest.raises(openai.APIStatusError) as caught:
            kit.client.responses.create(model="m", input="x", conversation=kit.id, stream=stream)
        assert caught.value.status_code == (400 if breaks == "refuse" else 500)
        assert caught.value.code == "nope"
        assert kit.stored() == []

    def test_a_stream_that_breaks_off_leaves_nothing(self, kit: Kit) -> None:
        kit.model.breaks = "middle"
        with kit.client.responses.create(model="m", input="x", conversation=kit.id, stream=True) as stream:
            *_, last = stream
        assert last.type == "error"
        assert (last.code, last.sequence_number) == ("upstream", 2), "as the API tells it: in its place in the stream"
        assert kit.stored() == []

    def test_what_is_stored_may_be_answered_with_nothing_new(self, kit: Kit) -> None:
        said: Any = {"role": "user", "content": "Where is my order?"}
        kit.client.conversations.items.create(kit.id, items=[said])
        answer = kit.client.responses.create(model="m", conversation=kit.id)
        assert kit.asked() == [said]
        assert kit.texts() == ["Where is my order?", "It is on its way."]
        kit.client.responses.create(model="m", previous_response_id=answer.id)
        assert len(kit.asked()) == 2
        kit.client.responses.create(prompt={"id": "pmpt_1"})
        assert kit.model.asked[-1] == {"prompt": {"id": "pmpt_1"}}, "it says what is asked"

    def test_bad_input(self, kit: Kit) -> None:
        given: Any
        kit.client.responses.create(model="m", input="x", conversation=kit.id)
        again = {"id": "msg_up1", "type": "message", "role": "user", "content": "x"}
        for given in (
            {"conversation": kit.id, "previous_response_id": "resp_1"},
            {"conversation": 7},
            {"conversation": kit.id, "input": 7},
            {"input": None},
            {"conversation": kit.id, "input": [{"role": "king", "content": "x"}]},
            {"conversation": kit.id, "input": [again]},
        ):
            with pytest.raises(openai.BadRequestError):
                kit.client.responses.create(**{"model": "m", "input": "x", **given})
        with pytest.raises(openai.NotFoundError):
            kit.client.responses.create(model="m", input="x", conversation="conv_never")
        assert kit.model.count == 1, "the endpoint was not asked"
        assert len(kit.stored()) == 2

    @pytest.mark.parametrize("stream", [False, True])
    @pytest.mark.parametrize("id", ["msg_0", "x" * 300])
    def test_an_endpoint_that_gives_the_same_id_to_everything(self, kit: Kit, stream: bool, id: str) -> None:
        """Its second answer must not be taken for its first one."""
        kit.model.id = id
        for text in ("one", "two", "two"):
            kit.model.says = text
            answer: Any = kit.client.responses.create(model="m", input="and", conversation=kit.id, stream=stream)
            if stream:
                assert [event.type for event in answer][-1] == "response.completed"
        assert kit.texts() == ["and", "one", "and", "two", "and", "two"]

    def test_an_id_that_another_branch_holds(self, kit: Kit) -> None:
        mine: Any = {"id": "msg_mine", "type": "message", "role": "user", "content": "x"}
        first = kit.client.responses.create(model="m", input="one", conversation=kit.id)
        kit.client.responses.create(model="m", input=[mine], conversation=kit.id)
        kit.client.responses.create(model="m", input="or", previous_response_id=first.id)
        with pytest.raises(openai.BadRequestError) as caught:
            kit.client.responses.create(model="m", input=[mine], conversation=kit.id)
        assert caught.value.code == "duplicate_item"
        assert kit.texts()[2:] == ["or", "It is on its way."]


def test_an_answer_is_kept_however_busy_its_conversation_is(tmp_path: Path) -> None:
    """A model was asked and paid for: what others do beside it does not matter."""
    url, enough = f"sqlite:///{tmp_path}/chats.db", threading.Event()

    async def be_busy(id: str) -> None:
        async with hansard.connect(url) as store:
            while not enough.is_set():
                await store.update_conversation(id, metadata={"now": random.random()})

    with (
        endpoint() as model,
        serving(url, Settings(upstream=model.address)) as api,
        client_of(api) as client,
        ThreadPoolExecutor(2) as pool,
    ):
        answer = client.responses.create(model="m", input="q0")
        (conversation,) = api.get("/conversations").json()["items"]
        busy = [pool.submit(asyncio.run, be_busy(conversation["id"])) for _ in range(2)]
        try:
            for number in range(1, 4):
                answer = client.responses.create(model="m", input=f"q{number}", previous_response_id=answer.id)
        finally:
            enough.set()
        for each in busy:
            each.result(PATIENCE)
        assert [item["content"] for item in model.asked[-1]["input"]] == [
            *("q0", model.says, "q1", model.says, "q2", model.says, "q3")
        ]


@pytest.mark.parametrize("how", ["conversation", "previous_response_id"])
def test_at_the_same_moment(tmp_path: Path, how: str) -> None:
    """Every answer is kept with its question, though the endpoint gives all the same ids, and leads where it was."""
    count = 6
    with (
        endpoint() as model,
        serving(f"sqlite:///{tmp_path}/chats.db", Settings(upstream=model.address)) as api,
        client_of(api) as client,
    ):
        id = client.conversations.create().id
        first = client.responses.create(model="m", input="one", conversation=id)
        named: Any = {"conversation": id} if how == "conversation" else {"previous_response_id": first.id}
        model.waits = threading.Event()
        create: Any = client.responses.create
        with ThreadPoolExecutor(count) as pool:
            asked = [pool.submit(create, model="m", input=f"q{number}", **named) for number in range(count)]
            until(lambda: model.count == count + 1)
            model.waits.set()
            answers = [each.result(60) for each in asked]
        assert len({answer.id for answer in answers}) == count
        if how == "conversation":
            found: Any = client.conversations.items.list(id, order="asc", limit=100)
            texts = [item.content[0].text for item in found]
            assert texts[3::2] == [model.says] * count, "each behind its question"
            assert sorted(texts[2::2]) == [f"q{number}" for number in range(count)]
            return
        for number, answer in enumerate(answers):
            client.responses.create(model="m", input="next", previous_response_id=answer.id)
            said = [item["content"] for item in model.asked[-1]["input"]]
            assert said == ["one", model.says, f"q{number}", model.says, "next"], "nothing of the others"


class TestCompletions:
    def named(self, kit: Kit) -> dict[str, str]:
        return {"Hansard-Conversation": kit.id}

    def test_in_a_conversation(self, kit: Kit) -> None:
        create: Any = kit.client.chat.completions.create
        rules = {"role": "system", "content": "Be kind."}
        asked = {"role": "user", "content": "Where is my order?"}
        answer = create(model="m", messages=[rules, asked], extra_headers=self.named(kit))
        assert answer.choices[0].message.content == "It is on its way."
        create(model="m", messages=[rules, {"role": "user", "content": "When?"}], extra_headers=self.named(kit))
        contents = [message["content"] for message in kit.asked()]
        assert contents == ["Be kind.", "Where is my order?", "It is on its way.", "When?"]
        assert [each["role"] for each in kit.stored()] == ["user", "assistant"] * 2, "instructions are not recorded"
        assert kit.texts()[0] == "Where is my order?"

    def test_streaming(self, kit: Kit) -> None:
        create: Any = kit.client.chat.completions.create
        with create(
            model="m", messages=[{"role": "user", "content": "hi"}], extra_headers=self.named(kit), stream=True
        ) as stream:
            said = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
        assert said == "It is on its way."
        assert kit.texts() == ["hi", "It is on its way."]

    def test_an_end_without_a_space(self, kit: Kit) -> None:
        kit.model.done = "data:[DONE]"
        create: Any = kit.client.chat.completions.create
        asked = [{"role": "user", "content": "hi"}]
        with create(model="m", messages=asked, extra_headers=self.named(kit), stream=True) as stream:
            assert "error" not in str(list(stream))
        assert kit.texts() == ["hi", "It is on its way."]

    def test_a_stream_that_breaks_off_leaves_nothing(self, kit: Kit) -> None:
        kit.model.breaks = "middle"
        create: Any = kit.client.chat.completions.create
        asked = [{"role": "user", "content": "hi"}]
        stream = create(model="m", messages=asked, extra_headers=self.named(kit), stream=True)
        with stream, pytest.raises(openai.APIError):
            list(stream)
        assert kit.stored() == []

    def test_without_a_conversation_nothing_is_recorded(self, kit: Kit) -> None:
        create: Any = kit.client.chat.completions.create
        create(model="m", messages=[{"role": "user", "content": "hi"}])
        assert kit.model.asked[-1]["messages"] == [{"role": "user", "content": "hi"}]
        assert kit.stored() == []

    def test_roles(self, kit: Kit) -> None:
        """What is only passed on is the endpoint's to judge; what is recorded must be known here."""
        create: Any = kit.client.chat.completions.create
        old = [{"role": "function", "name": "find", "content": "17"}]
        create(model="m", messages=old)
        assert kit.model.asked[-1]["messages"] == old
        with pytest.raises(openai.BadRequestError, match="supported are 'system'"):
            create(model="m", messages=old, extra_headers=self.named(kit))
        assert (kit.model.count, kit.stored()) == (1, [])


def test_what_models_there_are(kit: Kit) -> None:
    assert [model.id for model in kit.client.models.list()] == ["org/m-1"]
    assert kit.client.models.retrieve("org/m-1").id == "org/m-1"
    assert kit.client.models.retrieve("/files/m..1").id == "org/m-1"
    assert kit.model.read == ["/v1/models", "/v1/models/org%2Fm-1", "/v1/models/%2Ffiles%2Fm..1"]
    assert set(kit.model.keys) == {"Bearer sk-up"}, "with the server's own key"


@pytest.mark.parametrize("id", ["", "%2e", "%2e%2e", "..%2Ffiles", "org%2F..%2F..%2Ffiles", "..%5Cfiles"])
def test_an_id_that_leads_elsewhere_is_no_model(kit: Kit, id: str) -> None:
    """Only models are read with the server's key."""
    answer = kit.api.get(f"{kit.api.address}/v1/models/{id}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
    assert kit.model.read == []


@pytest.mark.parametrize(
    "ask", [lambda client: client.models.list(), lambda client: client.responses.create(input="x")]
)
def test_an_endpoint_that_refuses_our_key(kit: Kit, ask: Any) -> None:
    kit.model.breaks = "key"
    with pytest.raises(openai.InternalServerError, match="the server's key") as caught:
        ask(kit.client.with_options(max_retries=2))
    assert (caught.value.status_code, len(kit.model.keys)) == (502, 1), "it is not asked again"


def test_without_an_endpoint() -> None:
    with serving() as api, client_of(api, max_retries=2) as client:
        with pytest.raises(openai.InternalServerError) as caught:
            client.responses.create(model="m", input="x")
        assert (caught.value.status_code, caught.value.code) == (501, "no_upstream")


def test_an_endpoint_that_nobody_answers_at() -> None:
    with serving(settings=Settings(upstream="http://127.0.0.1:9")) as api, client_of(api) as client:
        with pytest.raises(openai.InternalServerError) as caught:
            client.responses.create(model="m", input="x")
        assert caught.value.status_code == 502
