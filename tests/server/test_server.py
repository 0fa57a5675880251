"""The server answers about itself and its store, starts cleanly and stops cleanly."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.wait import PATIENCE

from hansard import Closed, Message, Store, sync
from hansard.backends.memory import MemoryBackend
from hansard.server.app import create_app
from hansard.server.process import listen

COMMAND = [sys.executable, "-W", "error", "-m", "hansard.cli"]


def asked(store: Store, path: str) -> httpx.Response:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app=create_app(store))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get(path)

    return asyncio.run(ask())


def test_the_start_page_names_the_version_and_the_store() -> None:
    store = Store(MemoryBackend())
    asyncio.run(store.append("c", [Message("user", str(number)) for number in range(1234)]))
    answer = asked(store, "/")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "1,234" in answer.text
    assert "memory" in answer.text


def test_an_answer_is_not_held_back_until_its_beginning_is_confirmed() -> None:
    with listen("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_health_and_readiness_are_answered() -> None:
    store = Store(MemoryBackend())
    assert asked(store, "/healthz").json()["status"] == "ok"
    assert asked(store, "/readyz").json() == {"status": "ready", "store": "memory"}
    assert asked(store, "/nothing").status_code == 404


def test_an_unavailable_store_is_not_ready() -> None:
    store = Store(MemoryBackend())
    asyncio.run(store.close())
    assert asked(store, "/healthz").status_code == 200
    ready = asked(store, "/readyz")
    assert ready.status_code == 503
    assert ready.json() == {"status": "unavailable", "error": {"code": Closed.code}}
    page = asked(store, "/")
    assert page.status_code == 503 or "memory" in page.text


@contextmanager
def serving(folder: Path, *arguments: str, **environment: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A real server on a free port: its address and its process.

    It is killed in the end, and what it then leaves in the folder for temporary files is in a folder of the test.
    """
    process = subprocess.Popen(
        [*COMMAND, "serve", *arguments, "--port", "0"],
        cwd=folder,
        env=os.environ | {"TMPDIR": str(folder)} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        first = process.stderr.readline()
        found = re.search(r"https?://\S+:\d+", first)
        assert found, first + process.stderr.read()
        yield found[0], process
    finally:
        process.kill()
        process.communicate()


def fetch(address: str) -> Any:
    with urllib.request.urlopen(address, timeout=PATIENCE) as answer:
        return answer.read().decode()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_real_server_starts_and_stops(how: signal.Signals, tmp_path: Path) -> None:
    with serving(tmp_path, HANSARD_URL="sqlite:///made.db") as (address, process):
        assert address.startswith("http://127.0.0.1:")
        assert json.loads(fetch(address + "/readyz"))["store"] == "sqlite"
        assert "Hansard" in fetch(address + "/")
        process.send_signal(how)
        out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, err
        assert out == ""
        assert "Traceback" not in err
    assert (tmp_path / "made.db").exists()
    # Closed cleanly: nothing is left in the write-ahead log.
    assert not (tmp_path / "made.db-wal").exists()


def test_a_server_may_share_a_store_in_use(tmp_path: Path) -> None:
    with sync.connect(f"sqlite:///{tmp_path}/chats.db") as store:
        store.append_message("c", "user", "Hello")
        with serving(tmp_path, "sqlite:///chats.db") as (address, _):
            assert "1 message<" in fetch(address + "/")
            store.append_message("c", "user", "Hello again")
            assert json.loads(fetch(address + "/readyz"))["status"] == "ready"


def test_a_port_in_use_is_reported_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [*COMMAND, "serve", "memory://", "--port", port],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 11
    assert done.stderr.count("\n") == 1
    assert f"port {port}" in done.stderr
    assert "in use" in done.stderr


def test_a_store_that_cannot_be_opened_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a database, and long enough to be looked at" * 20)
    done = subprocess.run(
        [*COMMAND, "serve", "sqlite:///notes.txt", "--port", "0"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode in (6, 7)
    assert done.stderr.count("\n") == 1
