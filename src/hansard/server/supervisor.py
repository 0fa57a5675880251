"""Supervises several worker processes that share one store and one listening socket.

The parent starts the workers, restarts those that die, and stops them when it receives a signal. It accepts the
connections and passes them to the workers in turn: workers that accept for themselves share them unevenly, because the
one that wakes first takes all that wait.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import select
import signal
import socket
import subprocess
import sys
import time
from collections import deque
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
    settings: Settings
    log_level: str
    channel: int = -1
    """The socket from which it receives its connections."""


def encode(task: WorkerTask) -> bytes:
    return msgspec.json.encode(task, enc_hook=str)


def decode(data: bytes) -> WorkerTask:
    return msgspec.json.decode(data, type=WorkerTask, dec_hook=lambda kind, value: Path(value))


def supervise(task: WorkerTask, listening: socket.socket, count: int) -> None:
    """Keeps `count` workers running until SIGINT or SIGTERM, and passes connections to them."""
    signals = StopSignals()
    listening.setblocking(False)
    # One worker makes the backups and removes expired data.
    others = structs.replace(task, settings=structs.replace(task.settings, backup_to=None, purge_seconds=None))
    workers = deque(Worker(task if number == 0 else others) for number in range(count))
    try:
        while not signals.received:
            for number, worker in enumerate(workers):
                if worker.process.poll() is not None and not signals.received:
                    workers[number] = worker.successor()
            if not any(worker.is_ready for worker in workers):
                time.sleep(_POLL_SECONDS)
            elif select.select([listening], (), (), _POLL_SECONDS)[0]:
                _pass_on(listening, workers)
    finally:
        for worker in workers:
            worker.process.terminate()
        for worker in workers:
            worker.end()


def _pass_on(listening: socket.socket, workers: deque[Worker]) -> None:
    """Accepts a connection and passes it to the next worker. While no worker can take it, it waits in the backlog."""
    free = select.select((), [worker for worker in workers if worker.is_ready], (), _POLL_SECONDS)[1]
    if not free:
        return
    try:
        connection, _ = listening.accept()
    except OSError as error:  # the client has left, or this process has too many open files
        if error.errno in (errno.EMFILE, errno.ENFILE):
            _LOG.error("a connection cannot be accepted: %s", error.strerror)
            time.sleep(_POLL_SECONDS)
        return
    with connection:
        for worker in free:
            if worker.take(connection):
                workers.remove(worker)
                workers.append(worker)
                return


class StopSignals:
    """Whether SIGINT or SIGTERM was received."""

    def __init__(self) -> None:
        self.received = False
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, self._receive)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.received = True


class Worker:
    def __init__(self, task: WorkerTask, killed: int = 0) -> None:
        self._killed = killed
        """How many of its predecessors were killed right after their start."""
        self._task = task
        self._began = time.monotonic()
        self._channel, theirs = socket.socketpair()
        self._channel.setblocking(False)
        self._is_ready = False
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "hansard.server.worker"], stdin=subprocess.PIPE, pass_fds=(theirs.fileno(),)
            )
            assert self.process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # the worker was killed before it could read
                self.process.stdin.write(encode(structs.replace(task, channel=theirs.fileno())))
                self.process.stdin.close()

    @property
    def is_ready(self) -> bool:
        """Whether it has started. Until then, the others get all connections."""
        if not self._is_ready:
            with contextlib.suppress(OSError):  # it has sent nothing yet, or has died
                self._is_ready = bool(self._channel.recv(1))
        return self._is_ready

    def fileno(self) -> int:
        """Returns the channel's descriptor, for `select`: a connection can be passed when it is writable."""
        return self._channel.fileno()

    def take(self, connection: socket.socket) -> bool:
        """Passes a connection to the worker. Returns False if it has died."""
        try:
            socket.send_fds(self._channel, [b"."], [connection.fileno()])
        except OSError:
            return False
        return True

    def successor(self) -> Worker:
        self._channel.close()
        _LOG.error(
            "a worker ended and is replaced",
            extra={"facts": {"process": self.process.pid, **_reason(self.process.returncode)}},
        )
        if time.monotonic() - self._began >= _TOO_SOON:
            return Worker(self._task)
        code = self.process.returncode
        if code >= 0 or self._killed == _MOST_KILLED:
            raise Unavailable(f"a worker exited right after its start, with code {code}", retryable=False)
        return Worker(self._task, self._killed + 1)

    def end(self) -> None:
        """Waits until the worker has exited, and kills it after a while. Acknowledged writes are stored by then."""
        try:
            self.process.wait(self._task.settings.drain_seconds + _GRACE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._channel.close()
