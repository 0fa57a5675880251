"""A local server that speaks OpenAI's Chat Completions and Anthropic's Messages, as streams of server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

Script = Callable[[str, dict[str, Any]], list[Any]]
"""From the path and the body of a request to the events of the answer. `None` among them cuts the line."""


class Wire:
    def __init__(self, script: Script) -> None:
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.port = 0
        self._script = script

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *lines = head.decode().split("\r\n")
                size = next(int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length"))
                body = json.loads(await reader.readexactly(size))
                path = first.split()[1]
                self.requests.append((path, body))
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
                for event in self._script(path, body):
                    if event is None:
                        break
                    name = f"event: {event['type']}\n" if "type" in event else ""
                    writer.write(f"{name}data: {json.dumps(event)}\n\n".encode())
                    await writer.drain()
                    await asyncio.sleep(0)
                else:
                    if "type" not in (event or {}):
                        writer.write(b"data: [DONE]\n\n")
                break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def serving(script: Script) -> AsyncIterator[Wire]:
    wire = Wire(script)
    server = await asyncio.start_server(wire.handle, "127.0.0.1", 0)
    wire.port = server.sockets[0].getsockname()[1]
    try:
        yield wire
    finally:
        server.close()
        await server.wait_closed()


# --- the words of Chat Completions ------------------------------------------------------------------------------------


def chunk(**delta: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": None}
    return {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m-1", "choices": [choice]}


def finish(reason: str) -> dict[str, Any]:
    last = chunk()
    last["choices"][0]["finish_reason"] = reason
    return last


def usage(given: int, taken: int) -> dict[str, Any]:
    tokens = {"prompt_tokens": given, "completion_tokens": taken, "total_tokens": given + taken}
    return chunk() | {"choices": [], "usage": tokens}


# --- the words of Anthropic -------------------------------------------------------------------------------------------


def message(blocks: list[dict[str, Any]], stop: str = "end_turn") -> list[dict[str, Any]]:
    """The events of a message with these blocks; text comes in two pieces."""
    tokens = {"input_tokens": 11, "output_tokens": 1}
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m-1", "content": []}
    begun = head | {"stop_reason": None, "stop_sequence": None, "usage": tokens}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": begun}]
    for index, block in enumerate(blocks):
        empty, deltas = _pieces(block)
        events.append({"type": "content_block_start", "index": index, "content_block": empty})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    ended = {"stop_reason": stop, "stop_sequence": None}
    events.append({"type": "message_delta", "delta": ended, "usage": {"output_tokens": 5}})
    return [*events, {"type": "message_stop"}]


def _pieces(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    if block["type"] == "text":
        text, middle = block["text"], len(block["text"]) // 2
        halves = (text[:middle], text[middle:])
        return block | {"text": ""}, [{"type": "text_delta", "text": half} for half in halves]
    if block["type"] == "thinking":
        deltas = [
            {"type": "thinking_delta", "thinking": block["thinking"]},
            {"type": "signature_delta", "signature": block["signature"]},
        ]
        return {"type": "thinking", "thinking": "", "signature": ""}, deltas
    return block | {"input": {}}, [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
