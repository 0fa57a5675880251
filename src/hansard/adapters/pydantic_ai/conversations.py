"""Pydantic AI's conversation store.

An entry of a conversation is a message, in the format `pydantic_ai`. Pydantic AI's tree of entries is stored as
branches: the head is the end of the active branch, and a history that a save or `branch` leaves stays readable on its
own branch. A fork is an independent conversation, with entries of the same ids.

What the messages cannot hold (usage, deferred tool requests, the origin of a fork) is a record of the conversation. It
stores the version at which it was written. If others have written since, the record that is read has another revision,
and its head is their last message: so a save that has not seen that message is a conflict.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec
from msgspec import structs
from pydantic import TypeAdapter
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.usage import RunUsage

from hansard.adapters.history import newest, uninterrupted, value_of
from hansard.adapters.pydantic_ai.messages import FORMAT, calls_in, entries_of, row_id, row_of
from hansard.cache import Cache
from hansard.errors import Conflict, NotFound
from hansard.model import Conversation, Message
from hansard.store import Store
from hansard.store.records import Put

RECORDS = "pydantic-ai"
ENTRIES = "pydantic-ai-entries"

_USAGE = TypeAdapter(RunUsage)
_DEFERRED = TypeAdapter(DeferredToolRequests | None)
_CALLS = ("calls", "approvals")
_DEFERRING = 8
"""How many messages back the calls of deferred requests may be."""
_PAGE = 100
_REMEMBERED = 10_000


class AdapterRecord(msgspec.Struct, frozen=True):
    """The record of a conversation."""

    version: int
    """The conversation's version when this was written."""
    head_id: str | None
    revision: str
    updated_at: datetime
    usage: Any
    deferred: Any = None
    """With `[entry id, call id]` in place of every call that is in the history, so that it is stored once."""
    forked_from: str | None = None
    forked_at: str | None = None
    branches: list[str] = []


class HansardConversationStore(ConversationStore):
    """Pydantic AI's `ConversationStore`. A conversation's scope is its owner."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._conversation_ids: Cache[str, str] = Cache(_REMEMBERED)
        """The conversations of recently read entries: messages of other frameworks have no record that names theirs."""

    # Reading

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        conversation = await self._store.get_conversation(conversation_id)
        return await self._record(conversation) if conversation is not None else None

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        found: list[ConversationRecord] = []
        cursor = None
        while limit is None or len(found) < limit:
            page = await self._store.list_conversations(user_id=scope, sort="updated_at", archived=None, after=cursor)
            found += [await self._record(conversation) for conversation in page.items]
            cursor = page.next_cursor
            if cursor is None:
                break
        found.sort(key=lambda record: record.updated_at, reverse=True)
        return found[:limit]

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        return (await self.read_history(entry_id, limit=1))[-1]

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        if head_id is None:
            return []
        head = await self._row(head_id)
        count = limit
        while True:
            # Read one more, so that the first wanted entry knows its parent.
            rows = await self._history_to(head, None if count is None else count + 1)
            entries = entries_of(rows)
            self._remember(head.conversation_id, [row.id for row in rows if row.format != FORMAT])
            while entries and entries[-1].id != head_id:
                entries.pop()
            if limit is None or count is None:
                return entries
            if len(entries) > limit or len(rows) <= count:
                return entries[max(len(entries) - limit, 0) :]
            count *= 2

    async def _row(self, entry_id: str) -> Message:
        """Returns the message of an entry. Forks share entry ids; any of them will do."""
        known = self._conversation_ids.peek(row_id(entry_id))
        page = await self._store.records.scan((ENTRIES, row_id(entry_id)), exact=True)
        for conversation_id in [*([known] if known else []), *(record.key for record in page.items)]:
            with suppress(NotFound):
                return await self._store.get_message(conversation_id, row_id(entry_id))
        raise KeyError(entry_id)

    async def _history_to(self, head: Message, count: int | None) -> list[Message]:
        """Returns the messages up to this one, or the newest `count` of them, oldest first."""
        id, cursor = head.conversation_id, structs.replace(head, seq=head.seq + 1).cursor
        rows: list[Message] = []
        while count is None or len(rows) < count:
            size = _PAGE if count is None else min(count - len(rows), _PAGE)
            page = await self._store.get_messages(id, order="desc", after=cursor, limit=size, branch=head.branch)
            rows += page
            if not page or not page.has_more:
                break
            cursor = page[-1].cursor
        return rows[::-1]

    async def _record(self, conversation: Conversation) -> ConversationRecord:
        stored = await self._stored_record(conversation.id)
        head_id = stored.head_id if stored is not None else None
        if stored is None or stored.version != conversation.version:
            head_id = await self._tip(conversation)
        if stored is not None and head_id == stored.head_id:
            record = _record_of(conversation, stored)
        else:
            # Another framework has written since: records that were read before are stale.
            begun = stored.revision if stored is not None else conversation.created_at.isoformat()
            updated = conversation.updated_at
            record = _record_of(
                conversation, stored or AdapterRecord(0, None, "", updated, _USAGE.dump_python(RunUsage()))
            )
            record = replace(record, head_id=head_id, revision=f"{begun}+{head_id}", updated_at=updated)
        self._remember(conversation.id, [row_id(id) for id in (record.head_id, *record.branches) if id is not None])
        return record

    def _remember(self, conversation_id: str, ids: Sequence[str]) -> None:
        for id in ids:
            self._conversation_ids.put(id, conversation_id)

    async def _stored_record(self, conversation_id: str) -> AdapterRecord | None:
        record = await self._store.records.get((RECORDS,), conversation_id)
        stored = value_of(record, AdapterRecord) if record is not None else None
        if stored is None or stored.deferred is None:
            return stored
        return structs.replace(stored, deferred=await self._with_calls(conversation_id, stored.deferred))

    async def _with_calls(self, conversation_id: str, deferred: Any) -> Any:
        """Returns deferred requests with their calls from the history. None if all of those are gone."""
        ids = {call[0] for kind in _CALLS for call in deferred[kind] if isinstance(call, list)}
        parts: dict[tuple[str, str], Any] = {}
        for id in ids:
            with suppress(NotFound):
                parts |= calls_in(await self._store.get_message(conversation_id, row_id(id)))
        whole = dict(deferred)
        for kind in _CALLS:
            found = (parts.get((call[0], call[1])) if isinstance(call, list) else call for call in deferred[kind])
            whole[kind] = [call for call in found if call is not None]
        return whole if any(whole[kind] for kind in _CALLS) else None

    async def _without_calls(self, conversation_id: str, deferred: Any) -> Any:
        places = [
            (place, part)
            for row in await newest(self._store, conversation_id, _DEFERRING)
            for place, part in calls_in(row).items()
        ]
        bare = dict(deferred)
        for kind in _CALLS:
            bare[kind] = [
                next((list(place) for place, part in places if part == call), call) for call in deferred[kind]
            ]
        return bare

    async def _tip(self, conversation: Conversation) -> str | None:
        """Returns the last entry of the active branch; not every message of other frameworks is an entry."""
        async for row in self._store.iter_messages(conversation.id, order="desc"):
            if entries := entries_of([row]):
                return entries[-1].id
        return None

    # Writing

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        try:
            await uninterrupted(self._write(record, new_entries, expected_revision))
        except (Conflict, NotFound, KeyError) as error:
            raise ConversationConflict(record.conversation_id) from error

    async def _write(
        self, record: ConversationRecord, new_entries: Sequence[ConversationEntry], expected_revision: str | None
    ) -> None:
        conversation = await self._store.get_conversation(record.conversation_id)
        current = await self._record(conversation) if conversation is not None else None
        if (current.revision if current is not None else None) != expected_revision:
            raise ConversationConflict(record.conversation_id)
        if record.head_id is not None and record.head_id not in {entry.id for entry in new_entries}:
            await self._row(record.head_id)
        rows = [row_of(entry) for entry in new_entries]
        base = new_entries[0].parent_id if new_entries else record.head_id
        if conversation is None or current is None:
            conversation, ids = await self._create(record, base)
            version = conversation.version
        else:
            ids = []
            version = await self._move_to(conversation, current, base, is_only_kept=not rows, revision=record.revision)
        if rows:
            appended = await self._store.append(
                conversation.id, rows, expected_version=version, on_duplicate="error", create=False
            )
            version = appended.version
        await self._save_record(record, version, [*ids, *(row.id for row in rows)])

    async def _create(self, record: ConversationRecord, base: str | None) -> tuple[Conversation, list[str]]:
        """Creates a conversation: an empty one, or a fork with everything up to an entry of another."""
        if base is None:
            return await self._store.create_conversation(record.conversation_id, user_id=record.scope), []
        source = await self._row(base)
        made = await self._store.fork(
            source.conversation_id, at=source.id, branch=source.branch, new_id=record.conversation_id
        )
        if made.user_id != record.scope:
            made = await self._store.update_conversation(made.id, user_id=record.scope)
        return made, [row.id async for row in self._store.iter_messages(made.id)]

    async def _move_to(
        self,
        conversation: Conversation,
        current: ConversationRecord,
        base: str | None,
        *,
        is_only_kept: bool,
        revision: str,
    ) -> int:
        """Makes the active branch end at an entry, and returns the version that this made."""
        id, version = conversation.id, conversation.version
        if base == current.head_id:
            if not is_only_kept:
                return version
            # No message is added, only the record changes: bump the version, so that two writers conflict.
            mark = {"pydantic_ai_revision": revision}
            return (await self._store.update_conversation(id, metadata=mark, expected_version=version)).version
        if base is None:
            await self._store.branch(id, empty=True, expected_version=version)
            return version + 1
        row = await self._store.get_message(id, row_id(base))
        for branch in await self._store.list_branches(id):
            if [last.id for last in await newest(self._store, id, 1, branch.id)] == [row.id]:
                return (await self._store.switch_branch(id, branch.id, expected_version=version)).version
        await self._store.branch(id, at=row.id, source=row.branch, expected_version=version)
        return version + 1

    async def _save_record(self, record: ConversationRecord, version: int, ids: Sequence[str]) -> None:
        """Writes the record and the conversations of the entries, unless a newer record is already stored."""
        id = record.conversation_id
        new = _adapter_record(record, version)
        if new.deferred is not None:
            new = structs.replace(new, deferred=await self._without_calls(id, new.deferred))
        value = msgspec.to_builtins(new)
        entries = [Put((ENTRIES, each), id, None, conversation_id=id) for each in ids]
        while True:
            stored = await self._store.records.get((RECORDS,), id)
            if stored is not None and value_of(stored, AdapterRecord).version > version:
                await self._store.records.write(entries)
                return
            put = Put((RECORDS,), id, value, stored.revision if stored is not None else 0, conversation_id=id)
            try:
                await self._store.records.write([put, *entries])
            except Conflict:
                continue
            return

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Deletes the conversation with all its messages. Forks have their own."""
        conversation = await self._store.get_conversation(conversation_id)
        if conversation is None or (await self._record(conversation)).revision != expected_revision:
            raise ConversationConflict(conversation_id)
        try:
            # A save in progress fails: it finds another version.
            await self._store.update_conversation(
                conversation_id, metadata={"pydantic_ai_revision": "deleted"}, expected_version=conversation.version
            )
        except (Conflict, NotFound) as error:
            raise ConversationConflict(conversation_id) from error
        await self._store.delete_conversation(conversation_id)


def _record_of(conversation: Conversation, stored: AdapterRecord) -> ConversationRecord:
    return ConversationRecord(
        conversation_id=conversation.id,
        head_id=stored.head_id,
        usage=_USAGE.validate_python(stored.usage),
        deferred_tool_requests=_DEFERRED.validate_json(msgspec.json.encode(stored.deferred)),
        scope=conversation.user_id,
        forked_from=stored.forked_from,
        forked_at=stored.forked_at,
        branches=list(stored.branches),
        revision=stored.revision,
        updated_at=stored.updated_at,
    )


def _adapter_record(record: ConversationRecord, version: int) -> AdapterRecord:
    return AdapterRecord(
        version,
        record.head_id,
        record.revision,
        record.updated_at,
        _USAGE.dump_python(record.usage, mode="json"),
        msgspec.json.decode(_DEFERRED.dump_json(record.deferred_tool_requests)),
        record.forked_from,
        record.forked_at,
        list(record.branches),
    )
