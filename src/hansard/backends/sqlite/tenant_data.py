"""Records, blobs, usage and users, and operations on the whole file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

from hansard import codec, rules
from hansard.backends.sqlite import index, removal, rows
from hansard.backends.sqlite.errors import decodes, next_number
from hansard.backends.sqlite.queries import QUERIES
from hansard.backends.sqlite.rows import Row
from hansard.backends.sqlite.writer import SqliteWriter
from hansard.contract.storage import RecordChange, RecordKey
from hansard.contract.types import Context, Participation, RecordQuery, RecordWrite, Swept
from hansard.model import Conversation, Receipt, Record, Stats, UsageRow, to_micros

_FIND_RECORD = QUERIES["find_record"]
_FIND_REVISION = QUERIES["find_revision"]
_HAS_SHARED_RECORDS = QUERIES["has_shared_records"]
_FOREVER = "9999-99-99"
_MOST_UNINDEXED = 10_000
_SWEPT_PAGES = 2000
"""Pages of the search index that one sweep may merge."""


# Blobs


def put_blob(writer: SqliteWriter, context: Context, sha256: str, data: bytes, keep_until: datetime) -> None:
    writer.run("keep_blob", context.tenant, sha256, to_micros(keep_until), data)


# Records


def find_record(
    connection: sqlite3.Connection, context: Context, namespace: tuple[str, ...], key: str
) -> Record | None:
    """Returns a live record."""
    place = (context.tenant, context.user or "", codec.pack_namespace(namespace), key)
    row = connection.execute(_FIND_RECORD, place).fetchone()
    return _live(connection, context, row) if row else None


def _live(connection: sqlite3.Connection, context: Context, row: Row) -> Record | None:
    """Decodes the record of a row, unless it has expired or its conversation is not visible to this context."""
    conversation_id = None
    if row[8] is not None:
        owner = connection.execute(QUERIES["conversation_of_record"], (row[8],)).fetchone()
        if owner is None or not rules.is_visible(_shadow(owner), context):
            return None
        conversation_id = owner[0]
    record = rows.record_of(row, conversation_id)
    return record if rules.is_alive(record, context.now) else None


def _shadow(row: Row) -> Conversation:
    return Conversation(row[0], row[1], expires_at=rows.time_of(row[2]))


def write_records(writer: SqliteWriter, context: Context, writes: Sequence[RecordWrite]) -> list[Record | None]:
    """Plans everything before it writes anything: a conflict leaves nothing to undo."""
    current: dict[RecordKey, Record] = {}
    owners: dict[RecordKey, int | None] = {}
    for write in writes:
        key, owner = (write.namespace, write.key), None
        if write.conversation_id is not None and not write.delete:
            owner = writer.require(context, write.conversation_id).pk
        if key not in owners and (found := _found(writer, context, write, owner)) is not None:
            current[key] = found
        owners[key] = owner
    changes, results = rules.plan_records(context, writes, current)
    for change in changes:
        put_record(writer, context, change, owners[change.key])
    return results


def _found(writer: SqliteWriter, context: Context, write: RecordWrite, owner: int | None) -> Record | None:
    """Returns the current record for a write.

    One of the same conversation that it replaces is not decoded completely.
    """
    if owner is not None:
        place = (context.tenant, context.user or "", codec.pack_namespace(write.namespace), write.key)
        row = writer.execute(_FIND_REVISION, place).fetchone()
        if row is None:
            return None
        revision, created_at, expires_at, conversation = row
        if conversation == owner:
            times = (rows.moment_of(created_at), context.now, rows.time_of(expires_at))
            record = Record(write.namespace, write.key, None, revision, *times)
            return record if rules.is_alive(record, context.now) else None
    return find_record(writer.connection, context, write.namespace, write.key)


def put_record(writer: SqliteWriter, context: Context, change: RecordChange, conversation: int | None) -> None:
    owner, (namespace, key) = context.user or "", change.key
    if change.record is None:
        writer.run("delete_record", context.tenant, owner, codec.pack_namespace(namespace), key)
    else:
        writer.run("put_record", *rows.record_row(context.tenant, owner, change.record, conversation))


def scan_records(connection: sqlite3.Connection, context: Context, query: RecordQuery) -> tuple[list[Record], bool]:
    found = list(islice(_scan(connection, context, query), query.limit + 1))
    return found[: query.limit], len(found) > query.limit


def has_shared_records(connection: sqlite3.Connection, context: Context, namespace: tuple[str, ...]) -> bool:
    """Whether there are records of a namespace outside users' views, including expired ones."""
    values = (context.tenant, codec.pack_namespace(namespace))
    return connection.execute(_HAS_SHARED_RECORDS, values).fetchone() is not None


def _scan(connection: sqlite3.Connection, context: Context, query: RecordQuery) -> Iterator[Record]:
    prefix = codec.pack_namespace(query.prefix)
    conditions = ["tenant = ?", "owner = ?", "namespace >= ?", "namespace < ?"]
    values: list[Any] = [context.tenant, context.user or "", prefix, prefix + b"\xff"]
    if query.exact:
        conditions.append("namespace = ?")
        values.append(prefix)
    if query.after is not None:
        conditions.append(f"(namespace, key) {'<' if query.newest_first else '>'} (?, ?)")
        values += [codec.pack_namespace(query.after[0]), query.after[1]]
    if query.exact and query.key_prefix:
        conditions.append("key >= ?")
        values.append(query.key_prefix)
    direction = "DESC" if query.newest_first else "ASC"
    sql = (
        "SELECT pk, namespace, key, value, revision, created_at, updated_at, expires_at, conversation FROM records "
        f"WHERE {' AND '.join(conditions)} ORDER BY namespace {direction}, key {direction}"
    )
    for row in connection.execute(sql, values):
        record = _live(connection, context, row)
        if record is not None and record.key.startswith(query.key_prefix):
            yield record


# Users and time


def participations(
    connection: sqlite3.Connection, context: Context, participant_id: str, limit: int
) -> list[Participation]:
    found: dict[str, list[str]] = {}
    after = 0
    for key, id, user_id, expires_at, message_id, extra in connection.execute(
        QUERIES["participations"], (participant_id, context.tenant)
    ):
        after = next_number(after, key)
        who = codec.decode_extra(extra, f"message {message_id!r}").participant
        if who is None or who.kind != "user" or not rules.is_visible(_shadow((id, user_id, expires_at)), context):
            continue
        found.setdefault(id, []).append(message_id)
        limit -= 1
        if limit == 0:
            break
    return [Participation(id, ids) for id, ids in found.items()]


def erase_user_data(writer: SqliteWriter, context: Context, user_id: str) -> Receipt:
    records = writer.run("delete_records_of_owner", context.tenant, user_id).rowcount
    usage_rows = writer.run("delete_usage_of", context.tenant, user_id, context.tenant, context.tenant).rowcount
    return Receipt(records=records, usage_rows=usage_rows, at=context.now)


def sweep(writer: SqliteWriter, context: Context, limit: int) -> Swept:
    """Removes a bounded amount of data that has expired or is no longer needed."""
    now = to_micros(context.now)
    total = Receipt(at=context.now)
    expired = writer.run("expired_conversations", now, limit).fetchall()
    for tenant, id in expired:
        entry = writer.load(tenant, id)
        if entry is not None:
            total += removal.drop(writer, Context(tenant, context.now), entry)
    records = [pk for (pk,) in writer.run("expired_records", now, limit)]
    for pk in records:
        writer.run("delete_record_by_pk", pk)
    blobs = [pk for (pk,) in writer.run("unused_blobs", now, limit)]
    for pk in blobs:
        writer.run("drop_blob", pk, now)
    tombstones = writer.run("delete_old_tombstones", to_micros(context.now - rules.TOMBSTONE_LIFE)).rowcount
    writer.clear_tombstones()
    total += Receipt(records=len(records), blobs=len(blobs), at=context.now)
    # An index of another version stays as it is until it is rebuilt: another sweep would not help.
    cleaned = index.clean_some(writer, _SWEPT_PAGES) or not index.state_of(writer.connection).is_ours
    more = limit in (len(expired), len(records), len(blobs)) or not cleaned
    return Swept(receipt=total, tombstones=tombstones, more=more)


def usage(connection: sqlite3.Connection, context: Context, since: str | None, until: str | None) -> list[UsageRow]:
    tenant, first, end = context.tenant, since or "", until or _FOREVER
    if context.user is None:
        found = connection.execute(QUERIES["find_usage"], (tenant, first, end))
    else:
        found = connection.execute(QUERIES["find_usage_of"], (tenant, context.user, tenant, first, tenant, end, end))
    return [row for row in map(rows.usage_of, found) if rules.counts_anything(row)]


# The whole file


def list_tenants(connection: sqlite3.Connection) -> list[str]:
    return [name for (name,) in connection.execute(QUERIES["list_tenants"])]


def stats(connection: sqlite3.Connection, tenant: str | None) -> Stats:
    if tenant is None:
        others, days = connection.execute(QUERIES["count_others"]), connection.execute(QUERIES["count_by_days"])
    else:
        others = connection.execute(QUERIES["count_others_of_tenant"], (tenant,))
        days = connection.execute(QUERIES["count_by_days_of_tenant"], (tenant,))
    records, blobs, blob_bytes = others.fetchone()
    indexed = index.state_of(connection).indexed
    unindexed = connection.execute(QUERIES["count_unindexed"], (indexed, _MOST_UNINDEXED, tenant)).fetchone()[0]
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    size = connection.execute("PRAGMA page_size").fetchone()[0]
    conversations, messages, active = _totals(days.fetchall())
    return Stats(
        backend="sqlite",
        tenants=len(list_tenants(connection)) if tenant is None else int(bool(conversations or records or blobs)),
        conversations=conversations,
        messages=messages,
        records=records,
        blobs=blobs,
        blob_bytes=blob_bytes,
        bytes=pages * size if tenant is None else None,
        unindexed=unindexed,
        active=active,
    )


@decodes
def _totals(days: Sequence[Row]) -> tuple[int, int, dict[str, int]]:
    """Returns the number of conversations and messages, and the active days, from the rows of `count_by_days`."""
    conversations = sum(conversations for *_, conversations in days)
    messages = sum(messages * conversations for *_, messages, conversations in days)
    return conversations, messages, rules.spread((first, last, each, number) for first, last, each, number in days)


def delete_tenant(writer: SqliteWriter, context: Context) -> Receipt:
    writer.flush()
    total = Receipt(at=context.now)
    for (id,) in writer.run("ids_of_tenant", context.tenant).fetchall():
        entry = writer.load(context.tenant, id)
        assert entry is not None
        total += removal.drop(writer, context, entry)
    records = writer.run("delete_tenant_records", context.tenant).rowcount
    blobs = writer.run("delete_tenant_blobs", context.tenant).rowcount
    usage_rows = writer.run("delete_tenant_usage", context.tenant).rowcount
    writer.run("delete_tenant_tombstones", context.tenant)
    writer.clear_tombstones()
    writer.run("delete_search_tenant", context.tenant)
    return total + Receipt(records=records, blobs=blobs, usage_rows=usage_rows, at=context.now)
