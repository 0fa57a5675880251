"""Writes to disk: complete or not at all, with errors that tell the causes apart.

Everything that this backend writes to disk goes through here, except the index. `durable` says whether a write waits
for the disk. A failed append is cut off again; a whole file is written under a temporary name and renamed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path

from hansard.errors import Denied, Unavailable

try:
    from fcntl import F_FULLFSYNC, fcntl  # type: ignore[attr-defined,unused-ignore]
except ImportError:
    F_FULLFSYNC = fcntl = None  # type: ignore[assignment]

TEMPORARY = ".tmp"

_BINARY: int = getattr(os, "O_BINARY", 0)
READ = os.O_RDONLY | _BINARY
UPDATE = os.O_RDWR | _BINARY
CREATE = os.O_RDWR | os.O_CREAT | _BINARY
MARK = os.O_WRONLY | os.O_CREAT

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
_BUSY = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM, errno.EINTR)


@contextlib.contextmanager
def map_errors() -> Iterator[None]:
    """Turns an OSError into one of our errors. This is the only place that does."""
    try:
        yield
    except OSError as error:
        where = error.filename or "the store's folder"
        if error.errno in _FORBIDDEN:
            raise Denied(f"{where} may not be changed or read: {error.strerror}") from error
        if error.errno in _FULL:
            raise Unavailable(f"the disk is full, nothing was written: {error.strerror} ({where})") from error
        retryable = error.errno in _BUSY
        raise Unavailable(f"{where} cannot be used: {error.strerror or error}", retryable=retryable) from error


def _outcome_unknown(what: str, error: OSError) -> Unavailable:
    return Unavailable(f"{what}: {error.strerror}", retryable=False, outcome="unknown")


def read(fd: int, at: int, length: int) -> bytes:
    """Returns `length` bytes, or fewer at the end of the file."""
    os.lseek(fd, at, os.SEEK_SET)
    data = os.read(fd, length)
    if len(data) == length or not data:
        return data
    parts = [data]
    missing = length - len(data)
    while missing and (data := os.read(fd, missing)):
        parts.append(data)
        missing -= len(data)
    return b"".join(parts)


def prefix(fd: int, size: int) -> Iterator[bytes]:
    """Yields the first `size` bytes of a file in chunks."""
    at = 0
    while at < size and (data := read(fd, at, min(1 << 20, size - at))):
        yield data
        at += len(data)


def _write_all(fd: int, data: bytes | memoryview) -> None:
    written = os.write(fd, data)
    if written < len(data):
        _write_all(fd, memoryview(data)[written:])


@contextlib.contextmanager
def opened(path: Path, flags: int) -> Iterator[int]:
    fd = os.open(path, flags, 0o666)
    try:
        yield fd
    finally:
        os.close(fd)


class Disk:
    """How this store writes: waiting for the disk, or only for the operating system."""

    def __init__(self, *, durable: bool) -> None:
        self.durable = durable

    def sync(self, fd: int) -> None:
        if not self.durable:
            return
        if F_FULLFSYNC is not None:
            fcntl(fd, F_FULLFSYNC)
        elif hasattr(os, "fdatasync"):
            os.fdatasync(fd)
        else:
            os.fsync(fd)

    def sync_folder(self, path: Path) -> None:
        """Makes the names in a folder durable."""
        if not self.durable or os.name == "nt":
            return
        try:
            with opened(path, READ) as fd:
                os.fsync(fd)
        except FileNotFoundError:
            return  # the folder was removed, with all its names
        except OSError as error:
            raise _outcome_unknown(f"the disk does not confirm {path}", error) from error

    def make_folder(self, path: Path, within: Path | None = None) -> None:
        """Creates a folder and its parents up to `within`, which must exist."""
        if path.is_dir():
            return
        if path.parent != within:
            self.make_folder(path.parent, within)
        try:
            path.mkdir()
        except FileExistsError:
            if path.is_symlink() and not path.exists():
                # Not FileNotFoundError, which callers retry: retrying does not help here.
                raise NotADirectoryError(errno.ENOTDIR, "a broken link", str(path)) from None
        self.sync_folder(path.parent)

    def append(self, fd: int, at: int, data: bytes) -> None:
        """Appends at `at`, the end of the file. If anything fails, the file is cut there again."""
        try:
            os.lseek(fd, at, os.SEEK_SET)
            _write_all(fd, data)
            self.sync(fd)
        except BaseException:
            self.cut(fd, at)
            raise

    def cut(self, fd: int, at: int) -> None:
        try:
            os.ftruncate(fd, at)
            self.sync(fd)
        except OSError as error:
            raise _outcome_unknown("a write failed and could not be undone", error) from error

    def replace(self, path: Path, chunks: Iterable[bytes], *, modified: int | None = None) -> None:
        """Replaces a file atomically: readers see the old one or the new one."""
        os.close(self.replace_open(path, chunks, modified=modified))

    def replace_open(self, path: Path, chunks: Iterable[bytes], *, modified: int | None = None) -> int:
        """Like `replace`, but returns the new file open: once it is in place, nothing can fail."""
        temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}{TEMPORARY}")
        fd = os.open(temporary, CREATE | os.O_EXCL, 0o666)
        try:
            with open(fd, "wb", buffering=1 << 20, closefd=False) as file:
                file.writelines(chunks)
            if modified is not None:
                os.utime(temporary, ns=(modified, modified))
            self.sync(fd)
            temporary.replace(path)
            self.sync_folder(path.parent)
        except BaseException:
            os.close(fd)
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        return fd

    def move(self, path: Path, target: Path) -> None:
        path.replace(target)
        self.sync_folder(target.parent)
        self.sync_folder(path.parent)

    def remove(self, path: Path) -> bool:
        """Removes a file. Returns whether it existed."""
        try:
            path.unlink()
        except FileNotFoundError:
            return False
        self.sync_folder(path.parent)
        return True
