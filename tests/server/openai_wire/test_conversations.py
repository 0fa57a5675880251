"""The Conversations API through the official SDK, and what else sees of it."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any

import openai
import pytest
from openai.pagination import SyncConversationCursorPage
from openai.types.conversations import Conversation
from tests.server.kit import Served
from tests.server.openai_wire.samples import ITEMS, UNKNOWN, sample

from hansard.formats.openai_items import KINDS
from hansard.model import Message


def said(text: str, role: str = "user") -> Any:
    return {"role": role, "content": text}


def texts(items: Any) -> list[str]:
    return [item.content[0].text for item in items]


def on(api: Served, coroutine: Any) -> Any:
    """What the store itself says, asked on the server's own loop."""
    return asyncio.run_coroutine_threadsafe(coroutine, api.loop).result(30)


class TestConversations:
    def test_from_its_making_to_its_end(self, client: openai.OpenAI) -> None:
        before = int(time.time())
        made = client.conversations.create(metadata={"topic": "orders"})
        assert re.fullmatch(r"conv_[0-9a-f]{48}", made.id)
        assert made.object == "conversation"
        assert before - 5 <= made.created_at <= int(time.time()) + 5
        assert client.conversations.retrieve(made.id) == made
        changed = client.conversations.update(made.id, metadata={"mood": "better"})
        assert changed.metadata == {"mood": "better"}, "what is not given any more is gone"
        assert client.conversations.update(made.id, metadata=None).metadata == {}
        gone = client.conversations.delete(made.id)
        assert (gone.id, gone.object, gone.deleted) == (made.id, "conversation.deleted", True)
        for call in (client.conversations.retrieve, client.conversations.delete):
            with pytest.raises(openai.NotFoundError):
                call(made.id)

    def test_with_its_first_items(self, client: openai.OpenAI, api: Served) -> None:
        made = client.conversations.create(items=[said("one"), said("two", "assistant")], metadata={"a": "b"})
        assert made.metadata == {"a": "b"}
        assert texts(client.conversations.items.list(made.id, order="asc")) == ["one", "two"]
        newest = api.get("/conversations?limit=1").json()["items"]
        with pytest.raises(openai.BadRequestError):
            client.conversations.create(items=[said("one"), said("x", "nobody")])
        assert api.get("/conversations?limit=1").json()["items"] == newest, "all or nothing"

    def test_nothing_given(self, client: openai.OpenAI, api: Served) -> None:
        assert client.conversations.create(items=[]).metadata == {}
        assert client.conversations.create(items=None, metadata=None).metadata == {}
        empty = api.post(api.address + "/v1/conversations")
        assert empty.json()["object"] == "conversation"

    def test_listing_which_openai_has_not(self, client: openai.OpenAI) -> None:
        client = client.with_options(default_headers={"Hansard-Tenant": "listing"})
        made = [client.conversations.create(items=[said("x")]).id for _ in range(5)]

        def page(**query: object) -> Any:
            return client.get(
                "/conversations", cast_to=SyncConversationCursorPage[Conversation], options={"params": query}
            )

        first = page(limit=2)
        assert [each.id for each in first.data] == [made[4], made[3]]
        assert first.has_more
        second = page(limit=3, after=first.last_id)
        assert [each.id for each in second.data] == [made[2], made[1], made[0]]
        assert not second.has_more
        assert [each.id for each in page(order="asc", limit=1).data] == [made[0]]
        with pytest.raises(openai.BadRequestError):
            page(after="conv_never")


class TestItems:
    def test_every_type_is_known(self) -> None:
        assert set(KINDS) == set(ITEMS)

    @pytest.mark.parametrize("kind", KINDS)
    def test_every_type_comes_back_whole(self, client: openai.OpenAI, kind: str) -> None:
        id = client.conversations.create().id
        given = sample(kind)
        added = client.conversations.items.create(id, items=[given]).data[0]
        assert added.type == kind
        assert added.id
        found = client.conversations.items.retrieve(added.id, conversation_id=id)
        assert found == added == client.conversations.items.list(id).data[0]
        shown = found.model_dump(exclude_unset=True, mode="json")
        if kind == "message":
            assert shown.pop("content") == [{"type": "input_text", "text": given.pop("content")}]
        assert shown.items() >= given.items(), "nothing of it was changed"
        back: Any = shown if kind != "message" else sample(kind)
        again = client.conversations.create(items=[back])
        assert client.conversations.items.list(again.id).data[0].type == kind, "what came out goes in again"

    def test_a_type_that_nobody_knows_is_kept_as_it_came(self, api: Served) -> None:
        url = api.address + "/v1/conversations"
        id = api.post(url, json={}).json()["id"]
        added = api.post(f"{url}/{id}/items", json={"items": [UNKNOWN]}).json()["data"][0]
        item_id = added.pop("id")
        assert list(added.items()) == list(UNKNOWN.items())
        found = api.get(f"{url}/{id}/items/{item_id}")
        assert list(found.json()) == [*UNKNOWN, "id"]
        assert '"thought":{"b":1,"a":[null,1.5,12345678901234567890]}' in found.text

    def test_what_the_api_fills_in(self, client: openai.OpenAI) -> None:
        id = client.conversations.create().id
        parts: Any = [{"type": "input_image", "image_url": "https://x.example"}, {"type": "input_text", "text": "this"}]
        answer: Any = {"role": "assistant", "content": [{"type": "output_text", "text": "that"}]}
        added = client.conversations.items.create(id, items=[{"role": "user", "content": parts}, answer]).data
        first, second = [item.model_dump(exclude_unset=True) for item in added]
        assert first["content"][0]["detail"] == "auto"
        assert (first["type"], first["status"]) == ("message", "completed")
        assert second["content"][0] == {"type": "output_text", "text": "that", "annotations": [], "logprobs": []}

    def test_ids_have_the_prefix_of_their_type(self, client: openai.OpenAI) -> None:
        id = client.conversations.create().id
        kinds = {"message": "msg_", "function_call": "fc_", "function_call_output": "fco_", "custom_tool_call": "ctc_"}
        added = client.conversations.items.create(id, items=[sample(kind) for kind in kinds]).data
        for item, prefix in zip(added, kinds.values(), strict=True):
            assert re.fullmatch(prefix + "[0-9a-f]{48}", item.id or "")

    def test_an_id_of_its_own(self, client: openai.OpenAI) -> None:
        id = client.conversations.create().id
        given: Any = {"id": "msg_mine", "type": "message", **said("x")}
        assert client.conversations.items.create(id, items=[given]).data[0].id == "msg_mine"
        assert client.conversations.items.create(id, items=[given]).data[0].id == "msg_mine", (
            "the same again is no harm"
        )
        for items in ([{**given, "content": "y"}], [{**given, "id": "msg_n"}, {**given, "id": "msg_n"}]):
            with pytest.raises(openai.BadRequestError) as twice:
                client.conversations.items.create(id, items=items)  # type: ignore[arg-type]
            assert (twice.value.code, twice.value.param) == ("duplicate_item", "items")
        assert len(client.conversations.items.list(id).data) == 1

    def test_deleting_gives_the_conversation(self, client: openai.OpenAI) -> None:
        made = client.conversations.create(items=[said("one"), said("two")])
        newest = client.conversations.items.list(made.id).data[0].id
        assert newest
        assert client.conversations.items.delete(newest, conversation_id=made.id).id == made.id
        assert texts(client.conversations.items.list(made.id)) == ["one"]
        for call in (client.conversations.items.delete, client.conversations.items.retrieve):
            with pytest.raises(openai.NotFoundError):
                call(newest, conversation_id=made.id)

    def test_an_empty_page(self, client: openai.OpenAI) -> None:
        id = client.conversations.create().id
        page = client.conversations.items.list(id)
        assert (page.data, page.has_more, page.last_id) == ([], False, "")
        assert client.conversations.items.create(id, items=[]).data == []

    def test_include_is_taken_in_both_spellings_and_never_needed(self, client: openai.OpenAI, api: Served) -> None:
        id = client.conversations.create(items=[sample("reasoning")]).id
        for include in ([], ["reasoning.encrypted_content", "message.output_text.logprobs"]):
            (item,) = client.conversations.items.list(id, include=include).data  # type: ignore[arg-type]
            assert item.encrypted_content == "g"  # type: ignore[union-attr]
        url = f"{api.address}/v1/conversations/{id}/items"
        assert api.get(url + "?include=reasoning.encrypted_content").status_code == 200
        assert api.get(url + "?include[]=nonsense!").status_code == 400


class TestPaging:
    COUNT = 250

    @pytest.fixture
    def long(self, client: openai.OpenAI) -> str:
        id = client.conversations.create().id
        for start in range(0, self.COUNT, 20):
            numbers = range(start, min(start + 20, self.COUNT))
            client.conversations.items.create(id, items=[said(str(number)) for number in numbers])
        return id

    @pytest.mark.parametrize("limit", [1, 7, 100, None])
    def test_through_all_of_it(self, client: openai.OpenAI, long: str, limit: int | None) -> None:
        given: Any = {} if limit is None else {"limit": limit}
        numbers = [str(number) for number in range(self.COUNT)]
        assert texts(client.conversations.items.list(long, order="asc", **given)) == numbers
        assert texts(client.conversations.items.list(long, **given)) == numbers[::-1], "newest first by default"

    def test_one_page(self, client: openai.OpenAI, long: str) -> None:
        page = client.conversations.items.list(long)
        assert len(page.data) == 20
        assert (page.last_id, page.has_more) == (page.data[-1].id, True)

    @pytest.mark.parametrize("order", ["asc", "desc"])
    def test_deleting_while_paging(self, client: openai.OpenAI, order: Any) -> None:
        given: Any = [{"role": "user", "content": str(number)} for number in range(20)]
        id = client.conversations.create(items=given).id
        texts = []
        for item in client.conversations.items.list(id, order=order, limit=3):
            texts.append(item.content[0].text)  # type: ignore[union-attr,index]
            client.conversations.items.delete(item.id or "", conversation_id=id)
        assert texts == [str(number) for number in range(20)][:: 1 if order == "asc" else -1]
        assert client.conversations.items.list(id).data == []

    @pytest.mark.parametrize("order", ["asc", "desc"])
    def test_deleting_one_of_several_items_of_a_message_while_paging(
        self, client: openai.OpenAI, api: Served, order: Any
    ) -> None:
        """It takes the others with it, and a page may end at one of those."""
        id = client.conversations.create().id
        blocks = [{"type": "text", "text": "a"}, {"type": "tool_use", "id": "t", "name": "f", "input": {}}]
        said = {"role": "assistant", "format": "anthropic", "content": blocks}
        assert api.post(f"/conversations/{id}/messages", json={"messages": [said] * 4}).is_success
        gone = 0
        for item in client.conversations.items.list(id, order=order, limit=2):
            try:
                client.conversations.items.delete(item.id or "", conversation_id=id)
            except openai.NotFoundError:
                gone += 1
        assert gone == 4
        assert client.conversations.items.list(id).data == []

    def test_a_message_that_is_several_items(self, client: openai.OpenAI, api: Served) -> None:
        """Written by Anthropic's SDK: one message that speaks and calls two tools."""
        blocks = [
            {"type": "text", "text": "Let me see."},
            *({"type": "tool_use", "id": f"t{n}", "name": "find", "input": {"n": n}} for n in (1, 2)),
        ]
        on(
            api,
            api.store.append(
                "several", [Message("user", "hi", id="m0"), Message("assistant", blocks, id="m1", format="anthropic")]
            ),
        )
        wanted = ["m0", "m1.0", "m1.1", "m1.2"]
        for limit in (1, 2, 3, 4):
            assert [item.id for item in client.conversations.items.list("several", order="asc", limit=limit)] == wanted
            assert [item.id for item in client.conversations.items.list("several", limit=limit)] == wanted[::-1]
        assert client.conversations.items.retrieve("m1.2", conversation_id="several").type == "function_call"
        for id in ("m1", "m1.3", "m1.x", "m0.0"):
            with pytest.raises(openai.NotFoundError):
                client.conversations.items.retrieve(id, conversation_id="several")
        client.conversations.items.delete("m1.1", conversation_id="several")
        assert [item.id for item in client.conversations.items.list("several")] == ["m0"], "its message went with it"


class TestOneHistory:
    def test_what_comes_in_here_is_seen_elsewhere(self, client: openai.OpenAI, api: Served) -> None:
        id = client.conversations.create(items=[said("Where is the marmalade?"), sample("function_call")]).id
        stored = api.get(f"/conversations/{id}/messages").json()["items"]
        assert [each["role"] for each in stored] == ["user", "assistant"]
        assert {each["format"] for each in stored} == {"openai.responses"}
        hit = on(api, api.store.search("marmalade"))[0]
        assert hit.message.text == "Where is the marmalade?"

    def test_what_was_written_elsewhere_is_seen_here(self, client: openai.OpenAI, api: Served) -> None:
        on(api, api.store.append("foreign", [
            Message("user", "hello"),
            Message("assistant", [{"type": "text", "text": "hi"}], format="anthropic"),
            Message("tool", {"role": "tool", "tool_call_id": "t1", "content": "42"}, format="openai.chat"),
            Message("agent", {"odd": True}),
            Message("assistant", "", status="interrupted"),
            Message("system", []),
        ]))  # fmt: skip
        items = client.conversations.items.list("foreign", order="asc").data
        assert [item.type for item in items] == ["message", "message", "function_call_output", *["message"] * 3]
        assert texts(items[:2]) == ["hello", "hi"]
        assert items[4].status == "incomplete"  # type: ignore[union-attr]


class TestRefusals:
    def refused(self, call: Any, status: int, code: str | None = None, param: str | None = None) -> Any:
        with pytest.raises(openai.APIStatusError) as caught:
            call()
        error = caught.value
        assert (error.status_code, error.type) == (status, "invalid_request_error")
        assert error.request_id
        if code is not None:
            assert (error.code, error.param) == (code, param)
        return error

    def test_too_many_items(self, client: openai.OpenAI) -> None:
        id = client.conversations.create().id
        many = [said("x")] * 21
        for call in (
            lambda: client.conversations.items.create(id, items=many),
            lambda: client.conversations.create(items=many),
        ):
            self.refused(call, 400, "array_above_max_length", "items")
        assert client.conversations.items.list(id).data == []

    @pytest.mark.parametrize(
        ("metadata", "code", "param"),
        [
            ({str(n): "x" for n in range(17)}, "object_above_max_properties", "metadata"),
            ({"k" * 65: "x"}, "string_above_max_length", "metadata"),
            ({"k": "x" * 513}, "string_above_max_length", "metadata.k"),
            ({"k": 1}, "invalid_type", "metadata.k"),
            ([], "invalid_type", "metadata"),
        ],
    )
    def test_metadata(self, client: openai.OpenAI, metadata: Any, code: str, param: str) -> None:
        id = client.conversations.create(metadata={"k" * 64: "x" * 512}).id
        self.refused(lambda: client.conversations.create(metadata=metadata), 400, code, param)
        self.refused(lambda: client.conversations.update(id, metadata=metadata), 400, code, param)
        assert client.conversations.retrieve(id).metadata == {"k" * 64: "x" * 512}

    @pytest.mark.parametrize(
        ("item", "code", "param"),
        [
            ("text", "invalid_type", "items[1]"),
            ({"type": 1}, "invalid_type", "items[1].type"),
            ({"type": "", "role": "user", "content": "x"}, "invalid_type", "items[1].type"),
            ({"role": "user", "content": "x", "status": 7}, "invalid_type", "items[1].status"),
            ({"role": "user"}, "missing_required_parameter", "items[1].content"),
            ({"role": "user", "content": 1}, "invalid_type", "items[1].content"),
            ({"role": "user", "content": ["x"]}, "invalid_type", "items[1].content[0]"),
            ({"role": "user", "content": [{}]}, "missing_required_parameter", "items[1].content[0].type"),
            ({"role": "user", "content": [{"type": "text"}]}, "missing_required_parameter", "items[1].content[0].text"),
            ({"role": "king", "content": "x"}, "invalid_value", "items[1].role"),
            ({"type": "message", "content": "x"}, "missing_required_parameter", "items[1].role"),
            ({"type": "function_call", "name": "f"}, "missing_required_parameter", "items[1].call_id"),
            ({"type": "custom_tool_call", "call_id": "c", "name": 1}, "invalid_type", "items[1].name"),
            ({"type": "item_reference", "id": "msg_1"}, "invalid_value", "items[1].type"),
            ({"id": "msg_1"}, "invalid_value", "items[1].type"),
            ({}, "missing_required_parameter", "items[1].type"),
            ({"role": "user", "content": "x", "id": 7}, "invalid_type", "items[1].id"),
            ({"role": "user", "content": "x", "id": ""}, "invalid_type", "items[1].id"),
        ],
    )  # fmt: skip
    def test_malformed_items(self, client: openai.OpenAI, item: Any, code: str, param: str) -> None:
        id = client.conversations.create().id
        self.refused(lambda: client.conversations.items.create(id, items=[said("x"), item]), 400, code, param)
        assert client.conversations.items.list(id).data == [], "nothing was stored"

    @pytest.mark.parametrize(
        ("query", "code", "param"),
        [
            ({"limit": 0}, "integer_below_min_value", "limit"),
            ({"limit": -1}, "integer_below_min_value", "limit"),
            ({"limit": 101}, "integer_above_max_value", "limit"),
            ({"limit": "ten"}, "invalid_type", "limit"),
            ({"limit": "1" * 5000}, "integer_above_max_value", "limit"),
            ({"limit": "--1"}, "invalid_type", "limit"),
            ({"order": "newest"}, "invalid_value", "order"),
            ({"after": "msg_never"}, "invalid_value", "after"),
            ({"after": "msg_never.0"}, "invalid_value", "after"),
            ({"after": "cursor:nonsense"}, "invalid_value", "after"),
            ({"after": ""}, "invalid_value", "after"),
            ({"offset": "x"}, "unknown_parameter", "offset"),
        ],
    )
    def test_bad_parameters(self, client: openai.OpenAI, query: Any, code: str, param: str) -> None:
        id = client.conversations.create(items=[said("x")]).id
        self.refused(lambda: client.conversations.items.list(id, extra_query=query), 400, code, param)

    def test_what_is_not_there(self, client: openai.OpenAI) -> None:
        items = client.conversations.items
        for call in (
            lambda: client.conversations.retrieve("conv_never"),
            lambda: client.conversations.update("conv_never", metadata={}),
            lambda: client.conversations.delete("conv_never"),
            lambda: items.create("conv_never", items=[said("x")]),
            lambda: items.create("conv_never", items=[]),
            lambda: items.list("conv_never"),
            lambda: items.list("conv_never", after="msg_1"),
            lambda: items.list("conv_never", after="msg_1.0"),
            lambda: items.retrieve("msg_1", conversation_id="conv_never"),
            lambda: items.delete("msg_1", conversation_id="conv_never"),
            lambda: client.conversations.retrieve("x" * 300),
            lambda: items.list("x" * 300),
        ):
            error = self.refused(call, 404, "not_found")
            assert "not found" in error.message
        listed: Any = client.get("/conversations", cast_to=object)
        assert "conv_never" not in [each["id"] for each in listed["data"]], "and it was not made"

    @pytest.mark.parametrize(
        ("body", "status", "code"),
        [
            (b"{", 400, "invalid_json"),
            (b"[]", 400, "invalid_type"),
            (b'"\xff"', 400, "invalid_json"),
            (b'{"metadata": {}, "metadate": {}}', 400, "unknown_parameter"),
            (b'{"items": {}}', 400, "invalid_type"),
            (b"[" * 100_000, 400, "invalid_json"),
        ],
    )
    def test_bodies(self, api: Served, body: bytes, status: int, code: str) -> None:
        answer = api.post(api.address + "/v1/conversations", content=body, headers={"Content-Type": "application/json"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}

    def test_update_needs_metadata(self, client: openai.OpenAI, api: Served) -> None:
        id = client.conversations.create().id
        answer = api.post(f"{api.address}/v1/conversations/{id}", json={})
        assert answer.json()["error"]["code"] == "missing_required_parameter"

    def test_routes_that_are_not_there(self, api: Served) -> None:
        for method, path, status in (("GET", "/v1/nothing", 404), ("PUT", "/v1/conversations", 405)):
            answer = api.request(method, api.address + path)
            assert (answer.status_code, answer.json()["error"]["code"]) == (status, "unknown_url")
            assert answer.headers.get("allow") == (None if status == 404 else "GET, POST")

    @pytest.mark.filterwarnings("ignore::DeprecationWarning")
    def test_what_only_openai_has(self, client: openai.OpenAI) -> None:
        """Whoever looks for it is told why it is not here."""
        threads: Any = client.beta.threads
        assistants: Any = client.beta.assistants
        for call, why in (
            (lambda: threads.runs.create("thread_1", assistant_id="asst_1"), "runs no models"),
            (lambda: threads.create_and_run(assistant_id="asst_1"), "runs no models"),
            (lambda: threads.runs.steps.list("run_1", thread_id="thread_1"), "runs no models"),
            (assistants.list, "Assistants are not supported"),
        ):
            assert why in self.refused(call, 404, "unknown_url").message

    def test_another_media_type(self, api: Served) -> None:
        answer = api.post(api.address + "/v1/conversations", content=b"{}", headers={"Content-Type": "text/plain"})
        assert answer.status_code == 415
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
