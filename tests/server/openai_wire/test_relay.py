"""Live sessions, passed on to a model endpoint through the SDK's own connection, and recorded."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
import websockets
from tests.server.kit import Served, serving
from tests.servers.realtime import Endpoint, endpoint, heard
from tests.wait import PATIENCE

from hansard import Message
from hansard.errors import Unavailable
from hansard.server.key_file import KeyFile
from hansard.server.settings import Settings

SAID = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}


class Kit:
    """A server, and the endpoint behind it."""

    def __init__(self, api: Served, model: Endpoint) -> None:
        self.api = api
        self.model = model

    @asynccontextmanager
    async def talk(self, **query: str) -> AsyncIterator[Any]:
        """The SDK's connection to a session that has begun."""
        async with (
            openai.AsyncOpenAI(base_url=self.api.address + "/v1", api_key="sk-mine", timeout=PATIENCE) as client,
            client.realtime.connect(model="m-voice", extra_query={"conversation": "call", **query}) as connection,
        ):
            await until(connection, "session.created")
            yield connection

    def socket(self, query: str = "conversation=call", key: str = "sk-mine", **options: Any) -> Any:
        """A WebSocket, without the SDK."""
        address = f"{self.api.address.replace('http', 'ws')}/v1/realtime?model=m-voice&{query}"
        given = {"Authorization": f"Bearer {key}"} if key else {}
        headers = given | options.pop("headers", {})
        return websockets.connect(address, additional_headers=headers, open_timeout=PATIENCE, **options)

    async def refused(self, query: str = "conversation=call", key: str = "sk-mine", **options: Any) -> Any:
        with pytest.raises(websockets.InvalidStatus) as caught:
            await self.socket(query, key, **options)
        response = caught.value.response
        assert response.body is not None
        assert response.headers["x-request-id"]
        return response.status_code, json.loads(response.body)["error"]["code"], response.headers

    async def store(self, method: str, *arguments: Any, tenant: str = "default", **options: Any) -> Any:
        """Asks the store, on its own loop."""
        asked = getattr(self.api.store.tenant(tenant), method)(*arguments, **options)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asked, self.api.loop))

    async def said(self, id: str = "call") -> list[tuple[str, str, str, str]]:
        messages = await self.store("get_messages", id)
        return [(each.id, each.role, each.text, each.status) for each in messages]

    async def closed(self) -> bool:
        """Whether the session has ended at the endpoint, and here."""
        over = await asyncio.to_thread(self.model.talk.is_over.wait, PATIENCE)
        return over and await self.until(lambda: self.metric("hansard_relays") == 0)

    async def until(self, holds: Callable[[], Any]) -> bool:
        deadline = time.monotonic() + PATIENCE
        while not await asyncio.to_thread(holds):
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(0.02)
        return True

    def metric(self, name: str) -> float:
        text = self.api.get(self.api.address + "/metrics").text
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name + " "))


async def until(connection: Any, kind: str) -> Any:
    """The next event of a kind; those before it are passed over."""
    while True:
        event = await asyncio.wait_for(connection.recv(), PATIENCE)
        if event.type == kind:
            return event
        assert event.type != "error", event


async def text_of(socket: Any) -> Any:
    return json.loads(await asyncio.wait_for(socket.recv(), PATIENCE))


async def last_words(socket: Any) -> tuple[list[Any], int | None, str]:
    """What is still said on a socket, and how it ends."""
    left = []
    while True:
        try:
            left.append(await text_of(socket))
        except websockets.ConnectionClosed as error:
            return left, error.rcvd.code if error.rcvd else None, error.rcvd.reason if error.rcvd else ""


@contextmanager
def kit(url: str = "memory://", **settings: Any) -> Iterator[Kit]:
    with endpoint() as model:
        given: Any = {"upstream": model.address, "upstream_key": "sk-up", **settings}
        with serving(url, Settings(**given)) as api:
            yield Kit(api, model)


def play(scene: Callable[[Kit], Coroutine[Any, Any, None]], url: str = "memory://", **settings: Any) -> None:
    async def run(kit: Kit) -> None:
        await kit.store("create_conversation", "call")
        await asyncio.wait_for(scene(kit), 240)

    with kit(url, **settings) as made:
        asyncio.run(run(made))


# What is passed on, and what is recorded


def test_a_call() -> None:
    async def scene(kit: Kit) -> None:
        async with kit.talk() as connection:
            await connection.input_audio_buffer.append(audio="AAAA")
            await connection.input_audio_buffer.commit()
            await connection.response.create()
            done = await until(connection, "response.done")
            assert done.response.status == "completed"
            assert [each[1:] for each in await kit.said()] == [
                ("user", "Where is my order?", "complete"),
                ("assistant", "It left this morning.", "complete"),
            ], "recorded before the client hears of it"
        assert await kit.closed()
        request = kit.model.talk.request
        assert request is not None
        assert request.headers["Authorization"] == "Bearer sk-up", "the server's own key, and never the client's"
        assert "sk-mine" not in str(request.headers)
        assert request.path == "/v1/realtime?model=m-voice"
        answer = (await kit.store("get_messages", "call"))[1]
        assert (answer.format, answer.usage.model, answer.usage.output_tokens) == ("openai.realtime", "m-voice", 12)
        assert "audio" not in answer.content["content"][0]
        assert (await kit.store("search", "morning"))[0].message.id == answer.id

    play(scene)


def test_texts_go_through_as_they_are() -> None:
    async def scene(kit: Kit) -> None:
        kit.model.says = "Größe 🙂 \u2028 “quoted”\n" + "long" * 5000
        sent = [
            '{"type" : "session.update",\n "session": {"type":"realtime", "instructions": "é\\u00e9 🙂", "x": 1.0e2}}',
            json.dumps({"type": "conversation.item.create", "item": SAID, "unknown": [None]}),
            '{"type":"response.create"}',
        ]
        async with kit.socket() as socket:
            got = [await socket.recv()]
            for text in sent:
                await socket.send(text)
            while '"response.done"' not in got[-1]:
                got.append(await asyncio.wait_for(socket.recv(), PATIENCE))
        assert await kit.closed()
        assert kit.model.talk.told == sent
        assert got == kit.model.texts

    play(scene)


def test_what_is_no_event_is_for_the_endpoint_to_judge() -> None:
    async def scene(kit: Kit) -> None:
        async with kit.socket() as socket:
            await text_of(socket)
            await socket.send('{"type":"nonsense","item":"x","event_id":"e1"}')
            assert (await text_of(socket))["error"]["event_id"] == "e1"
            await socket.send(b"bytes")
            assert (await last_words(socket))[1] == 1003

    play(scene)


def test_a_new_conversation_is_named_in_the_handshake() -> None:
    async def scene(kit: Kit) -> None:
        async with kit.socket("") as socket:
            id = socket.response.headers["Hansard-Conversation"]
            await socket.send(json.dumps({"type": "conversation.item.create", "item": SAID}))
            while (await text_of(socket))["type"] != "conversation.item.done":
                pass
            assert [each[2] for each in await kit.said(id)] == ["hi"]
        async with kit.socket("", headers={"Hansard-Conversation": "call-7%2F8"}) as socket:
            await text_of(socket)
        assert await kit.store("get_conversation", "call-7/8") is not None

    play(scene)


def test_what_is_said_aside_is_not_recorded() -> None:
    async def scene(kit: Kit) -> None:
        async with kit.talk() as connection:
            await connection.response.create(response={"conversation": "none"})
            await until(connection, "response.done")
        assert await kit.closed()
        assert await kit.said() == []

    play(scene)


def test_interruptions() -> None:
    async def scene(kit: Kit) -> None:
        kit.model.pause = 0.05
        kit.model.says = " ".join(str(number) for number in range(500))
        async with kit.talk() as connection:
            await connection.response.create()
            added = await until(connection, "conversation.item.added")
            await until(connection, "response.output_audio_transcript.delta")
            await connection.response.cancel()
            await until(connection, "response.done")
            told = (await kit.said())[0]
            assert told[3] == "interrupted"
            assert told[2].startswith("0")
            await connection.conversation.item.truncate(item_id=added.item.id, content_index=0, audio_end_ms=40)
            await until(connection, "conversation.item.truncated")
        assert await kit.closed()
        cut = (await kit.store("get_messages", "call"))[0]
        assert (cut.text, cut.metadata["heard_ms"]) == ("", {"0": 40})
        assert cut.metadata["generated"]["0"] == told[2]

    play(scene)


def test_audio_is_kept_only_when_asked() -> None:
    item = {"type": "message", "role": "user", "content": [{"type": "input_audio", "audio": "AAAA", "transcript": "x"}]}

    async def scene(kit: Kit) -> None:
        for keep in ("false", "true"):
            async with kit.talk(keep_audio=keep, replay="false") as connection:
                await connection.conversation.item.create(item={"id": f"item_{keep}", **item})
                await until(connection, "conversation.item.done")
        assert await kit.closed()
        parts = [each.content["content"][0] for each in await kit.store("get_messages", "call")]
        assert [part.get("audio") for part in parts] == [None, "AAAA"]

    play(scene)


# History


def test_history_is_given_to_the_endpoint_first() -> None:
    async def scene(kit: Kit) -> None:
        stored = [
            Message("user", "one", id="m1"),
            Message("assistant", {"role": "assistant", "content": "two"}, id="m" * 60, format="openai.chat"),
        ]
        await kit.store("append", "call", stored)
        before = await kit.said()
        async with kit.talk() as connection:
            await connection.conversation.item.create(item={"id": "item_3", **SAID})
            while (await until(connection, "conversation.item.done")).item.id != "item_3":
                pass
        assert await kit.closed()
        created = [json.loads(text) for text in kit.model.talk.told]
        assert [each["item"]["content"][0]["text"] for each in created] == ["one", "two", "hi"]
        assert await kit.said() == [*before, ("item_3", "user", "hi", "complete")], "and is not recorded again"
        async with kit.talk() as connection:
            await connection.session.update(session={"type": "realtime"})
            await until(connection, "session.updated")
        assert await kit.closed()
        assert len(kit.model.talk.told) == 4, "with what the first session has said"
        assert len(await kit.said()) == 3

    play(scene)


def test_history_can_be_left_out() -> None:
    async def scene(kit: Kit) -> None:
        await kit.store("append", "call", [Message("user", "one", id="m1")])
        async with kit.talk(replay="false") as connection:
            await connection.conversation.item.create(item={"id": "m1", **SAID}, event_id="e1")
            error = await asyncio.wait_for(connection.recv(), PATIENCE)
            assert (error.error.code, error.error.event_id) == ("duplicate_item", "e1")
            await connection.conversation.item.create(item={"id": "m2", **SAID})
            await until(connection, "conversation.item.done")
        assert await kit.closed()
        assert len(kit.model.talk.told) == 1, "the id is one of the conversation, which the endpoint cannot know"
        assert [each[0] for each in await kit.said()] == ["m1", "m2"]

    play(scene)


def test_an_endpoint_that_counts_from_one_in_each_session() -> None:
    async def scene(kit: Kit) -> None:
        for text in ("one", "two"):
            kit.model.hears = text
            async with kit.talk(replay="false") as connection:
                await connection.input_audio_buffer.commit()
                await until(connection, "conversation.item.input_audio_transcription.completed")
            assert await kit.closed()
        assert [each[1:3] for each in await kit.said()] == [("user", "one"), ("user", "two")]

    play(scene)


# Ends


@pytest.mark.parametrize(("code", "reason"), [(1000, "bye"), (4001, "my own"), (1001, "")])
def test_the_clients_close_is_passed_on(code: int, reason: str) -> None:
    async def scene(kit: Kit) -> None:
        async with kit.socket() as socket:
            await text_of(socket)
            await socket.close(code, reason)
        assert await kit.closed()
        assert (kit.model.talk.code, kit.model.talk.reason) == (code, reason)

    play(scene)


@pytest.mark.parametrize("code", [1000, 1011, 4002])
def test_the_endpoints_close_is_passed_on(code: int) -> None:
    async def scene(kit: Kit) -> None:
        async with kit.socket() as socket:
            await text_of(socket)
            await asyncio.to_thread(kit.model.do, kit.model.talk.end(str(code)))
            assert await last_words(socket) == ([], code, "enough")

    play(scene)


def test_an_endpoint_that_dies_in_the_middle_of_an_answer() -> None:
    async def scene(kit: Kit) -> None:
        kit.model.dies_after = 3
        kit.model.pause = 0.05
        async with kit.socket() as socket:
            await socket.send('{"type":"response.create"}')
            left, code, _ = await last_words(socket)
            assert (left[-1]["type"], left[-1]["error"]["code"], code) == ("error", "upstream", 1011)
            assert [each[1:] for each in await kit.said()] == [("assistant", "It left this", "interrupted")]

    play(scene)


@pytest.mark.parametrize("how", ["close", "abort"])
def test_a_client_that_goes_in_the_middle_of_an_answer(how: str) -> None:
    async def scene(kit: Kit) -> None:
        kit.model.pause = 0.05
        kit.model.says = " ".join(str(number) for number in range(1000))
        async with kit.socket() as socket:
            await socket.send('{"type":"response.create"}')
            while (await text_of(socket))["type"] != "response.output_audio_transcript.delta":
                pass
            if how == "abort":
                socket.transport.abort()
        assert await kit.closed()
        assert kit.model.talk.code == (1001 if how == "abort" else 1000)
        assert await kit.said() == heard(kit.model.talk.said), "everything that the endpoint has said"
        assert (await kit.said())[0][3] == "interrupted"

    play(scene)


def test_the_server_ends() -> None:
    async def run(made: Kit) -> Any:
        socket = await made.socket("")
        await socket.send('{"type":"response.create"}')
        while (await text_of(socket))["type"] != "response.output_audio_transcript.delta":
            pass
        return socket

    with endpoint() as model:
        model.pause, model.says = 0.05, " ".join(str(number) for number in range(1000))
        with asyncio.Runner() as runner:
            with serving(settings=Settings(upstream=model.address)) as api:
                socket = runner.run(run(Kit(api, model)))
            assert model.talk.is_over.wait(PATIENCE), "in order, before the store is closed"
            assert runner.run(last_words(socket))[1] in (1001, 1012)


# Refusals


def test_an_endpoint_that_refuses() -> None:
    async def scene(kit: Kit) -> None:
        before = await kit.store("list_conversations")
        body = json.dumps({"error": {"message": "Slowly.", "type": "rate_limit_error", "code": "slow"}}).encode()
        kit.model.refuses = (429, {"retry-after": "7"}, body)
        status, code, headers = await kit.refused("")
        assert (status, code, headers["retry-after"]) == (429, "slow", "7")
        for given in (401, 403, 302):
            kit.model.refuses = (given, {"location": "http://127.0.0.1:9/"}, b"{}")
            assert (await kit.refused(""))[:2] == (502, "upstream"), "nobody is followed elsewhere with the key"
        kit.model.refuses = (503, {}, b"not json")
        assert (await kit.refused(""))[0] == 503
        assert await kit.store("list_conversations") == before, "and nothing is left behind"

    play(scene)


def test_an_endpoint_that_nobody_answers_at() -> None:
    async def scene(kit: Kit) -> None:
        assert (await kit.refused())[:2] == (502, "upstream")

    play(scene, upstream="http://127.0.0.1:9/v1")


def test_without_an_endpoint() -> None:
    async def scene(kit: Kit) -> None:
        assert (await kit.refused("conversation=call&relay=true"))[:2] == (501, "no_upstream")

    play(scene, upstream=None)


def test_the_store_alone_can_be_asked_for() -> None:
    async def scene(kit: Kit) -> None:
        async with kit.talk(relay="false") as connection:
            await connection.conversation.item.create(item=SAID)
            await until(connection, "conversation.item.done")
        assert kit.model.talks == []
        assert [each[2] for each in await kit.said()] == ["hi"]

    play(scene)


@pytest.mark.parametrize("query", ["relay=maybe", "replay=1", "keep_audio=", "nonsense=1"])
def test_a_bad_query(query: str) -> None:
    async def scene(kit: Kit) -> None:
        assert (await kit.refused(query))[0] == 400
        assert (await kit.refused("conversation=a", headers={"Hansard-Conversation": "b"}))[0] == 400
        assert kit.model.talks == []

    play(scene)


# A store that does not take it


def broken(*_: Any, **__: Any) -> Any:
    raise Unavailable("the disk is gone")


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> Callable[[Kit], None]:
    def go(kit: Kit) -> None:
        for name in ("append", "update_message"):
            monkeypatch.setattr(kit.api.store.backend, name, broken)

    return go


def test_a_session_that_cannot_be_recorded_is_ended(away: Callable[[Kit], None]) -> None:
    async def scene(kit: Kit) -> None:
        async with kit.socket() as socket:
            await text_of(socket)
            away(kit)
            await socket.send(json.dumps({"type": "conversation.item.create", "item": SAID}))
            left, code, reason = await last_words(socket)
            assert (left[-1]["type"], left[-1]["error"]["code"]) == ("error", "not_recorded")
            assert (code, reason) == (1011, "not_recorded")
        assert await kit.closed()
        assert kit.metric("hansard_relays_unrecorded_total") == 1

    play(scene, recording_seconds=0.0)


def test_a_store_that_comes_back_has_everything(away: Callable[[Kit], None], monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(kit: Kit) -> None:
        async with kit.talk() as connection:
            away(kit)
            await connection.conversation.item.create(item=SAID)
            await until(connection, "conversation.item.done")
            assert await kit.said() == []
            monkeypatch.undo()
            assert await kit.until(lambda: kit.api.get("/conversations/call/messages").json()["items"])
            assert [each[2] for each in await kit.said()] == ["hi"], "without another word"
            await connection.conversation.item.create(item=SAID)
            await until(connection, "conversation.item.done")
        assert await kit.closed()
        assert len(await kit.said()) == 2

    play(scene, recording_seconds=120.0)


def test_a_store_that_is_away_at_the_end(away: Callable[[Kit], None]) -> None:
    async def scene(kit: Kit) -> None:
        async with kit.socket() as socket:
            await text_of(socket)
            away(kit)
            await socket.send(json.dumps({"type": "conversation.item.create", "item": SAID}))
            while (await text_of(socket))["type"] != "conversation.item.done":
                pass
            await asyncio.to_thread(kit.model.do, kit.model.talk.end("1000"))
            left, code, _ = await last_words(socket)
            assert (left[-1]["error"]["code"], code) == ("not_recorded", 1011), "it does not look like a good end"

    play(scene, recording_seconds=120.0)


def test_a_conversation_that_is_deleted_meanwhile() -> None:
    async def scene(kit: Kit) -> None:
        async with kit.socket() as socket:
            await socket.send(json.dumps({"type": "conversation.item.create", "item": SAID}))
            while (await text_of(socket))["type"] != "conversation.item.done":
                pass
            await kit.store("delete_conversation", "call")
            await socket.send(json.dumps({"type": "response.create"}))
            left, code, _ = await last_words(socket)
            assert (left[-1]["error"]["code"], code) == ("not_recorded", 1011)
        assert await kit.store("get_conversation", "call") is None

    play(scene)


def test_a_store_that_is_away_at_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(kit: Kit) -> None:
        monkeypatch.setattr(kit.api.store.backend, "get_conversation", broken)
        assert (await kit.refused())[0] == 503
        assert kit.model.talks == []

    play(scene)


# Walls


@pytest.fixture
def keys(tmp_path: Path) -> KeyFile:
    return KeyFile(tmp_path / "keys.json")


def test_walls(keys: KeyFile) -> None:
    token = keys.create("a", ["read", "write"], tenant="acme")[1]
    reader = keys.create("r", ["read"], tenant="acme")[1]
    other = keys.create("e", ["read", "write"], tenant="evil")[1]
    eve = keys.create("eve", ["read", "write"], tenant="acme", user="eve")[1]

    async def scene(kit: Kit) -> None:
        await kit.store("create_conversation", "mine", tenant="acme", user_id="ada")
        for key, status in {"sk-no": 401, "": 401, reader: 403, other: 404, eve: 404}.items():
            assert (await kit.refused("conversation=mine", key))[0] == status
        assert kit.model.talks == [], "the endpoint has heard of none of them"
        async with kit.socket("", other, headers={"Hansard-Conversation": "mine"}) as socket:
            await socket.send(json.dumps({"type": "conversation.item.create", "item": SAID}))
            while (await text_of(socket))["type"] != "conversation.item.done":
                pass
        assert await kit.store("get_messages", "mine", tenant="acme") == []
        async with kit.socket("conversation=mine", token) as socket:
            await text_of(socket)

    play(scene, keys=keys.path)


def test_a_browser_sends_its_key_as_a_subprotocol(keys: KeyFile) -> None:
    token = keys.create("a", ["read", "write"], tenant="default")[1]

    async def scene(kit: Kit) -> None:
        offered = ["realtime", f"openai-insecure-api-key.{token}", "openai-beta.realtime-v1"]
        async with kit.socket(key="", subprotocols=offered) as socket:
            assert socket.subprotocol == "realtime"
            await text_of(socket)
            request = kit.model.talk.request
            assert request is not None
            assert request.headers["Sec-WebSocket-Protocol"] == "realtime, openai-beta.realtime-v1"
            assert token not in str(request.headers)
        wrong = ["realtime", "openai-insecure-api-key.hsk_x_y"]
        assert (await kit.refused(key="", subprotocols=wrong))[0] == 401
        async with kit.socket("conversation=call&relay=false", key="", subprotocols=offered) as socket:
            assert socket.subprotocol == "realtime"

    play(scene, keys=keys.path)


def test_a_session_does_not_outlive_its_key(keys: KeyFile) -> None:
    key, token = keys.create("a", ["read", "write"], tenant="default")

    async def scene(kit: Kit) -> None:
        async with kit.socket(key=token) as socket:
            await text_of(socket)
            keys.revoke(key.id)
            left, code, _ = await last_words(socket)
            assert (left[-1]["error"]["code"], code) == ("invalid_api_key", 1008), "though it said nothing more"
        assert await asyncio.to_thread(kit.model.talk.is_over.wait, PATIENCE)

    play(scene, keys=keys.path)


def test_events_count_but_audio_is_only_weighed(keys: KeyFile) -> None:
    token = keys.create("a", ["read", "write"], tenant="default", rate=3, daily_bytes=20_000)[1]

    async def scene(kit: Kit) -> None:
        async with kit.socket(key=token) as socket:
            await text_of(socket)
            for _ in range(50):
                await socket.send('{"type":"input_audio_buffer.append","audio":"AAAA"}')
            create = json.dumps({"type": "conversation.item.create", "item": SAID})
            await socket.send(create)
            assert [(await text_of(socket))["type"] for _ in range(2)][1] == "conversation.item.done"
            for _ in range(2):
                await socket.send(create)
            got = [(await text_of(socket)) for _ in range(3)]
            assert [each["type"] for each in got].count("error") == 1
            await socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": "A" * 30_000}))
            assert (await text_of(socket))["error"]["code"] == "rate_limit_exceeded"
        assert len(kit.model.talk.told) == 52

    play(scene, keys=keys.path)


def test_so_many_at_a_time() -> None:
    async def scene(kit: Kit) -> None:
        async with kit.socket(), kit.socket():
            assert kit.metric("hansard_relays") == 2
            status, code, headers = await kit.refused()
            assert (status, code) == (429, "rate_limit_exceeded")
            assert int(headers["retry-after"]) > 0
        assert await kit.until(lambda: kit.metric("hansard_relays") == 0)
        async with kit.socket() as socket:
            await text_of(socket)

    play(scene, max_relays=2)


def test_the_audit_knows_of_it(keys: KeyFile, tmp_path: Path) -> None:
    token = keys.create("a", ["read", "write"], tenant="default")[1]
    log = tmp_path / "audit.jsonl"

    async def scene(kit: Kit) -> None:
        async with kit.socket(key=token) as socket:
            await socket.send('{"type":"input_audio_buffer.append","audio":"PLUGH"}')
            await socket.send(json.dumps({"type": "conversation.item.create", "item": {"id": "item_1", **SAID}}))
            while (await text_of(socket))["type"] != "conversation.item.done":
                pass

    play(scene, keys=keys.path, audit_log=log)
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    entries = [each for each in entries if each.get("action") == "openai_realtime"]
    created = {"conversation_id": "call", "event": "conversation.item.create", "item_id": "item_1"}
    assert [each["on"] for each in entries] == [{"conversation_id": "call"}, created]
    assert [each["status"] for each in entries] == [101, 200]
    assert "PLUGH" not in log.read_text()
    assert "hi" not in [value for each in entries for value in each["on"].values()]


def test_a_client_that_does_not_read_makes_the_endpoint_wait() -> None:
    async def scene(kit: Kit) -> None:
        # The systems at both ends of both connections hold some tens of megabytes by themselves.
        many = 1800
        async with kit.socket(max_queue=1, compression=None) as socket:
            await text_of(socket)

            link = {"item_id": "x", "response_id": "r", "output_index": 0, "content_index": 0}

            async def shout() -> None:
                for _ in range(many):
                    await kit.model.talk.say("response.output_audio.delta", delta="A" * 100_000, **link)

            shouting = asyncio.ensure_future(asyncio.to_thread(kit.model.do, shout()))
            count = -1
            while count != len(kit.model.talk.said):
                count = len(kit.model.talk.said)
                await asyncio.sleep(1)
            assert count < many // 2, "what nobody reads is not kept in memory"
            for _ in range(many):
                await text_of(socket)
            await shouting

    play(scene)


def test_what_was_said_is_recorded_though_the_client_does_not_read(keys: KeyFile) -> None:
    key, token = keys.create("a", ["read", "write"], tenant="default")

    async def scene(kit: Kit) -> None:
        async with kit.socket(key=token, max_queue=1, compression=None, close_timeout=1) as socket:
            await text_of(socket)
            talk = kit.model.talk
            link = {"item_id": "x", "response_id": "r", "output_index": 0, "content_index": 0}

            async def shout() -> None:
                for number in range(400):
                    await talk.say("response.output_audio.delta", delta="A" * 100_000, **link)
                    item = {"id": f"i{number}", "object": "realtime.item", "status": "completed", **SAID}
                    await talk.say("conversation.item.done", item=item, previous_item_id=None)

            shouting = asyncio.ensure_future(asyncio.to_thread(kit.model.do, shout()))
            count = -1
            while count != len(talk.said):
                count = len(talk.said)
                await asyncio.sleep(1)
            keys.revoke(key.id)
            assert await asyncio.to_thread(talk.is_over.wait, PATIENCE)
            assert isinstance((await asyncio.gather(shouting, return_exceptions=True))[0], websockets.ConnectionClosed)
            said = {event["item"]["id"] for event in talk.said if "item" in event}

            def is_recorded() -> bool:
                asked = kit.api.store.get_messages("call", last=1000)
                return said <= {
                    each.id for each in asyncio.run_coroutine_threadsafe(asked, kit.api.loop).result(PATIENCE)
                }

            assert await kit.until(is_recorded)

    play(scene, keys=keys.path)


def test_an_event_that_is_too_large_for_the_endpoint() -> None:
    async def scene(kit: Kit) -> None:
        async with kit.socket() as socket:
            await text_of(socket)
            audio = "A" * (15 * 1024 * 1024)
            await socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))
            _, code, _ = await last_words(socket)
            assert code in (1009, 1011), "of the endpoint, or that it broke off"
        assert await kit.closed()

    play(scene)
