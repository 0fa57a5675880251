"""What the processes of one test run share: a folder, and locks in it.

pytest-xdist runs tests in several processes. The one that began the run makes the folder, and clears it up.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_VARIABLE = "HANSARD_TEST_RUN"
_MEMORY = Path("/dev/shm")
_ROOM = 2 * 1024**3
"""A whole run keeps less than this there. Containers often have only 64 MB, too little for a PostgreSQL."""


def memory() -> Path | None:
    """A folder in memory, where tests need not wait for a disk; None where there is none, or too little room in it."""
    if not os.access(_MEMORY, os.W_OK) or shutil.disk_usage(_MEMORY).free < _ROOM:
        return None
    return _MEMORY


def free() -> int:
    """How many bytes the servers of a run may fill."""
    return shutil.disk_usage(memory() or tempfile.gettempdir()).free


def folder() -> Path:
    """Where the servers of this run live."""
    return Path(os.environ[_VARIABLE])


def begin() -> bool:
    """Makes the folder; False when another process has, and will clear it up."""
    if _VARIABLE in os.environ:
        return False
    home = Path(tempfile.mkdtemp(prefix="hansard-run-", dir=memory()))
    # A server that runs as somebody else has to find its own folder in it.
    home.chmod(0o755)
    os.environ[_VARIABLE] = str(home)
    return True


def end() -> None:
    shutil.rmtree(os.environ.pop(_VARIABLE), ignore_errors=True)


_endings: list[Callable[[], object]] = []


def at_end(stop: Callable[[], object]) -> None:
    """What this process has started, and stops before it says that its tests are over; what came last goes first.

    Not when the process itself ends: pytest-xdist waits for that only a short time, and kills who is late.
    """
    _endings.append(stop)


def stop_all() -> None:
    while _endings:
        _endings.pop()()


@contextmanager
def lock(name: str) -> Iterator[None]:
    """One process after another."""
    with (folder() / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
