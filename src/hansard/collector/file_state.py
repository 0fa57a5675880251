"""How far each transcript was stored: records of the store, from which a collector goes on that starts again."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from hansard.errors import NotFound
from hansard.importers.transcript_file import SessionState
from hansard.store import Store

_CHECKED = 1024
"""Bytes before the offset that must be the same, or else the file is another one."""
_RETRY_SECONDS = 0.02


class FileVersion(Struct, frozen=True):
    """A file as it was at a time: if this is equal, the file is the same."""

    device: int
    inode: int
    size: int
    modified: int
    """Nanoseconds."""


def version_of(path: Path) -> FileVersion:
    """The version of a file. What is written to a SQLite file is in its write-ahead log first."""
    now = path.stat()
    size, modified = now.st_size, now.st_mtime_ns
    if path.suffix == ".db" and (log := path.with_name(path.name + "-wal")).exists():
        size, modified = size + log.stat().st_size, max(modified, log.stat().st_mtime_ns)
    return FileVersion(now.st_dev, now.st_ino, size, modified)


class FileState(Struct, frozen=True, omit_defaults=True):
    """What was stored of a file."""

    path: str
    version: FileVersion
    mark: int = 0
    """For files that are not read by lines: what has changed up to this mark is stored."""
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

    def is_grown(self, path: Path, now: FileVersion) -> bool:
        """Whether the file has only grown. Reads the last bytes before the offset, not the whole file."""
        is_file = (self.version.device, self.version.inode) == (now.device, now.inode)
        return is_file and 0 < self.offset <= now.size and check_of(path, self.offset) == self.check


def check_of(path: Path, offset: int) -> str:
    with path.open("rb") as file:
        file.seek(max(0, offset - _CHECKED))
        return hashlib.sha256(file.read(min(offset, _CHECKED))).hexdigest()[:32]


@asynccontextmanager
async def locked(path: Path) -> AsyncIterator[None]:
    """Holds the lock on a transcript, so that of several collectors one stores it at a time.

    Two at once would put the messages after a fork on different branches. The system releases the lock of a process
    that is killed.
    """
    with path.open("rb") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(_RETRY_SECONDS)
        yield


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

    async def refresh(self, path: Path) -> None:
        """Reads the state that another collector may have stored."""
        record = await self._store.records.get(self._namespace, _key(str(path)))
        if record is None:
            self._states.pop(str(path), None)
        else:
            self._states[str(path)] = msgspec.convert(record.value, FileState)

    async def put(self, state: FileState) -> None:
        """Keeps a state. It belongs to its conversation, and is deleted with it."""
        key = _key(state.path)
        self._states[state.path] = state
        value, conversation = msgspec.to_builtins(state), state.session.id or None
        try:
            await self._store.records.put(self._namespace, key, value, conversation_id=conversation)
        except NotFound:
            del self._states[state.path]  # the conversation was deleted at this moment


def _key(path: str) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()
