"""The files next to an export, by the ids that their names begin with."""

from __future__ import annotations

import mimetypes
from bisect import bisect_left
from pathlib import PurePosixPath

from hansard.formats import parts
from hansard.importers.report import ImportReport
from hansard.importers.source import ImportSource
from hansard.importers.values import media_part

_MOST_ATTACHED = 64 << 20
"""Bytes of one attachment that is taken along."""


class AttachedFiles:
    def __init__(self, source: ImportSource, report: ImportReport) -> None:
        self._source = source
        self._report = report
        self._paths = sorted((PurePosixPath(name).name, name) for name in source.names())

    def find(self, id: str) -> str | None:
        """The path of the file whose name begins with an id."""
        at = bisect_left(self._paths, (id, ""))
        return self._paths[at][1] if id and at < len(self._paths) and self._paths[at][0].startswith(id) else None

    def part(self, path: str, name: str | None, kind: str | None = None) -> parts.AnyPart | None:
        """A file as a part of a message. `kind` is its media type, where the export says it."""
        if self._source.size(path) > _MOST_ATTACHED:
            self._report.lose(f"attachment above {_MOST_ATTACHED >> 20} MB", path)
            return None
        with self._source.open(path) as file:
            data = file.read()
        self._report.attachments += 1
        return media_part(data, kind or mimetypes.guess_type(path)[0] or "application/octet-stream", name)
