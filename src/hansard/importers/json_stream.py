"""The elements of a JSON array or of JSON Lines, one at a time, in bounded memory.

A parser that builds the whole document would need several times the size of the file. Here the text is only cut into
elements, by its quotes and brackets, and each element is decoded on its own. An element above the source's
`element_bytes` is reported and skipped without being held.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from io import BytesIO
from typing import IO, Any, cast

from msgspec import DecodeError, Struct, json

from hansard.importers.report import ImportReport
from hansard.importers.source import ImportSource

_decode = json.Decoder().decode
_decode_lines = json.Decoder().decode_lines
BLOCK = 1 << 20
BOM = b"\xef\xbb\xbf"

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
    for block in _line_blocks(*_first_line(file, most_bytes), most_bytes):
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
        if len(line) > most_bytes or (len(line) == most_bytes and not line.endswith(b"\n")):
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


def _line_blocks(first: bytes, file: IO[bytes], most_bytes: int) -> Iterator[bytes]:
    """Yields the first line and those after it, many at a time; of one that is too long, only its first bytes."""
    held: list[bytes] = []
    """The pieces of a line that has not ended."""
    size = 0
    block = first
    while block:
        if end := block.rfind(b"\n") + 1:
            yield b"".join((*held, block[:end]))
            held, size = [], 0
        held.append(block[end:])
        size += len(block) - end
        if size < most_bytes:
            block = file.read(BLOCK)
        else:
            yield b"".join(held)[:most_bytes]
            held, size = [], 0
            block = _after_newline(file)
    if rest := b"".join(held):
        yield rest


def _after_newline(file: IO[bytes]) -> bytes:
    """Skips the rest of a line, and returns some of what follows it."""
    while block := file.read(BLOCK):
        if end := block.find(b"\n") + 1:
            return block[end:] or file.read(BLOCK)
    return b""


def _first_line(file: IO[bytes], most_bytes: int) -> tuple[bytes, IO[bytes]]:
    """Returns the first line, and the file to read the others from, whose lines may end with carriage returns."""
    line = file.readline(min(BLOCK, most_bytes))
    if line.endswith(b"\r") and len(line) < most_bytes:
        line += file.readline(1)  # a newline may follow
    if b"\n" in line:
        return line, file
    if b"\r" in line and _end_lines(line):
        file = cast(IO[bytes], _CarriageReturns(file, line))
        return file.readline(most_bytes), file
    return line + (file.readline(most_bytes - len(line)) if len(line) < most_bytes else b""), file


def _end_lines(block: bytes) -> bool:
    """Returns whether the carriage returns in the first block end lines. In a long line, they may be between values."""
    lines = [line for line in block.split(b"\r")[:-1] if line.lstrip()[:1] in (b"{", b"[")]
    return len(block) < BLOCK or any(_element(0, line).problem is None for line in lines)


class _CarriageReturns:
    """A file whose lines end with carriage returns, as on old Macs, read as if they ended with newlines."""

    def __init__(self, file: IO[bytes], block: bytes) -> None:
        self._file = file
        self._block = block.replace(b"\r", b"\n")
        self._at = 0

    def read(self, size: int) -> bytes:
        rest, self._block, self._at = self._block[self._at :], b"", 0
        return rest or self._file.read(size).replace(b"\r", b"\n")

    def readline(self, size: int) -> bytes:
        pieces: list[bytes] = []
        while size:
            end = self._block.find(b"\n", self._at, self._at + size) + 1 or min(len(self._block), self._at + size)
            piece = self._block[self._at : end]
            pieces.append(piece)
            self._at = end
            size -= len(piece)
            if piece.endswith(b"\n"):
                break
            if self._at == len(self._block):
                self._block, self._at = self._file.read(BLOCK).replace(b"\r", b"\n"), 0
                if not self._block:
                    break
        return b"".join(pieces)


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
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Element(number, problem=f"it is not JSON: {error}", line=line)


class _Splitter:
    """Cuts the text of an array at the commas between its elements."""

    def __init__(self, file: IO[bytes], most_bytes: int) -> None:
        self._file = file
        self._most = most_bytes
        self._kept: list[bytes] = []
        self._size = 0
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
        base: int | None = None
        while block := self._file.read(BLOCK):
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
                        self._keep(found.group())
                        yield self._take(), None
                        continue
                self._depth += 1 if opens else -1
                if not opens and self._depth == base:
                    self._keep(block[start : at + 1])
                    start = at + 1
                    yield self._take(), None
                elif self._depth < base:
                    return
            if base is not None and self._depth > base:
                self._keep(block[start:])
        if self._kept or self._depth > (base or 0):
            yield b"".join(self._kept) or b"[", None

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

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size <= self._most:
            self._kept.append(piece)
        else:
            self._kept.clear()

    def _take(self) -> bytes | None:
        text = b"".join(self._kept) if self._size <= self._most else None
        self._kept, self._size = [], 0
        return text
