"""The checks by OpenAI's document are made, and they find what is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.server.kit import Served
from tests.server.openai_wire import published, schema_check
from tests.server.openai_wire.schema_check import Seen

from hansard.server.openai.app import ENDPOINTS, MODELS


@pytest.fixture(autouse=True)
def there() -> None:
    try:
        published.document()
    except published.Absent as error:
        pytest.skip(str(error))


def test_every_route_is_in_the_document() -> None:
    absent = [each.name for each in (*ENDPOINTS, *MODELS) if not published.knows(each.method, each.path)]
    assert absent == [*schema_check.OURS]


def test_every_answer_is_seen(api: Served) -> None:
    made = api.post(api.address + "/v1/conversations", json={}).json()
    api.get(api.address + "/v1/conversations/conv_never")
    api.get(api.address + f"/v1/conversations/{made['id']}/items")
    assert [(each.method, each.status) for each in schema_check.SEEN] == [("POST", 200), ("GET", 404), ("GET", 200)]
    assert schema_check.take() == []
    assert schema_check.SEEN == []


PAGE = {"object": "list", "first_id": "a", "last_id": "a", "has_more": False}
CALL = {"id": "a", "type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
SAID = {"id": "a", "type": "message", "role": "assistant", "status": "completed"}
TEXT = {"type": "output_text", "text": "x"}
MODEL = {"id": "r", "object": "response"}


def wrong_answers() -> Iterator[tuple[str, Any]]:
    items, one = "/v1/conversations/c/items", "/v1/conversations/c"
    yield "GET " + one, {"id": "c", "object": "conversation", "metadata": {}}
    yield "GET " + one, {"id": "c", "object": "thread", "metadata": {}, "created_at": 1}
    yield "GET " + one, {"id": "c", "object": "conversation", "metadata": {}, "created_at": "1"}
    yield "DELETE " + one, {"id": "c", "object": "conversation.deleted"}
    yield "GET " + items, {**PAGE, "data": [], "first_id": None}
    yield "GET " + items, {**PAGE, "data": [CALL]}
    yield "GET " + items, {**PAGE, "data": [{**SAID, "content": [TEXT]}]}
    yield "GET " + items, {**PAGE, "data": [{**SAID, "content": [{**TEXT, "annotations": []}]}]}
    yield "GET " + items, {**PAGE, "data": [{**SAID, "content": [{"type": "input_image"}]}]}
    yield "GET /v1/threads/t", {"id": "t", "object": "thread", "created_at": 1}
    yield "POST /v1/responses", MODEL
    yield "POST /v1/chat/completions", {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}


@pytest.mark.parametrize(("route", "value"), [*wrong_answers()])
def test_what_is_wrong_is_found(route: str, value: Any) -> None:
    method, path = route.split(" ")
    assert schema_check.wrong(Seen(method, path, 200, published.JSON, json.dumps(value).encode()))


def test_wrong_errors_events_and_streams_are_found() -> None:
    def seen(path: str, status: int, kind: str, body: str) -> list[str]:
        return schema_check.wrong(Seen("POST", path, status, kind, body.encode()))

    assert seen("/v1/x", 404, published.JSON, '{"error": {"message": "no"}}')
    assert seen("/v1/realtime", 101, published.JSON, '{"type": "conversation.created"}')
    assert seen("/v1/realtime", 101, published.JSON, "{}")
    assert seen("/v1/responses", 200, published.EVENTS, 'data: {"type": "error", "message": "x"}\n\n')
    assert seen("/v1/chat/completions", 200, published.EVENTS, 'data: {"choices": []}\n\ndata: [DONE]\n\n')
