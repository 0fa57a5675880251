"""Requests to a server of the tree: what counts is the processor time of the server's process."""

from __future__ import annotations

import asyncio
import json
import time
from types import TracebackType
from typing import Self

from benchmarks.server import Wire, get, ours, post
from benchmarks.wire import TEXT

SERVED = ["append", "append-64", "get_messages", "items.create", "items.list"]


class Served:
    def __init__(self, folder: str) -> None:
        self._server = ours(f"sqlite:///{folder}/store.db")

    async def __aenter__(self) -> Self:
        self._address, pid = self._server.__enter__()
        self._clock = ~pid << 3 | 2  # Linux: the processor time of all threads of another process
        self._wires = [await Wire().open(self._address) for _ in range(64)]
        made = json.loads(await self._wires[0].ask(_post("/v1/conversations", {})))
        path = f"/v1/conversations/{made['id']}/items"
        item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": TEXT}]}
        self._requests = {
            "append": post("one"),
            "get_messages": get("one"),
            "items.create": _post(path, {"items": [item]}),
            "items.list": f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode(),
        }
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.__exit__(kind, error, trace)

    async def timed(self, operation: str, count: int) -> dict[str, float]:
        began = time.clock_gettime(self._clock)
        if operation == "append-64":
            await asyncio.gather(*(self._ask(at, post(f"c{at}"), max(1, count // 64)) for at in range(64)))
        else:
            await self._ask(0, self._requests[operation], count)
        return {"cpu": time.clock_gettime(self._clock) - began}

    async def _ask(self, at: int, request: bytes, count: int) -> None:
        for _ in range(count):
            try:
                await self._wires[at].ask(request)
            except (asyncio.IncompleteReadError, ConnectionError):  # it was idle for too long
                self._wires[at] = await Wire().open(self._address)
                await self._wires[at].ask(request)


def _post(path: str, body: object) -> bytes:
    raw = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(raw)}\r\n\r\n".encode() + raw
