"""The index of a long journal, written down, so that the next process need not read all of it. A cache, and only that.

It says of which file it is, and how far. What is damaged or belongs to another file is not used; messages are always
read from the journal, and checked there.
"""

from __future__ import annotations

import sys
import zlib
from array import array
from pathlib import Path

import msgspec
from msgspec import Struct

from hansard.backends.files import entries
from hansard.backends.files.disk import Disk
from hansard.backends.files.index import Index
from hansard.backends.files.lines import Spot
from hansard.backends.files.tables import Table

WORTH = 1 << 22
"""So many bytes are worth a checkpoint."""

_FORMAT = f"2 {sys.byteorder}"


class Columns(Struct, array_like=True):
    line: int
    is_in_time: bool
    columns: list[bytes]


class Saved(Struct, array_like=True):
    format: str
    spot: Spot
    id: str
    journal: str
    rest: bytes
    """Everything but the messages, as an entry of the journal would say it."""
    tables: list[Columns]
    ids: list[str]
    places: bytes
    refs: dict[int, tuple[str, ...]]
    users: list[str]
    pinned: list[int]
    waste: int


_encode = msgspec.msgpack.Encoder().encode
_saved = msgspec.msgpack.Decoder(Saved)


def save(index: Index, path: Path, home: Path) -> None:
    """Whoever calls it sees to it that the index does not change meanwhile."""
    saved = Saved(
        _FORMAT,
        index.spot,
        index.id,
        index.journal,
        entries.encode(index.whole()),
        [_columns(table) for table in index.tables.values()],
        list(index.places),
        array("q", index.places.values()).tobytes(),
        index.refs,
        sorted(index.users),
        sorted(index.pinned),
        index.waste,
    )
    body = _encode(saved)
    # It need not wait for the disk: a checksum tells whether it arrived.
    writes = Disk(durable=False)
    writes.make_folder(path.parent, within=home)
    writes.replace(path, [body, zlib.crc32(body).to_bytes(4)])


def load(path: Path) -> Index | None:
    try:
        data = path.read_bytes()
        if zlib.crc32(memoryview(data)[:-4]) != int.from_bytes(data[-4:]):
            return None
        saved = _saved.decode(memoryview(data)[:-4])
    except (OSError, msgspec.DecodeError):
        return None
    return _restored(saved) if saved.format == _FORMAT else None


def _restored(saved: Saved) -> Index:
    index = Index()
    index.spot, index.id, index.journal = saved.spot, saved.id, saved.journal
    for each in saved.tables:
        index.tables[each.line] = _table(each)
    places = array("q")
    places.frombytes(saved.places)
    index.places = dict(zip(saved.ids, places, strict=True))
    index.refs, index.users, index.pinned = saved.refs, set(saved.users), set(saved.pinned)
    index.change(entries.decode_entry(saved.rest))
    index.waste = saved.waste
    return index


def _columns(table: Table) -> Columns:
    return Columns(table.line, table.is_in_time, [column.tobytes() for column in table.columns()])


def _table(saved: Columns) -> Table:
    table = Table(saved.line)
    for column, data in zip(table.columns(), saved.columns, strict=True):
        column.frombytes(data)
    table.is_in_time = saved.is_in_time
    return table
