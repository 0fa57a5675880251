"""Every answer that a server of these tests gives on the wire of OpenAI is noted, and checked by OpenAI's document.

It stands before the application, so it sees what every client gets: the SDKs for Python and Node, the Agents SDK,
schemathesis, and what is sent by hand.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from tests.server.openai_wire import published

from hansard.errors import NotFound
from hansard.server.endpoints import Endpoint
from hansard.server.openai.app import ENDPOINTS, MODELS, REALTIME
from hansard.server.openai.wire_request import PREFIX
from hansard.server.problems import HttpError
from hansard.server.router import Router
from hansard.store import Store

OURS = ("openai_list_conversations",)
"""Routes that OpenAI does not have."""

UNDESCRIBED = ("openai_delete_response",)
"""Routes whose answers the document does not describe."""


class Seen(NamedTuple):
    """An answer, or an event of a session."""

    method: str
    path: str
    status: int
    media_type: str
    body: bytes


SEEN: list[Seen] = []


class Noting:
    """Before the application, in every server of these tests."""

    def __init__(self, app: ASGIApp, store: Store) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not scope["path"].startswith(PREFIX + "/"):
            await self._app(scope, receive, send)
            return
        # As it was sent: an id may hold a slash.
        method, path = scope.get("method", "GET"), (scope.get("raw_path") or scope["path"].encode()).decode("latin-1")
        status, kind, body = 0, "", b""

        async def note(message: Message) -> None:
            nonlocal status, kind, body
            if message["type"].endswith("response.start"):
                status = message["status"]
                kind = dict(message["headers"]).get(b"content-type", b"").decode().partition(";")[0]
            elif message["type"].endswith("response.body"):
                body += message.get("body", b"")
                if not message.get("more_body") and method != "HEAD":
                    # Before it is sent: the test may look as soon as it has its answer.
                    SEEN.append(Seen(method, path, status, kind, body))
            elif message["type"] == "websocket.send" and "text" in message:
                SEEN.append(Seen("GET", REALTIME, 101, published.JSON, message["text"].encode()))
            await send(message)

        await self._app(scope, receive, note)


def take() -> list[str]:
    """What is wrong with what was seen since the last time."""
    seen = set(SEEN)
    SEEN.clear()
    return [f"{each.method} {each.path} {each.status}: {what}" for each in seen for what in wrong(each)]


_ROUTER = Router((*ENDPOINTS, *MODELS))


def wrong(seen: Seen) -> list[str]:
    if seen.path == REALTIME and seen.status == 101:
        return published.component("RealtimeServerEvent", json.loads(seen.body))
    if seen.status >= 400:
        return published.component("ErrorResponse", json.loads(seen.body))
    endpoint = _endpoint(seen)
    if seen.media_type == published.EVENTS:
        return [what for event in _events(seen.body) for what in _of_stream(endpoint, event)]
    value = json.loads(seen.body)
    if endpoint.name in UNDESCRIBED:
        return []
    if endpoint.name == "openai_list_completion_messages":
        # By the document's types only an assistant speaks there; in its own example, and here, it is whoever asked.
        value["data"] = [{**each, "role": "assistant"} for each in value["data"]]
    if endpoint.name in OURS:
        return [what for each in value["data"] for what in published.component("ConversationResource", each)]
    return published.answer(endpoint.method, endpoint.path, published.JSON, value)


def _endpoint(seen: Seen) -> Endpoint:
    try:
        return _ROUTER.find(seen.method, seen.path[len(PREFIX) :].encode())[0]
    except (NotFound, HttpError) as error:
        raise AssertionError(f"{seen.method} {seen.path} is no route, and was answered with {seen.status}") from error


def _events(body: bytes) -> list[Any]:
    lines = [line[5:].strip() for line in body.decode().split("\n") if line.startswith("data:")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def _of_stream(endpoint: Endpoint, event: Any) -> list[str]:
    if "error" in event and endpoint.name == "openai_create_completion":
        return published.component("ErrorResponse", event)
    # The document describes the events where they are made, and not where they are asked for again.
    path = "/responses" if endpoint.name == "openai_get_response" else endpoint.path
    return published.answer("POST", path, published.EVENTS, event)
