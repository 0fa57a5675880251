"""A journal as one process knows it: what was read of it, and how to read and write on."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Generic

from hansard.backends.files import line_format
from hansard.backends.files.disk import Disk
from hansard.backends.files.line_format import R


class JournalReader(Generic[R]):
    """The state of a journal, as far as it was read."""

    def __init__(self, fresh: Callable[[], R]) -> None:
        self._fresh = fresh
        self.state = fresh()
        self.mutex = threading.Lock()
        """Held while the state is looked at or changed; never while a write waits for the disk."""

    def read_on(self, fd: int, path: Path) -> R:
        with self.mutex:
            try:
                self.state = line_format.catch_up(fd, self.state, self._fresh, path)
            except BaseException:
                # It may have taken in half a line.
                self.state = self._fresh()
                raise
            return self.state

    def reset(self) -> R:
        """There is no such file any longer."""
        with self.mutex:
            self.state = self._fresh()
            return self.state

    # For whoever holds the journal's lock. They keep the state that fits their open file: a reader that still has an
    # older file open may put another one here.

    def mend(self, fd: int, path: Path, writes: Disk) -> R:
        """Reads on, and takes away a torn tail: what was cut off was never acknowledged."""
        state = self.read_on(fd, path)
        if os.fstat(fd).st_size > state.position.size:
            writes.cut(fd, state.position.size)
        return state

    def append(self, fd: int, path: Path, writes: Disk, body: bytes, state: R) -> R:
        """One more line, from a JSON object. Gives the state with it."""
        at = state.position.size
        line = line_format.seal(body, state.position.lines + 1)
        writes.append(fd, at, line)
        with self.mutex:
            if self.state is state and state.position.size == at and state.position.inode:
                line_format.take(state, line, path)
                return state
        # A reader was faster, or the file is new.
        return self.read_on(fd, path)

    def replace(self, path: Path, writes: Disk, content: Iterable[bytes], state: R | None = None) -> tuple[int, R]:
        """The journal anew. `state` is what reading it would give, if that is known. Gives the new open file, too."""
        fd = writes.replace_open(path, content)
        if state is None:
            return fd, self.read_on(fd, path)
        state.position.inode = line_format.inode_of(os.fstat(fd))
        with self.mutex:
            self.state = state
        return fd, state


def sealed(bodies: Iterable[bytes]) -> Iterable[bytes]:
    """The lines of a whole journal."""
    return (line_format.seal(body, number) for number, body in enumerate(bodies, 1))
