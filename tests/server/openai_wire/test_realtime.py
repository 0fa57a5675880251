"""The conversation events of the Realtime API, through the SDK's own connection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import openai
import pytest
import websockets
from tests.server.kit import Served, serving

from hansard.server.keys import KeyFile
from hansard.server.settings import Settings


class Talk:
    """A connection, and what the server says on it."""

    def __init__(self, connection: Any, client: openai.AsyncOpenAI, id: str) -> None:
        self.connection = connection
        self.client = client
        self.id = id

    async def next(self, kind: str) -> Any:
        event = await asyncio.wait_for(self.connection.recv(), 30)
        assert event.type == kind, event
        return event

    async def say(self, text: str, role: str = "user", **options: Any) -> Any:
        kind = "output_text" if role == "assistant" else "input_text"
        item = {"type": "message", "role": role, "content": [{"type": kind, "text": text}], **options.pop("item", {})}
        await self.connection.conversation.item.create(item=item, **options)
        added = await self.next("conversation.item.added")
        done = await self.next("conversation.item.done")
        assert added.item.id == done.item.id
        return done

    async def texts(self) -> list[str]:
        found: Any = self.client.conversations.items.list(self.id, order="asc")
        return [item.content[0].text async for item in found]


def scenario(play: Callable[[Talk], Awaitable[None]]) -> None:
    async def run(api: Served) -> None:
        async with openai.AsyncOpenAI(base_url=api.address + "/v1", api_key="x", timeout=30) as client:
            id = (await client.conversations.create()).id
            async with client.realtime.connect(model="m", extra_query={"conversation": id}) as connection:
                talk = Talk(connection, client, id)
                assert (await talk.next("session.created")).session.model == "m"
                assert (await talk.next("conversation.created")).conversation.id == id
                await play(talk)

    with serving() as api:
        asyncio.run(run(api))


def test_items_are_written_read_and_deleted() -> None:
    async def play(talk: Talk) -> None:
        one = await talk.say("one")
        two = await talk.say("two", "assistant", item={"id": "item_mine"})
        assert (two.item.id, two.previous_item_id) == ("item_mine", one.item.id)
        await talk.say("first", previous_item_id="root")
        await talk.say("between", previous_item_id=one.item.id)
        assert await talk.texts() == ["first", "one", "between", "two"], "and every other way in sees them"
        await talk.connection.conversation.item.retrieve(item_id=one.item.id)
        assert (await talk.next("conversation.item.retrieved")).item.content[0].text == "one"
        await talk.connection.conversation.item.delete(item_id=one.item.id)
        assert (await talk.next("conversation.item.deleted")).item_id == one.item.id
        assert await talk.texts() == ["first", "between", "two"]
        await talk.connection.session.update(session={"type": "realtime", "instructions": "Be kind."})
        assert (await talk.next("session.updated")).session.instructions == "Be kind."

    scenario(play)


def test_truncating_takes_out_what_nobody_heard() -> None:
    async def play(talk: Talk) -> None:
        spoken = [{"type": "output_audio", "transcript": "It is on its way and"}]
        item: Any = {"type": "message", "role": "assistant", "content": spoken}
        await talk.connection.conversation.item.create(item=item)
        id = (await talk.next("conversation.item.added")).item.id
        await talk.next("conversation.item.done")
        await talk.connection.conversation.item.truncate(item_id=id, content_index=0, audio_end_ms=900)
        assert (await talk.next("conversation.item.truncated")).audio_end_ms == 900
        await talk.connection.conversation.item.retrieve(item_id=id)
        part = (await talk.next("conversation.item.retrieved")).item.content[0]
        assert part.transcript is None

    scenario(play)


def test_what_is_wrong_is_said_and_the_session_goes_on() -> None:
    async def play(talk: Talk) -> None:
        said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]}
        bad: list[dict[str, Any]] = [
            {"type": "conversation.item.create", "item": said, "previous_item_id": "item_never"},
            {"type": "conversation.item.create", "item": {"type": "message", "role": "king", "content": []}},
            {"type": "conversation.item.create"},
            {"type": "conversation.item.retrieve", "item_id": "item_never"},
            {"type": "conversation.item.delete", "item_id": 7},
            {"type": "conversation.item.truncate", "item_id": "item_never", "content_index": 0, "audio_end_ms": 1},
            {"type": "response.create"},
            {"type": "input_audio_buffer.commit"},
            {"type": "conversation.nothing"},
            {"no": "type"},
        ]
        for number, event in enumerate(bad):
            await talk.connection.send({**event, "event_id": f"e{number}"})
            assert (await talk.next("error")).error.event_id in (f"e{number}", None)
        assert await talk.texts() == []
        await talk.say("still here")
        assert await talk.texts() == ["still here"]

    scenario(play)


def test_walls(tmp_path: Path) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    token = keys.create("a", ["read", "write"], tenant="acme")[1]
    reader = keys.create("r", ["read"], tenant="acme")[1]

    async def refused(address: str, key: str, query: str) -> int:
        headers = {"Authorization": f"Bearer {key}"}
        with pytest.raises(websockets.InvalidStatus) as caught:
            await websockets.connect(f"{address.replace('http', 'ws')}/v1/realtime{query}", additional_headers=headers)
        return caught.value.response.status_code

    async def run(api: Served) -> None:
        assert await refused(api.address, "sk-no", "") == 401
        assert await refused(api.address, reader, "") == 403
        assert await refused(api.address, token, "?conversation=conv_never") == 404
        assert await refused(api.address, token, "?nonsense=1") == 400

    with serving(settings=Settings(keys=keys.path)) as api:
        asyncio.run(run(api))
