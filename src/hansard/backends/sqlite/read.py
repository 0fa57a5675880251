"""Reads: functions of a connection, each on one snapshot of the database."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import cache
from heapq import merge
from itertools import islice
from operator import index
from typing import Any

from msgspec import Struct

from hansard import rules
from hansard.backends.shared.lists import take
from hansard.backends.sqlite import rows
from hansard.backends.sqlite.errors import decodes
from hansard.backends.sqlite.queries import QUERIES
from hansard.backends.sqlite.rows import Row, key_range
from hansard.backends.sqlite.tail_cache import At, CachedTail, TailCache
from hansard.backends.sqlite.writer import CachedState, find_state
from hansard.contract.types import Context, ConversationQuery, ConversationState, MessageQuery, Slice, StoredBranch
from hansard.contract.types import Row as StoredRow
from hansard.errors import NotFound
from hansard.model import Conversation, ConversationSort, Message, to_micros

_FIND_PLACE = QUERIES["find_place"]
_FIND_PLACE_OF_BRANCH = QUERIES["find_place_of_branch"]
_TAIL = QUERIES["tail"]
_HEAD = QUERIES["head"]
_FIND_CONVERSATION = QUERIES["find_conversation"]
_FIND_MESSAGE = QUERIES["find_message"]
_MANY = 500
"""Ids that are looked up in one statement."""
_NO_LIMIT = -1
_MOST = 1 << 62
"""Later than any time, in microseconds."""


class BranchInfo(Struct, frozen=True, gc=False):
    """The data of a branch that a read needs."""

    pk: int
    count: int
    """Messages of the whole conversation."""
    largest: int
    at: At
    branch: StoredBranch

    def most_bytes(self, limit: int) -> int:
        """Returns an upper bound for the size of `limit` bodies."""
        return self.largest * min(limit, self.count)


def find_visible(connection: sqlite3.Connection, context: Context, id: str) -> CachedState | None:
    entry = find_state(connection, context.tenant, id)
    return entry if entry is not None and rules.is_visible(entry.state.conversation, context) else None


def find_conversation(connection: sqlite3.Connection, context: Context, id: str) -> Conversation | None:
    row = connection.execute(_FIND_CONVERSATION, (context.tenant, id)).fetchone()
    if row is None:
        return None
    conversation = rows.conversation_of(row, f"conversation {id!r}")
    return conversation if rules.is_visible(conversation, context) else None


def find_messages(connection: sqlite3.Connection, context: Context, id: str, ids: Sequence[str]) -> list[Message]:
    """Returns the messages in the order of the ids."""
    place = find_place(connection, context, id, None)
    if place is None:
        return []
    found = {message.id: message for message in rows.messages_of(find(connection, place.pk, ids), id)}
    return [found[each] for each in ids if each in found]


def find_place(connection: sqlite3.Connection, context: Context, id: str, branch: str | None) -> BranchInfo | None:
    """Finds a branch; None if the conversation is not visible."""
    if branch is None:
        row = connection.execute(_FIND_PLACE, (context.tenant, id)).fetchone()
    else:
        row = connection.execute(_FIND_PLACE_OF_BRANCH, (branch, context.tenant, id)).fetchone()
    if row is None or not _is_visible(row[1], row[2], context):
        return None
    if row[-2] is None:
        raise NotFound(f"conversation {id!r} has no branch {branch!r}")
    return _place_of(row, f"conversation {id!r}")


@decodes
def _place_of(row: Row, where: str) -> BranchInfo:
    pk, _, _, count, largest, version, seq, segment, path = row
    return BranchInfo(
        pk, index(count), index(largest), (version, seq), StoredBranch("", index(segment), rows.path_of(path, where))
    )


def _is_visible(user_id: str | None, expires_at: int | None, context: Context) -> bool:
    """Like `rules.is_visible`, for a row, without creating a Conversation."""
    return (expires_at is None or rows.moment_of(expires_at) > context.horizon) and context.user in (None, user_id)


# Messages


def get_messages(
    connection: sqlite3.Connection, place: BranchInfo, id: str, query: MessageQuery, tails: TailCache | None = None
) -> Slice:
    if query.sort == "time" or _is_filtered(query):
        return _bounded(_select(connection, place.branch, query), id, query)
    if query.limit is None or place.branch.path or place.most_bytes(query.limit) > (query.max_bytes or 0):
        return _bounded(_plain(connection, place.branch, query), id, query)
    # One segment, and bodies that fit the byte limit: the page is taken at once.
    if tails is not None and query.newest_first and query.above is None and query.below is None:
        found = _newest(connection, place, query, tails, query.limit + 1)
    else:
        found = _segment(connection, place.branch.segment, query, query.limit + 1).fetchall()
    return Slice(rows.messages_of(found[: query.limit], id), len(found) > query.limit)


def _newest(
    connection: sqlite3.Connection, place: BranchInfo, query: MessageQuery, tails: TailCache, wanted: int
) -> list[Row]:
    """Returns the last rows of a segment, the most frequent read."""
    segment = place.branch.segment
    found = tails.find(segment, place.at, wanted)
    if found is None:
        found = _segment(connection, segment, query, wanted).fetchall()
        tails.keep(segment, CachedTail(place.at, found, whole=len(found) < wanted), place.largest)
    return found


def find_and_get(connection: sqlite3.Connection, context: Context, id: str, query: MessageQuery) -> Slice:
    """Runs both steps on one snapshot."""
    place = find_place(connection, context, id, query.branch)
    return get_messages(connection, place, id, query) if place else Slice([], False)


def _bounded(found: Iterable[Row], id: str, query: MessageQuery) -> Slice:
    taken, more = take(found, query.limit, query.max_bytes, rows.size_of)
    return Slice(rows.messages_of(taken, id), more)


def _is_filtered(query: MessageQuery) -> bool:
    narrow = (query.roles, query.participant_ids, query.scope, query.since, query.until, query.pinned)
    return any(each is not None for each in narrow)


def _plain(connection: sqlite3.Connection, branch: StoredBranch, query: MessageQuery) -> Iterator[Row]:
    """Yields the rows of a branch by seq, one more than the limit if there are more."""
    wanted = _NO_LIMIT if query.limit is None else query.limit + 1
    parts = rules.segments(branch)
    for segment, upto in reversed(parts) if query.newest_first else parts:
        for row in _segment(connection, segment, query, wanted, upto):
            yield row
            wanted -= wanted > 0
        if wanted == 0:
            return


def _segment(
    connection: sqlite3.Connection, segment: int, query: MessageQuery, wanted: int, upto: int = rules.NO_END
) -> sqlite3.Cursor:
    """Returns the rows of one segment between the query's positions."""
    above = query.above[1] if query.above else 0
    if query.below:
        upto = min(upto, query.below[1] - 1)
    return connection.execute(
        _TAIL if query.newest_first else _HEAD, (*key_range(segment, above, max(upto, above)), wanted)
    )


def _select(connection: sqlite3.Connection, branch: StoredBranch, query: MessageQuery) -> Iterator[Row]:
    """Yields the rows of a branch with filters, or by time: segment after segment, or merged."""
    parts = rules.segments(branch)
    if query.sort == "seq":
        for segment, upto in reversed(parts) if query.newest_first else parts:
            yield from _filtered(connection, segment, upto, query)
        return
    found = [_filtered(connection, segment, upto, query) for segment, upto in parts]
    yield from merge(*found, key=lambda row: (row[5], row[0] & rows.SEQ_MASK), reverse=query.newest_first)


def _filtered(connection: sqlite3.Connection, segment: int, upto: int, query: MessageQuery) -> sqlite3.Cursor:
    """Returns the rows of one segment that pass the filters, in the query's order.

    Built from constant fragments only.
    """
    by_seq = query.sort == "seq"
    above = query.above[1] if query.above and by_seq else 0
    below = query.below[1] if query.below and by_seq else rules.NO_END
    values: list[Any] = [*key_range(segment, above, max(min(upto, below - 1), above))]
    conditions = ["key > ?", "key < ?", *_conditions(query, values)]
    direction = "DESC" if query.newest_first else "ASC"
    order = f"key {direction}" if by_seq else f"created_at {direction}, key {direction}"
    limit = "" if query.limit is None else f" LIMIT {query.limit + 1:d}"
    # The planner would use the primary key, and walk over everything that is not pinned.
    index = " INDEXED BY messages_pinned" if query.pinned else ""
    sql = (
        f"SELECT key, id, role, format, body, created_at, extra FROM messages{index} "
        f"WHERE {' AND '.join(conditions)} ORDER BY {order}{limit}"
    )
    return connection.execute(sql, values)


def _conditions(query: MessageQuery, values: list[Any]) -> Iterator[str]:
    for names, column in ((query.roles, "role"), (query.participant_ids, "participant")):
        if names is not None:
            values += sorted(names)
            yield f"{column} IN ({', '.join('?' * len(names))})"
    for value, condition in (
        (query.scope, "scope = ?"),
        (query.since and to_micros(query.since), "created_at >= ?"),
        (query.until and to_micros(query.until), "created_at < ?"),
    ):
        if value is not None:
            values.append(value)
            yield condition
    if query.pinned is not None:
        yield "pinned" if query.pinned else "pinned IS NULL"
    for place, sign in ((query.above, ">"), (query.below, "<")):
        if place is not None and query.sort == "time":
            values += place
            yield f"(created_at, key & {rows.SEQ_MASK}) {sign} (?, ?)"


def find(connection: sqlite3.Connection, pk: int, ids: Sequence[str]) -> list[Row]:
    """Returns messages of a conversation by id, in any order."""
    if len(ids) == 1:
        return connection.execute(_FIND_MESSAGE, (pk, ids[0])).fetchall()
    found: list[Row] = []
    for first in range(0, len(ids), _MANY):
        some = ids[first : first + _MANY]
        found += connection.execute(_find_sql(len(some)), (pk, *some))
    return found


@cache
def _find_sql(count: int) -> str:
    return (
        "SELECT key, id, role, format, body, created_at, extra FROM messages "
        f"WHERE conversation = ? AND id IN ({', '.join('?' * count)})"
    )


def get_blobs(connection: sqlite3.Connection, context: Context, digests: Sequence[str]) -> dict[str, bytes]:
    found = ((each, connection.execute(QUERIES["find_blob"], (context.tenant, each)).fetchone()) for each in digests)
    return {sha256: row[0] for sha256, row in found if row}


def find_tombstones(connection: sqlite3.Connection, context: Context, digests: Sequence[str]) -> dict[str, datetime]:
    found = (
        (each, connection.execute(QUERIES["find_tombstone"], (context.tenant, each)).fetchone()) for each in digests
    )
    return {digest: rows.moment_of(row[0]) for digest, row in found if row}


# Conversations


def list_conversations(
    connection: sqlite3.Connection, context: Context, query: ConversationQuery
) -> tuple[list[Conversation], bool]:
    sql, values = _listing(context, query)
    found = connection.execute(sql, values)
    if query.metadata:
        return _matching(found, query)
    page = found.fetchall()
    return rows.conversations_of(page[: query.limit], "the listing"), len(page) > query.limit


def _matching(found: Iterable[Row], query: ConversationQuery) -> tuple[list[Conversation], bool]:
    """Compares metadata here, so that the offset and the limit count matches."""
    made = (rows.conversation_of(row, "the listing") for row in found)
    matching = (each for each in made if rules.has_metadata(each, query.metadata))
    page = list(islice(matching, query.offset, query.offset + query.limit + 1))
    return page[: query.limit], len(page) > query.limit


def _listing(context: Context, query: ConversationQuery) -> tuple[str, list[Any]]:
    filters: list[Any] = [context.tenant]
    named = []
    for name, value in (("user_id", query.user_id), ("user_id", context.user), ("agent_id", query.agent_id)):
        if value is not None:
            named.append(name)
            filters.append(value)
    filters.append(to_micros(context.horizon))
    for place in (query.above, query.below):
        if place is not None:
            filters += place
    bounds = [_NO_LIMIT, 0] if query.metadata else [query.limit + 1, query.offset]
    sign = ("<" if query.below else "") + (">" if query.above else "")
    order = {"is_endless": bool(query.metadata), "newest_first": query.newest_first}
    sql = _listing_sql(query.sort, tuple(named), query.archived, sign, **order)
    if query.sort == "last_message_at" or query.archived:
        return sql, filters + bounds
    if query.metadata:
        return sql, filters + filters + bounds
    most = query.offset + query.limit + 1
    return sql, [*filters, most, *filters, most - 1, *bounds]


@cache
def _listing_sql(
    sort: ConversationSort,
    named: tuple[str, ...],
    archived: bool | None,
    signs: str,
    is_endless: bool,
    newest_first: bool,
) -> str:
    """Built from constant fragments only; the positions come in the order `above`, `below`."""
    conditions = ["tenant = ?", *[f"{name} = ?" for name in named]]
    if archived is not None:
        conditions.append(f"archived_at IS {'NOT ' if archived else ''}NULL")
    conditions.append("(expires_at IS NULL OR expires_at > ?)")

    def select(column: str, *more: str, updated_at: str = "updated_at") -> str:
        places = [f"({column}, id) {sign} (?, ?)" for sign in "><" if sign in signs]
        return (
            f"SELECT id, user_id, agent_id, audit_id, title, metadata, summary, created_at, {updated_at}, "
            "last_message_at, message_count, version, branch, expires_at, archived_at "
            f"FROM conversations WHERE {' AND '.join([*conditions, *places, *more])}"
        )

    direction = "DESC" if newest_first else "ASC"
    end = f"{direction}, id {direction} LIMIT ? OFFSET ?"
    if sort == "last_message_at" or archived:
        column = "active_at" if sort == "last_message_at" else "updated_at"
        return f"{select(column)} ORDER BY {column} {end}"
    # Two indexes share the work, each in order; SQLite merges them lazily, and stops at the limit.
    changed = select("updated_at", "updated_at <> active_at")
    as_active = select("active_at", "updated_at = active_at", updated_at="active_at AS updated_at")
    if is_endless:
        return f"{changed} UNION ALL {as_active} ORDER BY updated_at {end}"
    # After an import all conversations were changed after they were active, and SQLite would search all the others to
    # find none. Only those before the last one of a full page can be on it.
    before, edge = (">=", -_MOST) if newest_first else ("<=", _MOST)
    last = f"SELECT updated_at FROM changed ORDER BY updated_at {direction} LIMIT 1 OFFSET ?"
    return (
        f"WITH changed AS MATERIALIZED ({changed} ORDER BY updated_at {direction}, id {direction} LIMIT ?) "
        f"SELECT * FROM changed UNION ALL {as_active} AND active_at {before} coalesce(({last}), {edge}) "
        f"ORDER BY updated_at {end}"
    )


# Copying and checking


def read_rows(
    connection: sqlite3.Connection, state: ConversationState, after_seq: int, limit: int, max_bytes: int
) -> list[StoredRow]:
    """Returns messages of all segments, ordered by seq."""
    segments = sorted({segment for branch in state.branches.values() for segment, _ in rules.segments(branch)})
    found = [connection.execute(_HEAD, (*key_range(segment, after_seq), limit)) for segment in segments]
    everything = found[0] if len(found) == 1 else merge(*found, key=lambda row: row[0] & rows.SEQ_MASK)
    taken, _ = take(everything, limit, max_bytes, rows.size_of)
    messages = rows.messages_of(taken, state.conversation.id)
    return [StoredRow(row[0] >> rows.SEQ_BITS, message) for row, message in zip(taken, messages, strict=True)]
