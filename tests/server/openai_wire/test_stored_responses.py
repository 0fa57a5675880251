"""Responses are asked for again: as they are, as a stream, with their input; and deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest
from tests.server.openai_wire.conftest import client_of
from tests.server.openai_wire.samples import sample
from tests.server.openai_wire.stored import Kit, kit, missing, texts

from hansard import sync


@pytest.fixture(scope="module")
def served() -> Iterator[Kit]:
    with kit() as made:
        yield made


@pytest.fixture
def stored(served: Kit) -> Kit:
    model = served.model
    model.says, model.breaks, model.id, model.output, model.waits = "It is on its way.", "", None, None, None
    model.script = None
    return served


class TestRetrieve:
    @pytest.mark.parametrize("place", ["conversation", "alone", "previous"])
    def test_it_is_what_was_answered(self, stored: Kit, place: str) -> None:
        more: dict[str, Any] = {"metadata": {"a": "b"}}
        if place == "conversation":
            more["conversation"] = stored.client.conversations.create().id
        if place == "previous":
            more["previous_response_id"] = stored.ask().id
        made = stored.ask(**more)
        found = stored.client.responses.retrieve(made.id, include=["file_search_call.results"])
        assert found == made
        assert found.output_text == "It is on its way."
        assert found.conversation == made.conversation

    def test_what_was_streamed(self, stored: Kit) -> None:
        *_, last = stored.ask(stream=True)
        assert stored.client.responses.retrieve(last.response.id) == last.response

    def test_items_of_every_type(self, stored: Kit) -> None:
        names = [
            "reasoning", "function_call", "file_search_call", "web_search_call", "image_generation_call",
            "code_interpreter_call", "mcp_list_tools", "mcp_call", "mcp_approval_request",
            "custom_tool_call", "compaction",
        ]  # fmt: skip
        stored.model.output = [{"status": "completed", **sample(name), "id": f"item_{name}"} for name in names]
        found = stored.client.responses.retrieve(stored.ask().id)
        assert [item.type for item in found.output] == names

    def test_one_that_is_not_stored(self, stored: Kit) -> None:
        retrieve = stored.client.responses.retrieve
        assert missing(retrieve, stored.ask(store=False).id)
        id = stored.client.conversations.create().id
        unkept = stored.ask(store=False, conversation=id)
        assert missing(retrieve, unkept.id)
        assert stored.ask(previous_response_id=unkept.id).id, "though it can be gone on from"

    @pytest.mark.parametrize("id", ["resp_never", "x" * 300, "é" * 150, "a/b", "\0", " ", "resp_1\n"])
    def test_ids_of_nothing(self, stored: Kit, id: str) -> None:
        client = stored.client
        assert missing(client.responses.retrieve, id)
        assert missing(client.responses.delete, id)
        assert missing(client.responses.cancel, id)
        assert missing(client.responses.input_items.list, id)

    def test_a_very_large_answer(self, stored: Kit) -> None:
        stored.model.says = "é" * 4_000_000
        made = stored.ask()
        assert stored.client.responses.retrieve(made.id).output_text == stored.model.says
        seen: list[Any] = list(stored.client.responses.retrieve(made.id, stream=True))
        assert seen[-1].response.output_text == stored.model.says

    def test_what_is_deleted_from_the_conversation_is_missing(self, stored: Kit) -> None:
        client, id = stored.client, stored.client.conversations.create().id
        stored.model.output = [
            {**sample("function_call"), "id": "fc_gone"},
            {**sample("reasoning"), "id": "rs_kept"},
        ]
        made = stored.ask(conversation=id)
        client.conversations.items.delete("fc_gone", conversation_id=id)
        assert [item.id for item in client.responses.retrieve(made.id).output] == ["rs_kept"]
        question = client.responses.input_items.list(made.id).data[0].id
        assert question is not None
        client.conversations.items.delete(question, conversation_id=id)
        assert client.responses.input_items.list(made.id).data == []
        client.conversations.items.delete("rs_kept", conversation_id=id)
        assert missing(client.responses.retrieve, made.id)

    def test_async(self, stored: Kit) -> None:
        async def run() -> None:
            address = stored.api.address + "/v1"
            async with openai.AsyncOpenAI(base_url=address, api_key="x", max_retries=0) as client:
                made = await client.responses.create(model="m", input="hi")
                assert await client.responses.retrieve(made.id) == made
                seen = [event.type async for event in await client.responses.retrieve(made.id, stream=True)]
                assert seen[-1] == "response.completed"
                assert [item.id async for item in client.responses.input_items.list(made.id)]
                await client.responses.delete(made.id)
                with pytest.raises(openai.NotFoundError):
                    await client.responses.retrieve(made.id)

        asyncio.run(run())


class TestStream:
    def test_the_events(self, stored: Kit) -> None:
        made = stored.ask()
        seen: list[Any] = list(stored.client.responses.retrieve(made.id, stream=True))
        assert [event.type for event in seen] == [
            "response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
            "response.output_text.delta", "response.output_text.done", "response.content_part.done",
            "response.output_item.done", "response.completed",
        ]  # fmt: skip
        assert [event.sequence_number for event in seen] == [*range(9)]
        assert seen[4].delta == "It is on its way."
        assert (seen[0].response.status, seen[0].response.output) == ("in_progress", [])
        assert seen[-1].response == made

    def test_other_items(self, stored: Kit) -> None:
        refusal = {"id": "msg_no", "type": "message", "role": "assistant", "status": "completed"}
        stored.model.output = [
            {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
            {**sample("function_call"), "id": "fc_1", "arguments": '{"a": 1}'},
            {**refusal, "content": [{"type": "refusal", "refusal": "No."}]},
        ]
        seen: list[Any] = list(stored.client.responses.retrieve(stored.ask().id, stream=True))
        deltas = {event.type: event.delta for event in seen if event.type.endswith(".delta")}
        assert deltas == {
            "response.reasoning_summary_text.delta": "Hm.",
            "response.function_call_arguments.delta": '{"a": 1}',
            "response.refusal.delta": "No.",
        }
        assert [event.sequence_number for event in seen] == [*range(len(seen))]

    @pytest.mark.parametrize(("after", "wanted"), [(0, 8), (4, 4), (7, 1), (8, 1), (10**30, 1)])
    def test_starting_after(self, stored: Kit, after: int, wanted: int) -> None:
        id = stored.ask().id
        seen = list(stored.client.responses.retrieve(id, stream=True, starting_after=after))
        assert [event.sequence_number for event in seen] == [*range(9)][-wanted:]
        assert seen[-1].type == "response.completed"

    def test_what_is_wrong(self, stored: Kit) -> None:
        id = stored.ask().id
        for query, param in (("starting_after=x", "starting_after"), ("stream=perhaps", "stream"), ("x=1", "x")):
            answer = stored.api.get(f"{stored.api.address}/v1/responses/{id}?{query}")
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
        assert missing(stored.client.responses.retrieve, "resp_never", stream=True)


class TestInput:
    def test_pages(self, stored: Kit) -> None:
        given: Any = [{"role": "user", "content": str(number)} for number in range(25)]
        list_ = stored.client.responses.input_items.list
        id = stored.ask(given).id
        first = list_(id)
        assert texts(first.data) == [str(number) for number in range(24, 4, -1)]
        assert first.has_more
        assert texts(list_(id)) == [str(number) for number in range(24, -1, -1)], "the SDK turns the pages itself"
        assert texts(list_(id, order="asc", limit=3, include=["file_search_call.results"]))[:4] == ["0", "1", "2", "3"]
        assert texts(list_(id, order="asc", after=first.data[-1].id or "").data)[:2] == ["6", "7"]
        with pytest.raises(openai.BadRequestError):
            list_(id, after="msg_never")

    def test_the_history_is_not_among_it(self, stored: Kit) -> None:
        first = stored.ask("one")
        second = stored.ask("two", previous_response_id=first.id)
        assert texts(stored.client.responses.input_items.list(second.id)) == ["two"]


class TestDelete:
    def test_alone(self, stored: Kit) -> None:
        before = stored.api.get("/conversations").json()["items"]
        made = stored.ask("a secret")
        stored.client.responses.delete(made.id)
        assert missing(stored.client.responses.retrieve, made.id)
        assert missing(stored.client.responses.delete, made.id)
        assert missing(stored.ask, previous_response_id=made.id)
        assert stored.api.get("/conversations").json()["items"] == before, "what was said is gone too"

    def test_in_a_chain_the_others_stay(self, stored: Kit) -> None:
        first = stored.ask("one")
        second = stored.ask("two", previous_response_id=first.id)
        stored.client.responses.delete(first.id)
        assert stored.client.responses.retrieve(second.id).id == second.id
        stored.ask("three", previous_response_id=second.id)
        assert [item["content"] for item in stored.model.asked[-1]["input"]] == ["two", "It is on its way.", "three"]

    def test_in_a_conversation_the_items_stay(self, stored: Kit) -> None:
        client, id = stored.client, stored.client.conversations.create().id
        first = stored.ask("one", conversation=id)
        second = stored.ask("two", previous_response_id=first.id)
        for made in (first, second):
            client.responses.delete(made.id)
            assert missing(client.responses.retrieve, made.id)
        assert len(client.conversations.items.list(id).data) == 4

    def test_with_its_conversation(self, stored: Kit) -> None:
        id = stored.client.conversations.create().id
        made = stored.ask(conversation=id)
        stored.client.conversations.delete(id)
        assert missing(stored.client.responses.retrieve, made.id)

    def test_by_several_at_once(self, stored: Kit) -> None:
        id = stored.ask().id
        with ThreadPoolExecutor(8) as pool:
            done = list(pool.map(lambda _: missing(stored.client.responses.delete, id), range(8)))
        assert sorted(done) == [False, *[True] * 7]


def test_walls(stored: Kit) -> None:
    def of(user: str) -> openai.OpenAI:
        return client_of(stored.api, default_headers={"Hansard-User": user})

    with of("ada") as ada, of("eve") as eve:
        made = ada.responses.create(model="m", input="a secret")
        for other in (eve, stored.client):
            for call in (other.responses.retrieve, other.responses.delete, other.responses.input_items.list):
                assert missing(call, made.id)
        assert ada.responses.retrieve(made.id) == made
        stored.api.post("/users/ada/erase")
        assert missing(ada.responses.retrieve, made.id)


def test_of_another_server_without_a_model(tmp_path: Any) -> None:
    """What is stored is answered by whoever has the store."""
    url = f"sqlite:///{tmp_path}/chats.db"
    with kit(url) as first:
        made = first.ask()
    from tests.server.kit import serving

    with serving(url) as api, client_of(api) as client:
        assert client.responses.retrieve(made.id) == made
        client.responses.delete(made.id)
    with sync.connect(url) as store:
        assert store.records.scan().items == []
        assert store.list_conversations().items == []
