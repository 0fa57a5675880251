"""A local server that speaks OpenAI's Realtime API over a WebSocket, and a connection of the official SDK to it."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import websockets
from websockets.asyncio.server import ServerConnection, serve

USAGE = {"input_tokens": 30, "output_tokens": 12, "total_tokens": 42, "input_token_details": {"cached_tokens": 8}}


class Session:
    """One conversation as the API keeps it: items in order, and events about each change."""

    def __init__(self, socket: ServerConnection) -> None:
        self.items: list[dict[str, Any]] = []
        self.cut_at: str | None = None
        """The word after which the line is cut."""
        self._socket = socket
        self._numbers = itertools.count(1)

    async def say(self, type: str, **fields: Any) -> None:
        event = {"event_id": f"event_{next(self._numbers)}", "type": type, **fields}
        await self._socket.send(json.dumps(event))

    def find(self, id: str) -> dict[str, Any] | None:
        return next((item for item in self.items if item["id"] == id), None)

    async def add(self, item: dict[str, Any], previous: str | None = None) -> str | None:
        place = 0 if previous == "root" else len(self.items)
        if previous not in (None, "root"):
            known = self.find(str(previous))
            assert known is not None
            place = self.items.index(known) + 1
        before = self.items[place - 1]["id"] if place else None
        self.items.insert(place, item)
        await self.say("conversation.item.added", item=item, previous_item_id=before)
        return before

    async def whole(self, item: dict[str, Any], previous: str | None = None) -> None:
        before = await self.add(item, previous)
        await self.say("conversation.item.done", item=item, previous_item_id=before)

    # What a client may ask

    async def obey(self, event: dict[str, Any]) -> None:
        kind = event["type"]
        if kind == "conversation.item.create":
            await self._create(event)
        elif kind == "conversation.item.delete":
            self.items = [item for item in self.items if item["id"] != event["item_id"]]
            await self.say("conversation.item.deleted", item_id=event["item_id"])
        elif kind == "conversation.item.truncate":
            fields = {name: event[name] for name in ("item_id", "content_index", "audio_end_ms")}
            item = self.find(event["item_id"])
            assert item is not None
            item["content"][event["content_index"]].pop("transcript", None)
            await self.say("conversation.item.truncated", **fields)
        elif kind == "conversation.item.retrieve":
            await self.say("conversation.item.retrieved", item=self.find(event["item_id"]))
        elif kind == "input_audio_buffer.commit":
            await self._hear(event)
        elif kind == "response.create":
            await self._respond(event.get("response") or {})

    async def _create(self, event: dict[str, Any]) -> None:
        previous = event.get("previous_item_id")
        if previous not in (None, "root") and self.find(previous) is None:
            await self.say("error", error={"type": "invalid_request_error", "message": f"no item {previous}"})
            return
        item = {"id": f"item_{next(self._numbers)}", "object": "realtime.item", "status": "completed", **event["item"]}
        await self.whole(item, previous)

    async def _hear(self, event: dict[str, Any]) -> None:
        """A user has spoken; the transcript comes much later."""
        part = {"type": "input_audio", "transcript": None}
        item = {"id": "item_user", "object": "realtime.item", "type": "message", "role": "user"}
        await self.whole(item | {"status": "completed", "content": [part]})

    async def _respond(self, asked: dict[str, Any]) -> None:
        """The assistant speaks, in band or not; then the transcript of the user comes."""
        is_inside = asked.get("conversation") != "none"
        id = "item_answer" if is_inside else "item_aside"
        link = {"item_id": id, "output_index": 0, "content_index": 0, "response_id": "resp_1"}
        empty = {"id": id, "object": "realtime.item", "type": "message", "role": "assistant", "content": []}
        if is_inside:
            before = await self.add(empty | {"status": "in_progress"})
        else:
            before = None
        await self.say("response.output_item.added", item=empty, output_index=0, response_id="resp_1")
        for word in ("It ", "left ", "this ", "morning."):
            await self.say("response.output_audio_transcript.delta", delta=word, **link)
            if word == self.cut_at:
                await self._socket.close(1011, "cut")
                return
            second = base64.b64encode(bytes(48_000)).decode()
            await self.say("response.output_audio.delta", delta=second, **link)
        part = {"type": "output_audio", "transcript": "It left this morning."}
        done = empty | {"status": "completed", "content": [part]}
        if is_inside:
            self.items[-1] = done
            await self.say("conversation.item.done", item=done, previous_item_id=before)
        await self.say("response.output_item.done", item=done, output_index=0, response_id="resp_1")
        response = {"id": "resp_1", "object": "realtime.response", "status": "completed", "output": [done]}
        conversation = "conv_1" if is_inside else None
        await self.say("response.done", response=response | {"usage": USAGE, "conversation_id": conversation})
        if is_inside and (user := self.find("item_user")):
            user["content"][0]["transcript"] = "Where is my order?"
            await self.say(
                "conversation.item.input_audio_transcription.completed",
                item_id="item_user",
                content_index=0,
                transcript="Where is my order?",
                usage={"type": "tokens", "input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
            )


@asynccontextmanager
async def connected(sessions: list[Session]) -> AsyncIterator[Any]:
    """The SDK's own connection to a new session. `sessions` gets the other side of it."""

    async def handle(socket: ServerConnection) -> None:
        session = Session(socket)
        sessions.append(session)
        await session.say("session.created", session={"type": "realtime", "id": "sess_1", "model": "m-voice"})
        try:
            async for text in socket:
                await session.obey(json.loads(text))
        except websockets.ConnectionClosed:
            pass

    async with serve(handle, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        client = openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="k")
        async with client.realtime.connect(model="m-voice") as connection:
            yield connection
        await client.close()


async def until(recorder: Any, connection: Any, type: str, count: int = 1) -> None:
    """Feeds events to a recorder until so many of a type have come."""
    while count:
        event = await connection.recv()
        await recorder.feed(event)
        count -= event.type == type
