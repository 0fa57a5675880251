"""Google ADK's memory service, which searches users' sessions.

A memory of an event in the history is a record that refers to the message: the text is stored once, found by the
store's own search, and gone when the message is deleted. Any other memory holds its text itself. Both are records of
the user.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from google.adk.events import Event
from google.adk.memory import BaseMemoryService
from google.adk.memory.base_memory_service import SearchMemoryResponse
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions import Session
from google.genai import types

from hansard.adapters.adk.events import events_of
from hansard.adapters.adk.sessions import SessionKey, session_record
from hansard.adapters.history import value_of
from hansard.analysis import Match, parse_query, relaxed, shortened
from hansard.errors import NotFound, ValidationError
from hansard.executor import run_in_thread
from hansard.model import Conversation, Message, Record
from hansard.search.scan import ranked
from hansard.store import Store
from hansard.store.records import Put, Records

MEMORIES = "adk-memories"

_MOST = 10
"""How many memories a search returns."""


class Memory(msgspec.Struct, frozen=True, omit_defaults=True):
    """The record of a memory: a reference to a message, or the entry itself, or that it was deleted."""

    conversation_id: str | None = None
    entry: dict[str, Any] | None = None
    custom_metadata: dict[str, Any] = {}
    is_deleted: bool = False
    """It stays deleted, however often its session is added again."""

    def is_of(self, conversation_id: str) -> bool:
        return self.conversation_id == conversation_id and self.entry is None and not self.is_deleted


class AdkMemoryService(BaseMemoryService):
    """ADK's `BaseMemoryService`, with all its optional methods."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def add_session_to_memory(self, session: Session) -> None:
        await self.add_events_to_memory(
            app_name=session.app_name, user_id=session.user_id, events=session.events, session_id=session.id
        )

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Event],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        with_content = {event.id: event for event in events if event.content and event.content.parts}
        known = (
            await self._records(user_id).get_many([((MEMORIES, app_name), id) for id in with_content])
            if with_content
            else []
        )
        for record in known:
            if record is not None:
                with_content.pop(record.key, None)
        session_conversation = (
            await self._conversation_of(SessionKey(app_name, user_id, session_id)) if session_id else None
        )
        batch = []
        for id, event in with_content.items():
            is_in_history = await self._is_in_history(user_id, session_conversation, id)
            memory = Memory(session_conversation, None if is_in_history else _entry(event), dict(custom_metadata or {}))
            batch.append(_put(app_name, id, memory))
        await self._records(user_id).write(batch)

    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: Sequence[MemoryEntry],
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        batch = []
        for memory in memories:
            id = memory.id or str(uuid.uuid4())
            metadata = {**(custom_metadata or {}), **memory.custom_metadata}
            entry = msgspec.json.decode(memory.model_dump_json(exclude_none=True, exclude={"custom_metadata"}))
            batch.append(_put(app_name, id, Memory(None, {**entry, "id": id}, metadata)))
        await self._records(user_id).write(batch)

    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> SearchMemoryResponse:
        """Returns the best memories that have a word of the query; those with more and rarer words come first."""
        if not query.strip():
            return SearchMemoryResponse()
        found = [each async for each in self._in_history(app_name, user_id, query)]
        found += await self._with_own_text(app_name, user_id, query)
        found.sort(key=lambda pair: pair[0], reverse=True)
        return SearchMemoryResponse(memories=[memory for _, memory in found[:_MOST]])

    async def delete_memory(self, *, app_name: str, user_id: str, memory_id: str | None = None) -> None:
        if not memory_id:
            raise ValidationError("memory_id is empty: pass the id of a memory, as a search returns it")
        await self._records(user_id).write([_put(app_name, memory_id, Memory(is_deleted=True))])

    # Where memories are stored

    def _records(self, user_id: str) -> Records:
        return self._store.user(user_id).records

    async def _conversation_of(self, session_key: SessionKey) -> str | None:
        """Returns the conversation of a session."""
        record = await self._store.records.get(session_key.namespace, session_key.id)
        return session_record(record).conversation_id if record is not None else None

    async def _is_in_history(self, user_id: str, conversation_id: str | None, id: str) -> bool:
        """Whether the event is a message of a conversation that the user owns."""
        if conversation_id is None:
            return False
        try:
            await self._store.user(user_id).get_message(conversation_id, id)
        except NotFound:
            return False
        return True

    # Searching

    async def _in_history(self, app: str, user: str, query: str) -> AsyncIterator[tuple[float, MemoryEntry]]:
        view = self._store.user(user)
        query = shortened(parse_query(query), self._store.limits.query_terms).text
        cursor, count = None, 0
        while count < _MOST:
            hits = await view.search(query, match="any", limit=50, token_cap=None, cursor=cursor)
            marks = await view.records.get_many([((MEMORIES, app), hit.message.id) for hit in hits]) if hits else []
            for hit, record in zip(hits, marks, strict=True):
                memory = _memory(record) if record is not None else None
                if memory is not None and memory.is_of(hit.conversation.id):
                    count += 1
                    yield hit.score, _entry_of_message(hit.message, app, memory)
            cursor = hits.next_cursor
            if cursor is None:
                return

    async def _with_own_text(self, app: str, user: str, query: str) -> list[tuple[float, MemoryEntry]]:
        """Returns matching memories that hold their text themselves, after comparing each."""
        parsed = relaxed(shortened(parse_query(query), self._store.limits.query_terms))
        texts: list[Match] = []
        entries: dict[str, Memory] = {}
        async for record in self._records(user).iter((MEMORIES, app), exact=True):
            memory = _memory(record)
            if memory.entry is not None:
                entries[record.key] = memory
                message = Message("user", memory.entry["content"], id=record.key, format="gemini")
                texts.append(Match(Conversation(record.key), message))
        found = await run_in_thread(ranked, parsed, texts) if parsed else []
        return [(each.score, _whole(entries[each.match.message.id])) for each in found]


def _put(app: str, id: str, memory: Memory) -> Put:
    return Put((MEMORIES, app), id, msgspec.to_builtins(memory), conversation_id=memory.conversation_id)


def _memory(record: Record) -> Memory:
    return value_of(record, Memory)


def _entry(event: Event) -> dict[str, Any]:
    entry = MemoryEntry(content=_content(event), id=event.id, author=event.author, timestamp=_time(event.timestamp))
    made: dict[str, Any] = msgspec.json.decode(entry.model_dump_json(exclude_none=True, exclude={"custom_metadata"}))
    return made


def _whole(memory: Memory) -> MemoryEntry:
    found = MemoryEntry.model_validate_json(msgspec.json.encode(memory.entry))
    return found.model_copy(update={"custom_metadata": memory.custom_metadata})


def _entry_of_message(message: Message, app: str, memory: Memory) -> MemoryEntry:
    event = events_of([message], app)[0]
    return MemoryEntry(
        content=_content(event),
        id=event.id,
        author=event.author,
        timestamp=_time(event.timestamp),
        custom_metadata=memory.custom_metadata,
    )


def _content(event: Event) -> types.Content:
    return event.content or types.Content()


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
