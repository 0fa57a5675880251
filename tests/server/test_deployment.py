"""Deployed servers: TLS, proxies, metrics of all workers, traces, and streams that are drained."""

from __future__ import annotations

import html
import json
import os
import re
import signal
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from tests.cli.test_configuration import write_certificate
from tests.server.kit import serving
from tests.server.openai_wire.endpoint import endpoint
from tests.server.test_rest import say
from tests.server.test_server import serving as serving_process
from tests.wait import PATIENCE, until

from hansard import sync
from hansard.server.key_file import KeyFile
from hansard.server.rest.messages import _MANY

BODY = {"messages": [{"role": "user", "content": "hello"}]}


def append(client: httpx.Client, id: str = "c") -> None:
    assert client.post(f"/api/v1/conversations/{id}/messages", json=BODY).status_code == 200


def metric(text: str, name: str) -> float:
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    assert found is not None, f"{name} is not in {text}"
    return float(found[1])


def test_the_server_speaks_tls(tmp_path: Path) -> None:
    trusted = ssl.create_default_context()
    write_certificate(tmp_path).configure_trust(trusted)
    options = ("--tls-cert", "cert.pem", "--tls-key", "key.pem")
    with serving_process(tmp_path, "memory://", *options) as (address, process):
        assert address.startswith("https://")
        with httpx.Client(base_url=address, verify=trusted, timeout=PATIENCE) as client:
            append(client)
            page = client.get("/", headers={"Origin": address})
            assert page.status_code == 200
        with pytest.raises(httpx.TransportError):
            httpx.get(address.replace("https", "http") + "/healthz", timeout=PATIENCE)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)


def test_a_proxy_is_believed_only_if_it_is_trusted(tmp_path: Path) -> None:
    """Without keys only this machine is served, and a proxy on this machine must not hide who asks."""
    for options, status in (((), 200), (("--trusted-proxy", "127.0.0.1"), 401)):
        with serving_process(tmp_path, "memory://", *options) as (address, process):
            forwarded = {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "https"}
            answer = httpx.get(address + "/api/v1/conversations", headers=forwarded, timeout=PATIENCE)
            assert answer.status_code == status
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=PATIENCE)


def test_one_scrape_counts_the_requests_of_all_workers(tmp_path: Path) -> None:
    appended = 'hansard_requests_total{action="append_messages",status="200"}'
    with serving_process(tmp_path, "sqlite:///made.db", "--workers", "2") as (address, process):

        def scraped() -> str:
            return httpx.get(address + "/metrics", timeout=PATIENCE).text

        for number in range(40):
            with httpx.Client(base_url=address, timeout=PATIENCE) as client:  # a new connection, to any worker
                append(client, str(number))
        # A worker without an append of its own has no such line before it hears of the others'.
        until(lambda: all(appended in (text := scraped()) and metric(text, appended) == 40 for _ in range(4)))
        text = scraped()
        assert metric(text, "hansard_store_messages") <= 40
        assert metric(text, 'hansard_request_seconds_count{action="append_messages"}') == 40
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)


def _has_append(address: str) -> bool:
    """Whether the worker that answers has heard of the append."""
    counted = 'hansard_requests_total{action="append_messages",status="200"} 1.0'
    return counted in httpx.get(address + "/metrics", timeout=PATIENCE).text.splitlines()


def test_a_worker_that_dies_is_logged_and_its_counts_stay(tmp_path: Path) -> None:
    with serving_process(tmp_path, "sqlite:///made.db", "--workers", "2") as (address, process):
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        if not children.exists():
            pytest.skip("this system does not tell a process's children")
        with httpx.Client(base_url=address, timeout=PATIENCE) as client:
            append(client)
        until(lambda: all(_has_append(address) for _ in range(10)))  # both workers, by new connections
        time.sleep(2.5)  # a worker that dies in its first two seconds is not replaced
        victims = [int(id) for id in children.read_text().split()]
        for victim in victims:
            os.kill(victim, signal.SIGKILL)
        until(lambda: not set(victims) & set(map(int, children.read_text().split())))
        assert _has_append(address)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=PATIENCE)
    lines = [json.loads(line) for line in err.splitlines() if line.startswith("{")]
    ended = [line for line in lines if line["message"] == "a worker ended and is replaced"]
    assert {line["process"] for line in ended} == set(victims)
    assert {(line["level"], line["signal"]) for line in ended} == {("error", "SIGKILL")}


def test_the_store_and_open_tails_are_measured(tmp_path: Path) -> None:
    with serving(f"sqlite:///{tmp_path}/made.db") as api:
        say(api, "c", "x")
        with api.stream("GET", "/conversations/c/tail") as tail:
            lines = tail.iter_lines()  # the tail is closed with it
            next(lines)

            def scraped() -> str:
                return api.get(api.address + "/metrics").text

            until(lambda: metric(scraped(), "hansard_streams") == 1)
            text = scraped()
    assert metric(text, "hansard_store_messages") == 1
    assert metric(text, "hansard_store_conversations") == 1
    assert metric(text, "hansard_store_bytes") > 4096
    assert metric(text, "hansard_store_unindexed") in (0, 1)
    assert metric(text, "hansard_streams") == 1
    assert metric(text, "hansard_oldest_stream_seconds") > 0


class Collector(BaseHTTPRequestHandler):
    received: ClassVar[list[Any]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.received.append((self.path, ExportTraceServiceRequest.FromString(body)))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def collecting() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_spans_are_exported_with_the_conversation(tmp_path: Path) -> None:
    Collector.received.clear()
    with collecting() as endpoint, serving_process(tmp_path, "memory://", "--otlp", endpoint) as (address, process):
        with httpx.Client(base_url=address, timeout=PATIENCE) as client:
            append(client, "order-17")
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    (path, request), *_ = Collector.received
    assert path == "/v1/traces"
    (resource,) = request.resource_spans
    assert {each.key: each.value.string_value for each in resource.resource.attributes}["service.name"] == "hansard"
    (span,) = resource.scope_spans[0].spans
    found = {each.key: each.value.string_value for each in span.attributes}
    assert (span.name, found["gen_ai.conversation.id"]) == ("append_messages", "order-17")


def test_the_span_of_an_answer_describes_it_by_the_conventions_for_ai(tmp_path: Path) -> None:
    Collector.received.clear()
    with (
        collecting() as collector,
        endpoint() as model,
        serving_process(tmp_path, "memory://", "--otlp", collector, "--upstream", model.address) as (address, process),
    ):
        with httpx.Client(base_url=address + "/v1", timeout=PATIENCE) as client:
            id = client.post("/conversations", json={}).json()["id"]
            asked = {"model": "m", "input": "Where is my order?", "conversation": id}
            assert client.post("/responses", json=asked).status_code == 200
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)
    spans = {
        span.name: {each.key: each.value.string_value or each.value.int_value for each in span.attributes}
        for _, request in Collector.received
        for span in request.resource_spans[0].scope_spans[0].spans
    }
    found = {name: value for name, value in spans["openai_create_response"].items() if name.startswith("gen_ai.")}
    assert found == {
        "gen_ai.conversation.id": id,
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "m",
        "gen_ai.response.model": "m-1",
        "gen_ai.usage.input_tokens": 5,
        "gen_ai.usage.output_tokens": 7,
    }


def test_a_collector_that_is_away_stops_nothing(tmp_path: Path) -> None:
    with serving_process(tmp_path, "memory://", "--otlp", "http://127.0.0.1:9") as (address, process):
        with httpx.Client(base_url=address, timeout=PATIENCE) as client:
            append(client)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=PATIENCE)


def test_a_stream_continues_after_the_signal_to_stop(tmp_path: Path) -> None:
    with serving_process(tmp_path, "sqlite:///made.db", "--drain", "60") as (address, process):

        def is_stored() -> bool:
            return httpx.get(address + "/api/v1/conversations/c", timeout=PATIENCE).is_success

        def refuses() -> bool:
            try:
                socket.create_connection((host, int(port)), PATIENCE).close()
            except OSError:
                return True
            return False

        def lines() -> Iterator[bytes]:
            for number in range(_MANY):
                yield f'{{"role":"user","content":"before","id":"{number}"}}\n'.encode()
            until(is_stored)
            process.send_signal(signal.SIGTERM)
            until(refuses)
            yield b'{"role":"user","content":"after","id":"after"}\n'

        host, _, port = address.removeprefix("http://").partition(":")

        answer = httpx.post(
            address + "/api/v1/conversations/c/lines",
            content=lines(),
            headers={"Content-Type": "application/x-ndjson"},
            timeout=PATIENCE,
        )
        assert answer.json()["messages"] == _MANY + 1
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 0


def test_a_server_removes_what_has_expired_on_a_schedule(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/made.db"
    with sync.connect(url) as store:
        store.append_message("old", "user", "a word to be forgotten")
        store.append_message("new", "user", "a word to be kept")
        store.update_conversation("old", expires_at=datetime(2020, 1, 1, tzinfo=UTC))
    options = ("--purge-every", "1s", "--workers", "2", "--log-level", "info")
    with serving_process(tmp_path, url, *options) as (_, process), sync.connect(url) as store:
        until(lambda: store.stats().conversations == 1)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=PATIENCE)
    lines = [json.loads(line) for line in err.splitlines() if line.startswith("{")]
    assert sum(line["conversations"] for line in lines if line["message"] == "the purge is done") == 1


def test_the_api_is_documented_at_the_server_itself() -> None:
    with serving() as api:
        page = api.get(str(api.base_url.copy_with(path="/api/docs")))
        document = api.get("/openapi.json").json()
    assert page.status_code == 200
    assert "script" not in page.headers["content-security-policy"]
    assert "<script" not in page.text
    assert not re.findall(r'(?:src|href)="(?:https?:)?//', page.text), "nothing comes from elsewhere"
    for path, operations in document["paths"].items():
        assert html.escape(path) in page.text
        for operation in operations.values():
            assert operation["operationId"] in page.text


def test_a_server_for_others_still_needs_a_key(tmp_path: Path) -> None:
    write_certificate(tmp_path)
    KeyFile(tmp_path / "hansard-keys.json")
    options = ("--host", "0.0.0.0", "--tls-cert", "cert.pem", "--tls-key", "key.pem")
    with pytest.raises(AssertionError, match="there is no key yet"), serving_process(tmp_path, "memory://", *options):
        pass
