"""Operation: metrics, traces, logs, several workers, and stopping without loss."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import socket
import subprocess
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.server.kit import Served, serving
from tests.server.test_auth import bearer
from tests.server.test_rest import problem, say
from tests.server.test_server import COMMAND
from tests.server.test_server import serving as serving_process
from tests.wait import PATIENCE, until

from hansard import Message, sync
from hansard.agents.capture.spool import Spool, SpooledMessage, SpoolView
from hansard.errors import Unavailable
from hansard.model import Stats
from hansard.server import app, supervisor
from hansard.server.key_file import KeyFile
from hansard.server.logs import JsonLines
from hansard.server.settings import Settings


def metrics(api: Served, **headers: str) -> str:
    answer = api.get(api.address + "/metrics", headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.text


def test_metrics_count_requests_errors_and_bytes(api: Served) -> None:
    say(api, "c", "x")
    say(api, "c", "y")
    api.patch("/conversations/c", json={}, headers={"If-Match": '"99"'})
    for path in ("/nothing", "/else"):
        api.get(path)
    text = metrics(api)
    assert 'hansard_requests_total{action="append_messages",status="200"} 2.0' in text
    assert 'hansard_request_seconds_count{action="append_messages"} 2.0' in text
    assert 'hansard_errors_total{code="conflict"} 1.0' in text
    assert 'hansard_requests_total{action="none",status="404"} 2.0' in text
    assert 'backend="memory"' in text
    received = re.search(r"hansard_received_bytes_total ([\d.e+]+)", text)
    assert received is not None
    assert float(received[1]) > 50


def test_metrics_count_writes_in_a_commit(tmp_path: Path) -> None:
    with serving(f"sqlite:///{tmp_path}/chats.db") as api:
        say(api, "c", "x")
        say(api, "c", "y")
        api.post("/search", json={"query": "x"})
        text = metrics(api)
    commits, writes = (
        float(re.search(rf"hansard_{name}_total ([\d.]+)", text)[1])  # type: ignore[index]
        for name in ("commits", "committed_writes")
    )
    assert writes >= commits >= 2
    assert 'hansard_requests_total{action="search",status="200"} 1.0' in text


def test_metrics_count_a_large_store_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "_STATS_SECONDS", 0.0)
    with serving() as api:
        counts, original = [], api.store.backend.stats

        async def slow(tenant: str | None) -> Stats:
            counts.append(tenant)
            await asyncio.sleep(0.3)
            return await original(tenant)

        say(api, "c", "x")
        monkeypatch.setattr(api.store.backend, "stats", slow)
        for _ in range(5):
            assert "hansard_store_messages 1.0" in metrics(api)
    assert len(counts) == 1, "after a count of 0.3 seconds there is a pause of 30"


def test_metrics_count_again_soon_after_the_store_was_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "_STATS_SECONDS", 0.0)
    with serving() as api:

        async def away(tenant: str | None) -> Stats:
            await asyncio.sleep(0.1)
            raise Unavailable("the connection was lost")

        say(api, "c", "x")
        with monkeypatch.context() as patch:
            patch.setattr(api.store.backend, "stats", away)
            assert "hansard_store_messages" not in metrics(api)
        assert "hansard_store_messages 1.0" in metrics(api)


def test_metrics_measure_the_spool(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    with serving(settings=Settings(spool=tmp_path / "spool")) as api:
        assert "hansard_spool_bytes 0.0\n" in metrics(api)
        view = SpoolView("default")
        spool.add(view, SpooledMessage(conversation_id="c", message=Message("user", "Where is my order?")))
        (file,) = (tmp_path / "spool").iterdir()
        text = metrics(api)
        assert f"hansard_spool_bytes {float(file.stat().st_size)}\n" in text
        assert "hansard_spool_files 1.0\n" in text
        for batch in spool.take(view):
            spool.done(batch)
        assert "hansard_spool_bytes 0.0\n" in metrics(api)


def test_metrics_require_an_operators_key(tmp_path: Path) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    tenants = keys.create("x", ["read"], tenant="acme")[1]
    operators = keys.create("y", ["read"], tenant=None)[1]
    with serving(settings=Settings(keys=keys.path)) as api:
        for headers, status in (({}, 401), (bearer(tenants), 403)):
            assert api.get(api.address + "/metrics", headers=headers).status_code == status
        assert "hansard_info" in metrics(api, **bearer(operators))


def test_every_request_has_a_span() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    with serving() as api:
        say(api, "c", "x")
        parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        problem(api.get("/conversations/never", headers={"traceparent": parent}), 404, "conversation_not_found")
    spans = exporter.get_finished_spans()
    assert [span.name for span in spans] == ["append_messages", "get_conversation"]
    found: Any = spans[1].attributes
    assert (found["http.response.status_code"], found["error.type"]) == (404, "conversation_not_found")
    assert format(spans[1].context.trace_id, "032x") == parent.split("-")[1]
    assert spans[0].end_time > spans[0].start_time  # type: ignore[operator]


def test_logs_are_json() -> None:
    record = logging.LogRecord("hansard.server", logging.WARNING, "x.py", 1, "it %s", ("broke",), None)
    record.facts = {"request_id": "r"}
    line = json.loads(JsonLines().format(record))
    assert (line["level"], line["message"], line["request_id"]) == ("warning", "it broke", "r")


def test_every_request_is_logged_when_asked_for(tmp_path: Path) -> None:
    with serving_process(tmp_path, "memory://", "--log-level", "info") as (address, process):
        httpx.get(address + "/api/v1/conversations/never")
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=PATIENCE)
    lines = [json.loads(line) for line in err.splitlines() if line.startswith("{")]
    asked = next(line for line in lines if line.get("action") == "get_conversation")
    assert (asked["status"], asked["code"]) == (404, "conversation_not_found")


class Load:
    """Clients that append as fast as they can, and record what was acknowledged."""

    def __init__(self, address: str, clients: int) -> None:
        self.acknowledged: list[str] = []
        self._address = address
        self._threads = [threading.Thread(target=self._append, args=(number,)) for number in range(clients)]
        for thread in self._threads:
            thread.start()

    def _append(self, client: int) -> None:
        number = 0
        with httpx.Client(base_url=self._address + "/api/v1", timeout=PATIENCE) as api:
            while True:
                id = f"{client}-{number}"
                body = {"messages": [{"role": "user", "content": "x", "id": id}]}
                try:
                    answer = api.post(f"/conversations/c{client}/messages", json=body)
                except httpx.TransportError:
                    return
                if answer.status_code != 200:
                    return
                self.acknowledged.append(id)
                number += 1

    def wait_for(self, count: int, process: subprocess.Popen[str]) -> None:
        """Waits until so many writes were acknowledged."""
        until(lambda: len(self.acknowledged) >= count or process.poll() is not None)
        assert process.poll() is None

    def wait(self) -> None:
        for thread in self._threads:
            thread.join(PATIENCE)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_stopping_under_load_loses_no_acknowledged_write(workers: str, tmp_path: Path) -> None:
    with serving_process(tmp_path, "sqlite:///made.db", "--workers", workers) as (address, process):
        load = Load(address, clients=8)
        load.wait_for(80, process)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, err
        assert "Traceback" not in err
        load.wait()
    with sync.connect(f"sqlite:///{tmp_path}/made.db") as store:
        stored = {message.id for client in range(8) for message in store.iter_messages(f"c{client}")}
        assert set(load.acknowledged) <= stored
        assert len(stored) <= len(load.acknowledged) + 8
        assert store.check() == []


@pytest.mark.parametrize("workers", ["1", "2"])
def test_killing_under_load_loses_no_acknowledged_write(workers: str, tmp_path: Path) -> None:
    with serving_process(tmp_path, "sqlite:///made.db", "--workers", workers) as (address, process):
        load = Load(address, clients=4)
        load.wait_for(40, process)
        for id in [process.pid, *(workers_of(process) if workers == "2" else ())]:
            os.kill(id, signal.SIGKILL)
        process.communicate(timeout=PATIENCE)
        load.wait()
    with sync.connect(f"sqlite:///{tmp_path}/made.db") as store:
        stored = [message.id for client in range(4) for message in store.iter_messages(f"c{client}")]
        assert set(load.acknowledged) <= set(stored)
        assert len(stored) == len(set(stored)) <= len(load.acknowledged) + 4
        assert store.check() == []


def test_a_long_stream_takes_no_more_memory_than_a_short_one(tmp_path: Path) -> None:
    line = json.dumps({"role": "user", "content": "x" * 1000}).encode() + b"\n"
    chunk = line * 1000

    def peak() -> int:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
        assert found is not None
        return int(found[1]) * 1024

    with serving_process(tmp_path, "sqlite:///made.db") as (address, process):
        if not Path(f"/proc/{process.pid}/status").exists():
            pytest.skip("this system does not tell a process's peak of memory")

        def send(chunks: int) -> int:
            url = f"{address}/api/v1/conversations/c/lines"
            kind = {"Content-Type": "application/x-ndjson"}
            answer = httpx.post(url, content=(chunk for _ in range(chunks)), headers=kind, timeout=120)
            assert answer.json()["messages"] == 1000 * chunks, answer.text
            return peak()

        short = send(4)
        assert send(30) - short < 15 * len(chunk), "30 MB went through it"
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)


def scrape(address: str) -> str:
    """Returns the metrics, over a new connection, which any worker may answer."""
    return httpx.get(address + "/metrics", timeout=PATIENCE).text


def test_workers_share_one_store_and_a_dead_one_is_replaced(tmp_path: Path) -> None:
    with serving_process(tmp_path, "sqlite:///made.db", "--workers", "2") as (address, process):
        assert httpx.get(address + "/readyz", timeout=PATIENCE).status_code == 200
        before = workers_of(process)
        until(lambda: all("hansard_workers 2.0\n" in scrape(address) for _ in range(4)))
        os.kill(before[0], signal.SIGKILL)
        until(lambda: set(workers_of(process)) - set(before))
        until(lambda: all("hansard_workers 2.0\n" in scrape(address) for _ in range(4)))
        for number in range(20):
            body = {"messages": [{"role": "user", "content": number, "id": f"m{number}"}]}
            answer = httpx.post(address + "/api/v1/conversations/c/messages", json=body, timeout=PATIENCE)
            assert answer.status_code == 200
        found = httpx.get(address + "/api/v1/conversations/c/messages?last=50", timeout=PATIENCE).json()
        assert len(found["items"]) == 20
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)
        assert process.returncode == 0


def test_workers_get_connections_in_turn_and_end_with_their_supervisor(tmp_path: Path) -> None:
    with serving_process(tmp_path, "sqlite:///made.db", "--workers", "2") as (address, process):
        host, _, port = address.removeprefix("http://").partition(":")
        workers = workers_of(process)
        with ExitStack() as stack:

            def connect() -> int:
                """Returns its own port."""
                made: int = stack.enter_context(socket.create_connection((host, int(port)))).getsockname()[1]
                return made

            def all_are_ready() -> bool:
                connect()
                return all(map(open_connections, workers))

            until(all_are_ready)
            # Others may still arrive or end: only these are counted.
            made = {connect() for _ in range(20)}
            until(lambda: [len(made & open_connections(worker)) for worker in workers] == [10, 10])
        process.kill()
        until(lambda: not any(Path(f"/proc/{worker}/exe").exists() for worker in workers))


def test_connections_wait_while_no_worker_takes_them(tmp_path: Path) -> None:
    with serving_process(tmp_path, "sqlite:///made.db", "--workers", "2") as (address, process):
        host, _, port = address.removeprefix("http://").partition(":")
        workers = workers_of(process)
        assert httpx.get(address + "/readyz", timeout=PATIENCE).status_code == 200
        for worker in workers:
            os.kill(worker, signal.SIGSTOP)
        with ExitStack() as stack:
            # More than the channels of both workers hold, fewer than the backlog.
            clients = [stack.enter_context(socket.create_connection((host, int(port)), PATIENCE)) for _ in range(900)]
            for client in clients:
                client.sendall(b"GET /healthz HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
            for worker in workers:
                os.kill(worker, signal.SIGCONT)
            assert {client.recv(12) for client in clients} == {b"HTTP/1.1 200"}
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)


def test_a_worker_that_hangs_gets_no_connections_until_it_continues(tmp_path: Path) -> None:
    with serving_process(tmp_path, "sqlite:///made.db", "--workers", "2") as (address, process):
        assert process.stderr is not None
        host, _, port = address.removeprefix("http://").partition(":")
        hanging, other = workers_of(process)
        with ExitStack() as stack:

            def connect() -> socket.socket:
                return stack.enter_context(socket.create_connection((host, int(port)), PATIENCE))

            def both_have_one() -> bool:
                connect()
                return all(map(open_connections, (hanging, other)))

            until(both_have_one)
            os.kill(hanging, signal.SIGSTOP)
            before = open_connections(hanging)
            # Half of the first are passed to the worker that hangs, and come back; the last are not passed to it.
            for count in (20, 20):
                clients = [connect() for _ in range(count)]
                for client in clients:
                    client.sendall(b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n")
                assert {client.recv(12) for client in clients} == {b"HTTP/1.1 200"}
            assert open_connections(hanging) == before
            hung = json.loads(process.stderr.readline())
            assert (hung["process"], hung["level"]) == (hanging, "warning")
            assert "does not take connections" in hung["message"]
            os.kill(hanging, signal.SIGCONT)
            assert "takes connections again" in json.loads(process.stderr.readline())["message"]
            made = {connect().getsockname()[1] for _ in range(20)}
            until(lambda: len(made & open_connections(hanging)) == 10)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)
        assert process.returncode == 0


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    """Returns the processes of two workers, once both are started."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    if not children.exists():
        pytest.skip("this system does not tell a process's children")
    until(lambda: len(children.read_text().split()) == 2)
    return [int(each) for each in children.read_text().split()]


def open_connections(pid: int) -> set[int]:
    """Returns the ports of the clients whose TCP connections a process has."""
    inodes = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # The process closes others of its files meanwhile.
            inodes.add(str(each.readlink()))
    lines = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return {int(line[2].partition(":")[2], 16) for line in lines if line[3] == "01" and f"socket:[{line[9]}]" in inodes}


def test_a_worker_that_is_killed_at_once_is_replaced_a_few_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_TOO_SOON", 3600.0)
    worker = supervisor.Worker(supervisor.WorkerTask(f"sqlite:///{tmp_path}/made.db", Settings(), "info"))
    for _ in range(supervisor._MOST_KILLED):
        worker.process.kill()
        worker.process.wait()
        worker = worker.successor()
    worker.process.kill()
    worker.process.wait()
    with pytest.raises(Unavailable, match="right after its start, with code -9"):
        worker.successor()


def test_a_worker_that_does_not_stop_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "_GRACE", 0.1)
    worker = supervisor.Worker(
        supervisor.WorkerTask(f"sqlite:///{tmp_path}/made.db", Settings(drain_seconds=0), "info")
    )
    worker.end()
    assert worker.process.returncode == -signal.SIGKILL


def test_several_workers_require_a_shared_store(tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "serve", "memory://", "--workers", "2", "--port", "0"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "shared" in done.stderr
