"""Maps sessions of Claude to conversations, and counts the entries that are stored outside the messages.

The session's record names its conversation and a stamp, which is new each time the session is created. The counts are a
second record, whose key is that stamp: every write outside the messages advances it from the revision that was read. So
what a process remembers of a session may be outdated, but a write based on it never overwrites a newer one, even if the
conversation was deleted and created again in between: then no record has that key.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

import msgspec
from claude_agent_sdk import SessionKey, SessionListSubkeysKey

from hansard.adapters.claude.entries import NAMES
from hansard.adapters.history import value_of
from hansard.cache import Cache
from hansard.errors import Conflict, ConversationNotFound, Corrupt
from hansard.model import Conversation, Record
from hansard.store import Store
from hansard.store.records import Delete, Put

SESSIONS = "claude-sessions"
COUNTS = "claude-counts"
BINDINGS = "claude-bindings"

_REMEMBERED = 256
"""Number of sessions."""

AnyKey = SessionKey | SessionListSubkeysKey


class ClaudeSessionRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The record of a session."""

    conversation_id: str
    stamp: str


class SessionCounts(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The counts of a session."""

    entries: int = 0
    """Entries outside the messages."""
    newest: dict[str, int] = {}
    """The number of the newest entry of each type."""
    waiting: tuple[int, ...] = ()
    """Entries that repeat a prompt which is not a message yet."""
    subagents: dict[str, int] = {}
    """Their subpaths, and how many entries each has."""


class LoadedSession(NamedTuple):
    """A session as it was read, or is to be created."""

    session: ClaudeSessionRecord
    counts: SessionCounts
    revision: int = 0
    """Of the counts; 0 if nothing is stored yet."""
    updated_at: datetime | None = None


class Sessions:
    """The sessions of a store, with a cache of those written last."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._remembered: Cache[tuple[str, str], LoadedSession] = Cache(_REMEMBERED)

    # Reading

    async def get(self, key: AnyKey) -> LoadedSession | None:
        """Reads the session as it is now."""
        before = self.remembered(key)
        session = before.session if before is not None else await self._session(key)
        while session is not None:
            record = await self._store.records.get(_counts(key), session.stamp)
            if record is not None:
                known = LoadedSession(session, value_of(record, SessionCounts), record.revision, record.updated_at)
                self.remember(key, known)
                return known
            # Deleted, and perhaps created again.
            stamp, session = session.stamp, await self._session(key)
            if session is not None and session.stamp == stamp:
                where = f"record {key['session_id']!r} of {(SESSIONS, key['project_key'])!r}"
                raise Corrupt(f"{where} has lost its counts, record {stamp!r} of {_counts(key)!r}", where=where)
        self.discard(key)
        return None

    async def _session(self, key: AnyKey) -> ClaudeSessionRecord | None:
        record = await self._store.records.get((SESSIONS, key["project_key"]), key["session_id"])
        return value_of(record, ClaudeSessionRecord) if record is not None else None

    async def iter(self, project_key: str) -> AsyncIterator[tuple[SessionKey, LoadedSession]]:
        async for record in self._store.records.iter((SESSIONS, project_key), exact=True):
            key: SessionKey = {"project_key": project_key, "session_id": record.key}
            known = await self.get(key)
            if known is not None:
                yield key, known

    # Cache

    def remembered(self, key: AnyKey) -> LoadedSession | None:
        """Returns the session as this process last read or wrote it."""
        return self._remembered.peek((key["project_key"], key["session_id"]))

    def remember(self, key: AnyKey, known: LoadedSession) -> None:
        self._remembered.put((key["project_key"], key["session_id"]), known)

    def discard(self, key: AnyKey) -> None:
        self._remembered.pop((key["project_key"], key["session_id"]))

    # Creation

    async def create(self, key: SessionKey) -> LoadedSession:
        """Creates a session in its conversation: the one of the same id, unless another project has it."""
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
        return LoadedSession(ClaudeSessionRecord(conversation.id, uuid.uuid4().hex), SessionCounts())

    async def _create(self, id: str, claim: dict[str, str]) -> Conversation:
        try:
            return await self._store.create_conversation(id, metadata=claim)
        except (Conflict, ConversationNotFound):
            # Created by another process at the same time; a backend may report it either way.
            found = await self._store.get_conversation(id)
            if found is None:
                raise
            return found


# Writing


def puts(key: SessionKey, before: LoadedSession, counts: SessionCounts) -> list[Put]:
    """Returns the writes that advance a session from what was read, the counts first, or that create it."""
    session, revision = before.session, before.revision
    id = session.conversation_id
    written = [Put(_counts(key), session.stamp, msgspec.to_builtins(counts), revision, conversation_id=id)]
    if revision == 0:
        place = (SESSIONS, key["project_key"])
        written.append(Put(place, key["session_id"], msgspec.to_builtins(session), 0, conversation_id=id))
    return written


def undoing(key: SessionKey, before: LoadedSession, now: Record) -> list[Put | Delete]:
    """Returns the writes that undo those of `puts`, unless another writer has continued from them."""
    if before.revision == 0:
        session = Delete((SESSIONS, key["project_key"]), key["session_id"], 1)
        return [Delete(now.namespace, now.key, now.revision), session]
    return [*puts(key, before._replace(revision=now.revision), before.counts)]


def _counts(key: AnyKey) -> tuple[str, ...]:
    return (COUNTS, key["project_key"], key["session_id"])


# Conversations with other ids


async def bind(store: Store, conversation_id: str) -> str:
    """Returns the session id under which Claude knows a conversation: its own id if that is a UUID."""
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
    """Returns the conversation that a session id is bound to; else the one with that id."""
    record = await store.records.get((BINDINGS,), session_id)
    return str(record.value) if record is not None else session_id
