"""Records: one journal for each user's own space, and one for records that belong to no user.

The keys of a space are kept in memory, each with its position in the file and the fields that queries need. Values are
read from the file on demand.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw, Struct

from hansard import codec, rules
from hansard.backends.files import line_format
from hansard.backends.files.disk import Disk
from hansard.backends.files.layout import Layout
from hansard.backends.files.line_format import ReadPosition, ValuePosition
from hansard.backends.files.locks import Locks
from hansard.backends.files.small_journal import SmallJournal, SmallJournalWriter
from hansard.contract.types import Context, RecordQuery, RecordWrite
from hansard.model import NOT_YET, Record

_LEAST_WASTE = 1 << 18
_SMALL = 1 << 20
"""A journal up to this size is compacted at once when a conversation's records are deleted; a longer one later."""

Key = tuple[bytes, str]
"""Packed namespace and key, which sort in the order of a scan."""

Exists = Callable[[str], bool]
"""Whether a conversation exists and the context may see it."""


class RecordJournalLine(Struct, omit_defaults=True, kw_only=True):
    """A line of a space's journal."""

    hansard: int = 0
    kind: str = ""
    tenant: str = ""
    owner: str = ""
    what: str = ""
    at: datetime = NOT_YET
    records: list[Raw] = []
    deleted: list[tuple[tuple[str, ...], str]] = []
    conversation: str = ""
    """All records of this conversation were deleted."""


class JournalRecord(Struct, omit_defaults=True, kw_only=True):
    """A record in a journal: a JSON value, or bytes."""

    namespace: tuple[str, ...]
    key: str
    revision: int
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None = None
    conversation_id: str | None = None
    data: bytes | None = None
    value: Any = None


class RecordFields(Struct):
    """The fields of a record that are kept in memory."""

    namespace: tuple[str, ...]
    key: str
    revision: int
    created_at: datetime
    expires_at: datetime | None = None
    conversation_id: str | None = None


class RecordPosition(NamedTuple):
    piece: ValuePosition
    fields: RecordFields


RECORDS = b'"records":['

_encode = msgspec.json.Encoder().encode
_line = msgspec.json.Decoder(RecordJournalLine)
_fields = msgspec.json.Decoder(RecordFields)
_stored = msgspec.json.Decoder(JournalRecord)


def key_of(namespace: tuple[str, ...], key: str) -> Key:
    return codec.pack_namespace(namespace), key


class RecordJournalState:
    """The state of a space's journal."""

    def __init__(self) -> None:
        self.position = ReadPosition()
        self.owner = ""
        self.slots: dict[Key, RecordPosition] = {}
        self.order: list[Key] = []
        self.of_conversation: dict[str, set[Key]] = {}
        self.waste = 0

    def apply(self, line: bytes, at: int) -> None:
        read = _line.decode(line)
        if read.hansard:
            line_format.check_format(read.hansard, "a journal of records")
            self.owner = read.owner
        for place in read.deleted:
            self._remove(key_of(*place))
        for key in self.of_conversation.get(read.conversation, set()).copy():
            self._remove(key)
        if read.records:
            for raw, piece in line_format.pieces(line, at, RECORDS, read.records):
                self._put(_fields.decode(raw), piece)
        elif not read.hansard:
            self.waste += len(line)

    def _put(self, fields: RecordFields, piece: ValuePosition) -> None:
        key = key_of(fields.namespace, fields.key)
        self._remove(key)
        self.slots[key] = RecordPosition(piece, fields)
        insort(self.order, key)
        if fields.conversation_id is not None:
            self.of_conversation.setdefault(fields.conversation_id, set()).add(key)

    def _remove(self, key: Key) -> None:
        slot = self.slots.pop(key, None)
        if slot is None:
            return
        del self.order[bisect_left(self.order, key)]
        self.waste += slot.piece.length
        id = slot.fields.conversation_id
        if id is not None:
            self.of_conversation[id].discard(key)
            if not self.of_conversation[id]:
                del self.of_conversation[id]

    def range(self, query: RecordQuery) -> range:
        """Returns the indexes into `order` that a scan may read, in its order."""
        packed = codec.pack_namespace(query.prefix)
        low, high = bisect_left(self.order, (packed, "")), bisect_left(self.order, (packed + b"\xff", ""))
        if query.after is not None:
            place = key_of(*query.after)
            if query.newest_first:
                high = min(high, bisect_left(self.order, place))
            else:
                low = max(low, bisect_right(self.order, place))
        return range(high - 1, low - 1, -1) if query.newest_first else range(low, high)


class RecordJournal:
    """The records of one space."""

    def __init__(self, layout: Layout, owner: str, writes: Disk, locks: Locks) -> None:
        self.owner = owner
        self._tenant = layout.tenant
        path = layout.space(owner)
        self._file = SmallJournal(
            path,
            RecordJournalState,
            writes,
            locks,
            lock=layout.lock("_records." + path.stem),
            what=f"the records of {owner!r}" if owner else "the records",
        )

    @property
    def path(self) -> Path:
        return self._file.path

    @property
    def weight(self) -> int:
        return len(self._file.state.slots) + 50

    # Reading

    def get(self, context: Context, keys: Sequence[Key], exists: Exists) -> list[Record | None]:
        with self._file.reading() as found:
            if found is None:
                return [None for _ in keys]
            fd, space = found
            with self._file.mutex:
                slots = [_find_live(space, key, context, exists) for key in keys]
            read = iter(self._read(fd, [slot for slot in slots if slot]))
            return [next(read) if slot else None for slot in slots]

    def scan(self, context: Context, query: RecordQuery, exists: Exists) -> tuple[list[Record], bool]:
        with self._file.reading() as found:
            if found is None:
                return [], False
            fd, space = found
            with self._file.mutex:
                slots = list(_scan(space, context, query, exists))
            return self._read(fd, slots[: query.limit]), len(slots) > query.limit

    def _read(self, fd: int, slots: Sequence[RecordPosition]) -> list[Record]:
        data = line_format.read_pieces(fd, [slot.piece for slot in slots], self._file.path)
        return [_record(_stored.decode(each)) for each in data]

    def copy_to(self, path: Path, writes: Disk) -> None:
        self._file.copy_to(path, writes)

    def count(self) -> int:
        with self._file.reading() as found:
            return len(found[1].slots) if found else 0

    # Writing

    def writing(self) -> AbstractContextManager[SmallJournalWriter[RecordJournalState]]:
        return self._file.writing()

    def plan(
        self,
        journal: SmallJournalWriter[RecordJournalState],
        context: Context,
        writes: Sequence[RecordWrite],
        exists: Exists,
    ) -> tuple[RecordJournalLine, list[Record | None]]:
        """Returns the line that a batch writes, and its results."""
        keys = {(write.namespace, write.key) for write in writes}
        slots = {key: slot for key in keys if (slot := _find_live(journal.state, key_of(*key), context, exists))}
        current = dict(zip(slots, self._read(journal.fd, list(slots.values())) if slots else [], strict=True))
        changes, results = rules.plan_records(context, writes, current)
        written = [_raw(change.record) for change in changes if change.record is not None]
        deleted = [each.key for each in changes if each.record is None and key_of(*each.key) in journal.state.slots]
        return RecordJournalLine(what="write", at=context.now, records=written, deleted=deleted), results

    def commit(self, journal: SmallJournalWriter[RecordJournalState], line: RecordJournalLine) -> None:
        if not journal.state.position.lines:
            line.hansard, line.kind, line.tenant, line.owner = line_format.FORMAT, "records", self._tenant, self.owner
        journal.append(_encode(line))
        is_much = journal.state.waste > max(_LEAST_WASTE, journal.state.position.size // 2)
        is_cheap = line.conversation and journal.state.waste and journal.state.position.size < _SMALL
        if is_much or is_cheap or not journal.state.slots:
            # The write is complete. If compacting fails, a later write tries again.
            with contextlib.suppress(OSError):
                self.compact(journal)

    def delete_conversation_records(self, conversation_id: str, at: datetime) -> int:
        """Deletes the records of a conversation. Returns how many."""
        with self._file.writing() as journal:
            count = len(journal.state.of_conversation.get(conversation_id, ()))
            if count:
                self.commit(journal, RecordJournalLine(what="delete", at=at, conversation=conversation_id))
            return count

    def sweep(self, now: datetime) -> int:
        """Deletes expired records and compacts the journal if it has waste. Returns how many were deleted."""
        if not self.path.exists():
            return 0
        with self._file.writing() as journal:
            dead = [slot.fields for slot in journal.state.slots.values() if not _is_unexpired(slot.fields, now)]
            if dead:
                places = [(fields.namespace, fields.key) for fields in dead]
                self.commit(journal, RecordJournalLine(what="sweep", at=now, deleted=places))
            if journal.state.waste:
                self.compact(journal)
            return len(dead)

    def compact_if_wasteful(self) -> None:
        """Compacts the journal if records in it were deleted or replaced."""
        if self.path.exists():
            with self._file.writing() as journal:
                if journal.state.waste:
                    self.compact(journal)

    def compact(self, journal: SmallJournalWriter[RecordJournalState]) -> None:
        """Rewrites the journal without waste; removes it if no records are left."""
        if journal.state.slots:
            journal.replace(self._bodies(journal))
        else:
            journal.remove()

    def _bodies(self, journal: SmallJournalWriter[RecordJournalState]) -> Iterator[bytes]:
        yield _encode(
            RecordJournalLine(hansard=line_format.FORMAT, kind="records", tenant=self._tenant, owner=self.owner)
        )
        pieces = [journal.state.slots[key].piece for key in journal.state.order]
        for start in range(0, len(pieces), 100):
            for raw in line_format.read_pieces(journal.fd, pieces[start : start + 100], self.path):
                yield b"{%b%b]}" % (RECORDS, raw)

    def erase(self) -> int:
        """Deletes all records of the space. Returns how many."""
        if not self.path.exists():
            return 0
        with self._file.writing() as journal:
            count = len(journal.state.slots)
            journal.remove()
            return count


def owner_at(path: Path) -> str | None:
    """Returns the owner of the records in a file; None if the file has no complete line."""
    line = line_format.first_line(path)
    return _line.decode(line).owner if line else None


def _is_unexpired(fields: RecordFields, now: datetime) -> bool:
    return fields.expires_at is None or fields.expires_at > now


def _find_live(space: RecordJournalState, key: Key, context: Context, exists: Exists) -> RecordPosition | None:
    slot = space.slots.get(key)
    return slot if slot and _is_live(slot.fields, context, exists) else None


def _is_live(fields: RecordFields, context: Context, exists: Exists) -> bool:
    return _is_unexpired(fields, context.now) and (fields.conversation_id is None or exists(fields.conversation_id))


def _scan(space: RecordJournalState, context: Context, query: RecordQuery, exists: Exists) -> Iterator[RecordPosition]:
    """Yields up to one more than the limit."""
    packed = codec.pack_namespace(query.prefix)
    found = 0
    for at in space.range(query):
        namespace, key = place = space.order[at]
        slot = space.slots[place]
        if (
            (not query.exact or namespace == packed)
            and key.startswith(query.key_prefix)
            and _is_live(slot.fields, context, exists)
        ):
            yield slot
            found += 1
            if found > query.limit:
                return


def _raw(record: Record) -> Raw:
    is_bytes = isinstance(record.value, bytes)
    stored = JournalRecord(
        namespace=record.namespace,
        key=record.key,
        revision=record.revision,
        created_at=record.created_at,
        updated_at=record.updated_at,
        expires_at=record.expires_at,
        conversation_id=record.conversation_id,
        data=record.value if is_bytes else None,
        value=None if is_bytes else record.value,
    )
    return Raw(_encode(stored))


def _record(stored: JournalRecord) -> Record:
    return Record(
        stored.namespace,
        stored.key,
        stored.value if stored.data is None else stored.data,
        stored.revision,
        stored.created_at,
        stored.updated_at,
        stored.expires_at,
        stored.conversation_id,
    )
