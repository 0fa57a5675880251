"""What is wrong, and what breaks: OpenAI's error, a word on retries, nothing half-recorded, nothing seen of others."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from tests.server.kit import Served, serving
from tests.server.openai_wire import schema_check
from tests.server.openai_wire.conftest import client_of
from tests.server.openai_wire.endpoint import Endpoint, endpoint

from hansard.errors import Conflict, HansardError, RateLimited, Unavailable
from hansard.server.key_file import KeyFile
from hansard.server.settings import Settings

ROUTES: dict[str, dict[str, Any]] = {
    "/responses": {"model": "m", "input": "hi"},
    "/chat/completions": {"model": "m", "messages": [{"role": "user", "content": "hi"}]},
}
both_routes = pytest.mark.parametrize("path", ROUTES)


@pytest.fixture
def model() -> Iterator[Endpoint]:
    with endpoint() as model:
        yield model


@pytest.mark.parametrize(
    ("failure", "status", "word"),
    [
        (Conflict("meanwhile"), 409, "false"),
        (Unavailable("the disk is gone", retryable=False), 503, "false"),
        (Unavailable("for a moment"), 503, None),
        (RateLimited("slowly", retry_after=5), 429, None),
        (RateLimited("tomorrow", retry_after=40_000), 429, "false"),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, Exception) else str(each),
)
def test_a_word_on_retries(
    api: Served, monkeypatch: pytest.MonkeyPatch, failure: HansardError, status: int, word: str | None
) -> None:
    """Where a retry cannot help, the SDK is kept from it: it asks once."""
    asked = 0

    def fails(*_: Any, **__: Any) -> Any:
        nonlocal asked
        asked += 1
        raise failure

    with client_of(api, max_retries=1) as client:
        monkeypatch.setattr(api.store.backend, "create_conversation", fails)
        with pytest.raises(openai.APIStatusError) as caught:
            client.with_options(timeout=60).conversations.create()
    assert caught.value.status_code == status
    assert caught.value.response.headers.get("x-should-retry") == word
    assert asked == (1 if word == "false" else 2)


@both_routes
def test_without_an_endpoint_there_is_nothing_to_try_again(api: Served, path: str) -> None:
    answer = api.post(f"{api.address}/v1{path}", json=ROUTES[path])
    assert (answer.status_code, answer.headers["x-should-retry"]) == (501, "false")


BROKEN = {
    "cut": b'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n10\r\ndata: {"typ',
    "no json": b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {{{\n\nevent: x\n\n",
    "other json": b'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: [1]\n\ndata: "x"\n\ndata: 7\n\n',
    "no http": b"SSH-2.0-hello\r\n",
    "nothing": b"",
    "wrong shapes": b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
    b'data: {"type":"response.completed","response":{"status":"completed","output":[7,{"type":"message"}]}}\n\n'
    b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n',
}


class Raw:
    """An endpoint that answers every request with the same bytes, and hangs up."""

    def __init__(self, data: bytes) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._socket.getsockname()[1]}/v1"
        self._data = data
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            with connection:
                if not (head := connection.recv(65536)):
                    return
                if b"content-length" in head.lower() and head.endswith(b"\r\n\r\n"):
                    connection.recv(65536)
                connection.sendall(self._data)

    def close(self) -> None:
        with socket.create_connection(self._socket.getsockname()):
            pass
        self._thread.join(30)
        self._socket.close()


@both_routes
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("how", BROKEN)
def test_an_endpoint_that_breaks_leaves_nothing(path: str, how: str, stream: bool) -> None:
    raw = Raw(BROKEN[how])
    try:
        with serving(settings=Settings(upstream=raw.address)) as api:
            id = api.post(api.address + "/v1/conversations", json={}).json()["id"]
            body, headers = {**ROUTES[path], "stream": stream}, {"Hansard-Conversation": id}
            if path == "/responses":
                body["conversation"] = id
            answer = api.post(f"{api.address}/v1{path}", json=body, headers=headers)
            if answer.status_code == 200:
                assert stream
                assert "upstream" in answer.text, "the stream has begun: it ends with an error"
            else:
                assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream")
            assert api.get(f"/conversations/{id}/messages").json()["items"] == []
    finally:
        raw.close()
    # What the endpoint itself gets wrong is passed on as it is.
    schema_check.SEEN.clear()


def test_what_others_have_is_not_there(model: Endpoint, tmp_path: Path) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    mine, theirs = (keys.create(name, ["read", "write"], tenant=name)[1] for name in ("acme", "evil"))
    with serving(settings=Settings(upstream=model.address, keys=keys.path)) as api:

        def ask(token: str, path: str, body: Any, **headers: str) -> httpx.Response:
            given = {"Authorization": f"Bearer {token}", **headers}
            return api.post(f"{api.address}/v1{path}", json=body, headers=given)

        id = ask(mine, "/conversations", {}).json()["id"]
        first = ask(mine, "/responses", {**ROUTES["/responses"], "conversation": id}).json()
        before = model.count
        for body in ({"conversation": id}, {"conversation": {"id": id}}, {"previous_response_id": first["id"]}):
            answer = ask(theirs, "/responses", {**ROUTES["/responses"], **body})
            assert answer.status_code == 404, answer.text
        assert model.count == before, "the endpoint was not asked"
        answer = ask(theirs, "/chat/completions", ROUTES["/chat/completions"], **{"Hansard-Conversation": id})
        assert answer.status_code == 200, "a conversation of their own, under the same name"
        assert [each["content"] for each in model.asked[-1]["messages"]] == ["hi"], "without a word of the other"
        retried = {"x-stainless-retry-count": "1"}
        assert ask(theirs, "/responses", {**ROUTES["/responses"], "conversation": id}, **retried).json() != first
        mine_now = ask(mine, "/responses", {**ROUTES["/responses"], "conversation": id}, **retried)
        assert mine_now.json() == first, "and neither did their question change it"


def test_errors_have_their_shape_whatever_is_sent(api: Served) -> None:
    for method, path, body in (
        ("POST", "/conversations", b"{"),
        ("POST", "/conversations", b"[]"),
        ("POST", "/conversations", b'{"items": 7}'),
        ("POST", "/conversations", json.dumps({"metadata": {str(number): "x" for number in range(17)}}).encode()),
        ("POST", "/conversations", json.dumps({"metadata": {"k" * 65: "x"}}).encode()),
        ("POST", "/conversations", json.dumps({"metadata": {"k": "x" * 513}}).encode()),
        ("GET", "/conversations?order=sideways", b""),
        ("GET", "/conversations?after=nothing", b""),
        ("GET", "/conversations?limit=0", b""),
        ("PUT", "/conversations", b"{}"),
        ("GET", "/nowhere", b""),
    ):
        answer = api.request(
            method, f"{api.address}/v1{path}", content=body, headers={"content-type": "application/json"}
        )
        assert 400 <= answer.status_code < 500, (method, path, answer.text)
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
        assert answer.headers["x-request-id"]
