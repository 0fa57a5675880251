"""How texts that stand in the history are kept once: cut out of a serializer's bytes, and put back.

Nothing here interprets those bytes. A long text is looked for anywhere, a short one only as a whole string of msgpack
or of JSON. A message may have thousands of strings: then the bytes are gone through once for all of them.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

_LONG = 64
"""Bytes from which on a text is sure to be one, wherever its bytes stand."""
_FEW = 16
"""Texts that are looked for one by one."""
_WORDS = frozenset(
    b"additional_kwargs ai args artifact assistant content developer error example function human id input messages "
    b"name response_metadata role status step success system tool tool_call_id tool_calls type user values".split()
)
"""What serializers write around texts. Whoever says only such a word has told nothing."""
_HEADS = re.compile(rb'[\xa1-\xbf]|\xd9(?=[\x20-\x3f])|"')
"""Where a short string may begin."""

Row = tuple[int, str, int]
"""The seq and the id of a message, and which of its texts."""
Piece = bytes | tuple[int, str, int, int]
"""Bytes; or a message, which of its texts, and the length of that in bytes."""
_Found = tuple[int, int, int]
"""Which text, from where, to where."""

encode: Callable[[Any], bytes] = msgspec.msgpack.Encoder().encode


class Blob(Struct, frozen=True, array_like=True):
    """A value as the serializer wrote it, perhaps with references in place of texts."""

    tag: str
    pieces: tuple[Piece, ...]


class Texts:
    """Texts to cut out, and where each stands. Of two that overlap the longer one is cut."""

    def __init__(self, rows: Mapping[bytes, Row]) -> None:
        texts = sorted((text for text in rows if text and text not in _WORDS), key=len, reverse=True)
        self._rows = [rows[text] for text in texts]
        self._long = {text: which for which, text in enumerate(texts) if len(text) >= _LONG}
        self._short = {text: which for which, text in enumerate(texts) if len(text) < _LONG}

    def cut(self, blob: Blob) -> Blob:
        """The blob with references in place of the texts."""
        return Blob(blob.tag, tuple(part for piece in blob.pieces for part in self._cut(piece)))

    def _cut(self, piece: Piece) -> list[Piece]:
        if not isinstance(piece, bytes):
            return [piece]
        taken: list[tuple[int, int, int]] = []
        for which, first, last in sorted(self._found(piece)):
            at = bisect(taken, (first, last))
            if (at == 0 or taken[at - 1][1] <= first) and (at == len(taken) or last <= taken[at][0]):
                taken.insert(at, (first, last, which))
        parts: list[Piece] = []
        done = 0
        for first, last, which in taken:
            parts += [piece[done:first], (*self._rows[which], last - first)]
            done = last
        return [*parts, piece[done:]]

    def _found(self, piece: bytes) -> Iterator[_Found]:
        yield from _long_by_start(piece, self._long) if len(self._long) > _FEW else _long_by_one(piece, self._long)
        yield from _short_by_head(piece, self._short) if len(self._short) > _FEW else _short_by_one(piece, self._short)


def _long_by_one(piece: bytes, texts: Mapping[bytes, int]) -> Iterator[_Found]:
    for text, which in texts.items():
        for first in _each(piece, text):
            yield which, first, first + len(text)


def _long_by_start(piece: bytes, texts: Mapping[bytes, int]) -> Iterator[_Found]:
    lengths: dict[bytes, set[int]] = {}
    for text in texts:
        lengths.setdefault(text[:_LONG], set()).add(len(text))
    for first in range(len(piece) - _LONG + 1):
        for length in lengths.get(piece[first : first + _LONG], ()):
            which = texts.get(piece[first : first + length])
            if which is not None:
                yield which, first, first + length


def _short_by_one(piece: bytes, texts: Mapping[bytes, int]) -> Iterator[_Found]:
    for text, which in texts.items():
        if text in piece:
            for before, after in ((encode(text.decode())[: -len(text)], b""), (b'"', b'"')):
                for first in _each(piece, before + text + after):
                    yield which, first + len(before), first + len(before) + len(text)


def _short_by_head(piece: bytes, texts: Mapping[bytes, int]) -> Iterator[_Found]:
    quotes: list[int] = []
    for head in _HEADS.finditer(piece):
        first = head.end()
        kind = piece[head.start()]
        if kind != 0x22:
            size = kind - 0xA0
            if kind == 0xD9:
                size, first = piece[first], first + 1
            which = texts.get(piece[first : first + size])
            if which is not None:
                yield which, first, first + size
            continue
        # Behind a quotation mark: which text stands between it and one before?
        last = head.start()
        quotes = [at for at in quotes if last - at < _LONG]
        for begin in quotes:
            which = texts.get(piece[begin:last])
            if which is not None:
                yield which, begin, last
        quotes.append(first)


def _each(piece: bytes, text: bytes) -> Iterator[int]:
    at = piece.find(text)
    while at >= 0:
        yield at
        at = piece.find(text, at + len(text))


def references(blob: Blob) -> list[tuple[int, str]]:
    """The messages that a blob refers to."""
    return [piece[:2] for piece in blob.pieces if not isinstance(piece, bytes)]


def whole(blob: Blob, texts: Mapping[int, Sequence[bytes]]) -> tuple[str, bytes]:
    """What the serializer wrote. A text that is gone from the history, or was changed, is blank."""
    return blob.tag, b"".join(
        piece if isinstance(piece, bytes) else _filled(texts.get(piece[0], ()), *piece[2:]) for piece in blob.pieces
    )


def _filled(texts: Sequence[bytes], which: int, size: int) -> bytes:
    text = texts[which] if which < len(texts) else b""
    return text if len(text) == size else b" " * size
