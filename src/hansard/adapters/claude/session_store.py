"""The Claude Agent SDK's session store.

A session is a conversation. The entries of users and assistants in its main transcript are messages of the shared
history, in the format `claude.transcript`. The other entries of the main transcript, and the transcripts of subagents,
are records of the conversation: see `side_entries`. Messages of other frameworks become entries with the same content.

A batch of messages alone is one append. Messages are safe to repeat, because their ids are the entries' uuids. Records
are written after the messages, in one step that also advances the session's counts: see `sessions`. So a batch that is
retried is stored once, and two writers do not interleave their batches. On a backend with group commit both are written
at the same time, in one commit.

The SDK's summaries are computed when they are requested, from the beginning and the end of a transcript. Nothing that
quotes a message is stored, so a message that is deleted or changed is gone from the summaries at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, cast

import msgspec
from claude_agent_sdk import (
    SessionKey,
    SessionListSubkeysKey,
    SessionStoreEntry,
    SessionStoreListEntry,
    SessionSummaryEntry,
    fold_session_summary,
)

from hansard.adapters.claude import side_entries
from hansard.adapters.claude.entries import Entry, is_dialogue, private_copy, row_of, uuid_of, without_halves
from hansard.adapters.claude.sessions import LoadedSession, SessionCounts, Sessions, bound, puts, undoing
from hansard.adapters.claude.side_entries import SideEntry
from hansard.adapters.history import uninterrupted
from hansard.errors import Conflict, ConversationNotFound, NotFound, ValidationError
from hansard.model import Message, Record, to_micros
from hansard.store import Store
from hansard.store.records import Delete, Put

ENTRIES = "claude-entries"
SUBAGENTS = "claude-subagents"
UUIDS = "claude-uuids"

_HEAD = 50
"""Entries at a transcript's beginning from which a summary is computed."""
_KINDS = 50
"""Kinds of entries whose newest one is remembered."""
_WAITING = 8
"""Prompts that may wait for the message that holds them."""


class EntryBatch(NamedTuple):
    """Entries to append: the messages among them, and the records that are written with those."""

    rows: list[Message]
    counts: SessionCounts
    writes: list[Put]
    undo: list[Put | Delete]
    """Undoes the writes."""


class Listed(NamedTuple):
    key: SessionKey
    known: LoadedSession
    mtime: int
    """In milliseconds, different for every session of a project."""


class ClaudeSessionStore:
    """The SDK's `SessionStore`, with all its optional methods."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._sessions = Sessions(store)

    # Required methods

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        # A batch is several writes: complete it even if the SDK gives up on it, after a minute.
        await uninterrupted(self._append_without_surrogates(key, entries))

    async def _append_without_surrogates(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        try:
            await self._append(key, entries)
        except ValidationError:
            mended = without_halves(entries)
            if mended == entries:
                raise
            await self._append(key, mended)

    async def _append(self, key: SessionKey, entries: Iterable[object]) -> None:
        # Entries are distinguished by `id()`, even if a caller repeats one.
        given = [private_copy(entry, self._store.limits) for entry in entries]
        if not given:
            return
        # Created once, so that a second attempt has the same ids.
        rows = {id(entry): row_of(entry) for entry in given if is_dialogue(entry)} if "subpath" not in key else {}
        known = self._sessions.remembered(key) if len(rows) < len(given) else None
        if known is None or not await self._append_from(key, known, given, rows, is_fresh=False):
            is_stored = False
            while not is_stored:
                known = await self._sessions.get(key) or await self._sessions.create(key)
                is_stored = await self._append_from(key, known, given, rows, is_fresh=True)

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        known = await self._sessions.get(key)
        if "subpath" in key:
            if known is None or key["subpath"] not in known.counts.subagents:
                return None
            place = (SUBAGENTS, key["project_key"], key["session_id"], key["subpath"])
            return [found.value async for found in self._store.records.iter(place, exact=True)]
        id = known.session.conversation_id if known is not None else await bound(self._store, key["session_id"])
        scan = self._store.records.iter(_side_namespace(key), exact=True)
        side = [side_entries.read(found) async for found in scan] if known is not None else []
        rows = [row async for row in self._store.iter_messages(id)]
        entries = list(side_entries.merged(rows, side, key["session_id"]))
        return cast("list[SessionStoreEntry]", entries) or None

    # Optional methods

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        listed = await self._listed(project_key)
        return [{"session_id": each.key["session_id"], "mtime": each.mtime} for each in listed]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        # Read the times first: a summary may be newer than its time, never older.
        listed = await self._listed(project_key)
        return [{**await self._summary(each.key, each.known), "mtime": each.mtime} for each in listed]

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        known = await self._sessions.get(key)
        return list(known.counts.subagents) if known is not None else []

    async def delete(self, key: SessionKey) -> None:
        """Deletes the conversation, or one subagent's transcript."""
        while (known := await self._sessions.get(key)) is not None:
            if "subpath" not in key:
                await self._store.delete_conversation(known.session.conversation_id)
                return
            if key["subpath"] not in known.counts.subagents:
                return
            left = {path: count for path, count in known.counts.subagents.items() if path != key["subpath"]}
            batch: list[Put | Delete] = [*puts(key, known, msgspec.structs.replace(known.counts, subagents=left))]
            for root in (SUBAGENTS, UUIDS):
                place = (root, key["project_key"], key["session_id"], key["subpath"])
                batch += [Delete(place, found.key) async for found in self._store.records.iter(place, exact=True)]
            if await self._written(batch) is not None:
                return

    # Summaries

    async def _listed(self, project_key: str) -> list[Listed]:
        """Returns the sessions that have a main transcript, ordered by its last write.

        The SDK sorts sessions by milliseconds. So of several written in the same millisecond, each gets a later time
        than the one before it. The order comes from the stored microseconds and is the same in every process.
        """
        found = [
            (written, key, known)
            async for key, known in self._sessions.iter(project_key)
            if (written := await self._written_at(known)) is not None
        ]
        listed: list[Listed] = []
        mtime = 0
        for written, key, known in sorted(found, key=lambda each: (each[0], each[1]["session_id"])):
            mtime = max(written // 1000, mtime + 1)
            listed.append(Listed(key, known, mtime))
        return listed

    async def _written_at(self, known: LoadedSession) -> int | None:
        """Returns when the main transcript was last written, in microseconds; None if there is none."""
        conversation = await self._store.get_conversation(known.session.conversation_id)
        if conversation is None or not (conversation.message_count or known.counts.entries):
            return None
        return to_micros(max(known.updated_at or conversation.updated_at, conversation.updated_at))

    async def _summary(self, key: SessionKey, known: LoadedSession) -> SessionSummaryEntry:
        """Returns the SDK's summary: the first entries of a transcript and the newest of each kind."""
        id, counts = known.session.conversation_id, known.counts
        rows = list(await self._store.get_messages(id, limit=_HEAD))
        if len(rows) == _HEAD:
            rows += [row for row in await self._store.get_messages(id, last=1) if row.seq > rows[-1].seq]
        numbers = sorted({*range(min(counts.entries, _HEAD)), *counts.newest.values()})
        found = await self._store.records.get_many([(_side_namespace(key), _number(number)) for number in numbers])
        side = [side_entries.read(record) for record in found if record is not None]
        quoted = {quote.message_id for each in side for quote in each.quotes.values()} - {row.id for row in rows}
        entries = list(side_entries.merged(rows, side, key["session_id"], await self._rows(id, quoted)))
        return fold_session_summary(None, key, cast("list[SessionStoreEntry]", entries))

    async def _rows(self, id: str, message_ids: set[str]) -> list[Message]:
        """Returns those of these messages that still exist."""
        rows = []
        for message_id in message_ids:
            with suppress(NotFound):
                rows.append(await self._store.get_message(id, message_id))
        return rows

    # Appending

    async def _append_from(
        self, key: SessionKey, known: LoadedSession, entries: list[Entry], rows: dict[int, Message], *, is_fresh: bool
    ) -> bool:
        """Appends to the session as it was read or, unless `is_fresh`, is remembered; False if it has changed since.

        Messages that are already stored are found by their ids.
        """
        new = await self._new(key, entries)
        batch = (
            self._subagent_batch(key, new, known) if "subpath" in key else await self._main_batch(key, new, rows, known)
        )
        id = known.session.conversation_id
        if known.revision and not batch.writes and batch.counts == known.counts:
            if is_fresh:
                await self._store.append(id, batch.rows, create=False)
            return is_fresh
        writes = [*puts(key, known, batch.counts), *batch.writes]
        try:
            if batch.rows and self._store.capabilities.groups:
                now = await self._write_both(key, known, batch, writes)
            else:
                await self._store.append(id, batch.rows, create=False)
                now = await self._written(writes)
        except ConversationNotFound:
            if is_fresh:
                raise
            now = None
        if now is None:
            self._sessions.discard(key)
            return False
        self._sessions.remember(key, LoadedSession(known.session, batch.counts, now.revision))
        return True

    async def _written(self, writes: Iterable[Put | Delete]) -> Record | None:
        """Returns the first record that was written; None if another writer was faster."""
        try:
            return (await self._store.records.write(writes))[0]
        except Conflict:
            return None

    async def _write_both(
        self, key: SessionKey, known: LoadedSession, batch: EntryBatch, writes: list[Put]
    ) -> Record | None:
        """Writes messages and records in one commit. If only the messages are refused, the records are undone."""
        side = asyncio.create_task(self._written(writes))
        try:
            await self._store.append(known.session.conversation_id, batch.rows, create=False)
        except Exception:
            (now,) = await asyncio.gather(side, return_exceptions=True)
            if isinstance(now, Record):
                await self._take_back(key, known, batch, now)
            raise
        return await side

    async def _take_back(self, key: SessionKey, before: LoadedSession, batch: EntryBatch, now: Record) -> None:
        """Undoes the records of a batch whose messages were refused, unless another writer has continued from them."""
        with suppress(Conflict):
            await self._store.records.write([*undoing(key, before, now), *batch.undo])

    async def _new(self, key: SessionKey, entries: list[Entry]) -> list[Entry]:
        """Returns the entries without those that already have a record; the append itself detects repeated messages."""
        beside_rows = "subpath" in key
        names = {uuid_of(entry): None for entry in entries if beside_rows or not is_dialogue(entry)}
        names.pop("", None)
        found = await self._store.records.get_many([(_uuids(key), each) for each in names]) if names else []
        seen = {record.key for record in found if record is not None}
        new = []
        for entry in entries:
            name = uuid_of(entry)
            if name not in seen:
                new.append(entry)
            if name:
                seen.add(name)
        return new

    async def _main_batch(
        self, key: SessionKey, new: list[Entry], made: dict[int, Message], known: LoadedSession
    ) -> EntryBatch:
        counts = known.counts
        rows = {id(entry): made[id(entry)] for entry in new if id(entry) in made}
        prompts = [row for row in rows.values() if row.role == "user"]
        writes, undo = await self._rewrite_waiting(key, counts, prompts)
        if counts.waiting and prompts:
            counts = msgspec.structs.replace(counts, waiting=())
        if len(rows) < len(new):
            counts, more = await self._put_side_entries(key, new, rows, known._replace(counts=counts))
            writes += more
            undo += [Delete(put.namespace, put.key) for put in more]
        return EntryBatch(list(rows.values()), counts, writes, undo)

    async def _put_side_entries(
        self, key: SessionKey, entries: list[Entry], rows: dict[int, Message], known: LoadedSession
    ) -> tuple[SessionCounts, list[Put]]:
        """Returns the writes for entries that are not messages, with references to what they quote."""
        counts, owner = known.counts, known.session.conversation_id
        last = await self._store.get_messages(owner, last=1) if not rows else []
        placed = list(side_entries.placed(entries, rows, last[-1].id if last else ""))
        placed = await self._referring(owner, placed, list(rows.values()))
        first, newest, waiting = counts.entries, dict(counts.newest), [*counts.waiting]
        made: list[Put] = []
        for number, each in enumerate(placed, first):
            value = msgspec.to_builtins(each)
            made.append(Put(_side_namespace(key), _number(number), value, conversation_id=owner))
            kind = str(each.entry.get("type"))
            if kind in newest or len(newest) < _KINDS:
                newest[kind] = number
            if side_entries.unquoted(each):
                waiting.append(number)
        names = [name for each in placed if (name := uuid_of(each.entry))]
        made += [Put(_uuids(key), name, True, conversation_id=owner) for name in names]
        after = msgspec.structs.replace(
            counts, entries=first + len(placed), newest=newest, waiting=tuple(waiting[-_WAITING:])
        )
        return after, made

    async def _referring(self, owner: str, placed: list[SideEntry], rows: list[Message]) -> list[SideEntry]:
        prompts = [row for row in rows if row.role == "user"]
        placed = [side_entries.referring(each, prompts) for each in placed]
        if not any(side_entries.unquoted(each) for each in placed):
            return placed
        earlier = await self._store.get_messages(owner, last=_WAITING, roles=["user"])
        return [side_entries.referring(each, earlier) for each in placed]

    async def _rewrite_waiting(
        self, key: SessionKey, counts: SessionCounts, prompts: Sequence[Message]
    ) -> tuple[list[Put], list[Put | Delete]]:
        """Rewrites entries that repeated a prompt before it became a message, so that they refer to the message."""
        if not counts.waiting or not prompts:
            return [], []
        places = [(_side_namespace(key), _number(number)) for number in counts.waiting]
        made: list[Put] = []
        undo: list[Put | Delete] = []
        for record in await self._store.records.get_many(places):
            before = side_entries.read(record) if record is not None else None
            after = side_entries.referring(before, prompts) if before is not None else None
            if record is not None and after is not before:
                made.append(_rewritten(record, msgspec.to_builtins(after)))
                undo.append(_rewritten(record, record.value))
        return made, undo

    def _subagent_batch(self, key: SessionKey, entries: list[Entry], known: LoadedSession) -> EntryBatch:
        path = key["subpath"]
        place = (SUBAGENTS, key["project_key"], key["session_id"], path)
        first, id = known.counts.subagents.get(path, 0), known.session.conversation_id
        writes = [Put(place, _number(number), entry, conversation_id=id) for number, entry in enumerate(entries, first)]
        writes += [Put(_uuids(key), name, True, conversation_id=id) for entry in entries if (name := uuid_of(entry))]
        subagents = {**known.counts.subagents, path: first + len(entries)}
        return EntryBatch([], msgspec.structs.replace(known.counts, subagents=subagents), writes, [])


def _rewritten(record: Record, value: Any) -> Put:
    return Put(record.namespace, record.key, value, conversation_id=record.conversation_id)


def _side_namespace(key: SessionKey) -> tuple[str, ...]:
    return (ENTRIES, key["project_key"], key["session_id"])


def _number(number: int) -> str:
    return f"{number:012}"


def _uuids(key: SessionKey) -> tuple[str, ...]:
    path = (key["subpath"],) if "subpath" in key else ()
    return (UUIDS, key["project_key"], key["session_id"], *path)
