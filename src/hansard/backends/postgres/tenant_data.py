"""Records, blobs and usage, and a user's data outside conversations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hansard import codec, rules
from hansard.backends.postgres import rows
from hansard.backends.postgres.connection import PostgresConnection, Row
from hansard.backends.postgres.engine import Work
from hansard.backends.postgres.errors import Raced
from hansard.backends.shared.copies import own_record
from hansard.contract.storage import RecordChange, RecordKey
from hansard.contract.types import Context, Draft, Participation, RecordQuery, RecordWrite
from hansard.model import Conversation, Message, Receipt, Record, UsageRow, from_micros, to_micros

_FOREVER = "9999-99-99"

Key = tuple[bytes, str]
"""A record's packed namespace, and its key."""


# Records


def key_of(namespace: tuple[str, ...], key: str) -> Key:
    return codec.pack_namespace(namespace), key


def place_of(context: Context, keys: Iterable[RecordKey]) -> list[Any]:
    """Returns the parameters of the queries that take records by their keys."""
    packed = [key_of(*key) for key in dict.fromkeys(keys)]
    return [context.tenant, context.user or "", *rows.columns(packed, 2)]


async def get_records(link: PostgresConnection, context: Context, keys: Sequence[RecordKey]) -> list[Record | None]:
    found = live_records(context, await link.all("find_records", *place_of(context, keys)))
    return [found.get(key) for key in keys]


def live_records(context: Context, found: Iterable[Row]) -> dict[RecordKey, Record]:
    """Decodes records that have not expired, and whose conversation, if any, is visible."""
    made = (rows.record_of(row) for row in found if _is_seen(context, row))
    return {(record.namespace, record.key): record for record in made if rules.is_alive(record, context.now)}


def _is_seen(context: Context, row: Row) -> bool:
    *_, conversation, exists, user_id, expires_at = row
    if conversation is None:
        return True
    shadow = Conversation(conversation, user_id, expires_at=from_micros(expires_at))
    return bool(exists) and rules.is_visible(shadow, context)


async def write_records(work: Work, context: Context, writes: Sequence[RecordWrite]) -> list[Record | None]:
    """Locks, then plans everything before it writes anything."""
    await _hold_conversations(work, context, writes)
    stored = await lock_records(work, context, [(write.namespace, write.key) for write in writes])
    changes, results = rules.plan_records(context, writes, live_records(context, stored))
    await save_records(work, context, changes, stored)
    return [own_record(record) if record else None for record in results]


async def save_records(work: Work, context: Context, changes: Sequence[RecordChange], stored: Iterable[Row]) -> None:
    """`stored` are the locked rows of all existing records, regardless of who may see them."""
    place = (work.tenant, context.user or "")
    there = {(row[0], row[1]) for row in stored}
    gone = [key for change in changes if change.record is None and (key := key_of(*change.key)) in there]
    if gone:
        await work.link.run("delete_records", *place, *rows.columns(gone, 2))
    for change in changes:
        if change.record is None:
            continue
        row = (*place, *rows.record_row(change.record))
        is_there = key_of(*change.key) in there
        if not await (work.link.run("save_record", *row) if is_there else work.link.run("insert_record", *row)):
            raise Raced(f"record {change.record.key!r} was created by another writer at the same moment")


async def _hold_conversations(work: Work, context: Context, writes: Sequence[RecordWrite]) -> None:
    """Locks the conversations that records will belong to: they must exist until the records are written."""
    named = {write.conversation_id for write in writes if write.conversation_id is not None and not write.delete}
    if not named:
        return
    found = await work.link.all("hold_conversations", work.tenant, sorted(named))
    seen = {
        row[0]
        for row in found
        if rules.is_visible(Conversation(row[0], row[1], expires_at=from_micros(row[2])), context)
    }
    for id in sorted(named - seen):
        raise rules.not_found(id)


async def lock_records(work: Work, context: Context, keys: Sequence[RecordKey]) -> list[Row]:
    """Locks the existing records among these."""
    place = place_of(context, keys)
    locked = await work.link.all("lock_records", *place)
    stored = await work.link.all("find_records", *place)
    if len(stored) != len(locked):
        raise Raced("a record was created by another writer at the same moment")
    return stored


async def scan_records(link: PostgresConnection, context: Context, query: RecordQuery) -> tuple[list[Record], bool]:
    sql, values = select_records(context, query)
    found = [rows.record_of(row) for row in await link.fetch(link.in_schema(sql), values)]
    return found[: query.limit], len(found) > query.limit


_CONVERSATION_IS_SEEN = (
    "(r.conversation IS NULL OR (c.id IS NOT NULL AND (c.expires_at IS NULL OR c.expires_at > $7)"
    " AND ($4::text IS NULL OR c.user_id = $4)))"
)


def select_records(context: Context, query: RecordQuery) -> tuple[str, list[Any]]:
    """A page of live records, one longer if there are more. Made of constant fragments."""
    prefix = codec.pack_namespace(query.prefix)
    now, horizon = to_micros(context.now), to_micros(context.horizon)
    values: list[Any] = [context.tenant, context.user or "", now, context.user, query.limit + 1, prefix, horizon]
    conditions = ["r.tenant = $1", "r.owner = $2", "(r.expires_at IS NULL OR r.expires_at > $3)", _CONVERSATION_IS_SEEN]
    if query.exact:
        conditions.append("r.namespace = $6")
    else:
        values.append(prefix + b"\xff")
        conditions.append("r.namespace >= $6 AND r.namespace < $8")
    if query.after is not None:
        values += key_of(*query.after)
        sign = "<" if query.newest_first else ">"
        conditions.append(f"(r.namespace, r.key) {sign} (${len(values) - 1}, ${len(values)})")
    if query.key_prefix:
        values.append(query.key_prefix)
        conditions.append(f"r.key >= ${len(values)} AND starts_with(r.key, ${len(values)})")
    direction = "DESC" if query.newest_first else "ASC"
    sql = (
        "SELECT r.namespace, r.key, r.value, r.data, r.revision, r.created_at, r.updated_at, r.expires_at, "
        "r.conversation FROM hansard.records r "
        "LEFT JOIN hansard.conversations c ON c.tenant = r.tenant AND c.id = r.conversation "
        f"WHERE {' AND '.join(conditions)} ORDER BY r.namespace {direction}, r.key {direction} LIMIT $5"
    )
    return sql, values


# Blobs


async def get_blobs(link: PostgresConnection, context: Context, digests: Sequence[str]) -> dict[str, bytes]:
    found = await link.all("find_blobs", context.tenant, list(digests)) if digests else []
    return {sha256: data for sha256, data in found}  # noqa: C416  (asyncpg's rows are no pairs)


async def keep_blobs(work: Work, blobs: Mapping[str, bytes], keep_until: int = 0) -> None:
    """Blobs that come with a message need no keeping time: the message refers to them at once."""
    for sha256, data in sorted(blobs.items()):
        await work.link.run("keep_blobs", work.tenant, [sha256], [data], keep_until)


Use = tuple[str, int, int, str]
"""The conversation, segment and seq of a message, and the hash of a blob that it refers to."""


def uses_of(id: str, inserted: Iterable[tuple[int, Sequence[tuple[Message, Draft]]]]) -> list[Use]:
    """Returns the blob references of `Changes.insert`."""
    return [
        (id, segment, message.seq, ref.sha256)
        for segment, fresh in inserted
        for message, _ in fresh
        for ref in message.blobs
    ]


async def use_blobs(work: Work, uses: Sequence[Use], blobs: Mapping[str, bytes]) -> None:
    """Stores references to blobs. A blob is locked first, so that it is not dropped at the same moment."""
    if uses:
        await keep_blobs(work, blobs)
        await work.link.all("lock_blobs", work.tenant, sorted({use[3] for use in uses}))
        await work.link.run("use_blobs", work.tenant, *rows.columns(uses, 4))


async def drop_blobs(work: Work, context: Context, candidates: Iterable[str]) -> int:
    """Drops the blobs among these that no message refers to any longer.

    The lock comes first, in a statement of its own: the next one sees the references of the previous holders.
    """
    digests = sorted(set(candidates))
    if not digests:
        return 0
    await work.link.all("lock_blobs", work.tenant, digests)
    return await work.link.run("drop_blobs", work.tenant, digests, to_micros(context.now))


# Users and usage


async def participations(
    link: PostgresConnection, context: Context, participant_id: str, limit: int
) -> list[Participation]:
    values = (rows.escaped(participant_id), context.user, to_micros(context.horizon), limit)
    found: dict[str, list[str]] = {}
    for conversation, id in await link.all("participations", context.tenant, *values):
        found.setdefault(conversation, []).append(id)
    return [Participation(id, ids) for id, ids in found.items()]


async def erase_user_data(work: Work, context: Context, user_id: str) -> Receipt:
    records = await work.link.run("delete_records_of_owner", work.tenant, user_id)
    usage_rows = await work.link.run("delete_usage_of", work.tenant, user_id)
    return Receipt(records=records, usage_rows=usage_rows, at=context.now)


async def usage(link: PostgresConnection, context: Context, since: str | None, until: str | None) -> list[UsageRow]:
    between = (since or "", until or _FOREVER)
    if context.user is None:
        found = await link.all("find_usage", context.tenant, *between)
    else:
        found = await link.all("find_usage_of", context.tenant, context.user, *between)
    return [row for row in map(rows.usage_of, found) if rules.counts_anything(row)]


async def add_usage(work: Work, added: Sequence[UsageRow]) -> None:
    if added:
        made = [rows.usage_row(row) for row in added]
        await work.link.run("add_usage", work.tenant, *rows.columns(made, len(made[0])))
