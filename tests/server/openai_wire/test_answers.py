"""A request to a model that the SDK repeats is answered as the first time: asked once, and recorded once."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from tests.backends.http.test_http import Cutting
from tests.server.kit import Served, serving
from tests.server.openai_wire.endpoint import Endpoint, endpoint
from tests.wait import PATIENCE

from hansard.errors import Unavailable
from hansard.server.key_file import KeyFile
from hansard.server.settings import Settings

ASKED: dict[str, dict[str, Any]] = {
    "/responses": {"model": "m", "input": "yes"},
    "/chat/completions": {"model": "m", "messages": [{"role": "user", "content": "yes"}]},
}
both_routes = pytest.mark.parametrize("path", ASKED)
both_ways = pytest.mark.parametrize("stream", [False, True])


class Asker:
    """Asks by hand, with the count that the SDKs send."""

    def __init__(self, api: Served, model: Endpoint, path: str = "/responses", *, stream: bool = False) -> None:
        self.api = api
        self.model = model
        self.path = path
        self.stream = stream
        self.id: str = api.post(api.address + "/v1/conversations", json={}).json()["id"]

    def ask(self, count: int = 0, *, named: bool = True, status: int = 200, **more: Any) -> str:
        headers = {"x-stainless-retry-count": str(count), **more.pop("headers", {})}
        body = {**ASKED[self.path], "stream": self.stream, **more}
        if named and self.path == "/responses":
            body["conversation"] = self.id
        elif named:
            headers["Hansard-Conversation"] = self.id
        self.model.says = f"answer {self.model.count}"
        answer: httpx.Response = self.api.post(f"{self.api.address}/v1{self.path}", json=body, headers=headers)
        assert answer.status_code == status, answer.text
        return answer.text

    @property
    def said(self) -> list[Any]:
        found = self.api.get(f"/conversations/{self.id}/messages").json()["items"]
        return [(each["role"], each["text"] if "text" in each else each["content"]) for each in found]


@pytest.fixture
def model() -> Iterator[Endpoint]:
    with endpoint() as model:
        yield model


@pytest.fixture
def api(model: Endpoint) -> Iterator[Served]:
    with serving(settings=Settings(upstream=model.address)) as api:
        yield api


@both_routes
@both_ways
def test_a_retry_gets_the_first_answer(api: Served, model: Endpoint, path: str, stream: bool) -> None:
    asker = Asker(api, model, path, stream=stream)
    first = asker.ask()
    assert asker.ask(1) == first
    assert asker.ask(2) == first
    assert (model.count, len(asker.said)) == (1, 2)
    assert asker.ask() != first, "whoever says the same twice has said it twice"
    assert (model.count, len(asker.said)) == (2, 4)


@both_routes
@pytest.mark.parametrize("cut", ["request", "answer"])
def test_through_the_sdk_over_a_wire_that_is_cut(api: Served, model: Endpoint, path: str, cut: str) -> None:
    async def run() -> None:
        async with (
            Cutting(api.address) as wire,
            openai.AsyncOpenAI(base_url=wire.address + "/v1", api_key="x", timeout=PATIENCE, max_retries=2) as client,
        ):
            wire.cut, wire.times = cut, 2
            asker = Asker(api, model, path)
            if path == "/responses":
                await client.responses.create(model="m", input="yes", conversation=asker.id)
            else:
                given: Any = ASKED[path]["messages"]
                named = {"Hansard-Conversation": asker.id}
                await client.chat.completions.create(model="m", messages=given, extra_headers=named)
            assert wire.times == 0
            assert len(asker.said) == 2
            assert model.count == 1

    asyncio.run(run())


@both_routes
def test_what_was_answered_since_is_not_what_is_repeated(api: Served, model: Endpoint, path: str) -> None:
    asker = Asker(api, model, path)
    first = asker.ask()
    api.post(f"/conversations/{asker.id}/messages", json={"messages": [{"role": "user", "content": "no"}]})
    assert asker.ask(1) != first
    assert len(asker.said) == 5


def test_going_on_from_a_response(api: Served, model: Endpoint) -> None:
    asker = Asker(api, model)
    previous = httpx.Response(200, text=asker.ask()).json()["id"]
    first = asker.ask(named=False, previous_response_id=previous)
    assert asker.ask(1, named=False, previous_response_id=previous) == first
    assert (model.count, len(asker.said)) == (2, 4)


@both_routes
def test_a_request_in_no_conversation_is_never_taken_for_another(api: Served, model: Endpoint, path: str) -> None:
    asker = Asker(api, model, path)
    asker.ask(named=False)
    asker.ask(1, named=False)
    assert model.count == 2


def test_another_body_another_conversation_and_another_key(model: Endpoint, tmp_path: Any) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    tokens = [keys.create(name, ["read", "write"], tenant="acme")[1] for name in ("a", "b")]
    with serving(settings=Settings(upstream=model.address, keys=keys.path)) as api:
        api.headers["Authorization"] = f"Bearer {tokens[0]}"
        asker, other = Asker(api, model), Asker(api, model)
        asker.ask()
        asker.ask(1, temperature=1)
        other.ask(1)
        asker.ask(1, headers={"Authorization": f"Bearer {tokens[1]}"})
        assert model.count == 4


@both_routes
@both_ways
def test_a_retry_waits_for_the_request_that_it_repeats(api: Served, model: Endpoint, path: str, stream: bool) -> None:
    asker = Asker(api, model, path, stream=stream)
    model.waits = threading.Event()
    answers: list[str] = []
    threads = [threading.Thread(target=lambda n=n: answers.append(asker.ask(n))) for n in (0, 1)]
    threads[0].start()
    while not model.count:
        time.sleep(0.01)
    threads[1].start()
    model.waits.set()
    for thread in threads:
        thread.join(60)
    assert answers[0] == answers[1]
    assert (model.count, len(asker.said)) == (1, 2)


@both_routes
def test_what_could_not_be_recorded_is_asked_again(
    api: Served, model: Endpoint, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asker = Asker(api, model, path)

    def broken(*_: Any, **__: Any) -> Any:
        raise Unavailable("the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr(api.store.backend, "append", broken)
        asker.ask(status=503)
    assert asker.said == []
    first = asker.ask(1)
    assert asker.ask(2) == first
    assert (model.count, len(asker.said)) == (2, 2)


def test_an_answer_is_remembered_and_not_stored(api: Served, model: Endpoint) -> None:
    asker = Asker(api, model)
    asker.ask()

    async def stored() -> list[Any]:
        return [each.value async for each in api.store.records.iter(())]

    records = asyncio.run_coroutine_threadsafe(stored(), api.loop).result(30)
    assert records
    assert "answer 0" not in str(records)
    for message in api.get(f"/conversations/{asker.id}/messages").json()["items"]:
        api.delete(f"/conversations/{asker.id}/messages/{message['id']}").raise_for_status()
    asker.ask(1)
    assert model.count == 2


@pytest.mark.parametrize(("bound", "value"), [("_SECONDS", 0.0), ("_ROOM", 100)])
def test_an_answer_is_forgotten(
    api: Served, model: Endpoint, monkeypatch: pytest.MonkeyPatch, bound: str, value: float
) -> None:
    asker = Asker(api, model)
    monkeypatch.setattr(f"hansard.server.openai.answer_cache.{bound}", value)
    asker.ask()
    asker.ask(1)
    assert (model.count, len(asker.said)) == (2, 4)


def test_a_large_answer_is_not_kept(api: Served, model: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    asker = Asker(api, model, stream=True)
    monkeypatch.setattr("hansard.server.openai.answer_cache._LARGEST", 100)
    asker.ask()
    asker.ask(1)
    assert (model.count, len(asker.said)) == (2, 4)
