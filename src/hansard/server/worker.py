"""A worker process: `python -m hansard.server.worker`, which reads its task from stdin."""

from __future__ import annotations

import socket
import sys

from hansard.server import logs
from hansard.server.process import WorkerServer, serve_socket
from hansard.server.supervisor import decode


def main() -> None:
    task = decode(sys.stdin.buffer.read())
    logs.set_up(task.log_level)
    with socket.socket(fileno=task.channel) as channel:
        serve_socket(channel, task.url, task.settings, server=WorkerServer)


if __name__ == "__main__":
    main()
