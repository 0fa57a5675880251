"""Requests made up by schemathesis, good and bad: nothing makes the server fail, and every answer has its shape.

The document is made from the table of routes; the shapes of the answers are those of the SDK's own types. Models are
asked too, at an endpoint of the test's own. `HANSARD_EXAMPLES=200` looks longer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from openai.types.beta import Thread, ThreadDeleted
from openai.types.beta.threads import Message, MessageDeleted
from openai.types.chat import ChatCompletion, ChatCompletionDeleted
from openai.types.conversations import Conversation, ConversationDeletedResource
from pydantic import BaseModel
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from tests.server.documented_requests import send_all
from tests.server.kit import Served, serving
from tests.server.openai_wire.endpoint import endpoint
from tests.server.openai_wire.samples import ITEMS
from tests.server.openai_wire.test_generated import FIXED, Seeded

from hansard.server.endpoints import Endpoint
from hansard.server.openai.app import ENDPOINTS, MODELS
from hansard.server.settings import Settings

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]

TEXT = {"type": "string"}
METADATA = {"type": ["object", "null"], "additionalProperties": TEXT, "maxProperties": 16}
ITEM = {
    "type": "object",
    "properties": {
        "type": {"enum": [*ITEMS, None]},
        "role": {"enum": ["user", "assistant", "system", "developer"]},
        "content": {"anyOf": [TEXT, {"type": "array", "items": {"type": "object"}}]},
        **{name: {} for item in ITEMS.values() for name in item if name not in ("type", "role", "content", "id")},
    },
}
MESSAGE = {
    "type": "object",
    "required": ["role", "content"],
    "properties": {"role": {"enum": ["user", "assistant"]}, "content": TEXT, "metadata": METADATA},
}
ITEM_LIST = {"type": "array", "items": ITEM, "maxItems": 20}
BODIES: dict[str, dict[str, Any]] = {
    "openai_create_conversation": {"items": ITEM_LIST, "metadata": METADATA},
    "openai_update_conversation": {"metadata": METADATA},
    "openai_create_items": {"items": ITEM_LIST},
    "openai_create_thread": {
        "messages": {"type": "array", "items": MESSAGE},
        "metadata": METADATA,
        "tool_resources": {"type": ["object", "null"]},
    },
    "openai_update_thread": {"metadata": METADATA, "tool_resources": {"type": ["object", "null"]}},
    "openai_create_message": MESSAGE["properties"],  # type: ignore[dict-item]
    "openai_update_message": {"metadata": METADATA},
    "openai_update_completion": {"metadata": METADATA},
    "openai_create_response": {
        "model": TEXT,
        "input": {"anyOf": [TEXT, ITEM_LIST]},
        "conversation": {"enum": ["conv_123", {"id": "conv_123"}, None]},
        "previous_response_id": {"enum": ["resp_1", None]},
        "stream": {"type": ["boolean", "null"]},
        "store": {"type": ["boolean", "null"]},
        "background": {"type": ["boolean", "null"]},
    },
    "openai_create_completion": {
        "model": TEXT,
        "messages": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["role"],
                "properties": {
                    "role": {"enum": ["system", "developer", "user", "assistant", "tool"]},
                    "content": {"anyOf": [TEXT, {"type": "array", "items": {"type": "object"}}, {"type": "null"}]},
                    "tool_call_id": TEXT,
                    "tool_calls": {},
                },
            },
        },
        "stream": {"type": ["boolean", "null"]},
        "store": {"type": ["boolean", "null"]},
        "metadata": METADATA,
    },
}
PAGE = {
    "type": "object",
    "required": ["object", "data", "first_id", "last_id", "has_more"],
    "properties": {
        "object": {"const": "list"},
        "data": {"type": "array", "items": {"type": "object", "required": ["id"], "properties": {"id": TEXT}}},
        "first_id": TEXT,
        "last_id": TEXT,
        "has_more": {"type": "boolean"},
    },
}
ANSWERS: dict[str, type[BaseModel]] = {
    "openai_create_conversation": Conversation,
    "openai_get_conversation": Conversation,
    "openai_update_conversation": Conversation,
    "openai_delete_conversation": ConversationDeletedResource,
    "openai_delete_item": Conversation,
    "openai_create_thread": Thread,
    "openai_get_thread": Thread,
    "openai_update_thread": Thread,
    "openai_delete_thread": ThreadDeleted,
    "openai_get_message": Message,
    "openai_create_message": Message,
    "openai_update_message": Message,
    "openai_delete_message": MessageDeleted,
    "openai_get_completion": ChatCompletion,
    "openai_update_completion": ChatCompletion,
    "openai_delete_completion": ChatCompletionDeleted,
}
NAMED = ("openai_get_response", "openai_delete_response", "openai_cancel_response")
"""Routes that answer with a response, or with its name."""
ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {"message": TEXT, "type": TEXT, "param": {"type": ["string", "null"]}},
        }
    },
}
PLACES = {
    "conversation_id": "conv_123",
    "thread_id": "thread_id",
    "item_id": "msg_abc",
    "message_id": "message_id",
    "model": "m-1",
    "response_id": "response_id",
    "completion_id": "completion_id",
}
QUERY: dict[str, Any] = {
    "limit": {"type": "integer", "minimum": 1, "maximum": 100},
    "order": {"enum": ["asc", "desc"]},
    "stream": {"enum": ["true", "false"]},
    "starting_after": {"type": "integer", "minimum": 0},
    "include": {"type": "array", "items": {"enum": ["reasoning.encrypted_content"]}},
}


def operation(route: Endpoint) -> dict[str, Any]:
    answer = ANSWERS[route.name].model_json_schema() if route.name in ANSWERS else PAGE
    if route.name == "openai_get_item":
        answer = {"type": "object", "required": ["id", "type"]}
    if route in MODELS or route.name in NAMED:
        answer = {"type": "object", "required": ["object"]}
    places: list[dict[str, Any]] = [
        {"in": "path", "name": name, "required": True, "schema": {"enum": [PLACES[name]]}} for name in route.parameters
    ]
    content: dict[str, Any] = {"application/json": {"schema": answer}}
    if "stream" in route.query:
        content["text/event-stream"] = {}
    if route in MODELS:
        content["text/event-stream"] = {}
        places.append({"in": "header", "name": "Hansard-Conversation", "schema": {"enum": ["conv_123"]}})
        places.append({"in": "header", "name": "x-stainless-retry-count", "schema": {"enum": ["0", "1"]}})
    query = [{"in": "query", "name": name, "schema": QUERY.get(name, TEXT)} for name in route.query]
    found: dict[str, Any] = {
        "operationId": route.name,
        "parameters": places + query,
        "responses": {
            "200": {"description": "done", "content": content},
            "4XX": {"description": "refused", "content": {"application/json": {"schema": ERROR}}},
        },
    }
    if route.body is not None:
        schema = {"type": "object", "properties": BODIES[route.name], "additionalProperties": False}
        found["requestBody"] = {"content": {"application/json": {"schema": schema}}}
    return found


@pytest.fixture(scope="module")
def document() -> Any:
    paths: dict[str, dict[str, Any]] = {}
    for route in (*ENDPOINTS, *MODELS):
        paths.setdefault("/v1" + route.path, {})[route.method.lower()] = operation(route)
    return schemathesis.openapi.from_dict(
        {"openapi": "3.1.0", "info": {"title": "wire", "version": "1"}, "paths": paths}
    )


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    assert set(FIXED) <= set(PLACES.values())
    with endpoint() as model, serving(settings=Settings(upstream=model.address), wrap=Seeded) as served:
        yield served


@pytest.mark.timeout(3600)  # as many tests as there are operations
def test_requests_made_from_the_document(document: Any, server: Served, subtests: pytest.Subtests) -> None:
    assert send_all(document, server.address, CHECKS, subtests, examples=5) == len((*ENDPOINTS, *MODELS))
