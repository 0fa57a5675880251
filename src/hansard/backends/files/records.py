"""Records: one journal for each user's own space, and one for what belongs to no user.

The index of a space is kept in memory: for each record its place in the file and what decides about it. Values are read
when they are asked for.
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
from hansard.backends.files.line_format import Piece, Spot
from hansard.backends.files.locks import Locks
from hansard.backends.files.small_journal import Pen, Sidecar
from hansard.contract.types import Context, RecordQuery, RecordWrite
from hansard.model import NOT_YET, Record

_LEAST_WASTE = 1 << 18
_SMALL = 1 << 20
"""A journal up to this size is written anew at once when a conversation's records go; a longer one later."""

Key = tuple[bytes, str]
"""Packed namespace, key: in the order of a scan."""

Lives = Callable[[str], bool]
"""Whether a conversation exists for the one who asks."""


class Line(Struct, omit_defaults=True, kw_only=True):
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
    """All records of this conversation went."""


class Stored(Struct, omit_defaults=True, kw_only=True):
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


class Stub(Struct):
    """The part of a record that the index needs."""

    namespace: tuple[str, ...]
    key: str
    revision: int
    created_at: datetime
    expires_at: datetime | None = None
    conversation_id: str | None = None


class Slot(NamedTuple):
    piece: Piece
    stub: Stub


RECORDS = b'"records":['

_encode = msgspec.json.Encoder().encode
_line = msgspec.json.Decoder(Line)
_stub = msgspec.json.Decoder(Stub)
_stored = msgspec.json.Decoder(Stored)


def key_of(namespace: tuple[str, ...], key: str) -> Key:
    return codec.pack_namespace(namespace), key


class Space:
    """What a space's journal says."""

    def __init__(self) -> None:
        self.spot = Spot()
        self.owner = ""
        self.slots: dict[Key, Slot] = {}
        self.order: list[Key] = []
        self.of_conversation: dict[str, set[Key]] = {}
        self.waste = 0

    def apply(self, line: bytes, at: int) -> None:
        read = _line.decode(line)
        if read.hansard:
            line_format.check_format(read.hansard, "a journal of records")
            self.owner = read.owner
        for place in read.deleted:
            self._forget(key_of(*place))
        for key in self.of_conversation.get(read.conversation, set()).copy():
            self._forget(key)
        if read.records:
            for raw, piece in line_format.pieces(line, at, RECORDS, read.records):
                self._put(_stub.decode(raw), piece)
        elif not read.hansard:
            self.waste += len(line)

    def _put(self, stub: Stub, piece: Piece) -> None:
        key = key_of(stub.namespace, stub.key)
        self._forget(key)
        self.slots[key] = Slot(piece, stub)
        insort(self.order, key)
        if stub.conversation_id is not None:
            self.of_conversation.setdefault(stub.conversation_id, set()).add(key)

    def _forget(self, key: Key) -> None:
        slot = self.slots.pop(key, None)
        if slot is None:
            return
        del self.order[bisect_left(self.order, key)]
        self.waste += slot.piece.length
        id = slot.stub.conversation_id
        if id is not None:
            self.of_conversation[id].discard(key)
            if not self.of_conversation[id]:
                del self.of_conversation[id]

    def range(self, query: RecordQuery) -> range:
        """The records that a scan may touch, in its order."""
        packed = codec.pack_namespace(query.prefix)
        low, high = bisect_left(self.order, (packed, "")), bisect_left(self.order, (packed + b"\xff", ""))
        if query.after is not None:
            place = key_of(*query.after)
            if query.newest_first:
                high = min(high, bisect_left(self.order, place))
            else:
                low = max(low, bisect_right(self.order, place))
        return range(high - 1, low - 1, -1) if query.newest_first else range(low, high)


class Records:
    """One space."""

    def __init__(self, layout: Layout, owner: str, writes: Disk, locks: Locks) -> None:
        self.owner = owner
        self._tenant = layout.tenant
        path = layout.space(owner)
        self._file = Sidecar(
            path,
            Space,
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
        return len(self._file.known.state.slots) + 50

    # Reading

    def get(self, context: Context, keys: Sequence[Key], lives: Lives) -> list[Record | None]:
        with self._file.reading() as found:
            if found is None:
                return [None for _ in keys]
            fd, space = found
            with self._file.known.mutex:
                slots = [_live(space, key, context, lives) for key in keys]
            read = iter(self._read(fd, [slot for slot in slots if slot]))
            return [next(read) if slot else None for slot in slots]

    def scan(self, context: Context, query: RecordQuery, lives: Lives) -> tuple[list[Record], bool]:
        with self._file.reading() as found:
            if found is None:
                return [], False
            fd, space = found
            with self._file.known.mutex:
                slots = list(_scan(space, context, query, lives))
            return self._read(fd, slots[: query.limit]), len(slots) > query.limit

    def _read(self, fd: int, slots: Sequence[Slot]) -> list[Record]:
        data = line_format.read_pieces(fd, [slot.piece for slot in slots], self._file.path)
        return [_record(_stored.decode(each)) for each in data]

    def copy_to(self, path: Path, writes: Disk) -> None:
        self._file.copy_to(path, writes)

    def count(self) -> int:
        with self._file.reading() as found:
            return len(found[1].slots) if found else 0

    # Writing

    def writing(self) -> AbstractContextManager[Pen[Space]]:
        return self._file.writing()

    def plan(
        self, pen: Pen[Space], context: Context, writes: Sequence[RecordWrite], lives: Lives
    ) -> tuple[Line, list[Record | None]]:
        """What a batch does, and what it answers."""
        keys = {(write.namespace, write.key) for write in writes}
        slots = {key: slot for key in keys if (slot := _live(pen.state, key_of(*key), context, lives))}
        current = dict(zip(slots, self._read(pen.fd, list(slots.values())) if slots else [], strict=True))
        changes, results = rules.plan_records(context, writes, current)
        kept = [_raw(change.record) for change in changes if change.record is not None]
        gone = [each.key for each in changes if each.record is None and key_of(*each.key) in pen.state.slots]
        return Line(what="write", at=context.now, records=kept, deleted=gone), results

    def commit(self, pen: Pen[Space], line: Line) -> None:
        if not pen.state.spot.lines:
            line.hansard, line.kind, line.tenant, line.owner = line_format.FORMAT, "records", self._tenant, self.owner
        pen.append(_encode(line))
        is_much = pen.state.waste > max(_LEAST_WASTE, pen.state.spot.size // 2)
        is_cheap = line.conversation and pen.state.waste and pen.state.spot.size < _SMALL
        if is_much or is_cheap or not pen.state.slots:
            # The write is done: what cannot be tidied now is tidied later.
            with contextlib.suppress(OSError):
                self.tidy(pen)

    def forget(self, conversation_id: str, at: datetime) -> int:
        """Removes what belongs to a conversation."""
        with self._file.writing() as pen:
            count = len(pen.state.of_conversation.get(conversation_id, ()))
            if count:
                self.commit(pen, Line(what="delete", at=at, conversation=conversation_id))
            return count

    def sweep(self, now: datetime) -> int:
        """Removes what has expired, and writes the journal anew where anything is waste."""
        if not self.path.exists():
            return 0
        with self._file.writing() as pen:
            dead = [slot.stub for slot in pen.state.slots.values() if not _is_alive(slot.stub, now)]
            if dead:
                places = [(stub.namespace, stub.key) for stub in dead]
                self.commit(pen, Line(what="sweep", at=now, deleted=places))
            if pen.state.waste:
                self.tidy(pen)
            return len(dead)

    def drop_waste(self) -> None:
        """Writes the journal anew where records in it were deleted or replaced."""
        if self.path.exists():
            with self._file.writing() as pen:
                if pen.state.waste:
                    self.tidy(pen)

    def tidy(self, pen: Pen[Space]) -> None:
        """Writes the journal anew, without what is waste; removes it when nothing is left."""
        if pen.state.slots:
            pen.replace(self._bodies(pen))
        else:
            pen.remove()

    def _bodies(self, pen: Pen[Space]) -> Iterator[bytes]:
        yield _encode(Line(hansard=line_format.FORMAT, kind="records", tenant=self._tenant, owner=self.owner))
        pieces = [pen.state.slots[key].piece for key in pen.state.order]
        for start in range(0, len(pieces), 100):
            for raw in line_format.read_pieces(pen.fd, pieces[start : start + 100], self.path):
                yield b"{%b%b]}" % (RECORDS, raw)

    def erase(self) -> int:
        """Removes the space."""
        if not self.path.exists():
            return 0
        with self._file.writing() as pen:
            count = len(pen.state.slots)
            pen.remove()
            return count


def owner_at(path: Path) -> str | None:
    """Whose records a file holds; None when it holds no whole line."""
    line = line_format.first_line(path)
    return _line.decode(line).owner if line else None


def _is_alive(stub: Stub, now: datetime) -> bool:
    return stub.expires_at is None or stub.expires_at > now


def _live(space: Space, key: Key, context: Context, lives: Lives) -> Slot | None:
    slot = space.slots.get(key)
    return slot if slot and _is_live(slot.stub, context, lives) else None


def _is_live(stub: Stub, context: Context, lives: Lives) -> bool:
    return _is_alive(stub, context.now) and (stub.conversation_id is None or lives(stub.conversation_id))


def _scan(space: Space, context: Context, query: RecordQuery, lives: Lives) -> Iterator[Slot]:
    """One more than the limit, if there are more."""
    packed = codec.pack_namespace(query.prefix)
    found = 0
    for at in space.range(query):
        namespace, key = place = space.order[at]
        slot = space.slots[place]
        if (
            (not query.exact or namespace == packed)
            and key.startswith(query.key_prefix)
            and _is_live(slot.stub, context, lives)
        ):
            yield slot
            found += 1
            if found > query.limit:
                return


def _raw(record: Record) -> Raw:
    is_bytes = isinstance(record.value, bytes)
    stored = Stored(
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


def _record(stored: Stored) -> Record:
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
