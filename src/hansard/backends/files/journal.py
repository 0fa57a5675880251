"""A journal as one process knows it: what was read of it, and how to read and write on."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Generic

from hansard.backends.files import disk, lines
from hansard.backends.files.disk import Disk
from hansard.backends.files.lines import R


class Known(Generic[R]):
    """The state of a journal, as far as it was read."""

    def __init__(self, fresh: Callable[[], R]) -> None:
        self._fresh = fresh
        self.state = fresh()
        self.mutex = threading.Lock()
        """Held while the state is looked at or changed; never while anybody waits for the disk."""

    def read_on(self, fd: int, path: Path) -> R:
        with self.mutex:
            self.state = lines.catch_up(fd, self.state, self._fresh, path)
            return self.state

    def reset(self) -> None:
        """There is no such file any longer."""
        with self.mutex:
            self.state = self._fresh()

    # For whoever holds the journal's lock

    def mend(self, fd: int, path: Path, writes: Disk) -> R:
        """Reads on, and takes away a torn tail: what was cut off was never acknowledged."""
        state = self.read_on(fd, path)
        if os.fstat(fd).st_size > state.spot.size:
            writes.cut(fd, state.spot.size)
        return state

    def append(self, fd: int, path: Path, writes: Disk, body: bytes) -> None:
        """One more line, from a JSON object."""
        state = self.state
        at = state.spot.size
        line = lines.seal(body, state.spot.lines + 1)
        writes.append(fd, at, line)
        with self.mutex:
            if self.state is state and state.spot.size == at and state.spot.inode:
                lines.take(state, line, path)
                return
        # A reader was faster, or the file is new.
        self.read_on(fd, path)

    def replace(self, path: Path, writes: Disk, content: Iterable[bytes], state: R | None = None) -> int:
        """The journal anew. `state` is what reading it would give, if that is known. Gives the new open file."""
        writes.replace(path, content)
        fd = os.open(path, disk.UPDATE)
        if state is None:
            self.read_on(fd, path)
            return fd
        state.spot.inode = os.fstat(fd).st_ino
        with self.mutex:
            self.state = state
        return fd


def sealed(bodies: Iterable[bytes]) -> Iterable[bytes]:
    """The lines of a whole journal."""
    return (lines.seal(body, number) for number, body in enumerate(bodies, 1))
