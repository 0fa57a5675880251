"""A model endpoint on a real socket that speaks the same wire, and does what the test tells it to."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Endpoint:
    """What it was asked, and how it shall behave."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.read: list[str] = []
        """The paths of what was only read."""
        self.keys: list[str | None] = []
        self.address = ""
        self.says = "It is on its way."
        self.breaks = ""
        """`refuse`, `fail`, `key` or `middle`."""
        self.id: str | None = None
        """Of everything that it says, where it does not count."""
        self.done = "data: [DONE]"
        self.waits: threading.Event | None = None
        """Until it is set, nothing is answered."""
        self.output: list[dict[str, Any]] | None = None
        """Items to answer with, where it says nothing."""
        self.script: Iterator[str] | None = None
        """What is streamed, where it is not what it says."""
        self.hung_up = threading.Event()
        """Whoever asked went away in the middle of a stream."""

    @property
    def count(self) -> int:
        return len(self.asked)

    def response(self, status: str = "completed") -> dict[str, Any]:
        item = {
            "id": self.id or f"msg_up{self.count}",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": self.says, "annotations": [], "logprobs": []}],
        }
        return {
            "id": self.id or f"resp_{self.count}",
            "object": "response",
            "created_at": 1,
            "status": status,
            "model": "m-1",
            "output": (self.output or [item]) if status == "completed" else [],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "temperature": 1.0,
            "top_p": 1.0,
            "usage": {
                "input_tokens": 5,
                "output_tokens": 7,
                "total_tokens": 12,
                "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 0},
                "output_tokens_details": {"reasoning_tokens": 3},
            },
        }

    def completion(self) -> dict[str, Any]:
        message = {"role": "assistant", "content": self.says, "refusal": None}
        return {
            "id": f"chatcmpl-{self.count}",
            "object": "chat.completion",
            "created": 1,
            "model": "m-1",
            "choices": [{"index": 0, "finish_reason": "stop", "message": message, "logprobs": None}],
            "usage": {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12},
        }

    def events(self, path: str) -> Iterator[str]:
        """The stream; broken off in the middle where it shall."""
        half = len(self.says) // 2
        if path.endswith("/responses"):
            yield _named({"type": "response.created", "sequence_number": 0, "response": self.response("in_progress")})
            for number, text in enumerate((self.says[:half], self.says[half:]), 1):
                yield _named({
                    "type": "response.output_text.delta", "sequence_number": number, "item_id": "i",
                    "output_index": 0, "content_index": 0, "delta": text, "logprobs": [],
                })  # fmt: skip
                if self.breaks == "middle":
                    return
            yield _named({"type": "response.completed", "sequence_number": 3, "response": self.response()})
            return
        base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m-1"}
        for delta in (
            {"role": "assistant", "content": ""},
            {"content": self.says[:half]},
            {"content": self.says[half:]},
        ):
            yield _plain({**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
            if self.breaks == "middle" and delta["content"]:
                return
        yield _plain({**base, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        yield f"{self.done}\n\n"


def _named(data: dict[str, Any]) -> str:
    return f"event: {data['type']}\ndata: {json.dumps(data)}\n\n"


def _plain(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data)}\n\n"


@contextmanager
def endpoint() -> Iterator[Endpoint]:
    model = Endpoint()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            model.read.append(self.path)
            model.keys.append(self.headers.get("authorization"))
            if model.breaks == "key":
                self._send(401, "application/json", json.dumps({"error": {"message": "Who?"}}).encode())
                return
            one = {"id": "org/m-1", "object": "model", "created": 1, "owned_by": "us"}
            found = {"object": "list", "data": [one]} if self.path.endswith("/models") else one
            self._send(200, "application/json", json.dumps(found).encode())

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            model.asked.append(body)
            model.keys.append(self.headers.get("authorization"))
            if model.waits is not None:
                assert model.waits.wait(60)
            if model.breaks in ("refuse", "fail", "key"):
                status = {"refuse": 400, "fail": 500, "key": 401}[model.breaks]
                error = {"message": "No.", "type": "invalid_request_error", "param": "input", "code": "nope"}
                self._send(status, "application/json", json.dumps({"error": error}).encode())
            elif body.get("stream"):
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.end_headers()
                try:
                    for piece in model.script or model.events(self.path):
                        self.wfile.write(piece.encode())
                        self.wfile.flush()
                except ConnectionError:
                    model.hung_up.set()
            else:
                answer = model.response() if self.path.endswith("/responses") else model.completion()
                self._send(200, "application/json", json.dumps(answer).encode())

        def _send(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        model.address = f"http://127.0.0.1:{server.server_address[1]}/v1"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield model
        finally:
            server.shutdown()
            thread.join(60)
