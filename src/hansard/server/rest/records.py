"""Routes of records. A value is JSON in `value`, or bytes in base64 in `data`."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType, structs

from hansard.errors import Conflict, ConversationNotFound, NotFound, QuotaExceeded, Unsupported, ValidationError
from hansard.model import Order, Record
from hansard.server.endpoints import Id, NoQuery, Routes
from hansard.server.request import Request
from hansard.store.records import Delete, Put

_MISSING = (NotFound, ConversationNotFound, Unsupported)
routes = Routes()

Namespace = Annotated[list[Id], Meta(min_length=1)]


class RecordView(Struct, frozen=True, kw_only=True):
    """A record, with `value` or `data`."""

    namespace: list[str]
    key: str
    value: Any = UNSET
    data: bytes | UnsetType = UNSET
    revision: int
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None = None
    conversation_id: str | None = None

    @classmethod
    def of(cls, record: Record) -> RecordView:
        is_bytes = isinstance(record.value, bytes)
        return cls(
            namespace=list(record.namespace),
            key=record.key,
            value=UNSET if is_bytes else record.value,
            data=record.value if is_bytes else UNSET,
            revision=record.revision,
            created_at=record.created_at,
            updated_at=record.updated_at,
            expires_at=record.expires_at,
            conversation_id=record.conversation_id,
        )


class RecordList(Struct, frozen=True):
    """Records. Send `next_cursor` as `after` for the next page."""

    items: list[RecordView | None]
    next_cursor: str | None = None


class ScanQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Repeat `namespace` for each of its elements: `namespace=users&namespace=u_1`."""

    namespace: list[Id] = []
    key_prefix: str = ""
    exact: bool = False
    after: str | None = None
    order: Order = "asc"
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class NamespaceQuery(Struct, frozen=True, forbid_unknown_fields=True):
    namespace: Namespace


class RecordBody(Struct, frozen=True, forbid_unknown_fields=True):
    value: Any = UNSET
    data: bytes | UnsetType = UNSET
    expires_at: datetime | None = None
    conversation_id: Id | None = None


class RecordKey(Struct, frozen=True, forbid_unknown_fields=True):
    namespace: Namespace
    key: Id


class RecordKeys(Struct, frozen=True, forbid_unknown_fields=True):
    keys: list[RecordKey]


class RecordWriteBody(Struct, frozen=True, forbid_unknown_fields=True):
    """One of `delete`, `value` and `data`. With `expected_revision` 0, the record must not exist."""

    namespace: Namespace
    key: Id
    value: Any = UNSET
    data: bytes | UnsetType = UNSET
    delete: bool = False
    expected_revision: Annotated[int, Meta(ge=0)] | None = None
    expires_at: datetime | None = None
    conversation_id: Id | None = None


class RecordBatch(Struct, frozen=True, forbid_unknown_fields=True):
    writes: list[RecordWriteBody]


class RecordDeleted(Struct, frozen=True):
    deleted: bool


@routes.get("/records", errors=(Unsupported,))
async def scan_records(request: Request[ScanQuery, None]) -> RecordList:
    """Records in a namespace and, unless `exact`, its sub-namespaces, ordered by namespace and key."""
    given = structs.asdict(request.query)
    page = await request.store.records.scan(given.pop("namespace"), **given)
    return RecordList([RecordView.of(record) for record in page.items], page.next_cursor)


@routes.get("/records/{key}", etag="revision", errors=_MISSING)
async def get_record(request: Request[NamespaceQuery, None]) -> RecordView:
    """One record."""
    found = await request.store.records.get(request.query.namespace, request.path[0])
    if found is None:
        raise NotFound(f"there is no record {request.path[0]!r} in this namespace")
    return RecordView.of(found)


@routes.put("/records/{key}", etag="revision", versioned=True, errors=(Conflict, QuotaExceeded, *_MISSING))
async def put_record(request: Request[NamespaceQuery, RecordBody]) -> RecordView:
    """Writes a record. `If-Match` is the expected revision; with `If-None-Match: *`, the record must not exist."""
    expected = request.version
    if request.headers.get(b"if-none-match") == b"*":
        expected = 0
    body = request.body
    record = await request.store.records.put(
        request.query.namespace,
        request.path[0],
        _value(body.value, body.data),
        expected_revision=expected,
        expires_at=body.expires_at,
        conversation_id=body.conversation_id,
    )
    return RecordView.of(record)


@routes.delete("/records/{key}", versioned=True, errors=(Conflict, *_MISSING))
async def delete_record(request: Request[NamespaceQuery, None]) -> RecordDeleted:
    """Deletes a record; false if there was none."""
    return RecordDeleted(
        await request.store.records.delete(request.query.namespace, request.path[0], expected_revision=request.version)
    )


@routes.post("/get-records", scope="read", errors=(Unsupported,))
async def get_records(request: Request[NoQuery, RecordKeys]) -> RecordList:
    """Records in the requested order; null for each that does not exist."""
    found = await request.store.records.get_many([(place.namespace, place.key) for place in request.body.keys])
    return RecordList([None if each is None else RecordView.of(each) for each in found])


@routes.post("/write-records", errors=(Conflict, QuotaExceeded, *_MISSING))
async def write_records(request: Request[NoQuery, RecordBatch]) -> RecordList:
    """Writes and deletes records, all or none. Returns each new record, and each deleted one as it was."""
    written = await request.store.records.write([record_write(each) for each in request.body.writes])
    return RecordList([None if each is None else RecordView.of(each) for each in written])


def record_write(write: RecordWriteBody) -> Put | Delete:
    if write.delete:
        return Delete(write.namespace, write.key, write.expected_revision)
    return Put(
        write.namespace,
        write.key,
        _value(write.value, write.data),
        write.expected_revision,
        write.expires_at,
        write.conversation_id,
    )


def _value(value: Any, data: bytes | UnsetType) -> Any:
    if (value is UNSET) == (data is UNSET):
        raise ValidationError("a record needs either `value` or `data`")
    return value if data is UNSET else data
