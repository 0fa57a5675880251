"""A worker process: `python -m hansard.server.worker`, which reads its task from stdin."""

from __future__ import annotations

import socket
import sys

from hansard.server import logs
from hansard.server.process import serve_socket
from hansard.server.supervisor import decode


def main() -> None:
    task = decode(sys.stdin.buffer.read())
    logs.set_up(task.log_level)
    with socket.socket(fileno=task.socket) as listening:
        serve_socket(listening, task.url, task.settings)


if __name__ == "__main__":
    main()
