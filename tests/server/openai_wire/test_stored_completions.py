"""Chat completions with `store: true`: listed, asked for again, changed, deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest
from tests.server.openai_wire.conftest import client_of
from tests.server.openai_wire.stored import Kit, kit, missing


@pytest.fixture(scope="module")
def served() -> Iterator[Kit]:
    with kit() as made:
        yield made


@pytest.fixture
def stored(served: Kit) -> Kit:
    served.model.says, served.model.breaks = "It is on its way.", ""
    for each in served.client.chat.completions.list(limit=100):
        served.client.chat.completions.delete(each.id)
    return served


def all_of(stored: Kit, **more: Any) -> list[str]:
    return [each.id for each in stored.client.chat.completions.list(**more)]


class TestRetrieve:
    def test_it_is_what_was_answered(self, stored: Kit) -> None:
        made = stored.complete(metadata={"topic": "orders"})
        found: Any = stored.client.chat.completions.retrieve(made.id)
        assert (found.choices, found.usage, found.model) == (made.choices, made.usage, made.model)
        assert found.metadata == {"topic": "orders"}

    def test_what_was_streamed(self, stored: Kit) -> None:
        chunks = list(stored.complete(stream=True))
        (id,) = {chunk.id for chunk in chunks}
        (choice,) = stored.client.chat.completions.retrieve(id).choices
        assert (choice.message.content, choice.finish_reason) == ("It is on its way.", "stop")

    @pytest.mark.parametrize("store", [False, None])
    def test_one_that_is_not_stored(self, stored: Kit, store: bool | None) -> None:
        made = stored.complete(store=store)
        assert made.id.startswith("chatcmpl-")
        assert missing(stored.client.chat.completions.retrieve, made.id)
        assert all_of(stored) == []

    def test_an_endpoint_that_breaks_off(self, stored: Kit) -> None:
        stored.model.breaks = "middle"
        with pytest.raises(openai.APIError):
            list(stored.complete(stream=True))
        stored.model.breaks = "refuse"
        with pytest.raises(openai.BadRequestError):
            stored.complete()
        assert all_of(stored) == []

    @pytest.mark.parametrize("id", ["chatcmpl-1", "x" * 300, "a/b", "\0", " ", "chatcmpl-" + "0" * 32])
    def test_ids_of_nothing(self, stored: Kit, id: str) -> None:
        completions = stored.client.chat.completions
        assert missing(completions.retrieve, id)
        assert missing(completions.delete, id)
        assert missing(completions.update, id, metadata={})
        assert missing(completions.messages.list, id)

    def test_a_very_large_answer(self, stored: Kit) -> None:
        stored.model.says = "é" * 4_000_000
        found = stored.client.chat.completions.retrieve(stored.complete().id)
        assert found.choices[0].message.content == stored.model.says


class TestList:
    def test_pages(self, stored: Kit) -> None:
        made = [stored.complete(str(number)).id for number in range(25)]
        first = stored.client.chat.completions.list()
        assert [each.id for each in first.data] == made[:20]
        assert first.has_more
        assert all_of(stored) == made
        assert all_of(stored, order="desc", limit=7) == made[::-1]
        stored.client.chat.completions.delete(made[4])
        assert all_of(stored, after=made[4]) == made[5:], "a page goes on behind what was deleted"
        with pytest.raises(openai.BadRequestError) as caught:
            all_of(stored, after="chatcmpl-never")
        assert caught.value.param == "after"

    def test_filters(self, stored: Kit) -> None:
        one = stored.complete(metadata={"topic": "orders", "who": "a b&c"}).id
        two = stored.complete(metadata={"topic": "orders"}).id
        three = stored.complete().id
        assert all_of(stored, metadata={"topic": "orders"}) == [one, two]
        assert all_of(stored, metadata={"topic": "orders", "who": "a b&c"}, limit=1) == [one]
        assert all_of(stored, metadata={"topic": "other"}) == []
        assert all_of(stored, model="m-1") == [one, two, three]
        assert all_of(stored, model="m-2") == []
        answer = stored.api.get(stored.api.address + "/v1/chat/completions?metadata[x=1")
        assert answer.status_code == 400


class TestMessages:
    def test_what_was_asked(self, stored: Kit) -> None:
        parts: Any = [{"type": "text", "text": "Look:"}, {"type": "image_url", "image_url": {"url": "https://x/y.png"}}]
        made: Any = stored.client.chat.completions.create(
            model="m-1",
            store=True,
            messages=[
                {"role": "system", "content": "Be short."},
                {"role": "user", "content": parts},
            ],
        )
        # By their types only an assistant speaks here, though what is listed is what was asked.
        with stored.of(_strict_response_validation=False) as loose:
            first, second = loose.chat.completions.messages.list(made.id, limit=1)
            assert (first.id, first.role, first.content) == (f"{made.id}-0", "system", "Be short.")
            assert second.content is None
            assert [part.type for part in second.content_parts or ()] == ["text", "image_url"]
            backwards = loose.chat.completions.messages.list(made.id, order="desc", after=second.id)
            assert [each.id for each in backwards] == [first.id]
            with pytest.raises(openai.BadRequestError):
                loose.chat.completions.messages.list(made.id, after="x")


class TestChange:
    def test_metadata(self, stored: Kit) -> None:
        made = stored.complete(metadata={"a": "b", "c": "d"})
        changed: Any = stored.client.chat.completions.update(made.id, metadata={"e": "f"})
        assert changed.metadata == {"e": "f"}
        assert stored.client.chat.completions.retrieve(made.id) == changed
        with pytest.raises(openai.BadRequestError):
            stored.client.chat.completions.update(made.id, metadata={"k" * 65: "x"})
        with pytest.raises(openai.BadRequestError):
            stored.client.chat.completions.update(made.id, metadata={}, extra_body={"model": "other"})

    def test_metadata_that_could_not_be_kept_is_refused_before_the_model_is_asked(self, stored: Kit) -> None:
        before = stored.model.count
        with pytest.raises(openai.BadRequestError):
            stored.complete(metadata={"k": "x" * 513})
        assert stored.model.count == before

    def test_delete(self, stored: Kit) -> None:
        id = stored.complete().id
        gone = stored.client.chat.completions.delete(id)
        assert (gone.id, gone.deleted, gone.object) == (id, True, "chat.completion.deleted")
        assert missing(stored.client.chat.completions.retrieve, id)

    def test_by_several_at_once(self, stored: Kit) -> None:
        completions = stored.client.chat.completions
        id = stored.complete().id
        with ThreadPoolExecutor(8) as pool:
            assert not any(pool.map(lambda n: missing(completions.update, id, metadata={"n": str(n)}), range(8)))
            done = list(pool.map(lambda _: missing(completions.delete, id), range(8)))
        assert sorted(done) == [False, *[True] * 7]

    def test_async(self, stored: Kit) -> None:
        async def run() -> None:
            address = stored.api.address + "/v1"
            async with openai.AsyncOpenAI(base_url=address, api_key="x", max_retries=0) as client:
                completions = client.chat.completions
                made = await completions.create(model="m", messages=[{"role": "user", "content": "hi"}], store=True)
                assert (await completions.retrieve(made.id)).choices == made.choices
                assert [each.id async for each in completions.list()] == [made.id]
                assert len((await completions.messages.list(made.id)).data) == 1
                await completions.update(made.id, metadata={"a": "b"})
                assert (await completions.delete(made.id)).deleted

        asyncio.run(run())


class TestWalls:
    def test_with_its_conversation(self, stored: Kit) -> None:
        made = stored.complete(extra_headers={"Hansard-Conversation": "with-completions"})
        assert stored.client.chat.completions.retrieve(made.id).id == made.id
        stored.client.conversations.delete("with-completions")
        assert missing(stored.client.chat.completions.retrieve, made.id)
        assert all_of(stored) == []

    def test_users(self, stored: Kit) -> None:
        def of(user: str) -> openai.OpenAI:
            return client_of(stored.api, default_headers={"Hansard-User": user})

        with of("ada") as ada, of("eve") as eve:
            made = ada.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}], store=True)
            for other in (eve, stored.client):
                completions = other.chat.completions
                assert completions.list().data == []
                for call in (completions.retrieve, completions.delete, completions.messages.list):
                    assert missing(call, made.id)
                assert missing(completions.update, made.id, metadata={})
            assert [each.id for each in ada.chat.completions.list()] == [made.id]
            stored.api.post("/users/ada/erase")
            assert ada.chat.completions.list().data == []
