"""A model endpoint on a real socket that speaks OpenAI's Realtime API, and does what the test tells it to.

It keeps a log of every event that it has said. `heard` reads such a log by rules of its own: it says what a
conversation must hold in which these events were heard.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

import websockets
from tests.wait import PATIENCE
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

USAGE = {"input_tokens": 30, "output_tokens": 12, "total_tokens": 42, "input_token_details": {"cached_tokens": 8}}


class Talk:
    """One session, as the API keeps it: items in order, and events about each change."""

    def __init__(self, socket: ServerConnection, endpoint: Endpoint) -> None:
        self.said: list[dict[str, Any]] = []
        self.told: list[Any] = []
        """What the client has sent, as it came."""
        self.request = socket.request
        self.code: int | None = None
        """With which it ended."""
        self.reason = ""
        self.is_over = threading.Event()
        self._socket = socket
        self._endpoint = endpoint
        self._items: list[dict[str, Any]] = []
        self._numbers = itertools.count(1)
        self._answering: asyncio.Task[None] | None = None

    # Saying

    async def say(self, type: str, **fields: Any) -> None:
        event = {"event_id": f"event_{next(self._numbers)}", "type": type, **fields}
        # As no other library writes it: what arrives must be what was sent.
        text = json.dumps(event, indent=1, sort_keys=False)
        await self._socket.send(text)
        self.said.append(json.loads(text))
        self._endpoint.texts.append(text)

    async def refuse(self, message: str, event: dict[str, Any]) -> None:
        error = {"type": "invalid_request_error", "code": "invalid_value", "message": message, "param": None}
        await self.say("error", error=error | {"event_id": event.get("event_id")})

    async def run(self) -> None:
        session = {"type": "realtime", "object": "realtime.session", "id": f"sess_{id(self)}", "model": "m-voice"}
        with contextlib.suppress(websockets.ConnectionClosed):
            await self.say("session.created", session=session)
            async for text in self._socket:
                self.told.append(text)
                await self._obey(json.loads(text))
        if self._answering is not None:
            self._answering.cancel()
            await asyncio.gather(self._answering, return_exceptions=True)
        self.code, self.reason = self._socket.close_code, self._socket.close_reason or ""
        self.is_over.set()

    async def end(self, how: str) -> None:
        """Ends the session from this side: a code, or `abort` for a line that is cut."""
        if how == "abort":
            self._socket.transport.abort()
        else:
            await self._socket.close(int(how), "enough")

    # What a client may ask

    async def _obey(self, event: dict[str, Any]) -> None:
        kind = event["type"]
        asked = {
            "conversation.item.create": self._create,
            "conversation.item.delete": self._delete,
            "conversation.item.truncate": self._truncate,
            "conversation.item.retrieve": self._retrieve,
            "response.create": self._respond,
            "response.cancel": self._cancel,
            "input_audio_buffer.commit": self._commit,
            "session.update": self._update,
        }.get(kind)
        if asked is not None:
            await asked(event)
        elif kind != "input_audio_buffer.append":
            await self.refuse(f"Invalid value: {kind}", event)

    def _find(self, id: Any) -> dict[str, Any] | None:
        return next((item for item in self._items if item["id"] == id), None)

    def _new_id(self) -> str:
        return f"item_{self._endpoint.prefix}{next(self._numbers)}"

    async def _add(self, item: dict[str, Any], previous: str | None = None) -> str | None:
        place = 0 if previous == "root" else len(self._items)
        if previous not in (None, "root"):
            place = next(at for at, each in enumerate(self._items) if each["id"] == previous) + 1
        before = self._items[place - 1]["id"] if place else None
        self._items.insert(place, item)
        await self.say("conversation.item.added", item=item, previous_item_id=before)
        return before

    async def _create(self, event: dict[str, Any]) -> None:
        item = {"id": self._new_id(), "object": "realtime.item", "status": "completed", **event["item"]}
        previous = event.get("previous_item_id")
        if previous not in (None, "root") and self._find(previous) is None:
            await self.refuse(f"no item {previous}", event)
        elif self._find(item["id"]) is not None:
            await self.refuse(f"item {item['id']} exists", event)
        else:
            before = await self._add(item, previous)
            await self.say("conversation.item.done", item=item, previous_item_id=before)

    async def _delete(self, event: dict[str, Any]) -> None:
        item = self._find(event["item_id"])
        if item is None or item["status"] == "in_progress":
            await self.refuse("no such item", event)
            return
        self._items.remove(item)
        await self.say("conversation.item.deleted", item_id=item["id"])

    async def _truncate(self, event: dict[str, Any]) -> None:
        item = self._find(event["item_id"])
        if item is None or item.get("role") != "assistant" or not item["content"]:
            await self.refuse("no such audio", event)
            return
        item["content"][0].pop("transcript", None)
        told = {name: event[name] for name in ("item_id", "content_index", "audio_end_ms")}
        await self.say("conversation.item.truncated", **told)

    async def _retrieve(self, event: dict[str, Any]) -> None:
        item = self._find(event["item_id"])
        if item is None:
            await self.refuse("no such item", event)
        else:
            await self.say("conversation.item.retrieved", item=item)

    async def _update(self, event: dict[str, Any]) -> None:
        await self.say("session.updated", session={**event["session"], "object": "realtime.session", "id": "sess"})

    async def _commit(self, event: dict[str, Any]) -> None:
        """A user has spoken. The transcript comes after the item."""
        part = {"type": "input_audio"}
        item: dict[str, Any] = {"id": self._new_id(), "object": "realtime.item", "type": "message", "role": "user"}
        item |= {"status": "completed", "content": [part]}
        before = await self._add(item)
        await self.say("conversation.item.done", item=item, previous_item_id=before)
        item["content"] = [{**part, "transcript": self._endpoint.hears}]
        await self.say(
            "conversation.item.input_audio_transcription.completed",
            item_id=item["id"],
            content_index=0,
            transcript=self._endpoint.hears,
            usage={"type": "tokens", "input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
        )

    # Answering

    async def _respond(self, event: dict[str, Any]) -> None:
        if self._answering is not None and not self._answering.done():
            await self.refuse("a response is under way", event)
            return
        is_inside = (event.get("response") or {}).get("conversation") != "none"
        self._answering = asyncio.create_task(self._answer(is_inside))

    async def _cancel(self, event: dict[str, Any]) -> None:
        if self._answering is None or self._answering.done():
            await self.refuse("no response is under way", event)
            return
        self._answering.cancel()
        await asyncio.gather(self._answering, return_exceptions=True)

    async def _answer(self, is_inside: bool) -> None:
        response = {"id": f"resp_{next(self._numbers)}", "object": "realtime.response", "metadata": None}
        item: dict[str, Any] = {"id": self._new_id(), "object": "realtime.item", "type": "message"}
        item |= {"role": "assistant", "status": "in_progress", "content": []}
        words: list[str] = []
        before: str | None = None
        is_added = False
        status = "cancelled"
        try:
            await self.say("response.created", response=response | {"status": "in_progress", "output": []})
            if is_inside:
                is_added = True
                before = await self._add(item)
            link = {"item_id": item["id"], "output_index": 0, "content_index": 0, "response_id": response["id"]}
            await self.say("response.output_item.added", item=item, output_index=0, response_id=response["id"])
            for word in self._endpoint.says.split(" "):
                words.append(word)
                await self.say("response.output_audio_transcript.delta", delta=" " * (len(words) > 1) + word, **link)
                await self.say("response.output_audio.delta", delta="AAAA" * 100, **link)
                await asyncio.sleep(self._endpoint.pause)
                if len(words) == self._endpoint.dies_after:
                    await self.end("abort")
            status = "completed"
        finally:
            with contextlib.suppress(websockets.ConnectionClosed):
                item["status"] = "completed" if status == "completed" else "incomplete"
                item["content"] = [{"type": "output_audio", "transcript": " ".join(words)}]
                if is_added:
                    await self.say("conversation.item.done", item=item, previous_item_id=before)
                await self.say("response.output_item.done", item=item, output_index=0, response_id=response["id"])
                whole = response | {"status": status, "output": [item], "usage": USAGE}
                await self.say("response.done", response=whole | ({"conversation_id": "conv_1"} if is_inside else {}))


class Endpoint:
    """How it shall behave, and whom it has spoken to."""

    def __init__(self) -> None:
        self.address = ""
        self.says = "It left this morning."
        self.hears = "Where is my order?"
        self.pause = 0.0
        """Seconds between two words."""
        self.dies_after: int | None = None
        """Words, after which the line is cut."""
        self.refuses: tuple[int, dict[str, str], bytes] | None = None
        self.prefix = ""
        self.talks: list[Talk] = []
        self.texts: list[str] = []
        """Everything that it has said, as it was sent."""
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def talk(self) -> Talk:
        return self.talks[-1]

    def do(self, coroutine: Any) -> Any:
        """Runs on the endpoint's own loop, for as long as it takes: megabytes through a busy machine take long."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    async def _handle(self, socket: ServerConnection) -> None:
        talk = Talk(socket, self)
        self.talks.append(talk)
        await talk.run()

    def _check(self, socket: ServerConnection, request: Request) -> Response | None:
        if self.refuses is None:
            return None
        status, headers, body = self.refuses
        given = Headers({"Content-Type": "application/json", "Content-Length": str(len(body)), **headers})
        return Response(status, HTTPStatus(status).phrase, given, body)

    async def start(self) -> Server:
        self._loop = asyncio.get_running_loop()
        server = await serve(
            self._handle,
            "127.0.0.1",
            0,
            process_request=self._check,
            subprotocols=["realtime"],  # type: ignore[list-item]
            select_subprotocol=lambda _, offered: "realtime" if "realtime" in offered else None,  # type: ignore[arg-type, return-value]
            close_timeout=5,
            ping_interval=None,  # who is kept waiting on purpose need not answer in twenty seconds
        )
        self.address = f"http://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}/v1"
        return server


@contextmanager
def endpoint() -> Iterator[Endpoint]:
    """In a thread with a loop of its own: nothing in the test's loop can make it wait."""
    model = Endpoint()
    ready = threading.Event()
    ends: list[Any] = []

    async def run() -> None:
        end = asyncio.Event()
        async with await model.start():
            ends.append((asyncio.get_running_loop(), end))
            ready.set()
            await end.wait()

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    assert ready.wait(PATIENCE)
    try:
        yield model
    finally:
        loop, end = ends[0]
        loop.call_soon_threadsafe(end.set)
        thread.join(PATIENCE)
        assert not thread.is_alive()


def heard(events: list[dict[str, Any]]) -> list[tuple[str, str, str, str]]:
    """What a conversation must hold in which these events were heard: id, role, text and status of each message."""
    order: list[str] = []
    items: dict[str, dict[str, Any]] = {}
    for event in events:
        kind = event["type"]
        if kind == "conversation.item.added":
            id = event["item"]["id"]
            previous = event["previous_item_id"]
            order.insert(0 if previous is None else order.index(previous) + 1, id)
            role = event["item"].get("role", "tool")
            items[id] = {"role": role, "text": "", "status": "in_progress" if role == "assistant" else "complete"}
            if role != "assistant":
                items[id]["text"] = _text(event["item"])
        elif kind == "conversation.item.done":
            item = items[event["item"]["id"]]
            if not item.get("is_cut"):
                item["text"] = _text(event["item"])
                item["status"] = "complete" if event["item"]["status"] == "completed" else "interrupted"
        elif kind == "conversation.item.deleted":
            order.remove(event["item_id"])
        elif kind == "conversation.item.truncated":
            items[event["item_id"]] |= {"text": "", "status": "interrupted", "is_cut": True}
        elif kind == "conversation.item.input_audio_transcription.completed":
            items[event["item_id"]]["text"] = event["transcript"]
        elif kind == "response.output_audio_transcript.delta" and event["item_id"] in items:
            items[event["item_id"]]["text"] += event["delta"]
    for item in items.values():
        if item["status"] == "in_progress":
            item["status"] = "interrupted"
    return [(id, items[id]["role"], items[id]["text"], items[id]["status"]) for id in order]


def _text(item: dict[str, Any]) -> str:
    return "".join(part.get("text") or part.get("transcript") or "" for part in item.get("content") or ())
