"""Supervises several worker processes that share one store and one listening socket.

The parent starts the workers, restarts those that die, and stops them when it receives a signal.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

import msgspec
from msgspec import Struct, structs

from hansard.errors import Unavailable
from hansard.server.settings import Settings

_POLL_SECONDS = 0.1
_TOO_SOON = 2.0
"""Seconds: a worker that exits earlier is not restarted, because it would fail again."""
_MOST_KILLED = 5
"""How many times in a row a worker may be killed that early."""
_GRACE = 10
"""Seconds that a worker has to stop after its requests have been answered."""


_LOG = logging.getLogger("hansard.server")


def _reason(code: int) -> dict[str, str | int]:
    """Returns why a process has ended: its exit code, or the signal that killed it."""
    return {"exit_code": code} if code >= 0 else {"signal": signal.Signals(-code).name}


class WorkerTask(Struct):
    """What a worker reads from its stdin."""

    url: str
    socket: int
    settings: Settings
    log_level: str


def encode(task: WorkerTask) -> bytes:
    return msgspec.json.encode(task, enc_hook=str)


def decode(data: bytes) -> WorkerTask:
    return msgspec.json.decode(data, type=WorkerTask, dec_hook=lambda kind, value: Path(value))


def supervise(task: WorkerTask, listening: socket.socket, count: int) -> None:
    """Keeps `count` workers running until SIGINT or SIGTERM."""
    signals = StopSignals()
    # One worker makes the backups.
    others = structs.replace(task, settings=structs.replace(task.settings, backup_to=None))
    workers = [Worker(task if number == 0 else others, listening) for number in range(count)]
    try:
        while not signals.received:
            time.sleep(_POLL_SECONDS)
            for number, worker in enumerate(workers):
                if worker.process.poll() is not None and not signals.received:
                    workers[number] = worker.successor()
    finally:
        for worker in workers:
            worker.process.terminate()
        for worker in workers:
            worker.end()


class StopSignals:
    """Whether SIGINT or SIGTERM was received."""

    def __init__(self) -> None:
        self.received = False
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, self._receive)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.received = True


class Worker:
    def __init__(self, task: WorkerTask, listening: socket.socket, killed: int = 0) -> None:
        self._killed = killed
        """How many of its predecessors were killed right after their start."""
        self._task = task
        self._listening = listening
        self._began = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "hansard.server.worker"], stdin=subprocess.PIPE, pass_fds=(listening.fileno(),)
        )
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the worker was killed before it could read
            self.process.stdin.write(encode(task))
            self.process.stdin.close()

    def successor(self) -> Worker:
        _LOG.error(
            "a worker ended and is replaced",
            extra={"facts": {"process": self.process.pid, **_reason(self.process.returncode)}},
        )
        if time.monotonic() - self._began >= _TOO_SOON:
            return Worker(self._task, self._listening)
        code = self.process.returncode
        if code >= 0 or self._killed == _MOST_KILLED:
            raise Unavailable(f"a worker exited right after its start, with code {code}", retryable=False)
        return Worker(self._task, self._listening, self._killed + 1)

    def end(self) -> None:
        """Waits until the worker has exited, and kills it after a while. Acknowledged writes are stored by then."""
        try:
            self.process.wait(self._task.settings.drain_seconds + _GRACE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
