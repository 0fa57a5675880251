"""Records: those of one owner are one partition, so a call is one conditional batch. Shared records have owner "".

A record that belongs to a conversation is *tied* there first, by a row that its deletion finds. One whose conversation
is gone, or is another of the same id, is dead: readers pass over it.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from hansard import codec, rules
from hansard.backends.cassandra import read, rows, uploads
from hansard.backends.cassandra.catalog import NameCatalog
from hansard.backends.cassandra.connection import Link, Row, Statement, some_at_once
from hansard.backends.cassandra.effects import Due
from hansard.backends.cassandra.heads import Heads
from hansard.backends.cassandra.rows import CassandraRecord, Head
from hansard.backends.cassandra.uploads import UploadPlace
from hansard.backends.shared import documents, turns
from hansard.backends.shared.turns import Turn
from hansard.contract.storage import RecordChange, RecordKey
from hansard.contract.types import Context, RecordQuery, RecordWrite
from hansard.errors import TimedOut
from hansard.model import Record, to_micros

_PIECE = 200
_PATIENCE = 30.0
_END = b"\xff"
"""After every namespace: no text contains it, and elements end with another byte."""


_Condition = Callable[[CassandraRecord], bool]


class ReadRecord(msgspec.Struct, frozen=True):
    """A record as it is stored."""

    stamp: str
    row: CassandraRecord
    upload: str | None


class _Document(msgspec.Struct, array_like=True, frozen=True):
    """The document of a row: the record, or the upload that holds it if it is large."""

    row: CassandraRecord | None = None
    upload: str | None = None


class RecordTable:
    def __init__(self, link: Link, catalog: NameCatalog, heads: Heads) -> None:
        self._link = link
        self._heads = heads
        self._catalog = catalog
        self._turns: turns.Queues = {}

    # Reading

    async def get(self, context: Context, keys: Sequence[RecordKey]) -> list[Record | None]:
        stored = await self._load(context.tenant, context.user or "", keys)
        homes = await self._homes(context.tenant, stored)
        return [rows.record_of(each.row) if each and _is_alive(context, each.row, homes) else None for each in stored]

    async def _load(self, tenant: str, owner: str, keys: Sequence[RecordKey]) -> list[ReadRecord | None]:
        return await some_at_once(self._load_one(tenant, owner, key) for key in keys)

    async def _load_one(self, tenant: str, owner: str, key: RecordKey) -> ReadRecord | None:
        while True:
            found = await self._link.read("read_record", tenant, owner, codec.pack_namespace(key[0]), key[1])
            if not found:
                return None
            stored = await self._stored(found[0])
            if stored is not None:
                return stored

    async def _stored(self, row: Row) -> ReadRecord | None:
        """None if another writer has replaced the record, and its upload, since the row was read."""
        _, key, stamp, doc = row
        where = f"record {key!r}"
        document = documents.decode(doc, _Document, where)
        if document.row is not None:
            return ReadRecord(stamp, document.row, None)
        data = await uploads.get(self._link, document.upload or "")
        return (
            None if data is None else ReadRecord(stamp, documents.decode(data, CassandraRecord, where), document.upload)
        )

    async def _homes(self, tenant: str, found: Sequence[ReadRecord | None]) -> dict[str, Head | None]:
        """The conversations that these belong to."""
        ids = {id for each in found if each and (id := each.row.record.conversation_id) is not None}
        return await read.load_many(self._link, tenant, ids)

    async def scan(self, context: Context, query: RecordQuery) -> tuple[list[Record], bool]:
        found: list[Record] = []
        low, high = _range(query)
        name = "read_records_backwards" if query.newest_first else "read_records"
        piece = min(query.limit + 1, _PIECE)
        while len(found) <= query.limit:
            page = await self._link.read(name, context.tenant, context.user or "", *low, *high, piece)
            found += await self._matching(context, query, page)
            if len(page) < piece:
                break
            last = (page[-1][0], page[-1][1])
            low, high = (low, last) if query.newest_first else (_after(last), high)
            piece = _PIECE
        return found[: query.limit], len(found) > query.limit

    async def _matching(self, context: Context, query: RecordQuery, page: Sequence[Row]) -> list[Record]:
        wanted = [row for row in page if row[1].startswith(query.key_prefix)]
        if query.exact:
            wanted = [row for row in wanted if row[0] == codec.pack_namespace(query.prefix)]
        stored = [await self._stored(row) for row in wanted]
        homes = await self._homes(context.tenant, stored)
        return [rows.record_of(each.row) for each in stored if each and _is_alive(context, each.row, homes)]

    # Writing

    async def write(self, context: Context, writes: Sequence[RecordWrite]) -> list[Record | None]:
        owner = context.user or ""
        keys = list(dict.fromkeys((write.namespace, write.key) for write in writes))
        give_up = time.monotonic() + _PATIENCE
        async with Turn(self._turns, (context.tenant, owner)):
            while time.monotonic() < give_up:
                homes = await self._required(context, writes)
                stored = dict(zip(keys, await self._load(context.tenant, owner, keys), strict=True))
                known = homes | await self._homes(context.tenant, list(stored.values()))
                alive = {
                    key: rows.record_of(each.row)
                    for key, each in stored.items()
                    if each and _is_alive(context, each.row, known)
                }
                changes, results = rules.plan_records(context, writes, alive)
                if await self._store(context, owner, changes, stored, homes):
                    return results
        raise TimedOut(f"others kept changing these records for {_PATIENCE:g} seconds", outcome="not_applied")

    async def _required(self, context: Context, writes: Sequence[RecordWrite]) -> dict[str, Head | None]:
        """The conversations that records will belong to, which must be there."""
        homes: dict[str, Head | None] = {}
        for write in writes:
            id = write.conversation_id
            if id is not None and not write.delete and id not in homes:
                head = await read.load(self._link, (context.tenant, id))
                if head is None or head.state is None or not rules.is_visible(head.state.conversation, context):
                    raise rules.not_found(id)
                homes[id] = head
        return homes

    async def _store(
        self,
        context: Context,
        owner: str,
        changes: Sequence[RecordChange],
        stored: Mapping[RecordKey, ReadRecord | None],
        homes: Mapping[str, Head | None],
    ) -> bool:
        """False if another writer has changed one of the records."""
        tenant = context.tenant
        await self._announce(tenant, owner, changes)
        for change in changes:
            home = homes.get(change.record.conversation_id or "") if change.record else None
            if home is not None and not await self._tie(tenant, owner, change, home):
                return False
        batch: list[Statement] = []
        made: list[str] = []
        for change in changes:
            statement, upload = await self._statement(tenant, owner, change, stored[change.key], homes)
            batch += [statement] if statement else []
            made += [upload] if upload else []
        if not batch:
            return True
        if not await self._link.swap(batch):
            await self._delete_uploads(made)
            return False
        replaced = [(each, change.record) for change in changes if (each := stored[change.key])]
        await self._delete_uploads([each.upload for each, _ in replaced if each.upload])
        await self._retract(tenant, owner, (each for each, new in replaced if _expiry(each.row.record) != _expiry(new)))
        await self._announce(tenant, owner, changes)
        await self._check_homes(tenant, owner, changes, homes)
        return True

    async def _check_homes(
        self, tenant: str, owner: str, changes: Sequence[RecordChange], homes: Mapping[str, Head | None]
    ) -> None:
        """Deletes the records again if their conversation was deleted meanwhile."""
        for id, home in homes.items():
            now = await read.load(self._link, (tenant, id))
            if home is not None and (now is None or now.state is None or now.birth != home.birth):
                for change in changes:
                    if change.record is not None and change.record.conversation_id == id:
                        await self.drop_bound(tenant, (owner, *change.key), home.birth)

    async def _delete_uploads(self, names: Sequence[str]) -> None:
        await some_at_once(uploads.delete(self._link, name) for name in names)

    async def _announce(self, tenant: str, owner: str, changes: Sequence[RecordChange]) -> None:
        """Stores the names that others find the records by. Called before the batch, and again after it."""
        kept = [change.record for change in changes if change.record is not None]
        if kept:
            await self._catalog.add("tenant", "", tenant)
            await self._catalog.add("owner", tenant, owner)
        for record in kept:
            if record.expires_at is not None:
                await self._catalog.put_due(tenant, *_due(owner, record), to_micros(record.updated_at))

    async def _retract(self, tenant: str, owner: str, old: Iterable[ReadRecord]) -> None:
        """Removes the entries that say when these expire: they name the owner and the key.

        At equal times Cassandra keeps the deletion, so each removes exactly the entry of its record.
        """
        for each in old:
            if each.row.record.expires_at is not None:
                at, kind, name = _due(owner, each.row.record)
                await self._catalog.remove_due(tenant, at, kind, name, to_micros(each.row.record.updated_at))

    async def _tie(self, tenant: str, owner: str, change: RecordChange, home: Head) -> bool:
        """Notes at the conversation that the record belongs to it, if it is still the same."""
        assert change.record is not None
        assert change.record.conversation_id is not None
        name = (tenant, change.record.conversation_id)
        doc = documents.encode([owner, *change.key])
        place = (rows.BESIDE, rows.TIE, home.birth, 0, codec.sha256_of(doc))
        tie: Statement = ("put_row", (self._link.prefix, *name, *place, doc))
        # The stamp changes, so that a concurrent deletion of the conversation reads its ties again.
        while await self._heads.swap(name, home, home, [tie]) is None:
            now = await read.load(self._link, name)
            if now is None or now.birth != home.birth or now.state is None:
                return False
            home = now
        return True

    async def _statement(
        self,
        tenant: str,
        owner: str,
        change: RecordChange,
        stored: ReadRecord | None,
        homes: Mapping[str, Head | None],
    ) -> tuple[Statement | None, str | None]:
        """What to do in the batch, and the upload that was made for it."""
        key = (self._link.prefix, tenant, owner, codec.pack_namespace(change.key[0]), change.key[1])
        record = change.record
        if record is None:
            return (("delete_record", (*key, stored.stamp)) if stored else None), None
        home = homes.get(record.conversation_id) if record.conversation_id is not None else None
        row = rows.stored_record(record, home.birth if home else 0)
        document, upload = _Document(row), None
        data = documents.encode(row)
        if len(data) > uploads.LARGE:
            upload = uploads.new_name()
            await self._catalog.put_due_upload(tenant, upload, UploadPlace(None, owner, *change.key))
            await uploads.put(self._link, upload, data)
            document = _Document(None, upload)
        stamp, doc = secrets.token_hex(8), documents.encode(document)
        if stored is None:
            return ("create_record", (*key, stamp, doc)), upload
        return ("swap_record", (stamp, doc, *key, stored.stamp)), upload

    # Removing

    async def drop_bound(self, tenant: str, place: tuple[str, tuple[str, ...], str], birth: int) -> int:
        """Deletes a record if it belongs to the conversation of this birth."""
        owner, namespace, key = place
        return await self._drop(tenant, owner, (namespace, key), lambda row: row.birth == birth)

    async def drop_expired(self, context: Context, owner: str, key: RecordKey) -> int:
        return await self._drop(context.tenant, owner, key, lambda row: not rules.is_alive(row.record, context.now))

    async def upload_of(self, tenant: str, owner: str, key: RecordKey) -> str | None:
        found = await self._link.read("read_record", tenant, owner, codec.pack_namespace(key[0]), key[1], serial=True)
        return documents.decode(found[0][3], _Document, f"record {key[1]!r}").upload if found else None

    async def _drop(self, tenant: str, owner: str, key: RecordKey, is_meant: _Condition) -> int:
        while True:
            stored = await self._load_one(tenant, owner, key)
            if stored is None or not is_meant(stored.row):
                return 0
            place = (self._link.prefix, tenant, owner, codec.pack_namespace(key[0]), key[1])
            if await self._link.swap([("delete_record", (*place, stored.stamp))]):
                await self._delete_uploads([stored.upload] if stored.upload else [])
                await self._retract(tenant, owner, [stored])
                return 1

    async def erase(self, tenant: str, owner: str) -> int:
        """Deletes all records of an owner; returns how many that were."""
        gone = 0
        while page := await self._link.read("read_records", tenant, owner, b"", "", _END, "", _PIECE):
            key = (self._link.prefix, tenant, owner)
            batch: list[Statement] = [("delete_record", (*key, row[0], row[1], row[2])) for row in page]
            old = [each for row in page if (each := await self._stored(row))]
            if await self._link.swap(batch):
                gone += len(page)
                await self._delete_uploads([each.upload for each in old if each.upload])
                await self._retract(tenant, owner, old)
        await self._catalog.remove("owner", tenant, owner)
        if await self.count(tenant, owner):
            # Another writer has put one since.
            await self._catalog.add("owner", tenant, owner)
        return gone

    async def count(self, tenant: str, owner: str) -> int:
        ((number,),) = await self._link.read("count_records", tenant, owner)
        return int(number)

    async def owners(self, tenant: str) -> list[tuple[str, int]]:
        """The owners of records, and how many each has."""
        found = [(owner, await self.count(tenant, owner)) for owner in await self._catalog.names("owner", tenant)]
        return [(owner, number) for owner, number in found if number]


def _expiry(record: Record | None) -> datetime | None:
    return record.expires_at if record else None


def _due(owner: str, record: Record) -> Due:
    assert record.expires_at is not None
    name = documents.encode([owner, record.namespace, record.key]).decode()
    return to_micros(record.expires_at), "record", name


def _is_alive(context: Context, row: CassandraRecord, homes: Mapping[str, Head | None]) -> bool:
    id = row.record.conversation_id
    if id is not None:
        home = homes.get(id)
        if home is None or home.state is None or home.birth != row.birth:
            return False
        if not rules.is_visible(home.state.conversation, context):
            return False
    return rules.is_alive(row.record, context.now)


def _after(place: tuple[bytes, str]) -> tuple[bytes, str]:
    return place[0], place[1] + "\0"


def _range(query: RecordQuery) -> tuple[tuple[bytes, str], tuple[bytes, str]]:
    """From a place to before another."""
    prefix = codec.pack_namespace(query.prefix)
    low = (prefix, query.key_prefix if query.exact else "")
    high = (prefix + _END, "")
    if query.after is None:
        return low, high
    place = (codec.pack_namespace(query.after[0]), query.after[1])
    return (low, min(high, place)) if query.newest_first else (max(low, _after(place)), high)
