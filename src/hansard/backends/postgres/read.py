"""Reads: functions of a connection. Those with several statements run on one snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from hansard import codec, rules
from hansard.backends.postgres import rows
from hansard.backends.postgres.connection import PostgresConnection, Row
from hansard.backends.postgres.replica import Reader
from hansard.backends.postgres.state_cache import StampedState, stamped_state_of
from hansard.contract.types import Context, ConversationQuery, MessageQuery, Slice, StoredBranch
from hansard.contract.types import Row as StoredRow
from hansard.errors import NotFound
from hansard.executor import run_in_thread
from hansard.model import Conversation, Message, to_micros

_LONG = 1_000_000
"""Bytes of bodies that are decoded on the event loop; larger pages go to a thread."""
_NO_BOUND = 1 << 62


async def find_state(link: PostgresConnection, context: Context, id: str) -> StampedState | None:
    found = await link.all("find_heads", context.tenant, [id])
    if not found:
        return None
    entry = stamped_state_of(found[0], found[0][-1], context.tenant)
    return entry if rules.is_visible(entry.state.conversation, context) else None


async def find_conversation(link: PostgresConnection, context: Context, id: str) -> Conversation | None:
    row = await link.one("find_conversation", context.tenant, id)
    if row is None:
        return None
    conversation = rows.conversation_of(row, f"conversation {id!r} of tenant {context.tenant!r}")
    return conversation if rules.is_visible(conversation, context) else None


async def find_messages(
    link: PostgresConnection, context: Context, id: str, message_ids: Sequence[str]
) -> list[Message]:
    horizon = to_micros(context.horizon)
    found = await link.all("read_messages", context.tenant, id, rows.possible(message_ids), horizon, context.user)
    by_id = {message.id: message for message in rows.messages_of(found, id)}
    return [by_id[each] for each in message_ids if each in by_id]


# Messages

_MESSAGE = "line, seq, id, role, format, body, created_at, extra"

_ABSENT, _PLAIN, _PARTED = 0, 1, 2
"""The kinds of branches in a statement: missing, reading one segment only, or reading several."""


def select_plain(context: Context, id: str, query: MessageQuery) -> tuple[str, list[Any]]:
    """The page of a branch that reads one segment and whose bodies fit the byte limit: of most branches.

    One row longer if there are more. The same statement checks whether the branch is such a one, and whether its
    conversation is visible.
    """
    limit = None if query.limit is None else query.limit + 1
    values: list[Any] = [
        context.tenant,
        id,
        query.branch,
        limit,
        query.max_bytes,
        to_micros(context.horizon),
        context.user,
    ]
    direction = "DESC" if query.newest_first else "ASC"
    sql = f"""
        SELECT m.*, place.state FROM (
            SELECT b.line, CASE
                WHEN b.line IS NULL THEN {_ABSENT}
                WHEN b.lines = '{{}}' AND ($5::bigint IS NULL OR c.largest * $4::bigint <= $5) THEN {_PLAIN}
                ELSE {_PARTED} END AS state
            FROM hansard.conversations c
            LEFT JOIN hansard.branches b
                ON b.tenant = $1 AND b.conversation = $2 AND b.id = coalesce($3::text, c.branch)
            WHERE c.tenant = $1 AND c.id = $2 AND (c.expires_at IS NULL OR c.expires_at > $6)
                AND ($7::text IS NULL OR c.user_id = $7)
        ) AS place
        LEFT JOIN LATERAL (
            SELECT {_MESSAGE} FROM hansard.messages
            WHERE place.state = {_PLAIN} AND tenant = $1 AND conversation = $2 AND line = place.line
                AND {" AND ".join(_conditions(query, values))}
            ORDER BY seq {direction} LIMIT $4
        ) AS m ON true
    """
    return sql, values


def select_messages(context: Context, id: str, query: MessageQuery, branch: StoredBranch) -> tuple[str, list[Any]]:
    """The page of any branch, one row longer if there are more.

    It takes from each segment of the branch the rows between the query's positions, in the query's order; and of all of
    these, the first ones. Rows beyond the byte limit come without their body. The SQL is made of constant fragments.
    """
    limit = None if query.limit is None else query.limit + 1
    bound = _NO_BOUND if query.max_bytes is None else query.max_bytes
    values: list[Any] = [context.tenant, id, *parts(branch), limit, bound]
    direction = "DESC" if query.newest_first else "ASC"
    order = f"seq {direction}" if query.sort == "seq" else f"created_at {direction}, seq {direction}"
    total = f"sum(size) OVER (ORDER BY {order} ROWS UNBOUNDED PRECEDING)"
    sql = f"""
        SELECT line, seq, id, role, format, CASE WHEN {total} - size < $6 THEN body END, created_at, extra FROM (
            SELECT m.* FROM unnest($3::bigint[], $4::bigint[]) AS part (line, upto)
            CROSS JOIN LATERAL (
                SELECT {_MESSAGE}, size FROM hansard.messages
                WHERE tenant = $1 AND conversation = $2 AND line = part.line AND seq <= part.upto
                    AND {" AND ".join(_conditions(query, values))}
                ORDER BY {order} LIMIT $5
            ) AS m
            ORDER BY {order} LIMIT $5
        ) AS page
        ORDER BY {order}
    """
    return sql, values


def _conditions(query: MessageQuery, values: list[Any]) -> Iterator[str]:
    def parameter(value: Any, kind: str) -> str:
        values.append(value)
        return f"${len(values)}::{kind}"

    yield "true"
    for names, column in ((query.roles, "role"), (query.participant_ids, "participant")):
        if names is not None:
            yield f"{column} = ANY({parameter([rows.escaped(name) for name in sorted(names)], 'text[]')})"
    if query.scope is not None:
        yield f"scope = {parameter(query.scope, 'text')}"
    if query.since is not None:
        yield f"created_at >= {parameter(to_micros(query.since), 'bigint')}"
    if query.until is not None:
        yield f"created_at < {parameter(to_micros(query.until), 'bigint')}"
    if query.pinned is not None:
        yield "pinned" if query.pinned else "NOT pinned"
    for place, sign in ((query.above, ">"), (query.below, "<")):
        if place is not None and query.sort == "seq":
            yield f"seq {sign} {parameter(place[1], 'bigint')}"
        elif place is not None:
            yield f"(created_at, seq) {sign} ({parameter(place[0], 'bigint')}, {parameter(place[1], 'bigint')})"


async def get_plain(link: PostgresConnection, context: Context, id: str, query: MessageQuery) -> list[Row] | None:
    """Returns the rows of a page; None if the branch reads several segments, or the byte limit matters."""
    sql, values = select_plain(context, id, query)
    found = await link.fetch(link.in_schema(sql), values)
    if not found:
        return []
    state = found[0][8]
    if state == _ABSENT:
        raise _no_branch(id, query.branch)
    if state == _PARTED:
        return None
    return [] if found[0][1] is None else found


async def get_parted(
    link: PostgresConnection, context: Context, id: str, query: MessageQuery
) -> tuple[list[Row], bool]:
    """Returns the rows of a page, and whether there are more, in two steps on one snapshot."""
    entry = await find_state(link, context, id)
    if entry is None:
        return [], False
    sql, values = select_messages(context, id, query, entry.state.branch(query.branch))
    found = await link.fetch(link.in_schema(sql), values)
    bound = next((at for at, row in enumerate(found) if row[5] is None), len(found))
    taken = found[:bound][: query.limit]
    return taken, len(found) > len(taken)


def _no_branch(id: str, branch: str | None) -> NotFound:
    return NotFound(f"conversation {id!r} has no branch {branch!r}")


async def get_messages(reader: Reader, context: Context, id: str, query: MessageQuery) -> Slice:
    if query.sort == "seq":
        page = await reader.read(context, partial(get_plain, context=context, id=id, query=query))
        if page is not None:
            return await as_slice(page[: query.limit], id, more=len(page) > (query.limit or len(page)))
    parted = partial(get_parted, context=context, id=id, query=query)
    found, more = await reader.read(context, parted, snapshot=True)
    return await as_slice(found, id, more=more)


async def as_slice(found: Sequence[Row], id: str, *, more: bool) -> Slice:
    """Decodes the messages of these rows, large pages in a thread."""
    if sum([len(row[5]) for row in found]) > _LONG:
        return Slice(await run_in_thread(rows.messages_of, found, id), more)
    return Slice(rows.messages_of(found, id), more)


def parts(branch: StoredBranch) -> tuple[list[int], list[int]]:
    """Returns the segments that a branch reads, and up to which seq."""
    segments = rules.segments(branch)
    return [segment for segment, _ in segments], [upto for _, upto in segments]


# Conversations

_LISTING = (
    "SELECT id, user_id, agent_id, audit_id, title, metadata, summary, created_at, updated_at, last_message_at, "
    "message_count, version, branch, expires_at, archived_at FROM hansard.conversations WHERE "
)


async def list_conversations(
    link: PostgresConnection, context: Context, query: ConversationQuery
) -> tuple[list[Conversation], bool]:
    sql, values = select_conversations(context, query, query.limit + 1, query.offset)
    found = await link.fetch(link.in_schema(sql), values)
    made = [rows.conversation_of(row, "the listing") for row in found]
    return made[: query.limit], len(made) > query.limit


async def list_own(
    link: PostgresConnection, context: Context, query: ConversationQuery, namespace: tuple[str, ...]
) -> tuple[list[Conversation], bool] | None:
    sql, values = select_own(context, query, namespace)
    found = await link.fetch(link.in_schema(sql), values)
    if found[0][-1]:
        return None
    made = [rows.conversation_of(row, "the listing") for row in found if row[0] is not None]
    return made[: query.limit], len(made) > query.limit


def select_own(context: Context, query: ConversationQuery, namespace: tuple[str, ...]) -> tuple[str, list[Any]]:
    """A page, or one row that says that there are shared records of the namespace. One row of NULLs for neither."""
    page, values = select_conversations(context, query, query.limit + 1, query.offset, "NOT noted.exist")
    values.append(codec.pack_namespace(namespace))
    noted = f"SELECT FROM hansard.records WHERE tenant = $1 AND owner = '' AND namespace = ${len(values)}"
    sql = (
        f"SELECT page.*, noted.exist FROM (SELECT EXISTS ({noted}) AS exist) AS noted "
        f"LEFT JOIN LATERAL ({page}) AS page ON true"
    )
    return sql, values


async def list_matching(
    link: PostgresConnection, context: Context, query: ConversationQuery
) -> tuple[list[Conversation], bool]:
    """Compares metadata here, page by page, so that the offset and the limit count matches."""
    matching: list[Conversation] = []
    wanted = query.offset + query.limit + 1
    sql, values = select_conversations(context, query, None, 0)
    async for row in link.each(link.in_schema(sql), values):
        conversation = rows.conversation_of(row, "the listing")
        if rules.has_metadata(conversation, query.metadata):
            matching.append(conversation)
            if len(matching) == wanted:
                break
    page = matching[query.offset :]
    return page[: query.limit], len(page) > query.limit


def select_conversations(
    context: Context, query: ConversationQuery, limit: int | None, offset: int, *more: str
) -> tuple[str, list[Any]]:
    column = "active_at" if query.sort == "last_message_at" else "updated_at"
    values: list[Any] = [context.tenant, to_micros(context.horizon)]
    conditions = ["tenant = $1", "(expires_at IS NULL OR expires_at > $2)", *more]
    for name, value in (("user_id", query.user_id), ("user_id", context.user), ("agent_id", query.agent_id)):
        if value is not None:
            values.append(value)
            conditions.append(f"{name} = ${len(values)}")
    if query.archived is not None:
        conditions.append(f"archived_at IS {'NOT ' if query.archived else ''}NULL")
    for place, sign in ((query.above, ">"), (query.below, "<")):
        if place is not None:
            values += place
            conditions.append(f"({column}, id) {sign} (${len(values) - 1}, ${len(values)})")
    direction = "DESC" if query.newest_first else "ASC"
    sql = f"{_LISTING}{' AND '.join(conditions)} ORDER BY {column} {direction}, id {direction}"
    if limit is not None:
        values += [limit, offset]
        sql += f" LIMIT ${len(values) - 1} OFFSET ${len(values)}"
    return sql, values


# Copying


async def read_rows(
    link: PostgresConnection, context: Context, id: str, after_seq: int, limit: int, max_bytes: int
) -> list[StoredRow]:
    """Returns messages of all segments, ordered by seq."""
    entry = await find_state(link, context, id)
    return await rows_of(link, context.tenant, entry, after_seq, limit, max_bytes) if entry else []


async def rows_of(
    link: PostgresConnection, tenant: str, entry: StampedState, after_seq: int, limit: int, max_bytes: int
) -> list[StoredRow]:
    state = entry.state
    id = state.conversation.id
    segments = sorted({segment for branch in state.branches.values() for segment, _ in rules.segments(branch)})
    found = await link.all("read_segments", tenant, id, segments, after_seq, limit, max_bytes)
    taken = [row for row in found if row[5] is not None]
    messages = await run_in_thread(rows.messages_of, taken, id)
    return [StoredRow(row[0], message) for row, message in zip(taken, messages, strict=True)]
