"""Latency during heavy requests: `python -m benchmarks.turns`. Needs the extras `server` and `cli`.

Each of the heaviest requests that the server allows is repeated, while another connection requests `/healthz` every few
milliseconds. The latency of those small requests is measured: the target is a 99th percentile of 100 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx

from benchmarks.server import ours
from hansard import Message, connect

_WORDS = ("order", "refund", "parcel", "invoice", "window", "river", "battery", "signal", "garden", "letter")
_PAUSE = 0.005
Heavy = Callable[[httpx.AsyncClient], Awaitable[httpx.Response]]


def _text(number: int) -> str:
    return " ".join(f"{_WORDS[(number * 7 + at * 3) % 10]}{(number * at) % 997}" for at in range(40))


async def fill(url: str, messages: int) -> None:
    async with connect(url) as store:
        for first in range(0, messages, 1000):
            batch = [Message("user", _text(number)) for number in range(first, min(first + 1000, messages))]
            await store.append(f"c{first // 4000}", batch)
        await store.append("long", [Message("user", _text(number)) for number in range(5000)])


def _post(path: str, body: Any) -> Heavy:
    raw = json.dumps(body).encode()
    return lambda client: client.post(path, content=raw, headers={"content-type": "application/json"})


def heavy_requests(exported: bytes) -> dict[str, Heavy]:
    words = [f"{_WORDS[number % 10]}{number}" for number in range(64)]
    starts = [f"{_WORDS[number % 10][: 1 + number % 3]}*" for number in range(64)]
    every: dict[str, Any] = {"limit": 100, "token_cap": None}
    tiny = {"role": "user", "content": "x"}
    lines = {"content-type": "application/x-ndjson"}
    return {
        "nothing": lambda client: client.get("/healthz"),
        "search: 64 words": _post("/api/v1/search", {"query": " OR ".join(words), **every}),
        "search: 64 prefixes": _post("/api/v1/search", {"query": " OR ".join(starts), **every}),
        "search: 60,000 words, refused": _post("/api/v1/search", {"query": " OR ".join(words * 938)}),
        "append: 10,000 messages": _post("/api/v1/conversations/new/messages", {"messages": [tiny] * 10_000}),
        "append: one of 16 MB": _post(
            "/api/v1/conversations/big/messages", {"messages": [{"role": "user", "content": "x" * 16_000_000}]}
        ),
        "append: 550,000, refused": _post("/api/v1/conversations/new/messages", {"messages": [tiny] * 550_000}),
        "page: the newest 5,000": lambda client: client.get("/api/v1/conversations/long/messages?last=5000"),
        "prompt: 100,000 tokens": _post(
            "/api/v1/conversations/long/prompt", {"token_budget": 100_000, "max_turns": 5000}
        ),
        "export": lambda client: client.get("/api/v1/export"),
        "import": lambda client: client.post("/api/v1/import", content=exported, headers=lines),
    }


async def waits(address: str, heavy: Heavy, seconds: float) -> tuple[list[float], list[int], float]:
    """Returns the times of the small requests, and the statuses and the longest time of the heavy one."""
    took: list[float] = []
    statuses: list[int] = []
    longest = 0.0
    is_over = asyncio.Event()

    async def work(client: httpx.AsyncClient) -> None:
        nonlocal longest
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            began = time.perf_counter()
            statuses.append((await heavy(client)).status_code)
            longest = max(longest, time.perf_counter() - began)
        is_over.set()

    async def ask(client: httpx.AsyncClient) -> None:
        while not is_over.is_set():
            began = time.perf_counter()
            assert (await client.get("/healthz")).status_code == 200
            took.append(time.perf_counter() - began)
            await asyncio.sleep(_PAUSE)

    async with (
        httpx.AsyncClient(base_url=address, timeout=120) as one,
        httpx.AsyncClient(base_url=address, timeout=120) as other,
    ):
        await asyncio.gather(work(one), ask(other))
    return took, statuses, longest


async def measure(messages: int, seconds: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'turns.db'}"
        await fill(url, messages)
        with ours(url) as (address, _):
            async with httpx.AsyncClient(base_url=address, timeout=120) as client:
                exported = (await client.get("/api/v1/export")).content
            print(f"{messages:,} messages, load {os.getloadavg()[0]:.1f}; /healthz in ms")
            print(f"{'while':32} {'p50':>8} {'p99':>8} {'max':>8} {'itself':>8}  statuses")
            for name, heavy in heavy_requests(exported).items():
                took, statuses, longest = await waits(address, heavy, seconds)
                p50, p99 = statistics.median(took), statistics.quantiles(took, n=100)[98] if len(took) > 1 else took[0]
                figures = " ".join(f"{each * 1000:8.1f}" for each in (p50, p99, max(took), longest))
                print(f"{name:32} {figures}  {sorted(set(statuses))}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=12_000)
    parser.add_argument("--seconds", type=float, default=5.0)
    given = parser.parse_args()
    asyncio.run(measure(given.messages, given.seconds))


if __name__ == "__main__":
    main()
