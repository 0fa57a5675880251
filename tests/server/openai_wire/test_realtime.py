"""The conversation events of the Realtime API, through the SDK's own connection."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import openai
import pytest
import websockets
from tests.server.kit import Served, serving
from tests.wait import PATIENCE

from hansard.server.key_file import KeyFile
from hansard.server.settings import Settings


class Talk:
    """A connection, and what the server says on it."""

    def __init__(self, connection: Any, client: openai.AsyncOpenAI, id: str) -> None:
        self.connection = connection
        self.client = client
        self.id = id

    async def next(self, kind: str) -> Any:
        event = await asyncio.wait_for(self.connection.recv(), PATIENCE)
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


def scenario(play: Callable[[Talk], Awaitable[None]], url: str = "memory://") -> None:
    async def run(api: Served) -> None:
        async with openai.AsyncOpenAI(base_url=api.address + "/v1", api_key="x", timeout=PATIENCE) as client:
            id = (await client.conversations.create()).id
            async with client.realtime.connect(model="m", extra_query={"conversation": id}) as connection:
                talk = Talk(connection, client, id)
                assert (await talk.next("session.created")).session.model == "m"
                assert (await talk.next("conversation.created")).conversation.id == id
                await play(talk)

    with serving(url) as api:
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


def test_a_conversation_that_is_deleted_meanwhile_stays_deleted() -> None:
    async def play(talk: Talk) -> None:
        await talk.say("one")
        await talk.client.conversations.delete(talk.id)
        said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]}
        for place in ({}, {"previous_item_id": "root"}):
            await talk.connection.send({"type": "conversation.item.create", "item": said, **place})
            assert (await talk.next("error")).error.code == "not_found"
        with pytest.raises(openai.NotFoundError):
            await talk.client.conversations.retrieve(talk.id)

    scenario(play)


def test_sessions_on_one_conversation(tmp_path: Path) -> None:
    """Who is told that an item was added finds it there, whoever else writes at the same moment."""
    url = f"sqlite:///{tmp_path}/chats.db"

    async def play(talk: Talk) -> None:
        async def write(connection: Any, text: str) -> dict[str, bool]:
            """By the ids of items: whether each was added."""
            told: dict[str, bool] = {}
            for number in range(20):
                place = {"previous_item_id": "root"} if number % 3 == 0 else {}
                item: Any = {
                    "id": f"item_{number}" if number % 2 else f"{text}_{number}",
                    "type": "message",
                    "role": "user",
                    "content": [{"type": "input_text", "text": text}],
                }
                await connection.send({"type": "conversation.item.create", "item": item, **place})
                event = await asyncio.wait_for(connection.recv(), PATIENCE)
                told[item["id"]] = event.type == "conversation.item.added"
                if told[item["id"]]:
                    assert (await asyncio.wait_for(connection.recv(), PATIENCE)).type == "conversation.item.done"
                else:
                    assert event.error.code == "duplicate_item", event
            return told

        async with AsyncExitStack() as others:
            connections = [talk.connection]
            for api in (one, one, two):
                client = openai.AsyncOpenAI(base_url=api.address + "/v1", api_key="x", timeout=PATIENCE)
                await others.enter_async_context(client)
                session = client.realtime.connect(model="m", extra_query={"conversation": talk.id})
                connections.append(connection := await others.enter_async_context(session))
                for _ in range(2):
                    await asyncio.wait_for(connection.recv(), PATIENCE)
            told = await asyncio.gather(*(write(each, str(number)) for number, each in enumerate(connections)))
        found: Any = talk.client.conversations.items.list(talk.id, limit=100)
        texts = {item.id: item.content[0].text async for item in found}
        said = [(id, str(number)) for number, each in enumerate(told) for id, added in each.items() if added]
        assert sorted(said) == sorted(texts.items())

    with serving(url) as one, serving(url) as two:
        scenario(play, url)


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
            {"type": "conversation.item.truncate", "item_id": "item_heard", "content_index": 0, "audio_end_ms": True},
            {"type": "conversation.item.truncate", "item_id": "item_heard", "content_index": False, "audio_end_ms": 1},
            {"type": "response.create"},
            {"type": "input_audio_buffer.commit"},
            {"type": "conversation.nothing"},
            {"no": "type"},
        ]
        await talk.say("heard", "assistant", item={"id": "item_heard"})
        for number, event in enumerate(bad):
            await talk.connection.send({**event, "event_id": f"e{number}"})
            assert (await talk.next("error")).error.event_id in (f"e{number}", None)
        assert await talk.texts() == ["heard"]
        await talk.say("still here")
        assert await talk.texts() == ["heard", "still here"]

    scenario(play)


def test_walls(tmp_path: Path) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    token = keys.create("a", ["read", "write"], tenant="acme")[1]
    reader = keys.create("r", ["read"], tenant="acme")[1]

    async def refused(address: str, key: str, query: str) -> int:
        headers = {"Authorization": f"Bearer {key}"}
        with pytest.raises(websockets.InvalidStatus) as caught:
            await websockets.connect(
                f"{address.replace('http', 'ws')}/v1/realtime{query}", additional_headers=headers, open_timeout=PATIENCE
            )
        return caught.value.response.status_code

    async def run(api: Served) -> None:
        assert await refused(api.address, "sk-no", "") == 401
        assert await refused(api.address, reader, "") == 403
        assert await refused(api.address, token, "?conversation=conv_never") == 404
        assert await refused(api.address, token, "?nonsense=1") == 400

    with serving(settings=Settings(keys=keys.path)) as api:
        asyncio.run(run(api))


def socket_of(api: Served, token: str, query: str = "") -> Any:
    headers = {"Authorization": f"Bearer {token}"}
    return websockets.connect(
        f"{api.address.replace('http', 'ws')}/v1/realtime{query}", additional_headers=headers, open_timeout=PATIENCE
    )


async def heard(socket: Any) -> Any:
    return json.loads(await asyncio.wait_for(socket.recv(), PATIENCE))


def saying(text: str, id: str | None = None) -> str:
    item: dict[str, Any] = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    return json.dumps({"type": "conversation.item.create", "item": item | ({"id": id} if id else {})})


def test_every_event_is_audited(tmp_path: Path) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    key, token = keys.create("a", ["read", "write"], tenant="acme", user="ada")
    path = tmp_path / "audit.jsonl"
    made: list[str] = []

    async def run(api: Served) -> None:
        async with socket_of(api, token) as socket:
            await heard(socket)
            made.append((await heard(socket))["conversation"]["id"])
            for event in (
                saying("PLUGH", "item_1"),
                json.dumps({"type": "conversation.item.retrieve", "item_id": "item_1"}),
                json.dumps({"type": "conversation.item.delete", "item_id": "item_1"}),
                json.dumps({"type": "conversation.item.delete", "item_id": "item_1"}),
                "PLUGH",
            ):
                await socket.send(event)
                if (await heard(socket))["type"] == "conversation.item.added":
                    await heard(socket)
            await socket.send(saying("no id"))
            made.append((await heard(socket))["item"]["id"])
        with pytest.raises(websockets.InvalidStatus):
            await socket_of(api, "hsk_no_no")

    with serving(settings=Settings(keys=keys.path, audit_log=path)) as api:
        asyncio.run(run(api))
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    conversation, last = made
    on = [{"conversation_id": conversation}]
    on += [
        {"conversation_id": conversation, "event": f"conversation.item.{what}", "item_id": "item_1"}
        for what in ("create", "retrieve", "delete", "delete")
    ]
    on += [
        {"conversation_id": conversation},
        {"conversation_id": conversation, "event": "conversation.item.create", "item_id": last},
    ]
    assert [each.get("on") for each in entries] == [*on, None]
    assert [each["status"] for each in entries] == [101, 200, 200, 200, 404, 400, 200, 401]
    assert [each.get("code") for each in entries][4:6] == ["not_found", "invalid"]
    assert {each.get("action") for each in entries[:-1]} == {"openai_realtime"}
    assert {(each["caller"], each["tenant"], each["user"]) for each in entries[:-1]} == {(key.id, "acme", "ada")}
    assert len({each["request_id"] for each in entries}) == len(entries)
    assert "PLUGH" not in path.read_text()


def test_a_session_does_not_outlive_its_key(tmp_path: Path) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    key, token = keys.create("a", ["read", "write"], tenant="acme")

    async def run(api: Served) -> None:
        async with socket_of(api, token) as socket:
            await heard(socket)
            id = (await heard(socket))["conversation"]["id"]
            keys.revoke(key.id)
            await socket.send(saying("too late"))
            with pytest.raises(websockets.ConnectionClosed) as closed:
                await heard(socket)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1008
            stored = asyncio.run_coroutine_threadsafe(api.store.tenant("acme").get_messages(id), api.loop)
            assert await asyncio.wrap_future(stored) == []

    with serving(settings=Settings(keys=keys.path)) as api:
        asyncio.run(run(api))


def test_events_count_as_requests(tmp_path: Path) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    token = keys.create("a", ["read", "write"], tenant="acme", rate=2, daily_bytes=10_000)[1]

    async def run(api: Served) -> None:
        async with socket_of(api, token) as socket:
            await heard(socket)
            await heard(socket)
            await socket.send(saying("one"))
            assert [(await heard(socket))["type"] for _ in range(2)][1] == "conversation.item.done"
            await socket.send(saying("two"))
            assert (await heard(socket))["error"]["code"] == "rate_limit_exceeded"

    with serving(settings=Settings(keys=keys.path)) as api:
        asyncio.run(run(api))


def test_a_part_that_is_no_object_cannot_be_truncated() -> None:
    async def run(api: Served) -> None:
        content = {"content": ["words"]}
        body = {"messages": [{"id": "m", "role": "assistant", "content": content, "format": "json"}]}
        api.post("/conversations/c/messages", json=body).raise_for_status()
        async with socket_of(api, "x", "?conversation=c") as socket:
            await heard(socket)
            await heard(socket)
            cut = {"type": "conversation.item.truncate", "item_id": "m", "content_index": 0, "audio_end_ms": 1}
            await socket.send(json.dumps(cut))
            assert (await heard(socket))["error"]["param"] == "content_index"
            await socket.send(b"bytes")
            with pytest.raises(websockets.ConnectionClosed) as closed:
                await heard(socket)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1003

    with serving() as api:
        asyncio.run(run(api))


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/realtime/", "/v1/nothing"])
def test_there_is_no_other_socket(path: str) -> None:
    async def refused(api: Served, headers: dict[str, str]) -> None:
        with pytest.raises(websockets.InvalidStatus) as caught:
            await websockets.connect(
                api.address.replace("http", "ws") + path, additional_headers=headers, open_timeout=PATIENCE
            )
        response = caught.value.response
        assert response.status_code == 404
        assert json.loads(response.body or b"")["error"]["code"] == "unknown_url"

    with serving() as api:
        for headers in ({}, {"Authorization": "Bearer sk-anything"}):
            asyncio.run(refused(api, headers))
