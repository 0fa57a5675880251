"""How far each transcript was stored: records of the store, from which a collector goes on that starts again."""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path

import msgspec
from msgspec import Struct

from hansard.importers.transcript_file import SessionState
from hansard.store import Store

_CHECKED = 1024
"""Bytes before the offset that must be the same, or else the file is another one."""


class FileState(Struct, frozen=True, omit_defaults=True):
    """What was stored of a file."""

    path: str
    device: int
    inode: int
    modified: int
    """Nanoseconds, of the file when it was read."""
    size: int
    offset: int = 0
    """The end of the last line that was stored."""
    check: str = ""
    """The hash of the bytes before the offset."""
    numbers: int = 0
    """Lines before the offset."""
    lines: int = 0
    """Lines that the store keeps: more than `numbers` if the file was written anew."""
    session: SessionState = SessionState()
    title: str | None = None
    """The title that the collector has set."""
    is_refused: bool = False
    """The conversation was deleted from the store, and stays deleted."""

    def is_same(self, now: os.stat_result) -> bool:
        return (self.device, self.inode, self.size, self.modified) == (
            now.st_dev,
            now.st_ino,
            now.st_size,
            now.st_mtime_ns,
        )

    def is_grown(self, path: Path, now: os.stat_result) -> bool:
        """Whether the file has only grown. Reads the last bytes before the offset, not the whole file."""
        is_file = (self.device, self.inode) == (now.st_dev, now.st_ino)
        return is_file and 0 < self.offset <= now.st_size and check_of(path, self.offset) == self.check


def check_of(path: Path, offset: int) -> str:
    with path.open("rb") as file:
        file.seek(max(0, offset - _CHECKED))
        return hashlib.sha256(file.read(min(offset, _CHECKED))).hexdigest()[:32]


class FileStates:
    """The states of all files on this machine, in the view of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._namespace = ("collector", socket.gethostname() or "localhost")
        self._states: dict[str, FileState] = {}

    async def load(self) -> None:
        async for record in self._store.records.iter(self._namespace, exact=True):
            state = msgspec.convert(record.value, FileState)
            self._states[state.path] = state

    def get(self, path: Path) -> FileState | None:
        return self._states.get(str(path))

    async def put(self, state: FileState) -> None:
        key = hashlib.sha256(os.fsencode(state.path)).hexdigest()
        await self._store.records.put(self._namespace, key, msgspec.to_builtins(state))
        self._states[state.path] = state
