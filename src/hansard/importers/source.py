"""A file, a folder or a zip file that is imported: read-only, bounded, and never outside of itself."""

from __future__ import annotations

import os
import sqlite3
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import IO, cast

from hansard.errors import NotFound, ValidationError
from hansard.importers.database import ForeignDatabase, PostgresDatabase, SqliteDatabase, sqlite_file
from hansard.urls import shown

HEAD = 64 << 10
"""Bytes that an importer looks at to recognise a file."""
_MOST_RATIO = 200
"""Unpacked to packed bytes of a zip's member: JSON packs to a tenth, a bomb to a thousandth."""
_MOST_FREE = 64 << 20
"""Bytes that a member may have whatever its ratio is."""

_MOST_FILES = 500_000
"""Files of a folder. More are a disk, not an export."""
_SERVERS = ("postgresql", "postgres", "redis", "rediss")

Move = Callable[[int], None]
"""Called with how many bytes were read, for a progress bar."""


class ImportSource(ABC):
    """Named files. A single file is a source of one, and a database on a server of none."""

    is_trusted = True
    """False for what somebody else has uploaded: no code of its choosing may run, whatever its format allows."""
    element_bytes = 256 << 20
    """The largest piece that is decoded as a whole: larger than any conversation, smaller than memory."""

    def __init__(self, path: Path | str) -> None:
        self.path = path
        self.moved: Move = lambda _: None

    @abstractmethod
    def names(self) -> list[str]:
        """All files, sorted; with `/` between folders."""

    @abstractmethod
    def size(self, name: str) -> int: ...

    @abstractmethod
    def _open(self, name: str) -> IO[bytes]: ...

    @abstractmethod
    def local_path(self, name: str) -> Path:
        """Where the file is on this machine, for readers that need a path. A zip's member is unpacked first."""

    def close(self) -> None:  # noqa: B027  (most sources have nothing to close)
        """Removes what was unpacked."""

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        with self._open(name) as file:
            yield cast(IO[bytes], _Watched(file, self.moved, self.element_bytes))

    def head(self, name: str) -> bytes:
        with self._open(name) as file:
            return file.read(HEAD)

    def named(self, *endings: str) -> list[str]:
        """The files whose last names end so."""
        return [name for name in self.names() if PurePosixPath(name).name.lower().endswith(endings)]

    @contextmanager
    def database(self, name: str) -> Iterator[sqlite3.Connection]:
        """A SQLite file, which is only read, with limits."""
        with sqlite_file(self.local_path(name)) as connection:
            yield connection

    def is_database(self, name: str) -> bool:
        return self.head(name).startswith(b"SQLite format 3\x00")

    @contextmanager
    def tables(self) -> Iterator[ForeignDatabase | None]:
        """The database that the source consists of; None if it is something else."""
        names = self.names()
        if len(names) == 1 and self.is_database(names[0]):
            with self.database(names[0]) as connection:
                yield SqliteDatabase(connection)
        else:
            yield None

    def has_table(self, table: str, *columns: str) -> bool:
        """Whether the source is a database that has this table with these columns."""
        with self.tables() as database:
            return database is not None and set(columns) <= database.columns(table)


def open_source(path: str | Path) -> ImportSource:
    """The source at a path: a folder, a zip file, or any other file. The URL of a server is a source too."""
    if isinstance(path, str) and "://" in path:
        return ServerSource(path)
    path = Path(path)
    if path.is_dir():
        return FolderSource(path)
    if not path.is_file():
        raise NotFound(
            f"there is no file or folder {path}" if not path.exists() else f"{path} is no file: save it first"
        )
    return ZipSource(path) if zipfile.is_zipfile(path) else FileSource(path)


class ServerSource(ImportSource):
    """A PostgreSQL or Redis server, by its URL. It has no files."""

    def __init__(self, url: str) -> None:
        super().__init__(shown(url))
        self.url = url
        self.scheme = url.partition(":")[0].lower()
        if self.scheme not in _SERVERS:
            raise ValidationError(f"cannot import from {self.path}: a file, or a URL with {', '.join(_SERVERS)}")

    def names(self) -> list[str]:
        return []

    def size(self, name: str) -> int:
        raise NotFound(f"{self.path} has no file {name!r}")

    def _open(self, name: str) -> IO[bytes]:
        raise NotFound(f"{self.path} has no file {name!r}")

    def local_path(self, name: str) -> Path:
        raise NotFound(f"{self.path} has no file {name!r}")

    @contextmanager
    def tables(self) -> Iterator[ForeignDatabase | None]:
        if not self.scheme.startswith("postgres"):
            yield None
            return
        database = PostgresDatabase(self.url)
        try:
            yield database
        finally:
            database.close()


class _PathSource(ImportSource):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.path: Path = path


class FileSource(_PathSource):
    def names(self) -> list[str]:
        return [self.path.name]

    def size(self, name: str) -> int:
        return self.path.stat().st_size

    def _open(self, name: str) -> IO[bytes]:
        return self.path.open("rb")

    def local_path(self, name: str) -> Path:
        return self.path


class FolderSource(_PathSource):
    """A folder with all below it. Links are not followed."""

    def names(self) -> list[str]:
        return self._names

    @cached_property
    def _names(self) -> list[str]:
        found: list[str] = []
        folders = [""]
        while folders:
            folder = folders.pop()
            with os.scandir(self.path / folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(f"{folder}{entry.name}/")
                    elif entry.is_file(follow_symlinks=False):
                        found.append(f"{folder}{entry.name}")
            if len(found) > _MOST_FILES:
                raise ValidationError(f"{self.path} has more than {_MOST_FILES:,} files: pass the folder of the export")
        return sorted(found)

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self._names)

    @cached_property
    def _root(self) -> Path:
        return self.path.resolve()

    def size(self, name: str) -> int:
        return self.local_path(name).stat().st_size

    def _open(self, name: str) -> IO[bytes]:
        return self.local_path(name).open("rb")

    def local_path(self, name: str) -> Path:
        if name in self._known:
            return self.path / name
        path = (self.path / name).resolve()
        if not path.is_relative_to(self._root):
            raise ValidationError(f"{name!r} is outside of {self.path}")
        return path


_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError)
"""What Python raises for members that are damaged, or packed by a method that it does not know."""


class ZipSource(_PathSource):
    """A zip file. Members whose names climb out, that are encrypted or unpack to far too much are refused."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        try:
            self._zip = zipfile.ZipFile(path)
        except zipfile.BadZipFile as error:
            raise ValidationError(f"{path} is a damaged zip file: {error}") from error
        self._members = {each.filename: each for each in self._zip.infolist() if not each.is_dir()}
        self._folder: TemporaryDirectory[str] | None = None
        for member in self._zip.infolist():
            if member.is_dir():
                continue
            _refuse_bad_member(path, member)
            if self._members[member.filename] is not member:
                raise ValidationError(f"{path} holds {member.filename!r} twice: it is damaged, or was made to mislead")

    def names(self) -> list[str]:
        return sorted(self._members)

    def size(self, name: str) -> int:
        return self._members[name].file_size

    def _open(self, name: str) -> IO[bytes]:
        try:
            file = self._zip.open(self._members[name])
        except _DAMAGED as error:
            raise ValidationError(f"{name!r} in the zip file cannot be read: {error}") from error
        return cast(IO[bytes], _Bounded(file, self.size(name), name))

    def local_path(self, name: str) -> Path:
        if self._folder is None:
            self._folder = TemporaryDirectory(prefix="hansard-import-")
        path = Path(self._folder.name) / f"{sorted(self._members).index(name)}{PurePosixPath(name).suffix}"
        if not path.exists():
            with self._open(name) as packed, path.open("wb") as file:
                while block := packed.read(1 << 20):
                    file.write(block)
        return path

    def close(self) -> None:
        self._zip.close()
        if self._folder is not None:
            self._folder.cleanup()


def _refuse_bad_member(path: Path, member: zipfile.ZipInfo) -> None:
    parts = PurePosixPath(member.filename.replace("\\", "/")).parts
    if not parts or ".." in parts or member.filename.startswith(("/", "\\")) or ":" in parts[0]:
        raise ValidationError(f"{path} holds {member.filename!r}, whose name leads out of the zip file")
    if member.flag_bits & 1:
        raise ValidationError(f"{path} is encrypted ({member.filename!r}): unpack it first, and import the folder")
    if member.file_size > max(_MOST_FREE, _MOST_RATIO * member.compress_size):
        raise ValidationError(
            f"{path} holds {member.filename!r}, which would unpack from {member.compress_size:,} "
            f"to {member.file_size:,} bytes: unpack it yourself if you trust it, and import the folder"
        )


class _Watched:
    """A file that reports how much of it was read."""

    def __init__(self, file: IO[bytes], moved: Move, element_bytes: int) -> None:
        self._file = file
        self._moved = moved
        self.element_bytes = element_bytes

    def read(self, size: int = -1) -> bytes:
        block = self._file.read(size)
        self._moved(len(block))
        return block

    def readline(self, size: int = -1) -> bytes:
        line = self._file.readline(size)
        self._moved(len(line))
        return line

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.readline, b"")


class _Bounded:
    """A member of a zip file, which may lie about its size."""

    def __init__(self, file: IO[bytes], size: int, name: str) -> None:
        self._file = file
        self._left = size
        self._name = name

    def read(self, size: int = -1) -> bytes:
        return self._counted(self._file.read, size)

    def readline(self, size: int = -1) -> bytes:
        return self._counted(self._file.readline, size)

    def _counted(self, read: Callable[[int], bytes], size: int) -> bytes:
        try:
            block = read(size if size >= 0 else self._left + 1)
        except _DAMAGED as error:
            raise ValidationError(f"{self._name!r} in the zip file is damaged: {error}") from error
        self._left -= len(block)
        if self._left < 0:
            raise ValidationError(f"{self._name!r} unpacks to more bytes than the zip file says")
        return block

    def __enter__(self) -> _Bounded:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()
