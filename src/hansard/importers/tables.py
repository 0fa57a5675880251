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

from msgspec import json

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
_LONGEST_FIELD = 64 << 20
_KNOWN = 1_000
"""Sets of fields that are remembered."""


class Table:
    """Rows of a file. `map` names the fields that are called otherwise."""

    def __init__(self, name: str, map: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.title = {"jsonl": "JSON Lines, a message a line", "csv": "CSV with a header, a message a row"}[name]
        self._map = dict(map or {})
        self._known: dict[tuple[str, ...], dict[str, str]] = {}
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
        return isinstance(row, dict) and self._fields(row).keys() >= {"role", "content"}

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
            fields = self._fields(row)
            if "role" in fields and "content" in fields:
                if self.name == "csv" and None in (row[fields["role"]], row[fields["content"]]):
                    report.complain(f"{name}, row {number}", "it has fewer fields than the header")
                    continue
                field = fields.get("conversation")
                id = str((row[field] if field else None) or stem)
                sorter.add_encoded(id, line.removeprefix(BOM) or json.encode(row))
            else:
                missing = "content" if "role" in fields else "role"
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
        fields = [self._fields(row) for row in rows]
        is_tree = any(_value(row, each, "parent") for row, each in zip(rows, fields, strict=True))
        for place, (row, each) in enumerate(zip(rows, fields, strict=True), 1):
            message = _message(row, each, place)
            parent = (_value(row, each, "parent") or None) if is_tree else before
            messages.append(ForeignMessage(message, None if parent is None else str(parent)))
            before = message.id
        return ForeignConversation(
            id=id,
            messages=messages,
            title=_text(_value(rows[0], fields[0], "title")),
            created_at=time(_value(rows[0], fields[0], "time")),
            user_id=_text(_value(rows[0], fields[0], "user")),
            metadata={"imported_from": self.name},
            is_parsed=True,
        )

    def _fields(self, row: Mapping[str, Any]) -> dict[str, str]:
        """Which field of a row is which. Most rows of a file have the same fields."""
        names = tuple(row)
        if names not in self._known:
            if len(self._known) >= _KNOWN:
                self._known.clear()
            found = {name: [self._map[name]] if name in self._map else usual for name, usual in FIELDS.items()}
            firsts = {
                name: next((each for each in each_name if each in row), None) for name, each_name in found.items()
            }
            self._known[names] = {name: field for name, field in firsts.items() if field is not None}
        return self._known[names]


def _message(row: Mapping[str, Any], fields: Mapping[str, str], place: int) -> Message:
    """`fields`: as `_fields` returns them."""
    role = role_of(row[fields["role"]], "")
    used = {*fields.values()}
    others: dict[str, Any] | None = None
    if not (role and used.issuperset(row)):
        # A role that no store has is kept with the other fields.
        kept = used if role else used - {fields["role"]}
        others = {name: value for name, value in row.items() if name not in kept and value not in (None, "")}
    return Message(
        role or "user",
        row[fields["content"]],
        str(_value(row, fields, "id") or place),
        created_at=time(_value(row, fields, "time")) or NOT_YET,
        metadata=others or None,
    )


def _value(row: Mapping[str, Any], fields: Mapping[str, str], name: str) -> Any:
    return row[fields[name]] if name in fields else None


def csv_rows(file: IO[bytes]) -> Iterator[dict[str, Any] | str]:
    """The rows of a table with a header, or what is wrong with one."""
    csv.field_size_limit(_LONGEST_FIELD)
    text = io.TextIOWrapper(io.BufferedReader(_Readable(file)), "utf-8-sig", errors="replace", newline="")
    rows = csv.reader(text)
    try:
        header = next(rows, [])
        for row in rows:
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
