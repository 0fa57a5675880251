"""Servers of a test's own, with its settings, stopped when it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.servers import redis as redis_servers
from tests.servers.redis import Cluster, Server

StartServer = Callable[..., Server]


@pytest.fixture(autouse=True)
def _a_server_can_be_had() -> None:
    if reason := redis_servers.why_absent():
        pytest.skip(reason)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[StartServer]:
    """Starts servers: `start(appendonly="yes")`."""
    started: list[Server] = []

    def start_one(**settings: Any) -> Server:
        folder = tmp_path / f"redis{len(started)}"
        folder.mkdir()
        started.append(Server(folder, **settings))
        return started[-1]

    yield start_one
    for server in started:
        server.kill()


@pytest.fixture
def url() -> str:
    """An empty database of the shared server."""
    return redis_servers.fresh_database()


@pytest.fixture
def cluster_url() -> str:
    return redis_servers.fresh_cluster()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three primaries with a replica each."""
    made = Cluster(tmp_path, replicas=1)
    yield made
    made.stop()
