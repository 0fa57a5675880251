"""Summarizers over the wire: the official clients, against a server that speaks their protocol."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import anthropic
import openai
import pytest

from hansard import Message, sync
from hansard.assembly import AnthropicSummarizer, ChatSummarizer, Summarizer
from hansard.errors import TimedOut, Unavailable

ANSWER = "Ann ordered a book and waits for it."


def chat_reply(text: str | None, finish: str = "stop") -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "small",
        "choices": [{"index": 0, "finish_reason": finish, "message": message}],
    }


def anthropic_reply(text: str, stop: str = "end_turn") -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "small",
        "content": [{"type": "text", "text": text}] if text else [],
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


class Wire(ThreadingHTTPServer):
    """Answers every request with one reply, and remembers the requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.reply: Any = None
        self.status = 200
        self.kind = "application/json"
        self.is_unheard = False
        """The client has given up and does not read the reply."""
        self.released = threading.Event()
        self.released.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Wire

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.requests.append((self.path, json.loads(body)))
        if not self.server.released.wait(30) or self.server.is_unheard:
            return
        reply = self.server.reply
        data = reply.encode() if isinstance(reply, str) else json.dumps(reply).encode()
        self.send_response(self.server.status)
        self.send_header("content-type", self.server.kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture
def wire() -> Iterator[Wire]:
    server = Wire()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.released.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def store() -> Iterator[sync.Store]:
    with sync.connect("memory://") as opened:
        words = "Some words of a conversation about a book."
        opened.append("c", [Message("assistant" if at % 2 else "user", f"{words} ({at})") for at in range(60)])
        yield opened


@contextmanager
def summarizer(kind: str, wire: Wire) -> Iterator[Summarizer]:
    """One of the official clients, blocking ones as well."""
    if kind == "openai":
        with openai.OpenAI(base_url=wire.url, api_key="k", max_retries=0) as client:
            yield ChatSummarizer(client, "small", temperature=0)
    elif kind == "async openai":
        # No `async with`: the store closes the loop that it ran on.
        yield ChatSummarizer(openai.AsyncOpenAI(base_url=wire.url, api_key="k", max_retries=0), "small")
    elif kind == "anthropic":
        with anthropic.Anthropic(base_url=wire.url, api_key="k", max_retries=0) as client:
            yield AnthropicSummarizer(client, "small", stop_sequences=["[end]"])
    else:
        yield AnthropicSummarizer(anthropic.AsyncAnthropic(base_url=wire.url, api_key="k", max_retries=0), "small")


KINDS = ["openai", "async openai", "anthropic", "async anthropic"]


def reply_of(kind: str, text: str) -> dict[str, Any]:
    return anthropic_reply(text) if "anthropic" in kind else chat_reply(text)


@pytest.mark.parametrize("kind", KINDS)
def test_a_summary_over_the_wire(store: sync.Store, wire: Wire, kind: str) -> None:
    wire.reply = reply_of(kind, f" {ANSWER}\n")
    with summarizer(kind, wire) as model:
        prompt = store.assemble_prompt("c", summarizer=model)
    assert prompt.problems == []
    assert prompt.summary is not None
    assert (prompt.summary.text, prompt.summary.model, prompt.summary.prompt_id) == (ANSWER, "small", "hansard-1")
    (path, request) = wire.requests[0]
    assert path == ("/v1/messages" if "anthropic" in kind else "/chat/completions")
    assert (request["model"], request["max_tokens"]) == ("small", 750)
    asked = request["messages"][0]["content"]
    assert "user: Some words of a conversation about a book. (0)" in asked
    assert "At most 500 words" in asked


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("status", "type", "reply"),
    [
        (500, "application/json", {"error": {"message": "overloaded", "type": "server_error"}}),
        (429, "application/json", {"error": {"message": "slow down", "type": "rate_limit_error"}}),
        (200, "text/html", "<html>502 Bad Gateway</html>"),
        (200, "application/json", {}),
    ],
    ids=["500", "429", "html", "empty object"],
)
def test_a_provider_that_fails(store: sync.Store, wire: Wire, kind: str, status: int, type: str, reply: Any) -> None:
    wire.status, wire.kind, wire.reply = status, type, reply
    with summarizer(kind, wire) as model, pytest.raises(Unavailable):
        store.summarize("c", model)
    assert store.list_summaries("c") == []


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_answer(store: sync.Store, wire: Wire, kind: str) -> None:
    wire.reply = reply_of(kind, "")
    with summarizer(kind, wire) as model, pytest.raises(Unavailable, match="returned nothing"):
        store.summarize("c", model)


@pytest.mark.parametrize(
    ("kind", "reply"),
    [("openai", chat_reply("half of", "content_filter")), ("anthropic", anthropic_reply("half of", "refusal"))],
)
def test_a_refused_answer(store: sync.Store, wire: Wire, kind: str, reply: Any) -> None:
    wire.reply = reply
    with summarizer(kind, wire) as model, pytest.raises(Unavailable, match="returned nothing"):
        store.summarize("c", model)


@pytest.mark.parametrize("kind", ["async openai", "async anthropic"])
def test_a_provider_that_hangs(store: sync.Store, wire: Wire, kind: str) -> None:
    wire.reply = reply_of(kind, ANSWER)
    wire.released.clear()
    with summarizer(kind, wire) as model, pytest.raises(TimedOut):
        store.summarize("c", model, timeout=0.2)
    wire.is_unheard = True
    assert store.list_summaries("c") == []


def test_options_reach_the_provider(store: sync.Store, wire: Wire) -> None:
    wire.reply = chat_reply(ANSWER)
    with openai.OpenAI(base_url=wire.url, api_key="k") as client:
        store.summarize("c", ChatSummarizer(client, "small", max_completion_tokens=99, temperature=0.5))
    request = wire.requests[0][1]
    assert (request["max_completion_tokens"], request["temperature"]) == (99, 0.5)
    assert "max_tokens" not in request
