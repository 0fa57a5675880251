"""`tools/cassandra.py`: which jars it accepts, and a node that it leaves to another process."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tools import cassandra


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder without jars. A node that runs would take longer, so the archive is not made."""
    if reason := cassandra.why_absent():
        pytest.skip(reason)
    home = tmp_path / "home"
    home.mkdir()
    (home / "classes.jsa").touch()
    monkeypatch.setattr(cassandra, "HOME", home)
    monkeypatch.setattr(cassandra, "JARS", home / "jars")
    monkeypatch.setattr(cassandra, "ARCHIVE", home / "classes.jsa")
    return home


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A Maven repository with the jars, which `HANSARD_MAVEN_REPOSITORY` names."""
    folder = tmp_path / "repository"
    for path in cassandra.pinned():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).symlink_to(_FETCHED / Path(path).name)
    with _served(folder) as address:
        monkeypatch.setenv("HANSARD_MAVEN_REPOSITORY", address)
        yield folder


_FETCHED = cassandra.JARS


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a test says by itself what went wrong."""


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=os.fspath(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def test_jars_come_from_the_repository_that_the_environment_names(home: Path, repository: Path) -> None:
    assert cassandra.why_absent() is not None
    assert cassandra.why_not_fetched() is None
    assert cassandra.why_absent() is None
    assert {each.name for each in (home / "jars").iterdir()} == {Path(path).name for path in cassandra.pinned()}


def test_a_jar_with_another_hash_is_refused(home: Path, repository: Path) -> None:
    path = min(cassandra.pinned())
    (repository / path).unlink()
    (repository / path).write_bytes(b"something else")
    reason = cassandra.why_not_fetched()
    assert reason is not None
    assert path in reason
    assert "wrong hash" in reason
    assert not (home / "jars").exists()


def test_a_jar_that_the_repository_lacks(home: Path, repository: Path) -> None:
    path = min(cassandra.pinned())
    (repository / path).unlink()
    reason = cassandra.why_not_fetched()
    assert reason is not None
    assert "404" in reason
    assert not (home / "jars").exists()


def test_no_way_to_fetch_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HANSARD_MAVEN_REPOSITORY", raising=False)
    monkeypatch.setattr("shutil.which", {"java": "java"}.get)
    reason = cassandra.why_not_fetched()
    assert reason is not None
    assert "neither mvn" in reason


def test_ports_are_none_that_an_outgoing_connection_may_get() -> None:
    ports = {cassandra.free_port("127.0.0.1") for _ in range(50)}
    assert max(ports) < 32_768
    assert len(ports) > 40, "they are not the same for every node"


def test_a_node_that_another_process_stops_is_left_without_a_warning(tmp_path: Path) -> None:
    """Popen warns when it is deleted, and such a warning fails a test."""
    node = cassandra.Node(tmp_path)
    node.process = subprocess.Popen(["sleep", "600"])
    process_id = node.process.pid
    node.leave()
    gc.collect()
    os.kill(process_id, signal.SIGKILL)
    assert os.waitpid(process_id, 0)[1] == signal.SIGKILL
