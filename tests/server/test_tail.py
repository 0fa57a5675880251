"""The live tail: events and WebSockets, in order, resumed after an interruption, and ended cleanly."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.server.kit import Served, serving
from tests.server.test_rest import problem, say
from tests.wait import PATIENCE, until
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect as connect_socket

from hansard.server.key_file import KeyFile
from hansard.server.settings import Settings


class Events:
    """An open tail."""

    def __init__(self, answer: httpx.Response) -> None:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"] == "text/event-stream"
        self._lines: Iterator[str] = answer.iter_lines()
        self.last_id = ""

    def next(self) -> tuple[str, Any]:
        """Returns the kind of the next event, and its data."""
        found: dict[str, str] = {}
        for line in self._lines:
            if line.startswith(":"):
                continue
            if line:
                name, _, value = line.partition(": ")
                found[name] = value
            elif found:
                self.last_id = found["id"]
                return found["event"], json.loads(found["data"])
        raise EOFError

    def listen_for_comments(self, count: int) -> None:
        """Reads so many comments, and nothing else."""
        while count:
            line = next(self._lines)
            assert not line or line.startswith(":")
            count -= bool(line)

    def take(self, count: int) -> list[Any]:
        return [self.next()[1]["content"] for _ in range(count)]


TAIL = "/conversations/c/tail"


def test_events_are_sent_as_messages_arrive(api: Served) -> None:
    say(api, "c", "old")
    with api.stream("GET", TAIL) as answer:
        events = Events(answer)
        assert events.next() == ("open", {})
        say(api, "c", "a", {"b": "line\nbreak"})
        assert events.take(2) == ["a", {"b": "line\nbreak"}]
        say(api, "c", "c")
        assert events.take(1) == ["c"]
        last = events.last_id
    say(api, "c", "missed")
    with api.stream("GET", TAIL, headers={"Last-Event-ID": last}) as answer:
        events = Events(answer)
        events.next()
        assert events.take(1) == ["missed"]
    with api.stream("GET", TAIL, params={"after": last}) as answer:
        events = Events(answer)
        events.next()
        assert events.take(1) == ["missed"]


def test_a_conversation_may_be_watched_before_it_exists(api: Served) -> None:
    with api.stream("GET", "/conversations/later/tail") as answer:
        events = Events(answer)
        events.next()
        say(api, "later", "first")
        assert events.take(1) == ["first"]


def test_a_message_in_progress_is_sent_at_each_update(api: Served) -> None:
    with api.stream("GET", TAIL) as answer:
        events = Events(answer)
        events.next()
        message = {"role": "assistant", "content": "He", "id": "m", "status": "in_progress"}
        api.post("/conversations/c/messages", json={"messages": [message]})
        assert events.take(1) == ["He"]
        api.patch("/conversations/c/messages/m", json={"content": "Hello", "status": "complete"})
        assert events.take(1) == ["Hello"]


def test_idle_tails_send_heartbeats() -> None:
    with serving(settings=Settings(heartbeat_seconds=0.05)) as api, api.stream("GET", TAIL) as answer:
        events = Events(answer)
        events.next()
        events.listen_for_comments(2)
        say(api, "c", "x")
        assert events.take(1) == ["x"]


def test_errors_are_answered_before_the_stream_begins(api: Served) -> None:
    say(api, "c", "x")
    say(api, "d", "x")
    foreign = api.get("/conversations/d/messages").json()["last_cursor"]
    problem(api.get(TAIL, params={"after": foreign}), 400, "invalid")
    problem(api.get(TAIL, headers={"Last-Event-ID": "cursor:AAAA"}), 400, "invalid")
    problem(api.get(TAIL, params={"after": "never"}), 404, "message_not_found")
    problem(api.get(TAIL, params={"branch": "never"}), 404, "not_found")
    with serving("none://") as nothing:
        problem(nothing.get(TAIL), 501, "unsupported")


def test_a_client_that_disconnects_leaves_no_task(api: Served) -> None:
    say(api, "c", "x")
    before = tasks(api)
    for _ in range(20):
        with api.stream("GET", TAIL) as answer:
            Events(answer).next()
    until(lambda: tasks(api) <= before)


def tasks(api: Served) -> int:
    async def count() -> int:
        return len(asyncio.all_tasks())

    return asyncio.run_coroutine_threadsafe(count(), api.loop).result(PATIENCE)


def test_many_tails_each_get_everything_in_order(tmp_path: Path) -> None:
    tails, messages = 200, 10
    head = b"GET /api/v1/conversations/c/tail HTTP/1.1\r\nHost: localhost\r\n\r\n"

    async def follow(host: str, port: int, opened: asyncio.Semaphore) -> list[int]:
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(head)
        await reader.readuntil(b"event: open")
        opened.release()
        seen: list[int] = []
        while len(seen) < messages:
            line = await reader.readline()
            assert line, "the tail ended"
            if line.startswith(b"data: {") and b'"content"' in line:
                seen.append(json.loads(line[6:])["content"])
        writer.close()
        return seen

    async def play(api: Served) -> list[list[int]]:
        host, _, port = api.address.removeprefix("http://").partition(":")
        opened = asyncio.Semaphore(0)
        following = [asyncio.ensure_future(follow(host, int(port), opened)) for _ in range(tails)]
        for _ in range(tails):
            await opened.acquire()
        for number in range(messages):
            await asyncio.to_thread(say, api, "c", number)
        return await asyncio.wait_for(asyncio.gather(*following), 240)

    with serving(f"sqlite:///{tmp_path}/chats.db") as api:
        assert asyncio.run(play(api)) == [list(range(messages))] * tails


def test_stopping_the_server_ends_its_tails() -> None:
    seen: list[str] = []
    with serving() as api:
        started = threading.Event()

        def listen() -> None:
            with (
                httpx.Client(base_url=api.address, timeout=PATIENCE) as client,
                client.stream("GET", "/api/v1" + TAIL) as answer,
            ):
                events = Events(answer)
                seen.append(events.next()[0])
                started.set()
                try:
                    events.next()
                except EOFError:
                    seen.append("ended")

        thread = threading.Thread(target=listen)
        thread.start()
        assert started.wait(PATIENCE)
    thread.join(PATIENCE)
    assert seen == ["open", "ended"], "to its end, and not cut off"


# WebSockets


def wire(api: Served, path: str = TAIL, **options: Any) -> Any:
    return connect_socket(api.address.replace("http", "ws") + "/api/v1" + path, open_timeout=PATIENCE, **options)


def test_a_websocket_sends_messages_as_they_arrive(api: Served) -> None:
    say(api, "c", "old")
    with wire(api) as tail:
        opened = json.loads(tail.recv(PATIENCE))
        assert opened["type"] == "open"
        say(api, "c", "a", "b")
        frames = [json.loads(tail.recv(PATIENCE)) for _ in range(2)]
        assert [frame["message"]["content"] for frame in frames] == ["a", "b"]
        tail.send("whatever a client says is passed over")
        say(api, "c", "c")
        assert json.loads(tail.recv(PATIENCE))["message"]["content"] == "c"
    with wire(api, TAIL + "?after=" + frames[0]["cursor"]) as tail:
        tail.recv(PATIENCE)
        assert [json.loads(tail.recv(PATIENCE))["message"]["content"] for _ in range(2)] == ["b", "c"]


def test_a_websocket_without_permission_is_refused(tmp_path: Path) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    good = keys.create("x", ["read"], tenant="acme")[1]
    write_only = keys.create("y", ["write"], tenant="acme")[1]
    with serving(settings=Settings(keys=keys.path)) as api:
        for status, path, headers in (
            (401, TAIL, {}),
            (401, TAIL, {"Authorization": "Bearer hsk_x_y"}),
            (403, TAIL, {"Authorization": f"Bearer {write_only}"}),
            (403, TAIL, {"Authorization": f"Bearer {good}", "Hansard-Tenant": "evil"}),
            (404, "/conversations/c/nothing", {"Authorization": f"Bearer {good}"}),
            (400, TAIL + "?after=cursor:x", {"Authorization": f"Bearer {good}"}),
            (400, TAIL + "?nobody=1", {"Authorization": f"Bearer {good}"}),
        ):
            with pytest.raises(InvalidStatus) as refused, wire(api, path, additional_headers=headers):
                pass
            assert refused.value.response.status_code == status, path
        with wire(api, additional_headers={"Authorization": f"Bearer {good}"}) as tail:
            assert json.loads(tail.recv(PATIENCE))["type"] == "open"


def test_watching_is_audited(tmp_path: Path) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    key, token = keys.create("x", ["read"], tenant="acme", user="ada")
    path = tmp_path / "audit.jsonl"
    with serving(settings=Settings(keys=keys.path, audit_log=path)) as api:
        with wire(api, additional_headers={"Authorization": f"Bearer {token}"}) as tail:
            tail.recv(PATIENCE)
        with pytest.raises(InvalidStatus), wire(api):
            pass
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(each.get("action"), each["status"]) for each in entries] == [("tail_conversation", 101), (None, 401)]
    first = entries[0]
    assert (first["caller"], first["tenant"], first["user"], first["on"]) == (
        key.id,
        "acme",
        "ada",
        {"conversation_id": "c"},
    )


def test_revoking_a_key_ends_its_tails(tmp_path: Path) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    other = {"Authorization": "Bearer " + keys.create("other", ["write"], tenant="acme")[1]}
    body = {"messages": [{"role": "user", "content": "SECRET"}]}
    with serving(settings=Settings(keys=keys.path)) as api:
        key, token = keys.create("x", ["read"], tenant="acme")
        bearer = {"Authorization": f"Bearer {token}"}
        with wire(api, additional_headers=bearer) as tail, api.stream("GET", TAIL, headers=bearer) as answer:
            tail.recv(PATIENCE)
            events = Events(answer)
            events.next()
            keys.revoke(key.id)
            assert api.post("/conversations/c/messages", json=body, headers=other).status_code == 200
            with pytest.raises(EOFError):
                events.next()
            with pytest.raises(ConnectionClosed):
                tail.recv(PATIENCE)
            assert tail.close_code == 1008


def test_a_page_of_another_origin_cannot_open_a_websocket(api: Served) -> None:
    with pytest.raises(InvalidStatus) as refused, wire(api, origin="http://evil.example"):
        pass
    assert refused.value.response.status_code == 403


def test_an_interrupted_websocket_leaves_no_task(api: Served) -> None:
    before = tasks(api)
    for _ in range(10):
        with wire(api) as tail:
            tail.recv(PATIENCE)
            tail.socket.shutdown(socket.SHUT_RDWR)
    until(lambda: tasks(api) <= before)
