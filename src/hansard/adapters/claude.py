"""The Claude Agent SDK's session store.

A session is a conversation. What was said in its main transcript (entries of users and assistants) are messages of the
shared history, in the format `claude.transcript`; the other entries of the main transcript, and the transcripts of
subagents, are records of the conversation: see `claude_beside`. What others said in between comes as entries that say
the same.

A batch of messages alone is one append. Messages are safe to repeat, because their ids are the entries' uuids; the
records beside them are written after them, in one step that also moves the session's counter, at the revision that was
read. So a batch that is retried leaves nothing twice, and two writers do not tear each other's batches. On a backend
with group commit both are written at the same time, and share one.

The SDK's summaries are folded when they are asked for, from the beginning and the end of a transcript. Nothing that
quotes a message is stored: what is deleted or changed is gone from the summaries at once.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
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

from hansard.adapters import claude_beside as beside
from hansard.adapters.claude_beside import Beside
from hansard.adapters.claude_entries import NAMES, Entry, is_said, row_of, uuid_of
from hansard.adapters.history import value_of
from hansard.errors import Conflict, ConversationNotFound, NotFound
from hansard.model import Conversation, Message, Record, to_micros
from hansard.store import Store
from hansard.store.records import Delete, Put

SESSIONS = "claude-sessions"
BESIDE = "claude-entries"
SUBAGENTS = "claude-subagents"
UUIDS = "claude-uuids"
BINDINGS = "claude-bindings"

_HEAD = 50
"""Entries of a transcript's beginning that a summary is folded from."""
_KINDS = 50
"""Kinds of entries whose newest one is remembered."""
_WAITING = 8
"""Prompts that may wait for the message that says them."""


class Session(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a session's record holds: its conversation, and how many entries lie beside it."""

    conversation_id: str
    entries: int = 0
    newest: dict[str, int] = {}
    """The number of the newest entry of each type."""
    waiting: tuple[int, ...] = ()
    """Entries that repeat a prompt which is no message yet."""
    subagents: dict[str, int] = {}
    """Their subpaths, and how many entries each has."""


class Batch(NamedTuple):
    """Entries to append: the messages of them, and what is written beside those."""

    rows: list[Message]
    session: Session
    writes: list[Put]
    undo: list[Put | Delete]
    """What takes the writes back."""


class ClaudeSessionStore:
    """The SDK's `SessionStore`, with all that it may have."""

    def __init__(self, store: Store) -> None:
        self._store = store

    # What is required

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        if not entries:
            return
        given = cast("list[Entry]", entries)
        # Made once, so that a second try has the same ids.
        rows = {id(entry): row_of(entry) for entry in given if "subpath" not in key and is_said(entry)}
        is_stored = False
        while not is_stored:
            record = await self._record(key["project_key"], key["session_id"])
            session = _session(record) if record is not None else await self._begin(key)
            if "subpath" in key:
                batch = self._beneath(key, await self._new(key, given), session)
            else:
                batch = await self._main(key, given, rows, session)
            is_stored = await self._write(key, record, batch)

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        record = await self._record(key["project_key"], key["session_id"])
        if "subpath" in key:
            if record is None or key["subpath"] not in _session(record).subagents:
                return None
            place = (SUBAGENTS, key["project_key"], key["session_id"], key["subpath"])
            return [found.value async for found in self._store.records.iter(place, exact=True)]
        id = _session(record).conversation_id if record is not None else await bound(self._store, key["session_id"])
        scan = self._store.records.iter(_beside(key), exact=True)
        beside_it = [beside.read(found) async for found in scan] if record is not None else []
        rows = [row async for row in self._store.iter_messages(id)]
        entries = list(beside.merged(rows, beside_it, key["session_id"]))
        return cast("list[SessionStoreEntry]", entries) or None

    # What is optional

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        return [
            {"session_id": record.key, "mtime": mtime}
            async for record in self._store.records.iter((SESSIONS, project_key), exact=True)
            if (mtime := await self._mtime(record)) is not None
        ]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        found: list[SessionSummaryEntry] = []
        async for record in self._store.records.iter((SESSIONS, project_key), exact=True):
            # The time first: a summary may be newer than it says, never older.
            mtime = await self._mtime(record)
            if mtime is not None:
                key: SessionKey = {"project_key": project_key, "session_id": record.key}
                found.append({**await self._summary(key, _session(record)), "mtime": mtime})
        return found

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        record = await self._record(key["project_key"], key["session_id"])
        return list(_session(record).subagents) if record is not None else []

    async def delete(self, key: SessionKey) -> None:
        """Deletes the conversation, or one subagent's transcript."""
        record = await self._record(key["project_key"], key["session_id"])
        if record is None:
            return
        session = _session(record)
        if "subpath" not in key:
            await self._store.delete_conversation(session.conversation_id)
            return
        left = {path: count for path, count in session.subagents.items() if path != key["subpath"]}
        batch: list[Put | Delete] = [_put(key, msgspec.structs.replace(session, subagents=left), record.revision)]
        for root in (SUBAGENTS, UUIDS):
            place = (root, key["project_key"], key["session_id"], key["subpath"])
            batch += [Delete(place, found.key) async for found in self._store.records.iter(place, exact=True)]
        await self._store.records.write(batch)

    # Sessions

    async def _record(self, project_key: str, session_id: str) -> Record | None:
        return await self._store.records.get((SESSIONS, project_key), session_id)

    async def _begin(self, key: SessionKey) -> Session:
        """The conversation of a new session: the one of that id, unless another project has it."""
        claim = {"claude_project": key["project_key"]}
        id = await bound(self._store, key["session_id"])
        conversation = await self._store.get_conversation(id)
        if conversation is not None and conversation.metadata.get("claude_project") not in (None, key["project_key"]):
            id = str(uuid.uuid5(NAMES, f"{key['project_key']}/{id}"))
            conversation = await self._store.get_conversation(id)
        if conversation is None:
            conversation = await self._create(id, claim)
        elif conversation.metadata.get("claude_project") is None:
            await self._store.update_conversation(id, metadata=claim)
        return Session(conversation.id)

    async def _create(self, id: str, claim: dict[str, str]) -> Conversation:
        try:
            return await self._store.create_conversation(id, metadata=claim)
        except (Conflict, ConversationNotFound):
            # Made by somebody else at the same time; a backend may tell it either way.
            found = await self._store.get_conversation(id)
            if found is None:
                raise
            return found

    async def _mtime(self, record: Record) -> int | None:
        """When the main transcript was written last, in milliseconds; None when there is none."""
        session = _session(record)
        conversation = await self._store.get_conversation(session.conversation_id)
        if conversation is None or not (conversation.message_count or session.entries):
            return None
        return to_micros(max(record.updated_at, conversation.updated_at)) // 1000

    async def _summary(self, key: SessionKey, session: Session) -> SessionSummaryEntry:
        """The SDK's summary, which tells of the first things in a transcript and of the newest of each kind."""
        id = session.conversation_id
        rows = list(await self._store.get_messages(id, limit=_HEAD))
        if len(rows) == _HEAD:
            rows += [row for row in await self._store.get_messages(id, last=1) if row.seq > rows[-1].seq]
        numbers = sorted({*range(min(session.entries, _HEAD)), *session.newest.values()})
        found = await self._store.records.get_many([(_beside(key), _number(number)) for number in numbers])
        beside_it = [beside.read(record) for record in found if record is not None]
        quoted = {quote.message_id for each in beside_it for quote in each.quotes.values()} - {row.id for row in rows}
        entries = list(beside.merged(rows, beside_it, key["session_id"], await self._rows(id, quoted)))
        return fold_session_summary(None, key, cast("list[SessionStoreEntry]", entries))

    async def _rows(self, id: str, message_ids: set[str]) -> list[Message]:
        """These messages, as far as they are still there."""
        rows = []
        for message_id in message_ids:
            with suppress(NotFound):
                rows.append(await self._store.get_message(id, message_id))
        return rows

    # Appending

    async def _write(self, key: SessionKey, record: Record | None, batch: Batch) -> bool:
        """False when another writer was faster. Rows that are stored by then are found again by their ids."""
        id = batch.session.conversation_id
        if record is not None and not batch.writes and batch.session == _session(record):
            await self._store.append(id, batch.rows, create=False)
            return True
        writes = [_put(key, batch.session, record.revision if record is not None else 0), *batch.writes]
        if batch.rows and self._store.capabilities.groups:
            return await self._write_both(key, record, batch, writes)
        await self._store.append(id, batch.rows, create=False)
        try:
            await self._store.records.write(writes)
        except Conflict:
            return False
        return True

    async def _write_both(self, key: SessionKey, record: Record | None, batch: Batch, writes: list[Put]) -> bool:
        """Messages and records in one commit. The messages may be refused alone: then the records are taken back."""
        appended, written = await asyncio.gather(
            self._store.append(batch.session.conversation_id, batch.rows, create=False),
            self._store.records.write(writes),
            return_exceptions=True,
        )
        if isinstance(appended, BaseException):
            if not isinstance(written, BaseException):
                await self._take_back(key, record, batch, cast(Record, written[0]))
            raise appended
        if isinstance(written, BaseException) and not isinstance(written, Conflict):
            raise written
        return not isinstance(written, Conflict)

    async def _take_back(self, key: SessionKey, before: Record | None, batch: Batch, now: Record) -> None:
        """Undoes the records of a batch whose messages were refused, unless somebody has gone on from them."""
        if before is None:
            session: Put | Delete = Delete(now.namespace, now.key, now.revision)
        else:
            session = _put(key, _session(before), now.revision)
        with suppress(Conflict):
            await self._store.records.write([session, *batch.undo])

    async def _new(self, key: SessionKey, entries: list[Entry]) -> list[Entry]:
        """The entries without those that a record has already; rows are told apart by the append itself."""
        beside_rows = "subpath" in key
        names = {uuid_of(entry): None for entry in entries if beside_rows or not is_said(entry)}
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

    async def _main(self, key: SessionKey, entries: list[Entry], made: dict[int, Message], session: Session) -> Batch:
        new = await self._new(key, entries)
        rows = {id(entry): made[id(entry)] for entry in new if id(entry) in made}
        asked = [row for row in rows.values() if row.role == "user"]
        writes, undo = await self._kept_waiting(key, session, asked)
        if session.waiting and asked:
            session = msgspec.structs.replace(session, waiting=())
        if len(rows) < len(new):
            session, more = await self._put_beside(key, new, rows, session)
            writes += more
            undo += [Delete(put.namespace, put.key) for put in more]
        return Batch(list(rows.values()), session, writes, undo)

    async def _put_beside(
        self, key: SessionKey, entries: list[Entry], rows: dict[int, Message], session: Session
    ) -> tuple[Session, list[Put]]:
        """The entries that are no messages, with references to what they quote."""
        last = await self._store.get_messages(session.conversation_id, last=1) if not rows else []
        placed = list(beside.placed(entries, rows, last[-1].id if last else ""))
        placed = await self._referring(session, placed, list(rows.values()))
        first, newest, waiting = session.entries, dict(session.newest), [*session.waiting]
        puts: list[Put] = []
        for number, each in enumerate(placed, first):
            value = msgspec.to_builtins(each)
            puts.append(Put(_beside(key), _number(number), value, conversation_id=session.conversation_id))
            kind = str(each.entry.get("type"))
            if kind in newest or len(newest) < _KINDS:
                newest[kind] = number
            if beside.unquoted(each):
                waiting.append(number)
        names = [name for each in placed if (name := uuid_of(each.entry))]
        puts += [Put(_uuids(key), name, True, conversation_id=session.conversation_id) for name in names]
        after = msgspec.structs.replace(
            session, entries=first + len(placed), newest=newest, waiting=tuple(waiting[-_WAITING:])
        )
        return after, puts

    async def _referring(self, session: Session, placed: list[Beside], rows: list[Message]) -> list[Beside]:
        asked = [row for row in rows if row.role == "user"]
        placed = [beside.referring(each, asked) for each in placed]
        if not any(beside.unquoted(each) for each in placed):
            return placed
        earlier = await self._store.get_messages(session.conversation_id, last=_WAITING, roles=["user"])
        return [beside.referring(each, earlier) for each in placed]

    async def _kept_waiting(
        self, key: SessionKey, session: Session, asked: Sequence[Message]
    ) -> tuple[list[Put], list[Put | Delete]]:
        """Entries that repeated a prompt before it became a message: now there is one to refer to."""
        if not session.waiting or not asked:
            return [], []
        places = [(_beside(key), _number(number)) for number in session.waiting]
        puts: list[Put] = []
        undo: list[Put | Delete] = []
        for record in await self._store.records.get_many(places):
            before = beside.read(record) if record is not None else None
            after = beside.referring(before, asked) if before is not None else None
            if record is not None and after is not before:
                puts.append(_rewritten(record, msgspec.to_builtins(after)))
                undo.append(_rewritten(record, record.value))
        return puts, undo

    def _beneath(self, key: SessionKey, entries: list[Entry], session: Session) -> Batch:
        path = key["subpath"]
        place = (SUBAGENTS, key["project_key"], key["session_id"], path)
        first, id = session.subagents.get(path, 0), session.conversation_id
        writes = [Put(place, _number(number), entry, conversation_id=id) for number, entry in enumerate(entries, first)]
        writes += [Put(_uuids(key), name, True, conversation_id=id) for entry in entries if (name := uuid_of(entry))]
        subagents = {**session.subagents, path: first + len(entries)}
        return Batch([], msgspec.structs.replace(session, subagents=subagents), writes, [])


async def bind(store: Store, conversation_id: str) -> str:
    """The session id under which Claude knows a conversation: its own where that is a UUID."""
    try:
        return str(uuid.UUID(conversation_id))
    except ValueError:
        session_id = str(uuid.uuid5(NAMES, conversation_id))
    if await store.get_conversation(conversation_id) is None:
        with suppress(Conflict):
            await store.create_conversation(conversation_id)
    await store.records.put((BINDINGS,), session_id, conversation_id, conversation_id=conversation_id)
    return session_id


async def bound(store: Store, session_id: str) -> str:
    """The conversation that a session id was given for; else the one of that very id."""
    record = await store.records.get((BINDINGS,), session_id)
    return str(record.value) if record is not None else session_id


def _session(record: Record) -> Session:
    return value_of(record, Session)


def _put(key: SessionKey, session: Session, revision: int) -> Put:
    value = msgspec.to_builtins(session)
    place = (SESSIONS, key["project_key"])
    return Put(place, key["session_id"], value, revision, conversation_id=session.conversation_id)


def _rewritten(record: Record, value: Any) -> Put:
    return Put(record.namespace, record.key, value, conversation_id=record.conversation_id)


def _beside(key: SessionKey) -> tuple[str, ...]:
    return (BESIDE, key["project_key"], key["session_id"])


def _number(number: int) -> str:
    return f"{number:012}"


def _uuids(key: SessionKey) -> tuple[str, ...]:
    path = (key["subpath"],) if "subpath" in key else ()
    return (UUIDS, key["project_key"], key["session_id"], *path)
