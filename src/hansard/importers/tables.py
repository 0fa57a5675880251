"""Plain rows: JSON Lines or CSV in which each row is a message, with fields of any names.

`--map role=author,content=body,conversation=thread,id=n,time=at,parent=reply_to,user=owner` says which field is which.
Common names are found without it. Rows of one conversation may be anywhere in the file: they are sorted into
conversations by a temporary database, so that memory stays bounded.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import IO, Any

from msgspec import Struct, json

from hansard.errors import ValidationError
from hansard.importers import json_stream
from hansard.importers.importer import ForeignConversation, ForeignMessage
from hansard.importers.json_stream import BOM
from hansard.importers.report import ImportReport
from hansard.importers.row_sorter import RowSorter
from hansard.importers.source import ImportSource
from hansard.importers.values import role_of, time
from hansard.model import NOT_YET, Message

FIELDS: Mapping[str, tuple[str, ...]] = {
    "conversation": ("conversation_id", "conversation", "session_id", "session", "thread_id", "thread", "chat_id"),
    "role": ("role", "author", "sender", "from", "type"),
    "content": ("content", "text", "body", "message", "value"),
    "id": ("id", "message_id", "uuid"),
    "time": ("created_at", "timestamp", "time", "date", "ts"),
    "parent": ("parent_id", "parent", "reply_to"),
    "user": ("user_id", "user"),
    "title": ("title",),
}
"""What each field of a message is called in rows, the most usual name first."""
_LONGEST_FIELD = _LONGEST_LINE = 64 << 20
_PIECE = 1 << 20
_KNOWN = 1_000
"""Sets of fields that are remembered."""


class _Layout(Struct, frozen=True, gc=False):
    """Which field of a row is which; None for those that it does not have."""

    conversation: str | None
    role: str | None
    content: str | None
    id: str | None
    time: str | None
    parent: str | None
    user: str | None
    title: str | None
    used: frozenset[str]
    has_others: bool
    """Whether the row has fields that are none of these."""


class Table:
    """Rows of a file. `map` names the fields that are called otherwise."""

    def __init__(self, name: str, map: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.title = {"jsonl": "JSON Lines, a message a line", "csv": "CSV with a header, a message a row"}[name]
        self._map = dict(map or {})
        self._known: dict[tuple[str, ...], _Layout] = {}
        if unknown := self._map.keys() - FIELDS.keys():
            raise ValidationError(f"--map knows {', '.join(FIELDS)}, and not {', '.join(sorted(unknown))}")

    def recognises(self, source: ImportSource) -> bool:
        names = self._files(source)
        return bool(names) and all(self._is_table(source, name) for name in names)

    def _files(self, source: ImportSource) -> list[str]:
        return source.named(".jsonl", ".ndjson") if self.name == "jsonl" else source.named(".csv")

    def _is_table(self, source: ImportSource, name: str) -> bool:
        with source.open(name) as file:
            row, _ = next(self._rows(file), (None, b""))
        if not isinstance(row, dict):
            return False
        layout = self._layout(row)
        return layout.role is not None and layout.content is not None

    def read(self, source: ImportSource, report: ImportReport) -> Iterator[ForeignConversation]:
        with RowSorter() as sorter:
            for name in self._files(source):
                with source.open(name) as file:
                    self._sort_in(sorter, name, file, report)
            for id, rows in sorter.conversations():
                yield self._conversation(id, rows)

    def _sort_in(self, sorter: RowSorter, name: str, file: IO[bytes], report: ImportReport) -> None:
        stem = PurePosixPath(name).stem
        for number, (row, line) in enumerate(self._rows(file), 1):
            if isinstance(row, str):
                report.complain(f"{name}, row {number}", row)
                continue
            layout = self._layout(row)
            if layout.role is not None and layout.content is not None:
                if self.name == "csv" and None in (row[layout.role], row[layout.content]):
                    report.complain(f"{name}, row {number}", "it has fewer fields than the header")
                    continue
                id = str(_value(row, layout.conversation) or stem)
                sorter.add_encoded(id, line.removeprefix(BOM) or json.encode(row))
            else:
                missing = "content" if layout.role is not None else "role"
                what = f"it has no {missing}: its fields are {', '.join(row)}. Say which with --map"
                report.complain(f"{name}, row {number}", what)

    def _rows(self, file: IO[bytes]) -> Iterator[tuple[dict[str, Any] | str, bytes]]:
        """Each row, or what is wrong with it, and its JSON where the file has it."""
        if self.name == "csv":
            return ((row, b"") for row in csv_rows(file))
        return (
            (each.value if type(each.value) is dict else each.problem or "it is not an object", each.line)
            for each in json_stream.lines(file)
        )

    def _conversation(self, id: str, rows: list[dict[str, Any]]) -> ForeignConversation:
        messages: list[ForeignMessage] = []
        before: str | None = None
        layouts = [self._layout(row) for row in rows]
        is_tree = any(_value(row, each.parent) for row, each in zip(rows, layouts, strict=True) if each.parent)
        for place, (row, each) in enumerate(zip(rows, layouts, strict=True), 1):
            message = _message(row, each, place)
            parent = (_value(row, each.parent) or None) if is_tree else before
            messages.append(ForeignMessage(message, None if parent is None else str(parent)))
            before = message.id
        first = messages[0].message.created_at
        return ForeignConversation(
            id=id,
            messages=messages,
            title=_text(_value(rows[0], layouts[0].title)),
            created_at=None if first is NOT_YET else first,
            user_id=_text(_value(rows[0], layouts[0].user)),
            metadata={"imported_from": self.name},
            is_parsed=True,
        )

    def _layout(self, row: Mapping[str, Any]) -> _Layout:
        """Most rows of a file have the same fields."""
        names = tuple(row)
        layout = self._known.get(names)
        if layout is None:
            if len(self._known) >= _KNOWN:
                self._known.clear()
            layout = self._known[names] = self._new_layout(row)
        return layout

    def _new_layout(self, row: Mapping[str, Any]) -> _Layout:
        found = {name: [self._map[name]] if name in self._map else usual for name, usual in FIELDS.items()}
        firsts = {name: next((each for each in names if each in row), None) for name, names in found.items()}
        used = frozenset(field for field in firsts.values() if field is not None)
        return _Layout(**firsts, used=used, has_others=not used.issuperset(row))


def _message(row: Mapping[str, Any], layout: _Layout, place: int) -> Message:
    """`layout` has a role and a content."""
    role = role_of(_value(row, layout.role), "")
    others: dict[str, Any] | None = None
    if layout.has_others or not role:
        # A role that no store has is kept with the other fields.
        kept = layout.used if role else layout.used - {layout.role}
        others = {name: value for name, value in row.items() if name not in kept and value not in (None, "")}
    return Message(
        role or "user",
        _value(row, layout.content),
        str(_value(row, layout.id) or place),
        created_at=NOT_YET if layout.time is None else time(row[layout.time]) or NOT_YET,
        metadata=others or None,
    )


def _value(row: Mapping[str, Any], field: str | None) -> Any:
    return None if field is None else row[field]


def csv_rows(file: IO[bytes]) -> Iterator[dict[str, Any] | str]:
    """The rows of a table with a header, or what is wrong with one."""
    csv.field_size_limit(_LONGEST_FIELD)
    text = io.TextIOWrapper(io.BufferedReader(_Readable(file)), "utf-8-sig", errors="replace", newline="")
    skipped: list[str] = []
    rows = csv.reader(_short_lines(text, skipped))
    try:
        header = next(rows, [])
        for row in rows:
            while skipped:
                yield skipped.pop()
            if not row:
                continue  # an empty line
            if "\ufffd" in "".join(row):
                yield "it is not UTF-8: convert the file first"
            elif len(row) == len(header):
                yield dict(zip(header, row, strict=True))
            else:
                named: dict[str, Any] = dict(zip(header, row, strict=False)) | dict.fromkeys(header[len(row) :])
                yield named | ({"more": row[len(header) :]} if len(row) > len(header) else {})
    except csv.Error as error:
        yield f"the rest of the file is not CSV: {error}"
    yield from skipped


def _short_lines(text: IO[str], skipped: list[str]) -> Iterator[str]:
    """The lines but for those that are too long, which are noted: a whole line would be held before it is cut."""
    while line := text.readline(_LONGEST_LINE):
        if len(line) < _LONGEST_LINE:
            yield line
        else:
            skipped.append(f"the line is longer than {_LONGEST_LINE:,} characters")
            while line and not line.endswith(("\n", "\r")):
                line = text.readline(_PIECE)


def _text(value: object) -> str | None:
    return None if value in (None, "") else str(value)


class _Readable(io.RawIOBase):
    """A source's file as `io.TextIOWrapper` wants it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = self._file.read(len(buffer))
        buffer[: len(block)] = block
        return len(block)
