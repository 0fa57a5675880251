"""The elements of a JSON array or of JSON Lines, one at a time, in bounded memory.

A parser that builds the whole document would need several times the size of the file. Here the text is only cut into
elements, by its quotes and brackets, and each element is decoded on its own. A long element waits for its end on disk,
so that one above the source's `element_bytes` is reported and skipped in little memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from io import BytesIO
from tempfile import SpooledTemporaryFile
from typing import IO, Any, Self, cast

from msgspec import DecodeError, Struct, json

from hansard.importers.report import ImportReport
from hansard.importers.source import ImportSource

_decode = json.Decoder().decode
_decode_lines = json.Decoder().decode_lines
BLOCK = 1 << 20
"""Bytes of lines that are read at once."""
ARRAY_BLOCK = 4 << 20
"""Bytes of an array that are read at once. An element that spans two blocks costs several times as much."""
BOM = b"\xef\xbb\xbf"
_IN_MEMORY = 16 << 20
"""Bytes of an unfinished element that are held in memory; more are held on disk."""

_IN_TEXT = re.compile(rb'["\\]')
_TO_BRACKET = re.compile(rb'(?s)(?:[^"\[\]{}]++|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+[\[\]{}]')
"""Everything up to a bracket, with whole texts. It matches nothing where a text does not end in the block."""
_NEXT_OBJECT = re.compile(rb"}\s*,\s*{")
_NESTED = 8
"""How deep a value may be nested for `_VALUE`."""


def _nested(depth: int) -> str:
    inside = f"|{_nested(depth - 1)}" if depth else ""
    return rf'''[\[{{](?:[^"\[\]{{}}]++|"[^"\\]*+(?:\\.[^"\\]*+)*+"{inside})*+[\]}}]'''


_VALUE = re.compile(_nested(_NESTED).encode(), re.DOTALL)
"""An object or an array from its first bracket to its last. It matches nothing that does not end in the block."""


class Element(Struct, frozen=True):
    """A decoded element, or why it could not be decoded."""

    number: int
    """Counted from 1: its place in the array, or its line."""
    value: Any = None
    problem: str | None = None
    line: bytes = b""
    """The line as it is in the file, of JSON Lines."""


def array_elements(file: IO[bytes], most_bytes: int | None = None) -> Iterator[Element]:
    """The elements of a file that holds one JSON array. A single object counts as an array of one."""
    for number, (text, value) in enumerate(_Splitter(file, most_bytes or _most_bytes(file)).elements(), 1):
        yield Element(number, value) if value is not None else _element(number, text)


def _most_bytes(file: IO[bytes]) -> int:
    """What the source of a file allows for one element."""
    return int(getattr(file, "element_bytes", ImportSource.element_bytes))


def lines(file: IO[bytes], most_bytes: int | None = None, *, blank: bool = False) -> Iterator[Element]:
    """The values of JSON Lines. Empty lines are skipped, or have the value None if `blank` is true."""
    most_bytes = most_bytes or _most_bytes(file)
    first = 1
    for block in _line_blocks(*_first_block(file, min(BLOCK, most_bytes + 1)), most_bytes):
        if block is None:
            yield Element(first, problem=f"the line is longer than {most_bytes:,} bytes")
            first += 1
            continue
        split = BytesIO(block).readlines()
        values = _objects_of_lines(block, len(split)) if len(block) <= most_bytes else None
        if values is not None:
            for number, (line, value) in enumerate(zip(split, values, strict=True), first):
                yield Element(number, value, None, line)
        else:
            yield from _line_by_line(split, first, most_bytes, blank=blank)
        first += len(split)


def _line_by_line(split: list[bytes], first: int, most_bytes: int, *, blank: bool) -> Iterator[Element]:
    for number, line in enumerate(split, first):
        if len(line) > most_bytes:
            yield Element(number, problem=f"the line is longer than {most_bytes:,} bytes")
        elif line.strip():
            yield _element(number, line, line)
        elif blank:
            yield Element(number, line=line)


def _objects_of_lines(block: bytes, count: int) -> list[dict[str, Any]] | None:
    """Returns the objects of so many lines, if each line is one object, as in most files; decoded at once.

    A value cannot contain `}`, a newline and `{` in a row. If there is nothing else between the lines, each line begins
    a value and ends one, so that as many values as lines are one in each.
    """
    if not (block.startswith(b"{") and block.endswith(b"}\n") and block.count(b"}\n{") == count - 1):
        return None
    try:
        values = _decode_lines(block)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return values if len(values) == count else None


def _line_blocks(block: bytes, file: IO[bytes], most_bytes: int) -> Iterator[bytes | None]:
    """Yields lines, many at a time, beginning with those of the given block; None for one that is too long."""
    with _Held(most_bytes) as held:
        while block:
            start = 0
            if held.size and (start := block.find(b"\n") + 1):
                held.add(block[:start])
                yield held.take()
            end = block.rfind(b"\n") + 1
            if end > start:
                yield block[start:end]
            held.add(block[end:])
            if held.size <= most_bytes:
                block = file.read(BLOCK)
            else:
                yield held.take()
                block = _after_newline(file)
        if held.size:
            yield held.take()


def _after_newline(file: IO[bytes]) -> bytes:
    """Skips the rest of a line, and returns some of what follows it."""
    while block := file.read(BLOCK):
        if end := block.find(b"\n") + 1:
            return block[end:] or file.read(BLOCK)
    return b""


class _Held:
    """The pieces of an element that has not ended. Of one that is too long, only the size is known."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self.size = 0

    def __enter__(self) -> Self:
        self._file = SpooledTemporaryFile(_IN_MEMORY, prefix="hansard-import-")
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def add(self, piece: bytes) -> None:
        self.size += len(piece)
        if self.size <= self._most:
            self._file.write(piece)

    def take(self) -> bytes | None:
        """Returns the element, None if it is too long, and makes room for the next one."""
        size, self.size = self.size, 0
        self._file.seek(0)
        text = self._file.read(size) if size <= self._most else None
        self._file.seek(0)
        return text


def _first_block(file: IO[bytes], size: int) -> tuple[bytes, IO[bytes]]:
    """Returns the beginning, and the file to read the rest from, whose lines may end with carriage returns."""
    block = file.read(size)
    if block.endswith(b"\r"):
        block += file.read(1)  # a newline may follow
    if b"\r" in block and b"\n" not in block and _end_lines(block):
        file = cast(IO[bytes], _CarriageReturns(file))
        block = block.replace(b"\r", b"\n")
    return block, file


def _end_lines(block: bytes) -> bool:
    """Returns whether the carriage returns in the first block end lines. In a long line, they may be between values."""
    lines = [line for line in block.split(b"\r")[:-1] if line.lstrip()[:1] in (b"{", b"[")]
    return len(block) < BLOCK or any(_element(0, line).problem is None for line in lines)


class _CarriageReturns:
    """A file whose lines end with carriage returns, as on old Macs, read as if they ended with newlines."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def read(self, size: int) -> bytes:
        return self._file.read(size).replace(b"\r", b"\n")


def array_objects(
    source: ImportSource, name: str, report: ImportReport, what: str = "conversation"
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of an array in a file of a source, each with its place. Everything else is reported."""
    with source.open(name) as file:
        yield from objects(array_elements(file), f"{name}, {what}", report)


def objects(elements: Iterator[Element], where: str, report: ImportReport) -> Iterator[tuple[str, dict[str, Any]]]:
    for element in elements:
        place = f"{where} {element.number}"
        if element.problem or not isinstance(element.value, dict):
            report.complain(place, element.problem or "it is not an object")
        else:
            yield place, element.value


def _element(number: int, text: bytes | None, line: bytes = b"") -> Element:
    if text is None:
        return Element(number, problem="it is too large to be read")
    try:
        return Element(number, _decode(text.removeprefix(BOM)), None, line)
    except UnicodeDecodeError:
        problem = "it is not UTF-8: convert the file first, as with `iconv -f LATIN1 -t UTF-8`"
        return Element(number, problem=problem, line=line)
    except (DecodeError, RecursionError) as error:
        return Element(number, problem=f"it is not JSON: {error}", line=line)


class _Splitter:
    """Cuts the text of an array at the commas between its elements."""

    def __init__(self, file: IO[bytes], most_bytes: int) -> None:
        self._file = file
        self._most = most_bytes
        self._depth = 0
        self._in_text = False
        self._skip = False
        """The next byte follows a backslash."""
        self._at = 0
        """Up to where the block was looked at."""
        self._is_flat = True
        """Whether the elements so far contain no `}, {`."""

    def elements(self) -> Iterator[tuple[bytes | None, dict[str, Any] | None]]:
        """The text of each element that is an object or an array, None for one that is too large; or its value."""
        with _Held(self._most) as held:
            yield from self._elements(held)

    def _elements(self, held: _Held) -> Iterator[tuple[bytes | None, dict[str, Any] | None]]:
        base: int | None = None
        while block := self._file.read(ARRAY_BLOCK):
            start = 0
            for at in self._brackets(block):
                if base is None:
                    base = 1 if block[at] == ord("[") else 0
                    if base:
                        self._depth, start = 1, at + 1
                        continue
                opens = block[at] in b"[{"
                if opens and self._depth == base:
                    start = at
                    if base and self._is_flat and (value := self._quick_value(block, at)) is not None:
                        yield b"", value
                        continue
                    if found := _VALUE.match(block, at):
                        self._at = start = found.end()
                        yield (found.group() if start - at <= self._most else None), None
                        continue
                self._depth += 1 if opens else -1
                if not opens and self._depth == base:
                    held.add(block[start : at + 1])
                    start = at + 1
                    yield held.take(), None
                elif self._depth < base:
                    return
            if base is not None and self._depth > base:
                held.add(block[start:])
        if held.size or self._depth > (base or 0):
            text = held.take()
            yield (b"[" if text == b"" else text), None

    def _quick_value(self, block: bytes, at: int) -> dict[str, Any] | None:
        """The object that begins here, if it ends before the next `}, {`. In many files all do."""
        found = _NEXT_OBJECT.search(block, at)
        if found is None or found.start() + 1 - at > self._most:
            return None
        try:
            value: dict[str, Any] = json.decode(block[at : found.start() + 1])
        except (DecodeError, UnicodeDecodeError, RecursionError):
            self._is_flat = False
            return None  # it is longer, or damaged: the brackets tell
        self._at = found.start() + 1
        return value

    def _brackets(self, block: bytes) -> Iterator[int]:
        """Where brackets are that are not inside a text."""
        self._at = 1 if self._skip else 0
        self._skip = False
        while True:
            while not self._in_text and (bracket := _TO_BRACKET.match(block, self._at)):
                self._at = bracket.end()
                yield self._at - 1
            found = _IN_TEXT.search(block, self._at)
            if found is None:
                return
            self._at = found.end()
            if found.group() == b'"':
                self._in_text = not self._in_text
            else:
                self._at += 1
                self._skip = self._at > len(block)
