"""HTTP as a raw client sees it: whole responses, pipelined requests, bodies in pieces, HEAD."""

from __future__ import annotations

import gc
import re
import socket
import time
from collections.abc import Iterator

import pytest
from tests.server.kit import Served, serving
from tests.wait import PATIENCE
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from hansard.server.http_protocol import HttpProtocol

BODY = b'{"messages":[{"role":"user","content":"hello"}]}'
HEAD = b"POST /api/v1/conversations/%b/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def api() -> Iterator[Served]:
    with serving() as served:
        yield served


def connect(api: Served) -> socket.socket:
    return socket.create_connection((api.base_url.host, api.base_url.port or 80), timeout=PATIENCE)


def post(id: bytes, *headers: bytes) -> bytes:
    lines = b"".join(each + b"\r\n" for each in headers)
    return HEAD % id + b"Content-Length: %d\r\n" % len(BODY) + lines + b"\r\n" + BODY


def read_all(wire: socket.socket) -> bytes:
    """Reads until the server closes the connection."""
    return b"".join(iter(lambda: wire.recv(65536), b""))


def test_a_response_has_its_headers_once_and_its_whole_body(api: Served) -> None:
    with connect(api) as wire:
        wire.sendall(post(b"whole", b"Connection: close"))
        head, _, body = read_all(wire).partition(b"\r\n\r\n")
    status, *lines = head.split(b"\r\n")
    headers = dict(line.split(b": ", 1) for line in lines)
    assert status == b"HTTP/1.1 200 OK"
    assert len(headers) == len(lines)
    assert int(headers[b"content-length"]) == len(body)
    assert headers[b"content-type"] == b"application/json"
    assert headers[b"connection"] == b"close"
    assert headers[b"etag"] == b'"1"'
    assert headers.keys() >= {b"date", b"request-id", b"x-content-type-options", b"cache-control"}


def test_an_answered_request_is_freed_without_the_garbage_collector(api: Served) -> None:
    for path in ("/conversations/freed/messages", "/nowhere"):
        assert api.get(path).status_code in (200, 404)
        gc.collect()
        gc.disable()
        try:
            before = count_cycles()
            for _ in range(10):
                api.get(path)
            assert count_cycles() <= before + 1
        finally:
            gc.enable()


def count_cycles() -> int:
    return sum(type(each) is RequestResponseCycle for each in gc.get_objects())


def test_pipelined_requests_are_answered_in_order(api: Served) -> None:
    requests = [post(b"piped", b"Connection: close") if number == 4 else post(b"piped") for number in range(5)]
    with connect(api) as wire:
        wire.sendall(b"".join(requests))
        answers = read_all(wire)
    assert re.findall(rb'"seq":(\d+)', answers) == [b"1", b"2", b"3", b"4", b"5"]


def test_a_body_may_arrive_after_its_headers_and_in_pieces(api: Served) -> None:
    request = post(b"pieces", b"Connection: close")
    with connect(api) as wire:
        for piece in (request[:-40], request[-40:-20], request[-20:]):
            wire.sendall(piece)
            time.sleep(0.05)
        assert b'"content":"hello"' in read_all(wire)


def test_a_response_to_head_has_no_body(api: Served) -> None:
    with connect(api) as wire:
        wire.sendall(b"HEAD /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wire.sendall(b"HEAD /api/v1/conversations HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        first, second, rest = read_all(wire).split(b"\r\n\r\n")
    assert b" 200 " in first
    assert b" 405 " in second
    assert rest == b""


@pytest.mark.parametrize("between", [b"", b"\r\n"])
def test_a_connection_that_is_not_used_again_is_closed_in_time(between: bytes, api: Served) -> None:
    with connect(api) as wire, connect(api) as unused:
        wire.sendall(post(b"kept"))
        assert wire.recv(65536).startswith(b"HTTP/1.1 200")
        mine = [each for each in gc.get_objects() if type(each) is HttpProtocol and each.client == wire.getsockname()]
        assert [each.timeout_keep_alive for each in mine] == [5]
        wire.sendall(between)
        time.sleep(0.05 if between else 0)
        mine[0].timeout_keep_alive = 0
        assert wire.recv(1) == b""
        unused.sendall(post(b"kept", b"Connection: close"))
        assert b'"stored":1' in read_all(unused), "the other connection was left open"
