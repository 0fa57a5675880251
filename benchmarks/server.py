"""The server on loopback: `python -m benchmarks.server`. Needs the extras `server` and `cli`, and no others.

The client writes raw HTTP/1.1 to sockets, because a client library would dominate the times. Server and client are two
processes. "bare" is a Starlette route on unmodified uvicorn that decodes the same body and answers as many bytes.

Rates mean something on an idle machine only. The processor time that a server needs for a request is measured too, and
is comparable on a busy one: rounds of both servers alternate, and the medians are reported.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import uvloop

from hansard import Message, connect

_TEXT = "Where is my order? I have been waiting for a week, and nobody answers. " * 3
_BODY = json.dumps({"messages": [{"role": "user", "content": _TEXT}]}).encode()


# --- servers ----------------------------------------------------------------------------------------------------------


@contextmanager
def started(*command: str) -> Iterator[tuple[str, int]]:
    """Starts a server process, and yields its address and process id. Stops it by that id."""
    process = subprocess.Popen([sys.executable, *command], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        found = re.search(r"http://\S+?:\d+", process.stderr.readline())
        assert found is not None
        yield found[0], process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def ours(url: str, *options: str) -> AbstractContextManager[tuple[str, int]]:
    return started("-m", "hansard.cli", "serve", url, "--port", "0", *options)


def bare_route() -> AbstractContextManager[tuple[str, int]]:
    return started("-m", "benchmarks.server", "--bare")


def bare() -> None:
    """Serves routes that only decode and answer."""
    import msgspec
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from hansard.model import NOT_YET, Appended
    from hansard.server.rest.messages import NewMessages

    decode = msgspec.json.Decoder(NewMessages).decode
    page = msgspec.json.encode([Message("user", _TEXT, id=f"m{number}") for number in range(50)])

    async def append(request: Request) -> Response:
        body = decode(await request.body())
        appended = Appended([Message("user", body.messages[0].content, id="m", created_at=NOT_YET)], 1)
        return Response(msgspec.json.encode(appended), media_type="application/json")

    async def read(request: Request) -> Response:
        return Response(page, media_type="application/json")

    path = "/api/v1/conversations/{id}/messages"
    serve_bare(Starlette(routes=[Route(path, append, methods=["POST"]), Route(path, read)]))


def serve_bare(app: Any) -> None:
    """Serves an application on unmodified uvicorn until the process is stopped."""
    import uvicorn

    from hansard.server.process import HttpServer, listen

    with listen("127.0.0.1", 0) as listening:
        print(f"http://127.0.0.1:{listening.getsockname()[1]}", file=sys.stderr, flush=True)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            config = uvicorn.Config(app, log_config=None, access_log=False, server_header=False, lifespan="off")
            runner.run(HttpServer(config).serve(sockets=[listening]))


# --- the client -------------------------------------------------------------------------------------------------------


class Wire:
    """A persistent connection."""

    async def open(self, address: str) -> Wire:
        host, _, port = address.removeprefix("http://").partition(":")
        self._reader, self._writer = await asyncio.open_connection(host, int(port), limit=1 << 24)
        return self

    async def ask(self, request: bytes) -> bytes:
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        length = int(re.search(rb"content-length: (\d+)", head)[1])  # type: ignore[index]
        return await self._reader.readexactly(length)

    @property
    def ports(self) -> tuple[int, int]:
        """Its ports on our side and on the server's."""
        return self._writer.get_extra_info("sockname")[1], self._writer.get_extra_info("peername")[1]

    def close(self) -> None:
        self._writer.close()


def post(conversation: str) -> bytes:
    head = f"POST /api/v1/conversations/{conversation}/messages HTTP/1.1\r\nHost: localhost\r\n"
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(_BODY)}\r\n\r\n".encode() + _BODY


def get(conversation: str) -> bytes:
    return f"GET /api/v1/conversations/{conversation}/messages?last=50 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


class Busy(NamedTuple):
    """What a round of requests over several connections has cost."""

    per_second: float
    server_us: float
    """Processor time of the server for a request."""
    shares: list[float]
    """Part of the requests that each process of the server has answered."""


async def busy(
    address: str, connections: int, seconds: float, *pids: int, request: Callable[[str], bytes] = post
) -> Busy:
    """Sends requests over several connections, each to its own conversation. `pids` are the server's processes."""
    wires = [await Wire().open(address) for _ in range(connections)]
    owners = [owner_of(wire, pids) for wire in wires]
    answered = dict.fromkeys(pids or (0,), 0)
    before, began = [processor_seconds(pid) for pid in pids], time.perf_counter()
    end = began + seconds

    async def work(number: int) -> None:
        sent = request(f"c{number}")
        while time.perf_counter() < end:
            await wires[number].ask(sent)
            answered[owners[number]] += 1

    await asyncio.gather(*(work(number) for number in range(connections)))
    took = time.perf_counter() - began
    used = [processor_seconds(pid) - earlier for pid, earlier in zip(pids, before, strict=True)]
    for wire in wires:
        wire.close()
    done = sum(answered.values())
    return Busy(done / took, sum(used) / done * 1e6, [count / done for count in answered.values()])


def owner_of(wire: Wire, pids: Sequence[int]) -> int:
    """Returns the process of the server that has a connection."""
    while len(pids) > 1:
        here, there = wire.ports
        # A line of Linux names the addresses of a connection, in hexadecimal digits, and its inode.
        lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
        found = [each for each in lines if each[1].endswith(f":{there:04X}") and each[2].endswith(f":{here:04X}")]
        names = {f"socket:[{each[9]}]" for each in found}
        for pid in pids:
            if names & open_files(pid):
                return pid
        time.sleep(0.01)  # its worker has not taken it yet
    return pids[0] if pids else 0


def open_files(pid: int) -> set[str]:
    found = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it was closed in between
            found.add(str(each.readlink()))
    return found


def processor_seconds(pid: int) -> float:
    """Returns the processor time of all threads of another process."""
    return time.clock_gettime(~pid << 3 | 2)  # Linux


async def alone(address: str, request: bytes, count: int) -> float:
    """Returns the median of sequential requests in microseconds."""
    wire = await Wire().open(address)
    times = []
    for _ in range(count):
        began = time.perf_counter()
        await wire.ask(request)
        times.append((time.perf_counter() - began) * 1e6)
    wire.close()
    return statistics.median(times)


async def of_the_store(url: str, count: int) -> tuple[float, float]:
    """Returns the Store's own medians for one append and for reading the last 50 messages."""
    appends, reads = [], []
    async with connect(url) as store:
        for _ in range(count):
            began = time.perf_counter()
            await store.append("own", [Message("user", _TEXT)])
            appends.append((time.perf_counter() - began) * 1e6)
        for _ in range(count):
            began = time.perf_counter()
            await store.get_messages("own", last=50)
            reads.append((time.perf_counter() - began) * 1e6)
    return statistics.median(appends), statistics.median(reads)


def memory_of(pid: int) -> int:
    """Returns the resident bytes of a process."""
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


async def subscribers(address: str, pid: int, count: int) -> dict[str, Any]:
    """Opens live tails of one conversation. Measures the memory of each, and checks that each gets all in order."""
    writer = await Wire().open(address)
    await writer.ask(post("live"))
    before = memory_of(pid)
    tails = []
    for _ in range(count):
        host, _, port = address.removeprefix("http://").partition(":")
        reader, wire = await asyncio.open_connection(host, int(port))
        wire.write(b"GET /api/v1/conversations/live/tail HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readuntil(b"event: open")
        tails.append((reader, wire))
    writer.close()
    writer = await Wire().open(address)  # the server has closed the first one, which was idle for too long
    await asyncio.sleep(1)
    idle = (memory_of(pid) - before) / count

    async def follow(reader: asyncio.StreamReader) -> list[int]:
        seqs: list[int] = []
        while len(seqs) < 20:
            line = await reader.readline()
            if line.startswith(b"data: {") and b'"seq":' in line:
                seqs.append(json.loads(line[6:])["seq"])
        return seqs

    following = [asyncio.ensure_future(follow(reader)) for reader, _ in tails]
    began = time.perf_counter()
    for _ in range(20):
        await writer.ask(post("live"))
    seen = await asyncio.gather(*following)
    took = time.perf_counter() - began
    assert all(seqs == list(range(2, 22)) for seqs in seen)
    for _, wire in tails:
        wire.close()
    return {
        "subscribers": count,
        "idle_bytes_each": round(idle),
        "messages": 20,
        "seconds_until_all_have_all": round(took, 2),
    }


async def import_lines(address: str, pid: int, megabytes: int) -> dict[str, Any]:
    """Streams messages as lines, and measures the additional peak memory of the server."""
    line = json.dumps({"role": "user", "content": _TEXT * 10}).encode() + b"\n"
    chunk = line * (1_000_000 // len(line))
    host, _, port = address.removeprefix("http://").partition(":")
    reader, wire = await asyncio.open_connection(host, int(port))
    head = "POST /api/v1/conversations/bulk/lines HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
    wire.write(f"{head}Content-Length: {len(chunk) * megabytes}\r\n\r\n".encode())
    before = peak = memory_of(pid)
    began = time.perf_counter()
    for _ in range(megabytes):
        wire.write(chunk)
        await wire.drain()
        peak = max(peak, memory_of(pid))
    answer = await reader.readuntil(b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200"), answer + await reader.read(1000)
    wire.close()
    took = time.perf_counter() - began
    return {"megabytes": megabytes, "seconds": round(took, 1), "memory_on_top": peak - before}


# --- the run ----------------------------------------------------------------------------------------------------------


def appends(folder: str, seconds: float) -> dict[str, Any]:
    """Measures appends over 64 connections, in rounds that alternate with the bare route."""
    go = uvloop.run
    with ours(f"sqlite:///{folder}/appends.db") as (address, pid), bare_route() as (empty, bare_pid):
        go(busy(address, 64, 1, pid))
        go(busy(empty, 64, 1, bare_pid))
        rounds = [(go(busy(address, 64, seconds, pid)), go(busy(empty, 64, seconds, bare_pid))) for _ in range(9)]
    return {
        "per_second": round(statistics.median(one.per_second for one, _ in rounds)),
        "bare_per_second": round(statistics.median(two.per_second for _, two in rounds)),
        "ratio": round(statistics.median(one.per_second / two.per_second for one, two in rounds), 2),
        "server_us": round(statistics.median(one.server_us for one, _ in rounds)),
        "bare_server_us": round(statistics.median(two.server_us for _, two in rounds)),
        "processor_ratio": round(statistics.median(two.server_us / one.server_us for one, two in rounds), 2),
    }


def reads(folder: str, seconds: float) -> dict[str, Any]:
    """Measures reads of 50 messages with two workers, in rounds that alternate with one worker."""
    go, url = uvloop.run, f"sqlite:///{folder}/reads.db"
    go(fill(url))
    with ours(url) as (address, pid), ours(url, "--workers", "2") as (shared, supervisor):
        workers = children(supervisor)
        while min(go(busy(shared, 64, 0.5, *workers, request=get)).shares) < 0.1:
            continue  # one of them is not ready yet
        rounds = [
            (go(busy(address, 64, seconds, pid, request=get)), go(busy(shared, 64, seconds, *workers, request=get)))
            for _ in range(9)
        ]
    return {
        "server_us": round(statistics.median(one.server_us for one, _ in rounds)),
        "two_workers_server_us": round(statistics.median(two.server_us for _, two in rounds)),
        "processor_ratio": round(statistics.median(two.server_us / one.server_us for one, two in rounds), 2),
        "requests_of_the_busier_worker": round(statistics.median(max(two.shares) for _, two in rounds), 2),
    }


async def fill(url: str) -> None:
    async with connect(url) as store:
        for number in range(64):
            await store.append(f"c{number}", [Message("user", _TEXT) for _ in range(50)])


def children(pid: int) -> list[int]:
    """Returns the processes of two workers, once their supervisor has started them."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    while len(found := path.read_text().split()) < 2:
        time.sleep(0.1)
    return [int(each) for each in found]


def run(options: argparse.Namespace) -> dict[str, Any]:
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        go = uvloop.run
        with ours(f"sqlite:///{folder}/live.db") as (address, pid):
            results["live_tail"] = go(subscribers(address, pid, options.subscribers))
        results["append_64_connections"] = appends(folder, options.seconds)
        results["read_64_connections_two_workers"] = reads(folder, options.seconds)
        with ours(f"sqlite:///{folder}/chats.db") as (address, _), bare_route() as (empty, _):
            own_append, own_read = go(of_the_store(f"sqlite:///{folder}/own.db", options.count))
            for _ in range(60):
                go(alone(address, post("one"), 1))
            for what, request, own in (("append", post("one"), own_append), ("read_50", get("one"), own_read)):
                bare_p50 = go(alone(empty, request, options.count))
                p50 = go(alone(address, request, options.count))
                allowed = own + 2 * bare_p50
                results[f"p50_{what}_us"] = {
                    "server": round(p50),
                    "store": round(own),
                    "bare": round(bare_p50),
                    "allowed": round(allowed),
                }
        with ours(f"sqlite:///{folder}/lines.db") as (address, pid):
            results["import"] = [go(import_lines(address, pid, size)) for size in (10, options.megabytes)]
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bare", action="store_true", help="run the server to compare with")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--subscribers", type=int, default=1000)
    parser.add_argument("--megabytes", type=int, default=1000)
    options = parser.parse_args()
    if options.bare:
        bare()
        return
    print(json.dumps(run(options), indent=2))


if __name__ == "__main__":
    main()
