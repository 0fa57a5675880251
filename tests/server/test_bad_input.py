"""Wrong input is answered with a precise 4xx or a clean close, never a 500; and the server continues."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import pytest
from tests.server.kit import Served, serving
from tests.server.test_rest import ok, problem, say
from tests.server.test_tail import tasks
from tests.wait import PATIENCE, until

from hansard import sync
from hansard.errors import Unsupported
from hansard.model import Message
from hansard.server.settings import Settings

T = TypeVar("T")

JSON = {"Content-Type": "application/json"}
MESSAGES = "/conversations/c/messages"

WRONG_BODIES = {
    "nothing": b"",
    "not JSON": b"{",
    "two documents": b"{}{}",
    "bad UTF-8": b'{"messages":[{"role":"user","content":"\xff"}]}',
    "half a surrogate pair": b'{"messages":[{"role":"user","content":"\\ud800"}]}',
    "wrong type": b'{"messages":"x"}',
    "not an object": b"[]",
    "unknown field": b'{"messages":[],"nobody":1}',
    "unknown field of a message": b'{"messages":[{"role":"user","content":1,"seq":5}]}',
    "unknown role": b'{"messages":[{"role":"nobody","content":1}]}',
    "no content": b'{"messages":[{"role":"user"}]}',
    "NaN": b'{"messages":[{"role":"user","content":NaN}]}',
    "too large a number": b'{"messages":[{"role":"user","content":1e999}]}',
    "too many digits": b'{"messages":[{"role":"user","content":' + b"9" * 5000 + b"}]}",
    "too deep": b'{"messages":[{"role":"user","content":' + b"[" * 100_000 + b"]" * 100_000 + b"}]}",
    "deeper than allowed": b'{"messages":[{"role":"user","content":' + b"[" * 300 + b"]" * 300 + b"}]}",
    "a time without a zone": b'{"messages":[{"role":"user","content":1,"created_at":"2020-01-01T00:00:00"}]}',
    "no time": b'{"messages":[{"role":"user","content":1,"created_at":"soon"}]}',
    "an id with NUL": b'{"messages":[{"role":"user","content":1,"id":"a\\u0000"}]}',
    "an id like a cursor": b'{"messages":[{"role":"user","content":1,"id":"cursor:x"}]}',
    "a text that is none": b'{"messages":[{"role":"user","content":1,"format":"text"}]}',
}


@pytest.mark.parametrize("body", WRONG_BODIES.values(), ids=WRONG_BODIES)
def test_wrong_bodies_are_invalid(api: Served, body: bytes) -> None:
    problem(api.post(MESSAGES, content=body, headers=JSON), 400, "invalid")
    assert ok(api.get("/conversations"))["items"] == []


WRONG_TARGETS = [
    "/conversations?limit=x",
    "/conversations?limit=0",
    "/conversations?limit=101",
    "/conversations?limit=1&limit=2",
    "/conversations?nobody=1",
    "/conversations?after=cursor:AAAA",
    "/conversations?metadata=[1]",
    "/conversations?metadata={",
    "/conversations?archived=maybe",
    "/conversations?user_id=%ff",
    "/conversations/%ff",
    "/conversations/" + "x" * 300,
    "/conversations/a%00b",
    "/conversations/",
    "/conversations/c/messages?last=0",
    "/conversations/c/messages?last=1&limit=1",
    "/conversations/c/messages?after=a&before=b",
    "/conversations/c/messages?since=yesterday",
    "/conversations/c/messages?after=cursor:!!",
    "/records/k",
    "/usage?since=2020-99-99",
]


@pytest.mark.parametrize("target", WRONG_TARGETS)
def test_wrong_paths_and_parameters_are_invalid(api: Served, target: str) -> None:
    problem(api.get(target), 400, "invalid")


def test_unknown_routes_are_not_found(api: Served) -> None:
    for path in ("/nothing", "/conversations/c/nothing", "/conversations/c/messages/m/n", "/records/k/"):
        problem(api.get(path), 404, "not_found")
    wrong = api.put("/conversations")
    problem(wrong, 405, "invalid")
    assert wrong.headers["allow"] == "GET, POST"


def test_head_requests_have_no_body(api: Served) -> None:
    for target in ("/conversations", "/nothing"):
        answer = api.head(target)
        assert (answer.status_code, answer.content) == (405 if target == "/conversations" else 404, b"")
    assert api.head(api.address + "/healthz").status_code == 200
    assert ok(api.get("/conversations"))["items"] == []


@pytest.mark.parametrize(
    ("target", "detail"),
    [
        ("/conversations?limit=abc", "the parameter 'limit' is 'abc': write a whole number"),
        ("/conversations?limit=0", "the parameter 'limit' is 0: write a whole number of at least 1"),
        ("/conversations?archived=perhaps", "the parameter 'archived' is 'perhaps': it is one of true, false, both"),
        ("/conversations?order=up", "the parameter 'order' is 'up': it is one of asc, desc"),
        (MESSAGES + "?last=1.5", "the parameter 'last' is '1.5': write a whole number"),
    ],
)
def test_a_wrong_parameter_is_explained(api: Served, target: str, detail: str) -> None:
    assert problem(api.get(target), 400, "invalid")["detail"] == detail


def test_a_wrong_role_among_parameters_lists_the_roles(api: Served) -> None:
    found = problem(api.get(MESSAGES + "?roles=user&roles=nobody"), 400, "invalid")["detail"]
    assert found.startswith("the parameter 'roles' is ['user', 'nobody']: it is one of user, assistant, ")


def test_a_packed_body_is_refused(api: Served) -> None:
    for encoding in ("gzip", "br", "GZIP"):
        answer = api.post(
            MESSAGES, content=gzip.compress(b'{"messages":[]}'), headers=JSON | {"Content-Encoding": encoding}
        )
        assert "Content-Encoding" in problem(answer, 415, "invalid")["detail"]
    assert ok(api.post(MESSAGES, content=b'{"messages":[]}', headers=JSON | {"Content-Encoding": "identity"}))


def test_other_media_types_are_refused(api: Served) -> None:
    # A page of another origin can make a browser post a form or text without a preflight: neither is accepted.
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        answer = api.post(MESSAGES, content=b'{"messages":[]}', headers={"Content-Type": kind})
        problem(answer, 415, "invalid")
    assert ok(
        api.post(MESSAGES, content=b'{"messages":[]}', headers={"Content-Type": "Application/JSON; charset=utf-8"})
    )


def test_ids_may_contain_any_character(api: Served) -> None:
    for id, sent in {"a/b": "a%2Fb", "ü ": "%C3%BC%20", "..": "%2E%2E", "a%2Fb": "a%252Fb", "?#": "%3F%23"}.items():
        raw_exchange(api, f"POST /api/v1/conversations/{sent}/messages", b'{"messages":[{"role":"user","content":1}]}')
        assert ok(api.get("/conversations?limit=1"))["items"][0]["id"] == id


def raw_exchange(api: Served, line: str, body: bytes) -> bytes:
    head = f"{line} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
    with connected(api) as wire:
        wire.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = read_all(wire)
    assert answer.startswith(b"HTTP/1.1 200"), answer
    return answer


def connected(api: Served) -> socket.socket:
    host, _, port = api.address.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE)


def read_all(wire: socket.socket) -> bytes:
    parts = []
    while part := wire.recv(65536):
        parts.append(part)
    return b"".join(parts)


def test_bodies_over_the_limit_are_refused() -> None:
    with serving(settings=Settings(max_body_bytes=1000)) as api:
        large = b'{"messages":[{"role":"user","content":"' + b"x" * 2000 + b'"}]}'
        answer = problem(api.post(MESSAGES, content=large, headers=JSON), 413, "quota_exceeded")
        assert answer["details"]["limit"] == 1000
        # Without a Content-Length.
        problem(api.post(MESSAGES, content=iter([large]), headers=JSON), 413, "quota_exceeded")
        lines = {"Content-Type": "application/x-ndjson"}
        problem(api.post("/conversations/c/lines", content=iter([b"x" * 5000]), headers=lines), 413, "quota_exceeded")
        many = b'{"role":"user","content":1}\n' * 500
        assert ok(api.post("/conversations/c/lines", content=iter([many]), headers=lines))["stored"] == 500


def test_content_over_the_limit_is_refused(api: Served) -> None:
    large = {"messages": [{"role": "user", "content": "x" * 50_000_001}]}
    problem(api.post(MESSAGES, json=large), 422, "quota_exceeded")


def test_a_slow_body_times_out() -> None:
    with serving(settings=Settings(body_seconds=1)) as api, connected(api) as wire:
        head = (
            b"POST /api/v1/conversations/c/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        )
        wire.sendall(head + b"Content-Length: 100\r\n\r\n{")
        answer = read_some(wire)
        assert answer.startswith(b"HTTP/1.1 408"), answer
        assert inside(api, api.store.list_conversations()).items == []


def inside(api: Served, coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine on the server's loop, without the deadlines for clients."""
    return asyncio.run_coroutine_threadsafe(coroutine, api.loop).result(PATIENCE)


def read_some(wire: socket.socket) -> bytes:
    return wire.recv(65536)


@pytest.mark.parametrize("sent", [b"", b"GET /api/v1/conv", b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "])
def test_an_unfinished_head_times_out(sent: bytes) -> None:
    with serving(settings=Settings(body_seconds=1)) as api, connected(api) as wire:
        wire.sendall(sent)
        with suppress(ConnectionResetError):
            assert read_all(wire) == b""
        assert inside(api, api.store.list_conversations()).items == []


def test_an_endless_head_is_refused(api: Served) -> None:
    with connected(api) as wire:
        wire.sendall(b"GET / HTTP/1.1\r\n")
        with suppress(ConnectionError):
            for _ in range(1000):
                wire.sendall(b"X-Padding: " + b"x" * 10_000 + b"\r\n")
            pytest.fail("ten megabytes of head were taken")
    with connected(api) as wire:
        wire.sendall(b"GET / HTTP/1.1\r\nX: " + b"x" * 70_000)
        assert read_some(wire).startswith(b"HTTP/1.1 431")
    assert ok(api.get("/conversations"))["items"] == []


def test_a_client_that_does_not_read_is_disconnected() -> None:
    with serving(settings=Settings(body_seconds=0.3)) as api:
        inside(api, api.store.append("c", [Message("user", "x" * 1_000_000) for _ in range(32)]))
        before = tasks(api)
        with connected(api) as wire:
            wire.sendall(b"GET /api/v1/conversations/c/lines HTTP/1.1\r\nHost: localhost\r\n\r\n")
            wire.recv(1)
            until(lambda: tasks(api) <= before)  # it is not waited for any more
            with suppress(ConnectionError):
                read_all(wire)


def test_an_aborted_export_leaves_no_task(api: Served) -> None:
    say(api, "c", *["x" * 1000] * 5000)
    before = tasks(api)
    for _ in range(5):
        with api.stream("GET", "/export") as answer:
            next(answer.iter_bytes())
    until(lambda: tasks(api) <= before)


def test_a_client_that_disconnects_stores_nothing(api: Served) -> None:
    head = b"POST /api/v1/conversations/c/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    for sent in (head, head + b"Content-Length: 100\r\n\r\n{", head + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{"):
        with connected(api) as wire:
            wire.sendall(sent)
    with connected(api) as wire:
        wire.sendall(head + b"Content-Length: 100\r\n\r\n{")
        wire.shutdown(socket.SHUT_WR)
        assert not read_all(wire).startswith(b"HTTP/1.1 5")
    assert ok(api.get("/conversations"))["items"] == []


def test_input_that_is_not_http_does_not_stop_the_server(api: Served) -> None:
    for sent in (b"\x00\xff\r\n\r\n", b"GET\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n"):
        with connected(api) as wire:
            wire.sendall(sent)
            assert b" 500 " not in read_all(wire)
    assert say(api, "c", "still there")["stored"] == 1


def test_a_thousand_connections_are_served(api: Served) -> None:
    async def ask(number: int) -> bytes:
        host, _, port = api.address.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        await asyncio.sleep(0.2)
        writer.write(b"GET /api/v1/conversations HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
        return answer[:15]

    async def ask_all() -> list[bytes]:
        return await asyncio.gather(*(ask(number) for number in range(1000)))

    assert set(asyncio.run(ask_all())) == {b"HTTP/1.1 200 OK"}


def test_a_whole_number_is_an_integer_however_it_is_written(api: Served) -> None:
    """JSON Schema has one kind of number: 4.0 is an integer."""
    said = [{"role": "user", "content": {"n": 4.0}} for _ in range(5)]
    assert api.post(MESSAGES, json={"messages": said}).is_success
    path = MESSAGES.replace("/messages", "/summaries")
    body = b'{"text": "s", "from_seq": %s, "to_seq": 2.0}'
    made = api.post(path, content=body % b"1.0", headers=JSON)
    assert made.is_success, made.text
    assert (made.json()["from_seq"], made.json()["to_seq"]) == (1, 2)
    for wrong in (b"1.5", b'"1"', b"1e999", b"[1.0]"):
        problem(api.post(path, content=body % wrong, headers=JSON), 400, "invalid")
    kept = api.get(MESSAGES).text
    assert '{"n":4.0}' in kept, "content stays as it was written"


@pytest.mark.parametrize("upgrade", [False, True])
@pytest.mark.parametrize("pieces", [1, 2])
def test_a_head_over_64_kb_is_refused(api: Served, pieces: int, upgrade: bool) -> None:
    """64 KB, also where it arrives in one read: a server reads up to 256 KB at once."""
    line = b"GET /api/v1/conversations HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    if upgrade:
        line = line.replace(b"close", b"Upgrade") + b"Upgrade: websocket\r\n"
    for size, status in ((60_000, b"200"), (66_000, b"431"), (130_000, b"431"), (300_000, b"431")):
        if upgrade and status == b"200":
            continue
        head = line + b"X-Long: " + b"x" * size + b"\r\n\r\n"
        with connected(api) as wire:
            wire.sendall(head[: len(head) // pieces])
            if pieces > 1:
                time.sleep(0.05)
                with suppress(ConnectionError):  # refused already
                    wire.sendall(head[len(head) // pieces :])
            assert wire.recv(12) == b"HTTP/1.1 " + status, size


def test_a_body_in_the_same_read_does_not_count_as_head(api: Served) -> None:
    body = b'{"messages":[{"role":"user","content":"' + b"x" * 100_000 + b'"}]}'
    raw_exchange(api, f"POST /api/v1{MESSAGES}", body)


def test_a_request_with_too_many_messages_is_refused() -> None:
    with serving(settings=Settings(max_messages=100)) as api:
        batch = [{"role": "user", "content": "x"}] * 101
        for send in (api.post, api.put):
            answer = problem(send(MESSAGES, json={"messages": batch}), 413, "quota_exceeded")
            assert answer["detail"].startswith("101 messages in one request; the limit is 100: send several")
        assert api.get(MESSAGES).json()["items"] == []
        assert len(api.post(MESSAGES, json={"messages": batch[1:]}).json()["messages"]) == 100
        lines = b"\n".join(json.dumps(each).encode() for each in batch)
        answer = api.post("/conversations/c/lines", content=lines, headers={"content-type": "application/x-ndjson"})
        assert answer.json()["stored"] == 101
        assert api.get("/about").json()["capabilities"]["atomic_batch"] == 100
        with sync.connect(api.address) as store:
            messages = [Message("user", f"{number}") for number in range(250)]
            with pytest.raises(Unsupported, match="more than the 100"):
                store.append("d", messages)
            assert store.append("d", messages, split=True).stored == 250
