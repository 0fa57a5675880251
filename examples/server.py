"""One history over HTTP: a server process, used by plain HTTP and through the Store.

It prints:

    stored: 2 messages, version 1
    read by Python: Where is my order?
    read by Python: It is on its way.
    found: It is on its **way**.
    the prompt has 2 messages
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import hansard.sync


@contextmanager
def serving(url: str) -> Iterator[str]:
    """`hansard serve` in a separate process, on a free port: yields its address."""
    command = [sys.executable, "-m", "hansard.cli", "serve", url, "--port", "0"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    try:
        found = re.search(r"http://\S+?:\d+", server.stderr.readline())
        assert found is not None, "the server did not start"
        yield found[0]
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate()


def post(address: str, body: dict[str, Any]) -> Any:
    """What any other language would do."""
    request = urllib.request.Request(address, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


with serving("sqlite:///served.db") as server:
    api = f"{server}/api/v1"
    messages = [
        {"role": "user", "content": "Where is my order?"},
        {"role": "assistant", "content": "It is on its way."},
    ]
    stored = post(f"{api}/conversations/order-17/messages", {"messages": messages, "user_id": "u_1"})
    print(f"stored: {stored['stored']} messages, version {stored['version']}")

    with hansard.sync.connect(server) as store:
        for message in store.get_messages("order-17"):
            print("read by Python:", message.text)
        for hit in store.search("way"):
            print("found:", hit.snippet.marked())

    prompt = post(f"{api}/conversations/order-17/prompt", {"token_budget": 1000, "format": "anthropic"})
    print(f"the prompt has {len(prompt['messages'])} messages")
