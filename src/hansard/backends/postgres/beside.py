"""What is kept beside the messages: summaries, records, usage, and what a user leaves elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hansard import codec, rules
from hansard.backends.postgres import rows
from hansard.backends.postgres.engine import Work
from hansard.backends.postgres.errors import Raced
from hansard.backends.postgres.link import Link, Row
from hansard.backends.values import own_record
from hansard.contract.types import Context, Participation, RecordQuery, RecordWrite
from hansard.model import Conversation, Receipt, Record, Summary, UsageRow, to_micros

_FOREVER = "9999-99-99"

Key = tuple[bytes, str]
"""A record's packed namespace, and its key."""


async def list_summaries(link: Link, context: Context, id: str, branch: str | None) -> list[Summary]:
    found = await link.all("read_summaries", context.tenant, id, to_micros(context.horizon), context.user)
    return [rows.summary_of(row, id) for row in found if branch in (None, row[0])]


# Records


def key_of(namespace: tuple[str, ...], key: str) -> Key:
    return codec.pack_namespace(namespace), key


async def get_records(link: Link, context: Context, keys: Sequence[Key]) -> list[Record | None]:
    found = await _find_records(link, context, keys)
    return [_live(context, found.get(key)) for key in keys]


async def _find_records(link: Link, context: Context, keys: Sequence[Key]) -> dict[Key, Row]:
    place = (context.tenant, context.user or "", *rows.columns(list(dict.fromkeys(keys)), 2))
    return {(row[0], row[1]): row for row in await link.all("find_records", *place)}


def _live(context: Context, row: Row | None) -> Record | None:
    """A record that has not expired, and whose conversation, if it has one, can be seen."""
    if row is None:
        return None
    *_, conversation, exists, user_id, expires_at = row
    if conversation is not None:
        shadow = Conversation(conversation, user_id, expires_at=rows.time_of(expires_at))
        if not exists or not rules.is_visible(shadow, context):
            return None
    record = rows.record_of(row)
    return record if rules.is_alive(record, context.now) else None


async def write_records(work: Work, context: Context, writes: Sequence[RecordWrite]) -> list[Record | None]:
    """Locks, then plans everything before it writes anything."""
    await _hold_conversations(work, context, writes)
    keys = [key_of(write.namespace, write.key) for write in writes]
    stored = await _lock_records(work, context, keys)
    planned: dict[Key, Record | None] = {}
    results: list[Record | None] = []
    for key, write in zip(keys, writes, strict=True):
        current = planned[key] if key in planned else _live(context, stored.get(key))
        planned[key] = rules.plan_record(context, write, current)
        results.append(current if write.delete else planned[key])
    place = (work.tenant, context.user or "")
    gone = [key for key in stored if planned[key] is None]
    if gone:
        await work.link.run("delete_records", *place, *rows.columns(gone, 2))
    for key, record in planned.items():
        if record is None:
            continue
        row = (*place, *rows.record_row(record))
        if not await (work.link.run("save_record", *row) if key in stored else work.link.run("insert_record", *row)):
            raise Raced(f"record {record.key!r} was made by somebody else at the same moment")
    return [own_record(record) if record else None for record in results]


async def _hold_conversations(work: Work, context: Context, writes: Sequence[RecordWrite]) -> None:
    """Those that records shall belong to: they must exist, and stay until the records are written."""
    named = {write.conversation_id for write in writes if write.conversation_id is not None and not write.delete}
    if not named:
        return
    found = await work.link.all("hold_conversations", work.tenant, sorted(named))
    seen = {
        row[0]
        for row in found
        if rules.is_visible(Conversation(row[0], row[1], expires_at=rows.time_of(row[2])), context)
    }
    for id in sorted(named - seen):
        raise rules.not_found(id)


async def _lock_records(work: Work, context: Context, keys: Sequence[Key]) -> dict[Key, Row]:
    """Those of the records that are there, for us alone."""
    unique = list(dict.fromkeys(keys))
    locked = await work.link.all("lock_records", work.tenant, context.user or "", *rows.columns(unique, 2))
    stored = await _find_records(work.link, context, unique)
    if len(stored) != len(locked):
        raise Raced("a record was made by somebody else at the same moment")
    return stored


async def scan_records(link: Link, context: Context, query: RecordQuery) -> tuple[list[Record], bool]:
    sql, values = select_records(context, query)
    found = [rows.record_of(row) for row in await link.fetch(link.in_schema(sql), values)]
    return found[: query.limit], len(found) > query.limit


_CONVERSATION_IS_SEEN = (
    "(r.conversation IS NULL OR (c.id IS NOT NULL AND (c.expires_at IS NULL OR c.expires_at > $7)"
    " AND ($4::text IS NULL OR c.user_id = $4)))"
)


def select_records(context: Context, query: RecordQuery) -> tuple[str, list[Any]]:
    """A page of those that are alive, one longer if there are more. Made of constant fragments."""
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


# Users and usage


async def participations(link: Link, context: Context, participant_id: str, limit: int) -> list[Participation]:
    values = (rows.escaped(participant_id), context.user, to_micros(context.horizon), limit)
    found: dict[str, list[str]] = {}
    for conversation, id in await link.all("participations", context.tenant, *values):
        found.setdefault(conversation, []).append(id)
    return [Participation(id, ids) for id, ids in found.items()]


async def erase_user_data(work: Work, context: Context, user_id: str) -> Receipt:
    records = await work.link.run("delete_records_of_owner", work.tenant, user_id)
    usage_rows = await work.link.run("delete_usage_of", work.tenant, user_id)
    return Receipt(records=records, usage_rows=usage_rows, at=context.now)


async def usage(link: Link, context: Context, since: str | None, until: str | None) -> list[UsageRow]:
    found = await link.all("find_usage", context.tenant, since or "", until or _FOREVER)
    made = (rows.usage_of(row) for row in found)
    return [row for row in made if rules.counts_anything(row) and context.user in (None, row.user_id)]
