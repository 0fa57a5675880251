"""TPipe: a serialized `ConverseHistory`, `{"history": [{"role", "content", "uuid"}, …]}`, a file a conversation."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from hansard.formats import parts
from hansard.importers import json_stream
from hansard.importers.importer import ForeignConversation
from hansard.importers.plain_files import chained
from hansard.importers.report import ImportReport
from hansard.importers.source import ImportSource
from hansard.importers.values import content_of, items, mapping, media_part, text
from hansard.model import ROLES, Message


class TPipe:
    name = "tpipe"
    title = "TPipe: a ConverseHistory (.json), or a folder of them"

    def recognises(self, source: ImportSource) -> bool:
        return any(_is_history(source.head(name)) for name in source.named(".json")[:20])

    def read(self, source: ImportSource, report: ImportReport) -> Iterator[ForeignConversation]:
        for name in source.named(".json"):
            for number, (where, given) in enumerate(json_stream.array_objects(source, name, report, "history"), 1):
                if not isinstance(given.get("history"), list):
                    report.complain(where, "it has no 'history'")
                    continue
                stem = PurePosixPath(name).stem
                turns = [mapping(turn) for turn in given["history"]]
                yield ForeignConversation(
                    id=stem if number == 1 else f"{stem}-{number}",
                    messages=chained([_message(turn, place, report) for place, turn in enumerate(turns, 1)]),
                    metadata={"imported_from": self.name},
                )


def _is_history(head: bytes) -> bool:
    return head.lstrip()[:40].replace(b" ", b"").startswith((b'{"history"', b'[{"history"')) and b'"role"' in head


def _message(turn: dict[str, Any], number: int, report: ImportReport) -> Message:
    role = text(turn.get("role"))
    given = turn.get("content")
    content, format = given, ""
    if isinstance(given, dict) and "text" in given:
        content, format = content_of([*_pieces(given, report)] or [parts.Text(text="")])
    return Message(role if role in ROLES else "user", content, text(turn.get("uuid")) or str(number), format=format)


def _pieces(given: dict[str, Any], report: ImportReport) -> Iterator[parts.AnyPart]:
    """The text and the binaries of a `MultimodalContent`."""
    if text(given.get("text")):
        yield parts.Text(text=given["text"])
    for each in map(mapping, items(given.get("binaryContent"))):
        data = _bytes(each)
        if data is None:
            report.lose("binary content without its bytes", str(each)[:120])
        else:
            report.attachments += 1
            kind = text(each.get("mimeType")) or "application/octet-stream"
            yield media_part(data, kind, text(each.get("filename")) or None)


def _bytes(given: dict[str, Any]) -> bytes | None:
    """Kotlin serializes bytes as numbers from -128 to 127; base64 content is a text."""
    data = given.get("data")
    try:
        if isinstance(data, list):
            return bytes(number & 255 for number in data)
        found = given.get("base64") or given.get("data")
        return base64.b64decode(found, validate=True) if isinstance(found, str) else None
    except (ValueError, TypeError):
        return None
