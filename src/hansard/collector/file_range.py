"""A part of a growing file, as a source for importers: whole lines only, because the last line may be half written."""

from __future__ import annotations

from pathlib import Path
from typing import IO, cast

from hansard.importers.source import ImportSource

_BLOCK = 64 << 10


def end_of_lines(path: Path, start: int, most: int | None = None) -> int:
    """Returns the end of the last whole line after `start`, or `start` if there is none.

    With `most`, of the last one within as many bytes, unless the first line is longer.
    """
    with path.open("rb") as file:
        size = file.seek(0, 2)
        last = size if most is None else min(size, start + most)
        end = last
        while end > start:
            begin = max(start, end - _BLOCK)
            file.seek(begin)
            place = file.read(end - begin).rfind(b"\n")
            if place >= 0:
                return begin + place + 1
            end = begin
    return start if last == size else end_of_lines(path, start)


class FileRange(ImportSource):
    def __init__(self, path: Path, start: int, end: int) -> None:
        super().__init__(path)
        self._file_path = path
        self._start = start
        self._end = end
        self.numbers = 0
        """Lines that were read."""

    def names(self) -> list[str]:
        return [str(self.path)]

    def size(self, name: str) -> int:
        return self._end - self._start

    def _open(self, name: str) -> IO[bytes]:
        return cast(IO[bytes], _Range(self, self._file_path.open("rb"), self._start, self._end))

    def local_path(self, name: str) -> Path:
        return self._file_path


class _Range:
    def __init__(self, source: FileRange, file: IO[bytes], start: int, end: int) -> None:
        self._source = source
        self._file = file
        self._left = end - start
        file.seek(start)

    def read(self, size: int = -1) -> bytes:
        return self._taken(self._file.read(self._left if size < 0 else min(size, self._left)))

    def readline(self, size: int = -1) -> bytes:
        return self._taken(self._file.readline(self._left if size < 0 else min(size, self._left)))

    def _taken(self, block: bytes) -> bytes:
        self._left -= len(block)
        self._source.numbers += block.count(b"\n")
        return block

    def __enter__(self) -> _Range:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()
