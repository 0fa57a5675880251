"""What goes through to a model endpoint and back: tools, streams that end in every way, clients that leave."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from tests.server.kit import Served, serving
from tests.server.openai_wire import schema_check
from tests.server.openai_wire.conftest import client_of
from tests.server.openai_wire.endpoint import Endpoint, endpoint
from tests.server.openai_wire.samples import sample

from hansard.formats.openai_items import checked
from hansard.server.openai.chunks import Chunks
from hansard.server.openai.upstream import StreamDisconnected, Upstream, events
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
    model.asked, model.output, model.script, model.breaks = [], None, None, ""
    model.hung_up.clear()


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "find",
    "arguments": "{}",
    "status": "completed",
}
ANSWER: Any = {"type": "function_call_output", "call_id": "call_1", "output": "17"}
NATIVE = [
    ("computer_call", "computer_call_output"),
    ("shell_call", "shell_call_output"),
    ("local_shell_call", "local_shell_call_output"),
    ("apply_patch_call", "apply_patch_call_output"),
    ("tool_search_call", "tool_search_output"),
    ("mcp_approval_request", "mcp_approval_response"),
]
"""Calls and answers that only Responses has a word for."""


class TestTools:
    @pytest.mark.parametrize("how", ["conversation", "previous_response_id"])
    def test_a_call_is_given_back_with_its_answer(self, client: openai.OpenAI, model: Endpoint, how: str) -> None:
        id = client.conversations.create().id
        model.output = [sample("reasoning") | {"id": f"rs_{how}"}, CALL]
        named: Any = {"conversation": id} if how == "conversation" else {}
        first = client.responses.create(model="m", input="Where is it?", **named)
        model.output = None
        after: Any = named or {"previous_response_id": first.id}
        client.responses.create(model="m", input=[ANSWER, {"role": "user", "content": "Well?"}], **after)
        asked = model.asked[-1]["input"]
        assert [item.get("type", item.get("role")) for item in asked] == [
            *("user", "reasoning", "function_call", "function_call_output", "user")
        ]
        assert (asked[2]["call_id"], asked[3]["call_id"], asked[3]["output"]) == ("call_1", "call_1", "17")

    def test_an_answer_keeps_what_the_model_was_given(self, client: openai.OpenAI, api: Served) -> None:
        id = client.conversations.create().id
        for text in ("Where is it?", "And the other?"):
            client.responses.create(model="m", input=text, conversation=id)
        thanks: Any = [{"role": "user", "content": "Thanks"}]
        client.chat.completions.create(model="m", messages=thanks, extra_headers={"Hansard-Conversation": id})
        messages = api.get(f"/conversations/{id}/messages").json()["items"]
        found = [api.get(f"/conversations/{id}/messages/{each['id']}/prompt").json() for each in messages]
        counts = [each["prompt"] and len(each["prompt"]["messages"]) for each in found]
        assert counts == [None, 1, None, 3, None, 5]
        assert {each["state"] for each in found[-1]["prompt"]["messages"]} == {"same"}
        assert found[-1]["prompt"]["budget"] == 0

    def test_calls_at_once_that_are_answered_together(self, client: openai.OpenAI, model: Endpoint) -> None:
        id = client.conversations.create().id
        model.output = [{**CALL, "id": f"fc_{each}", "call_id": f"call_{each}"} for each in "ab"]
        client.responses.create(model="m", input="Where are they?", conversation=id, parallel_tool_calls=True)
        answers: Any = [{**ANSWER, "call_id": f"call_{each}", "output": each} for each in "ba"]
        model.output = None
        client.responses.create(model="m", input=answers, conversation=id)
        asked = model.asked[-1]["input"]
        assert [(item["type"], item["call_id"]) for item in asked[1:]] == [
            *(("function_call", "call_a"), ("function_call", "call_b")),
            *(("function_call_output", "call_b"), ("function_call_output", "call_a")),
        ]
        assert [item.get("output") for item in asked[3:]] == ["b", "a"]

    def test_the_input_goes_in_the_order_in_which_it_was_sent(self, client: openai.OpenAI, model: Endpoint) -> None:
        """A model answers what comes last: here, the result of its tool."""
        id = client.conversations.create().id
        model.output = [CALL]
        question: Any = {"role": "user", "content": "Where is it?"}
        client.responses.create(model="m", input=[question], conversation=id)
        model.output = None
        given: Any = [question, {"role": "developer", "content": "Be brief."}, ANSWER]
        client.responses.create(model="m", input=given, conversation=id)
        asked = model.asked[-1]["input"]
        assert [item.get("type") for item in asked[:2]] == [None, "function_call"]
        assert asked[2:] == given
        kept = client.conversations.items.list(id, order="asc").data
        assert [item.type for item in kept][2:5] == ["message", "message", "function_call_output"]

    def test_the_id_of_a_call_that_is_written_anew_is_that_of_its_answer(
        self, client: openai.OpenAI, model: Endpoint, api: Served
    ) -> None:
        """Another provider's call: its id holds a character that this one refuses, and is there twice."""
        id = client.conversations.create().id
        call = {"type": "tool_use", "id": "toolu.1", "name": "find", "input": {}}
        done = {"type": "tool_result", "tool_use_id": "toolu.1", "content": "16"}
        said = [("assistant", call), ("user", done), ("assistant", call)]
        messages = [{"role": role, "content": [part], "format": "anthropic"} for role, part in said]
        assert api.post(f"/conversations/{id}/messages", json={"messages": messages}).is_success
        given: Any = [{"role": "user", "content": "Well?"}, {**ANSWER, "call_id": "toolu.1"}]
        client.responses.create(model="m", input=given, conversation=id)
        *_, second, question, answer = model.asked[-1]["input"]
        assert (second["type"], question, answer["output"]) == ("function_call", given[0], "17")
        assert second["call_id"] == answer["call_id"] != model.asked[-1]["input"][0]["call_id"]

    def test_a_call_that_nobody_answers_is_left_out(self, client: openai.OpenAI, model: Endpoint) -> None:
        id = client.conversations.create().id
        model.output = [CALL]
        client.responses.create(model="m", input="Where is it?", conversation=id)
        client.responses.create(model="m", input="Never mind.", conversation=id)
        assert [item["content"] for item in model.asked[-1]["input"]] == ["Where is it?", "Never mind."]

    def test_a_call_and_its_answer_both_given(self, client: openai.OpenAI, model: Endpoint) -> None:
        id = client.conversations.create().id
        given: Any = [{**CALL, "id": "fc_own"}, ANSWER]
        client.responses.create(model="m", input=given, conversation=id)
        assert model.asked[-1]["input"] == given, "what was sent goes as it was sent"

    @pytest.mark.parametrize(("call", "answer"), [*NATIVE, ("custom_tool_call", "custom_tool_call_output")])
    def test_what_only_this_api_has_a_word_for(
        self, client: openai.OpenAI, model: Endpoint, call: str, answer: str
    ) -> None:
        id = client.conversations.create().id
        model.output = [sample("reasoning"), {"id": "x_1", **checked(sample(call), "item")}]
        client.responses.create(model="m", input="Do it.", conversation=id)
        model.output = None
        given = sample(answer)
        if call == "local_shell_call":
            given["call_id"] = sample(call)["call_id"]
        client.responses.create(model="m", input=[given], conversation=id)
        asked = model.asked[-1]["input"]
        assert [item.get("type") for item in asked] == [None, "reasoning", call, answer]
        client.responses.create(model="m", input="And now?", conversation=id)
        asked = model.asked[-1]["input"]
        assert "id" not in asked[3] or answer == "local_shell_call_output", "one that was made up here, if any"
        again = [item.get("type") for item in asked]
        assert again == [None, "reasoning", call, answer, None, None], "and later, from the history alone"

    @pytest.mark.parametrize(("call", "answer"), NATIVE)
    def test_such_a_call_without_its_answer_and_the_other_way_round(
        self, client: openai.OpenAI, model: Endpoint, call: str, answer: str
    ) -> None:
        given = [sample("reasoning"), sample(call), {"role": "user", "content": "Stop."}]
        id = client.conversations.create(items=given).id
        client.responses.create(model="m", input="Why?", conversation=id)
        assert [item.get("content") for item in model.asked[-1]["input"]] == ["Stop.", "Why?"]
        id = client.conversations.create(items=[sample(answer)]).id
        client.responses.create(model="m", input="Why?", conversation=id)
        assert [item.get("content") for item in model.asked[-1]["input"]] == ["Why?"]

    def test_one_answer_is_for_one_call_that_stands_before_it(self, client: openai.OpenAI, model: Endpoint) -> None:
        """Some endpoints count their calls from one in each response."""
        call, answer = sample("shell_call"), sample("shell_call_output")
        given: Any = [{**answer, "id": "sho_0"}, {**call, "id": "sh_1"}, answer, {**call, "id": "sh_2"}]
        id = client.conversations.create(items=given).id
        client.responses.create(model="m", input="Why?", conversation=id)
        assert [item.get("type") for item in model.asked[-1]["input"]] == ["shell_call", "shell_call_output", None]

    @pytest.mark.parametrize("more", [{"namespace": None, "status": None, "caller": None}, {"status": "failed"}])
    def test_a_call_that_is_written_otherwise_keeps_its_answer_or_both_go(
        self, client: openai.OpenAI, model: Endpoint, more: dict[str, Any]
    ) -> None:
        """The SDKs write null for what is not there when an answer is dumped."""
        items: Any = [{**CALL, **more}, ANSWER]
        id = client.conversations.create(items=items).id
        client.responses.create(model="m", input="Well?", conversation=id)
        *before, _ = model.asked[-1]["input"]
        kept = {"type": "function_call", "call_id": "call_1", "name": "find", "arguments": "{}"}
        assert before == ([] if more.get("status") else [{**kept, "status": "completed"}, ANSWER])

    @pytest.mark.parametrize(
        "content", [{"type": ["a"]}, {"type": "shell_call", "call_id": {"a": 1}}, {"call_id": [1]}]
    )
    def test_any_json_in_the_history(self, client: openai.OpenAI, api: Served, model: Endpoint, content: Any) -> None:
        id = client.conversations.create().id
        said = {"role": "user", "content": content, "format": "json"}
        assert api.post(f"/conversations/{id}/messages", json={"messages": [said]}).is_success
        client.responses.create(model="m", input="Well?", conversation=id)
        assert model.asked[-1]["input"][0]["content"] == content
        odd: Any = {"type": "tool_search_output", "tools": [], "call_id": content}
        client.responses.create(model="m", input=[odd], conversation=id)
        assert model.asked[-1]["input"][-1] == odd

    @pytest.mark.parametrize("kind", ["compaction", "image_generation_call", "mcp_list_tools", "additional_tools"])
    def test_what_needs_no_answer_goes_back_as_it_came(self, client: openai.OpenAI, model: Endpoint, kind: str) -> None:
        id = client.conversations.create(items=[sample(kind)]).id
        client.responses.create(model="m", input="Go on.", conversation=id)
        kept, _ = model.asked[-1]["input"]
        assert {**kept, **sample(kind)} == kept

    def test_a_type_that_nobody_knows_goes_back_as_it_came(self, api: Served, model: Endpoint) -> None:
        """The endpoint knows what it said, though we are older than it is."""
        client = client_of(api, _strict_response_validation=False)
        id = client.conversations.create().id
        model.output = [{"type": "dream", "id": "dr_1", "of": {"sheep": 7}}]
        client.responses.create(model="m", input="Sleep.", conversation=id)
        model.output = [{"type": "dive_call", "id": "dv_1", "call_id": "call_d", "depth": 9}]
        client.responses.create(model="m", input="Go on.", conversation=id)
        assert model.asked[-1]["input"][1] == {"type": "dream", "id": "dr_1", "of": {"sheep": 7}}
        model.output = None
        answer: Any = {"type": "dive_call_output", "call_id": "call_d", "output": "a fish"}
        client.responses.create(model="m", input=[answer], conversation=id)
        assert [item.get("type") for item in model.asked[-1]["input"]] == [
            *(None, "dream", None, "dive_call", "dive_call_output")
        ]
        client.responses.create(model="m", input="And now?", conversation=id)
        assert model.asked[-1]["input"][4] == answer, "without the id that it was given here"
        model.output = [{"type": "nap_call", "id": "np_1", "call_id": "call_n"}]
        client.responses.create(model="m", input="Rest.", conversation=id)
        model.output = None
        nap: Any = {"type": "nap_output", "call_id": "call_n"}
        client.responses.create(model="m", input=[nap], conversation=id)
        client.responses.create(model="m", input="Awake?", conversation=id)
        assert [item.get("type") for item in model.asked[-1]["input"]][-5:] == [
            *(None, "nap_call", "nap_output", None, None)
        ], "some leave out a word"
        client.close()
        schema_check.SEEN.clear()  # the document is older, too

    @pytest.mark.parametrize("kind", [5, ["dream"], {}])
    def test_what_is_no_type_stops_nothing(
        self, api: Served, client: openai.OpenAI, model: Endpoint, kind: Any
    ) -> None:
        """A store keeps any JSON; the next response is to be had all the same."""
        id = client.conversations.create().id
        odd = {"role": "user", "content": {"role": "critic", "type": kind}, "format": "openai.responses"}
        assert api.post(f"/conversations/{id}/messages", json={"messages": [odd]}).is_success
        client.responses.create(model="m", input="Well?", conversation=id)
        assert model.asked[-1]["input"][-1] == {"role": "user", "content": "Well?"}
        assert all(isinstance(item.get("type", ""), str) for item in model.asked[-1]["input"])

    def test_such_a_call_that_nobody_answers_is_left_out(self, client: openai.OpenAI, model: Endpoint) -> None:
        items: Any = [
            {"type": "dive_call_output", "call_id": "call_c", "output": "a wreck"},
            {"type": "dive_call", "call_id": "call_d"},
            {"type": "compaction_trigger"},
            {"type": "dream"},
        ]
        id = client.conversations.create(items=items).id
        client.responses.create(model="m", input="Well?", conversation=id)
        assert model.asked[-1]["input"] == [{"type": "dream"}, {"role": "user", "content": "Well?"}]

    def test_what_asks_the_endpoint_to_do_something_is_not_said(self, client: openai.OpenAI, model: Endpoint) -> None:
        id = client.conversations.create().id
        given: Any = [{"role": "user", "content": "hi"}, {"type": "compaction_trigger"}]
        model.output = [{**sample("compaction"), "id": "cmp_1"}]
        client.responses.create(model="m", input=given, conversation=id)
        assert model.asked[-1]["input"] == given
        kept = client.conversations.items.list(id, order="asc").data
        assert [item.type for item in kept] == ["message", "compaction"]


def test_an_answer_that_is_nested_too_deeply() -> None:
    deep = b"[" * 200_000 + b"]" * 200_000

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["content-length"])
            self.send_response(400 if b"refuse" in self.rfile.read(length) else 200)
            self.send_header("Content-Length", str(len(deep)))
            self.end_headers()
            self.wfile.write(deep)

        def log_message(self, format: str, *args: Any) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        address = f"http://127.0.0.1:{server.server_address[1]}/v1"
        try:
            with serving(settings=Settings(upstream=address)) as own:
                for path, body in (
                    ("/responses", {"model": "m", "input": "hi"}),
                    ("/responses", {"model": "m", "input": "hi", "stream": True}),
                    ("/chat/completions", {"model": "m", "messages": [{"role": "user", "content": "hi"}]}),
                ):
                    named = {"Hansard-Conversation": "deep"}
                    answer = own.post(f"{own.address}/v1{path}", json=body, headers=named)
                    assert answer.status_code == 502 or b"upstream" in answer.content, (path, body, answer.content[:99])
                refused = own.post(f"{own.address}/v1/responses", json={"model": "refuse", "input": "hi"})
                assert refused.status_code == 400
                assert own.get("/stats").json()["messages"] == 0
        finally:
            server.shutdown()
            thread.join(60)


@pytest.mark.parametrize("path", ["/responses/compact", "/responses/input_tokens"])
def test_what_is_not_passed_on_says_so(api: Served, path: str) -> None:
    answer = api.post(f"{api.address}/v1{path}", json={"model": "m", "input": "hi"})
    error = answer.json()["error"]
    assert answer.status_code == 404
    assert "not passed on" in error["message"]
    assert "not kept" not in error["message"]


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m-1", "choices": [choice]}
    return f"data: {json.dumps({**base, **more})}\n\n"


class TestChat:
    def stored(self, api: Served, id: str) -> list[Any]:
        return [each["content"] for each in api.get(f"/conversations/{id}/messages").json()["items"]]

    def ask(self, client: openai.OpenAI, id: str) -> list[Any]:
        with client.chat.completions.create(
            model="m",
            messages=[{"role": "user", "content": "hi"}],
            stream=True,
            extra_headers={"Hansard-Conversation": id},
        ) as stream:
            return list(stream)

    @pytest.mark.parametrize("index", [True, False])
    def test_tool_calls_in_pieces_and_usage_behind_them(
        self, client: openai.OpenAI, api: Served, model: Endpoint, index: bool
    ) -> None:
        """Some endpoints give each call the index 0."""
        pieces: list[dict[str, Any]] = [
            {"id": "a", "type": "function", "function": {"name": "find", "arguments": ""}},
            {"function": {"arguments": '{"id":'}},
            {"function": {"arguments": "1}"}},
            {"id": "b", "type": "function", "function": {"name": "find", "arguments": '{"id":2}'}},
        ]
        calls = [{"index": at if index else 0, **piece} for at, piece in zip((0, 0, 0, 1), pieces, strict=True)]
        usage = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
        model.script = iter(
            [
                chunk({"role": "assistant", "content": None}),
                *(chunk({"tool_calls": [each]}) for each in calls),
                chunk({}, "tool_calls"),
                chunk({}, choices=[], usage=usage),
                "data: [DONE]\n\n",
            ]
        )
        id = f"chat-tools-{index}"
        self.ask(client, id)
        _, said = self.stored(api, id)
        assert said == {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"type": "function", "id": "a", "function": {"name": "find", "arguments": '{"id":1}'}},
                {"type": "function", "id": "b", "function": {"name": "find", "arguments": '{"id":2}'}},
            ],
        }
        kept = api.get(f"/conversations/{id}/messages").json()["items"][1]["usage"]
        assert (kept["input_tokens"], kept["output_tokens"]) == (5, 7)

    def test_an_end_without_its_word(self, client: openai.OpenAI, api: Served, model: Endpoint) -> None:
        model.script = iter([chunk({"content": "Tomo"}), chunk({"content": "rrow."}), chunk({}, "stop")])
        assert len(self.ask(client, "chat-no-done")) == 3
        assert self.stored(api, "chat-no-done")[1]["content"] == "Tomorrow."

    def test_an_end_with_more_than_its_word(self, client: openai.OpenAI, api: Served, model: Endpoint) -> None:
        model.script = iter([": so\n\n", chunk({"content": "Yes."}, "stop"), "event: end\r\ndata: [DONE]\r\n\r\n"])
        self.ask(client, "chat-named-done")
        assert self.stored(api, "chat-named-done")[1]["content"] == "Yes."

    def test_of_several_choices_the_first_is_kept(self, client: openai.OpenAI, api: Served, model: Endpoint) -> None:
        other = {"index": 1, "delta": {"content": "No."}, "finish_reason": "stop"}
        model.script = iter([chunk({}, choices=[other]), chunk({"content": "Yes."}, "stop"), "data: [DONE]\n\n"])
        self.ask(client, "chat-choices")
        assert self.stored(api, "chat-choices")[1]["content"] == "Yes."

    def test_garbage_in_a_stream(self, client: openai.OpenAI, api: Served, model: Endpoint) -> None:
        odd = [7, None, {"index": 0, "delta": 7}, {"index": 0, "delta": {"tool_calls": [7, {"index": "x"}], "x": 1}}]
        base = json.dumps({"choices": odd, "usage": "much"})
        model.script = iter([f"data: {base}\n\n", 'data: {"choices": 7}\n\n'])
        answer = api.post(
            f"{api.address}/v1/chat/completions",
            json={"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]},
            headers={"Hansard-Conversation": "chat-garbage"},
        )
        schema_check.SEEN.clear()  # what the endpoint itself gets wrong is passed on as it is
        assert '"code":"upstream"' in answer.text
        assert self.stored(api, "chat-garbage") == []

    def test_a_conversation_that_is_deleted_meanwhile_stays_deleted(self, api: Served, model: Endpoint) -> None:
        model.waits = threading.Event()
        api.post("/conversations/chat-gone/messages", json={"messages": [{"role": "user", "content": "a"}]})
        answers: list[httpx.Response] = []

        def ask() -> None:
            body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
            headers = {"Hansard-Conversation": "chat-gone"}
            answers.append(httpx.post(f"{api.address}/v1/chat/completions", json=body, headers=headers, timeout=60))

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            eventually(lambda: model.count == 1)
            api.delete("/conversations/chat-gone")
        finally:
            model.waits.set()
            asking.join(60)
            model.waits = None
        assert answers[0].status_code == 404
        assert api.get("/conversations/chat-gone").status_code == 404

    def test_a_long_answer_is_put_together_once(self) -> None:
        chunks = Chunks()
        for _ in range(200_000):
            chunks.add({"choices": [{"index": 0, "delta": {"content": "word "}}]})
        chunks.add({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        assert chunks.message() == {"role": "assistant", "content": "word " * 200_000}


ASKED: dict[str, dict[str, Any]] = {
    "/responses": {"model": "m", "input": "hi", "stream": True},
    "/chat/completions": {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True},
}


class TestLeaving:
    def begin(self, api: Served, path: str, id: str) -> httpx.Response:
        body = {**ASKED[path], **({"conversation": id} if path == "/responses" else {})}
        request = api.build_request("POST", f"{api.address}/v1{path}", json=body, headers={"Hansard-Conversation": id})
        return api.send(request, stream=True)

    @pytest.mark.parametrize("path", ASKED)
    @pytest.mark.parametrize("how", ["endless", "silent"])
    def test_a_client_that_leaves_takes_the_endpoint_with_it(
        self, api: Served, model: Endpoint, path: str, how: str
    ) -> None:
        left = threading.Event()

        def said() -> Iterator[str]:
            first = chunk({"content": "a"}) if path != "/responses" else 'data: {"type":"response.x"}\n\n'
            yield first
            if how == "endless":
                yield from itertools.repeat(first)
            assert left.wait(60)
            while True:  # nothing for a long time; then it is seen that nobody listens
                time.sleep(0.05)
                yield ": still here\n\n"

        model.script = said()
        id = api.post(f"{api.address}/v1/conversations", json={}).json()["id"]
        answer = self.begin(api, path, id)
        assert next(answer.iter_bytes())
        answer.close()
        left.set()
        assert model.hung_up.wait(60), "the connection to the endpoint is closed"
        assert api.get(f"/conversations/{id}/messages").json()["items"] == []

    def test_who_has_the_whole_answer_need_not_wait_for_the_last_word(self, api: Served, model: Endpoint) -> None:
        left = threading.Event()

        def said() -> Iterator[str]:
            yield chunk({"content": "Tomorrow."}, "stop")
            assert left.wait(60)
            yield from itertools.repeat(": still here\n\n")

        model.script = said()
        answer = self.begin(api, "/chat/completions", "chat-hasty")
        assert next(answer.iter_bytes())
        answer.close()
        try:
            eventually(lambda: len(api.get("/conversations/chat-hasty/messages").json()["items"]) == 2)
        finally:
            left.set()
        assert model.hung_up.wait(60)

    def test_who_leaves_in_the_middle_of_the_first_event_is_counted(self, api: Served, model: Endpoint) -> None:
        def said(left: threading.Event) -> Iterator[str]:
            yield "data: "
            assert left.wait(60)
            for _ in range(20):
                time.sleep(0.05)
                yield "x"

        raw = json.dumps(ASKED["/chat/completions"]).encode()
        host, _, port = api.address.removeprefix("http://").partition(":")
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
        patience = itertools.accumulate(itertools.repeat(0.2))

        def leave() -> bool:
            """How long the piece takes is not known: too early is before it begins."""
            asked, left = model.count, threading.Event()
            model.script = said(left)
            with socket.create_connection((host, int(port))) as hasty:
                hasty.sendall(f"{head}Content-Length: {len(raw)}\r\n\r\n".encode() + raw)
                eventually(lambda: model.count > asked)
                time.sleep(next(patience))
            time.sleep(0.2)
            left.set()
            return 'action="openai_create_completion",status="499"' in api.get(f"{api.address}/metrics").text

        eventually(leave)

    @pytest.mark.parametrize("path", ASKED)
    def test_who_leaves_before_it_begins_may_ask_again(self, api: Served, model: Endpoint, path: str) -> None:
        model.waits = threading.Event()
        id = api.post(f"{api.address}/v1/conversations", json={}).json()["id"]
        body = {**ASKED[path], **({"conversation": id} if path == "/responses" else {})}
        host, _, port = api.address.removeprefix("http://").partition(":")
        raw = json.dumps(body).encode()
        head = f"POST /v1{path} HTTP/1.1\r\nHost: {host}:{port}\r\nHansard-Conversation: {id}\r\n"
        kind = f"Content-Type: application/json\r\nContent-Length: {len(raw)}\r\n\r\n"
        try:
            with socket.create_connection((host, int(port))) as hasty:
                hasty.sendall((head + kind).encode() + raw)
                eventually(lambda: model.count == 1)
        finally:
            model.waits.set()
            model.waits = None
        eventually(lambda: len(api.get(f"/conversations/{id}/messages").json()["items"]) == 2)
        again = api.post(
            f"{api.address}/v1{path}",
            content=raw,
            headers={
                "Hansard-Conversation": id,
                "x-stainless-retry-count": "1",
                "Content-Type": "application/json",
            },
        )
        assert again.status_code == 200
        assert model.count == 1, "and gets the first answer"

    @pytest.mark.parametrize("path", ASKED)
    def test_an_endpoint_that_hangs_up_rudely_when_all_is_said(self, api: Served, model: Endpoint, path: str) -> None:
        def said() -> Iterator[str]:
            yield from model.events(path)
            raise ConnectionResetError

        model.script = said()
        id = api.post(f"{api.address}/v1/conversations", json={}).json()["id"]
        assert '"code":"upstream"' not in self.begin(api, path, id).read().decode()
        assert len(api.get(f"/conversations/{id}/messages").json()["items"]) == 2


def open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def test_a_client_that_leaves_while_the_endpoint_ends_leaves_no_connection_behind(model: Endpoint) -> None:
    """In whatever step of its end."""

    async def leave(left: asyncio.Event, steps: int) -> None:
        for _ in range(steps):
            await asyncio.sleep(0)
        left.set()

    async def ask(upstream: Upstream, steps: int) -> None:
        model.script, left = iter(['data: {"type":"response.x"}\n\n']), asyncio.Event()

        async def gone() -> None:
            await left.wait()

        async with upstream.ask("/responses", {"stream": True}) as answer, asyncio.TaskGroup() as group:
            with suppress(StreamDisconnected):
                async for _ in events(answer, gone):
                    group.create_task(leave(left, steps))

    async def run() -> None:
        upstream = Upstream(Settings(upstream=model.address))
        before = open_files()
        for steps in range(40):
            await ask(upstream, steps)
        await asyncio.to_thread(eventually, lambda: open_files() <= before + 4)

    asyncio.run(run())
