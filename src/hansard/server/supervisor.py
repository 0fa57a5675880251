"""Supervises several worker processes that share one store and one listening socket.

The parent starts the workers, restarts those that die, and stops them when it receives a signal. It accepts the
connections and passes them to the workers in turn: workers that accept for themselves share them unevenly, because the
one that wakes first takes all that wait. A worker that does not take its connections, because it hangs, gets no more
until it reads again; those that it has not taken are passed to another worker.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import select
import signal
import socket
import subprocess
import sys
import termios
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
_HUNG_AFTER = 1.0
"""Seconds without reading after which a worker gets no more connections."""
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
    workers = WorkerPool([Worker(task if number == 0 else others) for number in range(count)])
    try:
        while not signals.received:
            workers.replace_dead(signals)
            workers.check()
            workers.pass_on(listening)
    finally:
        workers.end()


class StopSignals:
    """Whether SIGINT or SIGTERM was received."""

    def __init__(self) -> None:
        self.received = False
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, self._receive)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.received = True


class WorkerPool:
    """The workers, in the order in which they get the next connections."""

    def __init__(self, workers: list[Worker]) -> None:
        self._workers = deque(workers)
        self._returned: deque[socket.socket] = deque()
        """Connections that a worker has not taken."""

    def replace_dead(self, signals: StopSignals) -> None:
        for number, worker in enumerate(self._workers):
            if worker.process.poll() is not None and not signals.received:
                self._returned += worker.take_back()
                self._workers[number] = worker.successor()

    def check(self) -> None:
        """Takes connections back from workers that do not take them, if another worker can get them."""
        now = time.monotonic()
        for worker in self._workers:
            worker.check(now)
        if any(worker.is_available for worker in self._workers):
            for worker in self._workers:
                if worker.is_hung:
                    self._returned += worker.take_back()

    def pass_on(self, listening: socket.socket) -> None:
        """Passes a connection to the next worker. While no worker can take it, it waits in the backlog."""
        available = [worker for worker in self._workers if worker.is_available]
        if not available:
            time.sleep(_POLL_SECONDS)
            return
        if not self._returned and not select.select([listening], (), (), _POLL_SECONDS)[0]:
            return
        writable = select.select((), available, (), _POLL_SECONDS)[1]
        if not writable:
            return
        connection = self._returned.popleft() if self._returned else _accept(listening)
        if connection is None:
            return
        for worker in writable:
            if worker.give(connection):
                connection.close()
                self._workers.remove(worker)
                self._workers.append(worker)
                return
        self._returned.appendleft(connection)

    def end(self) -> None:
        for connection in self._returned:
            connection.close()
        for worker in self._workers:
            worker.process.terminate()
        for worker in self._workers:
            worker.end()


def _accept(listening: socket.socket) -> socket.socket | None:
    """Returns None if the client has left, or if this process has too many open files."""
    try:
        return listening.accept()[0]
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            _LOG.error("a connection cannot be accepted: %s", error.strerror)
            time.sleep(_POLL_SECONDS)
        return None


class Worker:
    """A worker process, and the channel through which it gets its connections.

    The supervisor keeps both ends of the channel, so that it can count and take back what the worker has not read. Each
    connection is read once: by the worker, or by the supervisor.
    """

    def __init__(self, task: WorkerTask, killed: int = 0) -> None:
        self._killed = killed
        """How many of its predecessors were killed right after their start."""
        self._task = task
        self._began = time.monotonic()
        self._channel, self._their_end = socket.socketpair()
        self._channel.setblocking(False)
        self._their_end.setblocking(False)
        self._is_ready = False
        self.is_hung = False
        """It does not read from its channel."""
        self._sent = self._read = 0
        """Bytes that were sent on the channel, one for each connection, and how many of them the worker has read."""
        self._read_at = self._began
        """When the worker had read more than before, or everything."""
        self._has_probe = False
        """Its connections were taken back, and a byte was sent that shows when it reads again."""
        theirs = self._their_end.fileno()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "hansard.server.worker"], stdin=subprocess.PIPE, pass_fds=(theirs,)
        )
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the worker was killed before it could read
            self.process.stdin.write(encode(structs.replace(task, channel=theirs)))
            self.process.stdin.close()

    @property
    def is_ready(self) -> bool:
        """Whether it has started. Until then, the others get all connections."""
        if not self._is_ready:
            with contextlib.suppress(OSError):  # it has sent nothing yet, or has died
                self._is_ready = bool(self._channel.recv(1))
        return self._is_ready

    @property
    def is_available(self) -> bool:
        """Whether it gets connections."""
        return self.is_ready and not self.is_hung

    def check(self, now: float) -> None:
        """Updates `is_hung`."""
        read = self._sent - _unread_bytes(self._their_end)
        if read > self._read or read == self._sent:
            self._read_at, self._has_probe = now, False
        self._read = read
        is_hung = now - self._read_at > _HUNG_AFTER
        if is_hung != self.is_hung:
            does = "does not take connections, and other workers get them" if is_hung else "takes connections again"
            _LOG.warning("a worker %s", does, extra={"facts": {"process": self.process.pid}})
        self.is_hung = is_hung

    def fileno(self) -> int:
        """Returns the channel's descriptor, for `select`: a connection can be passed when it is writable."""
        return self._channel.fileno()

    def give(self, connection: socket.socket) -> bool:
        """Passes a connection to the worker. Returns False if the channel is full."""
        try:
            socket.send_fds(self._channel, [b"."], [connection.fileno()])
        except OSError:
            return False
        self._sent += 1
        return True

    def take_back(self) -> list[socket.socket]:
        """Returns the connections that the worker has not read."""
        if self._has_probe:
            return []
        returned: list[socket.socket] = []
        with contextlib.suppress(BlockingIOError):
            while True:
                data, descriptors, _, _ = socket.recv_fds(self._their_end, 1, 1)
                self._sent -= len(data)
                returned += [socket.socket(fileno=descriptor) for descriptor in descriptors]
        self._channel.send(b"?")
        self._sent += 1
        self._has_probe = True
        return returned

    def successor(self) -> Worker:
        self._close_channel()
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
        self._close_channel()

    def _close_channel(self) -> None:
        self._channel.close()
        self._their_end.close()


def _unread_bytes(channel: socket.socket) -> int:
    """Returns how many bytes can be read from a socket."""
    return int.from_bytes(fcntl.ioctl(channel, termios.FIONREAD, bytes(4)), sys.byteorder)
