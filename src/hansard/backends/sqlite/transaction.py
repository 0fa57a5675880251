"""One conversation of a file, as an operation sees it: inside a job of the writer, which never suspends.

Nothing is written before `apply`, so an operation that is refused has changed nothing. Numbers of new segments are
counted in memory until then. Rows and counters of appends are written at the end of the writer's transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import structs

from hansard import codec, rules
from hansard.backends.sqlite import index, read, removal, rows, tenant_data
from hansard.backends.sqlite.queries import QUERIES
from hansard.backends.sqlite.rows import SEQ_BITS, SEQ_MASK, Row, key_range, pack
from hansard.backends.sqlite.writer import CachedState, SqliteWriter
from hansard.blocking import run_to_end
from hansard.contract.storage import Applied, Changes, Found, Placed, Run, Span, Update, Wants, Without
from hansard.contract.types import Append, Context, ConversationState, Draft, StoredBranch
from hansard.model import Appended, Message
from hansard.rules import operations
from hansard.rules.operations.common import usage_of

_HEAD = QUERIES["head"]
_TAIL = QUERIES["tail"]
_NO_LIMIT = -1
_NOTHING_GONE = Applied()

Insert = Sequence[tuple[int, Sequence[tuple[Message, Draft]]]]
"""As in `Changes`."""


def append(writer: SqliteWriter, context: Context, id: str, append: Append) -> Appended:
    """Runs `operations.append`, with a shortcut for plain new messages, the common case: see W1 and W2."""
    entry = writer.load(context.tenant, id)
    if entry is None or not _are_plain(writer, context, entry, append):
        return run_to_end(operations.append(SqliteTransaction(writer, context, id, entry), append))
    before = entry.state
    plan = rules.plan_append(context, before, append, {})
    segment, fresh = plan.branch.segment, plan.fresh
    made = rows.message_rows(segment, entry.pk, fresh)
    for _, draft in fresh:
        entry.largest = max(entry.largest, draft.size)
    writer.save_later(context.tenant, id, entry, plan.state)
    _insert_later(writer, context, plan.state, made, fresh)
    writer.add_later(segment, before, plan.state, made, entry.largest)
    if append.count_usage and (usage := usage_of(plan.state.conversation, plan.result)):
        writer.add_usage(context.tenant, usage)
    return Appended(plan.result, plan.state.conversation.version, len(fresh))


def _insert_later(
    writer: SqliteWriter,
    context: Context,
    state: ConversationState,
    made: list[Row],
    fresh: Sequence[tuple[Message, Draft]],
) -> None:
    owner = state.conversation.user_id
    writer.insert_later(made, index.unindexed(context.tenant, owner, made, fresh) if writer.loads else ())


def _are_plain(writer: SqliteWriter, context: Context, entry: CachedState, append: Append) -> bool:
    """Returns whether the append only adds messages, none of them stored or deleted before."""
    state = entry.state
    if append.records or append.user_id not in (None, state.conversation.user_id):
        return False
    if not rules.is_visible(state.conversation, context):
        return False
    ids: set[str] = set()
    given = 0
    for draft in append.drafts:
        if draft.message.blobs:
            return False
        if draft.given_id:
            given += 1
            ids.add(draft.message.id)
    if len(ids) < given:
        return False
    if given and state.seq:
        writer.flush()
        if read.find(writer.connection, entry.pk, [*ids]):
            return False
    digests = () if append.revive else rules.digests_to_check(context, state, append.drafts)
    return bool(append.drafts) and not (digests and any(writer.tombstone(context.tenant, each) for each in digests))


class SqliteTransaction:
    __slots__ = ("_entry", "_new_segment", "_writer", "context", "id", "state")

    def __init__(self, writer: SqliteWriter, context: Context, id: str, entry: CachedState | None) -> None:
        self.context = context
        self.id = id
        self.state = entry.state if entry else None
        self._writer = writer
        self._entry = entry
        self._new_segment: int | None = None
        """The last segment that the operation has asked for."""

    def new_segment(self) -> int:
        self._new_segment = self._writer.new_segment()
        return self._new_segment

    async def get(self, wants: Wants) -> Found:
        writer, tenant = self._writer, self.context.tenant
        if wants.ids or wants.runs or wants.spans or wants.last_time_without:
            writer.flush()
        tombstones: Mapping[str, datetime] = {}
        if wants.tombstones:
            tombstones = {each: at for each in wants.tombstones if (at := writer.tombstone(tenant, each)) is not None}
        return answer(writer.connection, self.context, self._entry, wants, tombstones)

    async def apply(self, changes: Changes) -> Applied:
        removes = changes.wipes != "nothing" or changes.remove or changes.remove_runs
        gone, released = self._remove(changes) if removes else (_NOTHING_GONE, [])
        if changes.state is not None:
            self._store(changes, changes.state, only_adds=not removes)
        if changes.update is not None:
            released += self._update(changes.update)
        lost = self._store_tenant_data(changes)
        if not (lost or released):
            return gone
        blobs = removal.drop_blobs(self._writer, self.context, released)
        return structs.replace(gone, summaries=gone.summaries + lost, blobs=gone.blobs + blobs)

    # Removals

    def _remove(self, changes: Changes) -> tuple[Applied, list[int]]:
        """Removes messages, and what else is wiped; returns the counts, and the blobs that were referred to."""
        writer, entry = self._writer, self._entry
        if entry is None:
            return _NOTHING_GONE, []
        if changes.wipes == "everything":
            self._entry = None
            receipt = removal.drop(writer, self.context, entry)
            counts = {name: getattr(receipt, name) for name in ("messages", "summaries", "records", "blobs")}
            return Applied(**counts), []
        writer.flush()
        if changes.wipes == "messages":
            messages, released = removal.remove(writer, removal.all_keys(entry.state))
            return Applied(messages=messages, summaries=writer.run("delete_summaries", entry.pk).rowcount), released
        keys = [pack(segment, message.seq) for segment, message in changes.remove]
        runs = [*((key - 1, key + 1) for key in keys), *map(_keys, changes.remove_runs)]
        messages, released = removal.remove(writer, runs)
        return Applied(messages=messages), released

    # Additions

    def _reserve_segment(self, segment: int, state: ConversationState) -> None:
        """Reserves a segment that no new branch owns: the file itself counts only those of new branches."""
        stored = self._entry.state.branches if self._entry else {}
        if segment not in [branch.segment for id, branch in state.branches.items() if id not in stored]:
            self._writer.reserve(segment)

    def _store(self, changes: Changes, state: ConversationState, *, only_adds: bool) -> None:
        """Saves the state and adds messages. If segments are only added to, their cached tails stay valid."""
        writer, context, entry, insert = self._writer, self.context, self._entry, changes.insert
        if self._new_segment is not None:
            self._reserve_segment(self._new_segment, state)
        largest = max([draft.size for _, fresh in insert for _, draft in fresh], default=0) if insert else 0
        if changes.update is not None and changes.update.draft is not None:
            largest = changes.update.draft.size
        before = entry.state if entry is not None and only_adds else None
        if entry is None:
            entry = self._entry = writer.insert(context.tenant, state, largest)
        else:
            self._save(entry, state, largest)
        for sha256, data in changes.blobs.items():
            # They need no keeping time: a message refers to them at once.
            writer.run("keep_blob", context.tenant, sha256, 0, data)
        for segment, fresh in insert:
            made = rows.message_rows(segment, entry.pk, fresh)
            _insert_later(writer, context, state, made, fresh)
            for message, _ in fresh:
                if message.blobs:
                    self._use_blobs(pack(segment, message.seq), message)
            if before is not None:
                writer.add_later(segment, before, state, made, entry.largest)

    def _save(self, entry: CachedState, state: ConversationState, largest: int) -> None:
        writer, tenant = self._writer, self.context.tenant
        if state is entry.state and largest <= entry.largest:
            writer.touch(tenant, self.id)
            return
        entry.largest = max(entry.largest, largest)
        if _only_counts(entry.state, state):
            writer.save_later(tenant, self.id, entry, state)
        else:
            index.change_owner(writer, entry, state.conversation.user_id)
            writer.save(tenant, self.id, entry, state)

    def _update(self, update: Update) -> list[int]:
        """Changes a message; returns the blobs that it referred to, if it now refers to others."""
        writer, before, after = self._writer, update.before, update.after
        key = pack(update.segment, after.seq)
        format = None if after.format == "text" else after.format
        extra = codec.encode_extra(after)
        writer.run("save_message", format, update.draft and update.draft.body, extra, after.pinned or None, key)
        index.change(writer, key, before, after)
        if before.blobs == after.blobs:
            return []
        released = removal.release_blobs(writer, key - 1, key + 1)
        self._use_blobs(key, after)
        return released

    def _use_blobs(self, key: int, message: Message) -> None:
        for ref in message.blobs:
            self._writer.run("use_blob", key, self.context.tenant, ref.sha256)

    def _store_tenant_data(self, changes: Changes) -> int:
        """Stores summaries, tombstones, usage and records; returns how many summaries were removed."""
        writer, context, entry = self._writer, self.context, self._entry
        if changes.lost_summaries and entry is not None:
            found = writer.run("find_summaries", entry.pk).fetchall()
            for position in changes.lost_summaries:
                writer.run("delete_summary", found[position][-1])
        if changes.new_summary is not None and entry is not None:
            writer.run("insert_summary", *rows.summary_row(entry.pk, changes.new_summary))
        if changes.tombstones:
            writer.add_tombstones(context.tenant, changes.tombstones, context.now)
        if changes.usage:
            writer.add_usage(context.tenant, changes.usage)
        for change in changes.records:
            is_ours = change.record is not None and change.record.conversation_id == self.id
            tenant_data.put_record(writer, context, change, entry.pk if is_ours and entry is not None else None)
        return len(changes.lost_summaries)


def _only_counts(before: ConversationState, after: ConversationState) -> bool:
    """Returns whether only the fields of `save_counters` have changed. Unchanged values are the same objects."""
    one, other = before.conversation, after.conversation
    return (
        one.user_id is other.user_id
        and one.agent_id is other.agent_id
        and one.audit_id is other.audit_id
        and one.title is other.title
        and one.metadata is other.metadata
        and one.summary is other.summary
        and one.created_at is other.created_at
        and one.branch is other.branch
        and one.expires_at is other.expires_at
        and one.archived_at is other.archived_at
        and before.has_tombstones is after.has_tombstones
        and (before.branches is after.branches or _are_same_segments(before.branches, after.branches))
    )


def _are_same_segments(before: Mapping[str, StoredBranch], after: Mapping[str, StoredBranch]) -> bool:
    if before.keys() != after.keys():
        return False
    return all(branch.segment == before[id].segment and branch.path is before[id].path for id, branch in after.items())


# Answers


def answer(
    connection: sqlite3.Connection,
    context: Context,
    entry: CachedState | None,
    wants: Wants,
    tombstones: Mapping[str, datetime],
) -> Found:
    """Answers `wants`. `entry` is None if there is no conversation."""
    found: dict[str, Any] = {"tombstones": tombstones}
    if wants.blobs:
        found["blobs"] = read.get_blobs(connection, context, wants.blobs)
    if wants.records:
        records = ((key, tenant_data.find_record(connection, context, *key)) for key in wants.records)
        found["records"] = {key: record for key, record in records if record is not None}
    if entry is None:
        return Found(**found)
    id = entry.state.conversation.id
    if wants.ids:
        found["by_id"] = {each[1].id: each for each in _placed(read.find(connection, entry.pk, wants.ids), id)}
    if wants.runs:
        found["messages"] = _placed(_read(connection, wants), id)
    if wants.spans:
        found["spans"] = [_span(connection, each) for each in wants.spans]
    if wants.last_time_without:
        found["last_time"] = _last_time(connection, entry.state, wants.last_time_without)
    if wants.summaries:
        summaries = connection.execute(QUERIES["find_summaries"], (entry.pk,))
        found["summaries"] = [rows.summary_of(row, id) for row in summaries]
    return Found(**found)


def _keys(part: Run) -> tuple[int, int]:
    return key_range(part.segment, part.after, max(part.after, part.upto))


def _placed(found: Sequence[Row], id: str) -> list[Placed]:
    return [(row[0] >> SEQ_BITS, message) for row, message in zip(found, rows.messages_of(found, id), strict=True)]


def _read(connection: sqlite3.Connection, wants: Wants) -> list[Row]:
    """Returns the messages of the runs, in order."""
    found: list[Row] = []
    if wants.newest is None:
        for each in wants.runs:
            found += connection.execute(_HEAD, (*_keys(each), _NO_LIMIT))
        return found
    for each in reversed(wants.runs):
        found += connection.execute(_TAIL, (*_keys(each), wants.newest - len(found)))
        if len(found) == wants.newest:
            break
    return found[::-1]


def _span(connection: sqlite3.Connection, part: Run) -> Span:
    count, first, last = connection.execute(QUERIES["span_between"], _keys(part)).fetchone()
    return Span(count, first & SEQ_MASK, last & SEQ_MASK) if count else Span()


def _last_time(connection: sqlite3.Connection, state: ConversationState, without: Without) -> datetime | None:
    """Returns the time of the newest message that would be left without these."""
    left = [_last_left(connection, segment, without) for segment in removal.segments_of(state)]
    last = max((row for row in left if row), key=lambda row: row[0] & SEQ_MASK, default=None)
    return rows.moment_of(last[2]) if last else None


def _last_left(connection: sqlite3.Connection, segment: int, without: Without) -> Row | None:
    runs = [each for each in without.runs if each.segment == segment]
    end = min((each.after for each in runs if each.upto >= SEQ_MASK), default=SEQ_MASK)
    ids = frozenset(without.ids)
    for row in connection.execute(QUERIES["times_between"], key_range(segment, 0, end)):
        seq = row[0] & SEQ_MASK
        if row[1] not in ids and not any(each.after < seq <= each.upto for each in runs):
            return tuple(row)
    return None
