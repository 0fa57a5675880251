"""The files next to an export, by the ids that their names begin with."""

from __future__ import annotations

import mimetypes
from bisect import bisect_left
from pathlib import PurePosixPath

from hansard.formats import parts
from hansard.importers.report import ImportReport
from hansard.importers.source import ImportSource
from hansard.importers.values import media_part

_MOST_ATTACHED = 36 << 20
"""Bytes of one attachment that is taken along: as base64 it is within `Limits.content_bytes`."""
_UNKNOWN = "application/octet-stream"
_BEGINNINGS = {
    b"\x89PNG": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"%PDF-": "application/pdf",
    b"ID3": "audio/mpeg",
    b"OggS": "audio/ogg",
}
"""How files of a kind begin. Some exports call all of them `.dat`."""
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}


class AttachedFiles:
    def __init__(self, source: ImportSource, report: ImportReport) -> None:
        self._source = source
        self._report = report
        self._paths = sorted((PurePosixPath(name).name, name) for name in source.names())
        self.names: dict[str, str] = {}
        """What the files were called, by their names here."""
        self.taken: set[str] = set()
        """The paths of the files that a message has asked for."""

    def find(self, id: str) -> str | None:
        """The path of the file whose name is an id, or begins with it and something else than more of an id."""
        at = bisect_left(self._paths, (id, "")) if id else len(self._paths)
        while at < len(self._paths) and self._paths[at][0].startswith(id):
            name, path = self._paths[at]
            if not name[len(id) : len(id) + 1].isalnum():
                return path
            at += 1
        return None

    def part(self, path: str, name: str | None, kind: str | None = None) -> parts.AnyPart | None:
        """A file as a part of a message. `kind` is its media type, where the export says it."""
        self.taken.add(path)
        if self._source.size(path) > _MOST_ATTACHED:
            self._report.lose(f"attachment above {_MOST_ATTACHED >> 20} MB", path)
            return None
        with self._source.open(path) as file:
            data = file.read()
        self._report.attachments += 1
        called = self.names.get(PurePosixPath(path).name)
        if called and name in (None, PurePosixPath(path).name):
            name = called
        return media_part(data, kind or _kind(data, name or "", path), name)


def _kind(data: bytes, *names: str) -> str:
    """The media type of a file, by how it begins or by one of its names."""
    kind = next((kind for beginning, kind in _BEGINNINGS.items() if data.startswith(beginning)), None)
    if data[:4] == b"RIFF":
        kind = _RIFF.get(data[8:12])
    guessed = [mimetypes.guess_type(name)[0] for name in names if not name.endswith(".dat")]
    return kind or next(filter(None, guessed), _UNKNOWN)
