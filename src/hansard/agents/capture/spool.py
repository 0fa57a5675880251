"""Messages that could not be stored, on disk until they can.

The spool is a folder of JSON Lines, with a line for each message in the state that is to be stored; a line is on the
disk before `add` returns. A process writes files of its own and holds a lock on them, so another process can take over
the files of a dead one, but never of a living one. File names begin with a hash of tenant and user, and each line names
them, so a replay never crosses the wall of a view.

A line that its writer did not finish was never acknowledged, and is skipped. A damaged line is moved to a file
`….corrupt`, and reported.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from hansard import ids
from hansard.model import Message
from hansard.store import checks

logger = logging.getLogger("hansard.capture")

SUFFIX = ".spool"
_MOST = 100_000_000


class SpoolView(Struct, frozen=True):
    """The view through which messages were written."""

    tenant: str
    user: str | None = None

    @property
    def name(self) -> str:
        return hashlib.sha256(f"{self.tenant}\0{self.user or ''}\0{self.user is None}".encode()).hexdigest()[:16]


class SpooledMessage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message to be stored in a conversation."""

    conversation_id: str
    message: Message
    user_id: str | None = None
    agent_id: str | None = None
    branch: str | None = None


class _Line(Struct, frozen=True, omit_defaults=True):
    view: SpoolView
    entry: SpooledMessage


class SpooledFile(Struct, frozen=True):
    """A file of the spool, to be replayed from its beginning and then removed."""

    path: Path
    entries: list[SpooledMessage]


class _OpenSpoolFile:
    """A file that this process holds."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self.fd = fd

    def append(self, line: bytes) -> None:
        """Writes the whole line to the disk; or nothing, with an `OSError`."""
        before = os.fstat(self.fd).st_size
        try:
            left = memoryview(line)
            while left:
                left = left[os.write(self.fd, left) :]
            os.fsync(self.fd)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self.fd, before)
            raise

    def close(self) -> None:
        os.close(self.fd)


class Spool:
    """A folder for messages that could not be stored. Safe for threads and for several processes."""

    def __init__(self, folder: str | os.PathLike[str], *, max_bytes: int = _MOST) -> None:
        self.folder = Path(folder)
        self.max_bytes = checks.count(max_bytes, "max_bytes")
        self._lock = threading.Lock()
        self._writing: dict[str, _OpenSpoolFile] = {}
        """The file that is being written, by view."""
        self._held: dict[Path, _OpenSpoolFile] = {}
        """Our files that wait to be replayed."""

    def add(self, view: SpoolView, entry: SpooledMessage) -> None:
        """Writes an entry. `OSError` if the disk or the spool is full, or the folder cannot be written."""
        line = msgspec.json.encode(_Line(view, entry)) + b"\n"
        with self._lock:
            if self._bytes() + len(line) > self.max_bytes:
                raise OSError(errno.ENOSPC, f"the spool is full: max_bytes is {self.max_bytes:,}", str(self.folder))
            file = self._writing.get(view.name) or self._create(view)
            file.append(line)

    def is_waiting(self, view: SpoolView) -> bool:
        """Whether this process has files to replay: its own, or those of a dead process."""
        with self._lock:
            return view.name in self._writing or any(path.name.startswith(view.name) for path in self._held)

    def take(self, view: SpoolView) -> Iterator[SpooledFile]:
        """Yields the waiting files, oldest first. Call `done` for each that was replayed; others come again later."""
        with self._lock:
            if (file := self._writing.pop(view.name, None)) is not None:
                self._held[file.path] = file
            paths = sorted(self._paths(view))
        for path in paths:
            with self._lock:
                is_ours = path in self._held or self._take_over(path)
            if is_ours:
                yield SpooledFile(path, self._entries(path, view))

    def done(self, batch: SpooledFile) -> None:
        """Removes the file: its messages are stored."""
        with self._lock:
            file = self._held.pop(batch.path)
            batch.path.unlink(missing_ok=True)
            file.close()

    def close(self) -> None:
        """Releases the files; their messages wait for the next process."""
        with self._lock:
            for file in (*self._writing.values(), *self._held.values()):
                file.close()
            self._writing.clear()
            self._held.clear()

    # Files

    def _paths(self, view: SpoolView) -> Iterator[Path]:
        return (path for path in self.folder.glob(f"{view.name}-*{SUFFIX}") if _size(path))

    def _bytes(self) -> int:
        return sum(self.sizes)

    @property
    def sizes(self) -> list[int]:
        """The bytes of each file with messages that wait to be stored, of all processes."""
        return [size for path in self.folder.glob(f"*{SUFFIX}") if (size := _size(path))]

    def _create(self, view: SpoolView) -> _OpenSpoolFile:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{ids.new_id(view.name + '-')}{SUFFIX}"
        file = _OpenSpoolFile(path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600))
        fcntl.flock(file.fd, fcntl.LOCK_EX)
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        self._writing[view.name] = file
        return file

    def _take_over(self, path: Path) -> bool:
        """Takes a file whose writer has died; not one of a living process."""
        try:
            fd = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Another process may have replayed and removed it while we waited for the lock.
            is_there = path.exists() and os.path.samestat(path.stat(), os.fstat(fd))
        except OSError:
            is_there = False
        if is_there:
            self._held[path] = _OpenSpoolFile(path, fd)
        else:
            os.close(fd)
        return is_there

    def _entries(self, path: Path, view: SpoolView) -> list[SpooledMessage]:
        *lines, unfinished = path.read_bytes().split(b"\n")
        if unfinished:
            logger.warning("the last line of %s was not finished by its writer, and is skipped", path)
        entries = []
        for line in lines:
            try:
                found = msgspec.json.decode(line, type=_Line)
                if found.view != view:
                    raise msgspec.ValidationError("it belongs to another view")
                entries.append(found.entry)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                logger.error("a line of %s is damaged, and was moved to a .corrupt file: %s", path, error)
                with path.with_suffix(".corrupt").open("ab") as aside:
                    aside.write(line + b"\n")
        return entries


def _size(path: Path) -> int:
    """Returns its size; 0 if another process has replayed and removed it since it was listed."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
