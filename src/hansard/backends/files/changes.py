"""Which conversations have changed, so that others need not look at every journal.

Before a writer touches a journal it adds `-name` to one log, and after it `+name`. Whoever keeps a catalogue reads the
log on from where it was: what has a minus without its plus may be changing still, or its writer has died, and is looked
at each time. When the log is lost or replaced by another, every journal's size and time are looked at once.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path

from hansard.backends.files import disk
from hansard.backends.files.locks import is_at
from hansard.backends.files.names import is_name

_TOKEN_LENGTH = 17
_LONGEST = 1 << 20


class Changes:
    """The log as its writers see it."""

    def __init__(self, path: Path, writes: disk.Disk) -> None:
        self._path = path
        # Nobody needs this log after a crash of the machine: it need not wait for the disk.
        self._disk = disk.Disk(durable=False)
        self._make_folder = writes.make_folder

    @contextlib.contextmanager
    def announced(self, name: str) -> Iterator[None]:
        """Everything that a writer does to the journal of that name."""
        # Each begins a line of its own, even after one that a full disk cut short.
        self._add(b"\n-%b\n" % name.encode())
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                self._add(b"\n+%b\n" % name.encode())

    def _add(self, line: bytes) -> None:
        while True:
            try:
                with disk.opened(self._path, disk.LOG) as fd:
                    if os.write(fd, line) < len(line):
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
                    # In a log that was just replaced nobody would see it.
                    if is_at(fd, self._path):
                        return
            except FileNotFoundError:
                self._make_folder(self._path.parent)
                self._begin(())

    def ensure(self) -> None:
        """There is a log, unless nobody may write here."""
        home = self._path.parent.parent
        if home.is_dir() and not self._path.exists():
            with contextlib.suppress(OSError):
                self._make_folder(self._path.parent, within=home)
                self._begin(())

    def renew(self, unsettled: Iterable[str]) -> None:
        with contextlib.suppress(OSError):
            self._begin(unsettled)

    def _begin(self, unsettled: Iterable[str]) -> None:
        """A new log, which begins with what has no plus yet. Everybody notices that it is another one."""
        token = secrets.token_hex(8)
        self._disk.replace(self._path, ["\n".join([token, *(f"-{name}" for name in unsettled), ""]).encode()])


class Reader:
    """How far somebody has read the log, and what had no plus there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._token = b""
        self._offset = 0
        self.unsettled: set[str] = set()

    @property
    def is_long(self) -> bool:
        return self._offset > _LONGEST

    def read_on(self) -> set[str] | None:
        """The names that came since last time; None when the log is another one: everything may have changed."""
        try:
            with disk.opened(self._path, disk.READ) as fd:
                is_known = self._find_place(fd)
                found = self._read(fd)
        except FileNotFoundError:
            self._token = b""
            return None
        sound = {name for name in found if is_name(name)}
        # A log that was damaged has lost names: then everything may have changed, as when there is none.
        return found if is_known and sound == found else None

    def _find_place(self, fd: int) -> bool:
        token = disk.read(fd, 0, _TOKEN_LENGTH)
        if token == self._token and os.fstat(fd).st_size >= self._offset:
            return True
        self._token, self._offset = token, len(token)
        self.unsettled.clear()
        return False

    def _read(self, fd: int) -> set[str]:
        data = disk.read(fd, self._offset, os.fstat(fd).st_size - self._offset)
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        names = set()
        for line in whole.decode("ascii", "replace").split():
            sign, name = line[0], line[1:]
            names.add(name)
            if sign == "-" and is_name(name):
                self.unsettled.add(name)
            else:
                self.unsettled.discard(name)
        return names
