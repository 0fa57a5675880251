"""A zip file that is taken away while it is written: attachments as they come, then the text that refers to them."""

from __future__ import annotations

import base64
import binascii
import hashlib
import mimetypes
import re
import zipfile
from collections.abc import AsyncIterator, Iterator
from tempfile import SpooledTemporaryFile

from hansard.formats import parts

_BLOCK = 1 << 20
_DATE = (1980, 1, 1, 0, 0, 0)
"""The first date of zip files: the same export is the same file."""
_ODD = re.compile(r"[^\w. -]+")
_LONGEST_NAME = 100


class Archive:
    """`text_name` is the file for the text; attachments are in `folder`."""

    def __init__(self, text_name: str, folder: str = "") -> None:
        self._text_name = text_name
        self._folder = folder
        self._sink = _Sink()
        self._zip = zipfile.ZipFile(self._sink, "w", zipfile.ZIP_DEFLATED)  # type: ignore[call-overload]
        self._ids: set[str] = set()

    def add(self, part: parts.Media) -> str | None:
        """Adds an attachment once, and returns the id that its name begins with; None if the part has no bytes."""
        try:
            data = base64.b64decode(part.data or "", validate=True)
        except binascii.Error:
            return None
        if part.data is None:
            return None
        id = f"file-{hashlib.sha256(data).hexdigest()[:24]}"
        if id not in self._ids:
            self._ids.add(id)
            self._zip.writestr(_entry(f"{self._folder}{id}{_ending(part)}"), data)
        return id

    def put(self, name: str, data: bytes) -> None:
        """Adds a file beside the text."""
        self._zip.writestr(_entry(name), data)

    async def with_text(self, text: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yields the zip file. The text follows what was attached while it was made."""
        with SpooledTemporaryFile(_BLOCK) as file:
            async for piece in text:
                file.write(piece)
                if taken := self._sink.taken():
                    yield taken
            file.seek(0)
            for block in self._text(file):
                yield block
        self._zip.close()
        yield self._sink.taken()

    def _text(self, file: SpooledTemporaryFile[bytes]) -> Iterator[bytes]:
        with self._zip.open(_entry(self._text_name), "w", force_zip64=True) as entry:
            while block := file.read(_BLOCK):
                entry.write(block)
                yield self._sink.taken()


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _DATE)
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry


def _ending(part: parts.Media) -> str:
    """The rest of the name: the attachment's own name, or the usual suffix of its kind."""
    if part.name:
        return "-" + _ODD.sub("_", part.name)[-_LONGEST_NAME:]
    return mimetypes.guess_extension(part.media_type or "") or ".bin"


class _Sink:
    """A file that can only be written to, as a pipe."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._pieces.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """There is nothing to flush."""

    def taken(self) -> bytes:
        taken = b"".join(self._pieces)
        self._pieces.clear()
        return taken
