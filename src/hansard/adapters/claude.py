"""The Claude Agent SDK's session store.

A session is a conversation. What was said in its main transcript (entries of users and assistants) are messages of the
shared history, in the format `claude.transcript`; the other entries of the main transcript, and the transcripts of
subagents, are records of the conversation. Each of those beside a message knows the message that it came after, so a
transcript comes back in its order; what others said in between comes as entries that say the same.

Rows are written first and are safe to repeat, because their ids are the entries' uuids. Then everything else is written
in one step that also moves the session's counter, at the revision that was read: so a batch that is retried leaves
nothing twice, and two writers do not tear each other's batches.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any, cast

import msgspec
from claude_agent_sdk import (
    SessionKey,
    SessionListSubkeysKey,
    SessionStoreEntry,
    SessionStoreListEntry,
    SessionSummaryEntry,
    fold_session_summary,
)

from hansard.adapters.history import newest, reading_of
from hansard.errors import Conflict, ConversationNotFound
from hansard.formats import registry
from hansard.model import Conversation, Message, Record, to_micros
from hansard.store import Store
from hansard.store.records import Delete, Put

FORMAT = "claude.transcript"
SESSIONS = "claude-sessions"
BESIDE = "claude-entries"
SUBAGENTS = "claude-subagents"
UUIDS = "claude-uuids"
BINDINGS = "claude-bindings"

_NAMES = uuid.UUID("6f6b8d1c-5f0e-4d3a-9b67-0f0a6f9c1e55")


class Session(msgspec.Struct, frozen=True):
    """What a session's record holds: its conversation, how many entries lie beside it, and the SDK's summary."""

    conversation_id: str
    entries: int = 0
    summary: dict[str, Any] | None = None
    subagents: dict[str, int] = {}
    """Their subpaths, and how many entries each has."""


class ClaudeSessionStore:
    """The SDK's `SessionStore`, with all that it may have."""

    def __init__(self, store: Store) -> None:
        self._store = store

    # What is required

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        if not entries:
            return
        given = cast("list[dict[str, Any]]", entries)
        is_stored = False
        while not is_stored:
            record = await self._record(key["project_key"], key["session_id"])
            session = _session(record) if record is not None else await self._begin(key)
            is_stored = await self._append(key, given, session, record.revision if record is not None else 0)

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        record = await self._record(key["project_key"], key["session_id"])
        if "subpath" in key:
            if record is None or key["subpath"] not in _session(record).subagents:
                return None
            place = (SUBAGENTS, key["project_key"], key["session_id"], key["subpath"])
            return [found.value async for found in self._store.records.iter(place, exact=True)]
        conversation_id = (
            _session(record).conversation_id if record is not None else await bound(self._store, key["session_id"])
        )
        beside = [found async for found in self._store.records.iter(_beside(key), exact=True)] if record else []
        entries = [entry async for entry in self._merged(conversation_id, key["session_id"], beside)]
        return cast("list[SessionStoreEntry]", entries) or None

    # What is optional

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        return [
            {"session_id": record.key, "mtime": _mtime(record)}
            async for record in self._store.records.iter((SESSIONS, project_key), exact=True)
            if _has_main(_session(record))
        ]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        return [
            {"session_id": record.key, "mtime": _mtime(record), "data": data}
            async for record in self._store.records.iter((SESSIONS, project_key), exact=True)
            if (data := _session(record).summary) is not None
        ]

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
        batch: list[Put | Delete] = [self._put(key, msgspec.structs.replace(session, subagents=left), record.revision)]
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
            id = str(uuid.uuid5(_NAMES, f"{key['project_key']}/{id}"))
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

    def _put(self, key: SessionKey, session: Session, revision: int) -> Put:
        value = msgspec.to_builtins(session)
        place = (SESSIONS, key["project_key"])
        return Put(place, key["session_id"], value, revision, conversation_id=session.conversation_id)

    # Appending

    async def _append(self, key: SessionKey, entries: list[dict[str, Any]], session: Session, revision: int) -> bool:
        """False when another writer was faster. Rows that are stored by then are found again by their ids."""
        new = await self._new(key, entries)
        if "subpath" in key:
            session, batch = self._beneath(key, new, session)
        else:
            session, batch = await self._main(key, new, session)
        uuids = [entry["uuid"] for entry in new if isinstance(entry.get("uuid"), str) and not _is_said(key, entry)]
        batch += [Put(_uuids(key), each, True, conversation_id=session.conversation_id) for each in uuids]
        try:
            await self._store.records.write([self._put(key, session, revision), *batch])
        except Conflict:
            return False
        return True

    async def _new(self, key: SessionKey, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The entries without those that a record has already; rows are told apart by the append itself."""
        named = {entry["uuid"]: None for entry in entries if isinstance(entry.get("uuid"), str)}
        found = await self._store.records.get_many([(_uuids(key), each) for each in named]) if named else []
        seen = {record.key for record in found if record is not None}
        new = []
        for entry in entries:
            name = entry.get("uuid")
            if not isinstance(name, str) or name not in seen:
                new.append(entry)
            if isinstance(name, str):
                seen.add(name)
        return new

    async def _main(
        self, key: SessionKey, entries: list[dict[str, Any]], session: Session
    ) -> tuple[Session, list[Put | Delete]]:
        id = session.conversation_id
        before = await newest(self._store, id, 1)
        said = [entry for entry in entries if _is_said(key, entry)]
        rows = iter((await self._store.append(id, [_row(entry) for entry in said], create=False)).messages)
        anchor = before[-1].seq if before else 0
        batch: list[Put | Delete] = []
        count = session.entries
        for entry in entries:
            if _is_said(key, entry):
                anchor = next(rows).seq
            else:
                batch.append(Put(_beside(key), f"{anchor:012}.{count:09}", entry, conversation_id=id))
                count += 1
        previous: Any = {"session_id": key["session_id"], "mtime": 0, "data": session.summary}
        folded = fold_session_summary(previous if session.summary is not None else None, key, cast(Any, entries))
        return msgspec.structs.replace(session, entries=count, summary=folded["data"]), batch

    def _beneath(
        self, key: SessionKey, entries: list[dict[str, Any]], session: Session
    ) -> tuple[Session, list[Put | Delete]]:
        path = key["subpath"]
        place = (SUBAGENTS, key["project_key"], key["session_id"], path)
        first = session.subagents.get(path, 0)
        batch: list[Put | Delete] = [
            Put(place, f"{first + number:012}", entry, conversation_id=session.conversation_id)
            for number, entry in enumerate(entries)
        ]
        subagents = {**session.subagents, path: first + len(entries)}
        return msgspec.structs.replace(session, subagents=subagents), batch

    # Loading

    async def _merged(
        self, conversation_id: str, session_id: str, beside: Sequence[Record]
    ) -> AsyncIterator[dict[str, Any]]:
        """Messages in their order, each followed by the entries that came after it, and where to go on from."""
        waiting = list(beside)[::-1]
        leaf: str | None = None
        is_foreign = False
        async for row in self._store.iter_messages(conversation_id):
            while waiting and int(waiting[-1].key[:12]) < row.seq:
                entry = waiting.pop().value
                leaf = entry.get("uuid") or leaf
                yield entry
            for entry in _entries(row, session_id, leaf):
                leaf = entry.get("uuid") or leaf
                yield entry
            is_foreign = row.format != FORMAT
        for record in waiting[::-1]:
            yield record.value
        if is_foreign and leaf is not None and beside:
            # Claude goes on from the last leaf that an entry names. That is what somebody else said.
            yield {"type": "last-prompt", "lastPrompt": "", "leafUuid": leaf, "sessionId": session_id}


async def bind(store: Store, conversation_id: str) -> str:
    """The session id under which Claude knows a conversation: its own where that is a UUID."""
    try:
        return str(uuid.UUID(conversation_id))
    except ValueError:
        session_id = str(uuid.uuid5(_NAMES, conversation_id))
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
    return msgspec.convert(record.value, Session)


def _has_main(session: Session) -> bool:
    return session.summary is not None


def _mtime(record: Record) -> int:
    return to_micros(record.updated_at) // 1000


def _beside(key: SessionKey) -> tuple[str, ...]:
    return (BESIDE, key["project_key"], key["session_id"])


def _uuids(key: SessionKey) -> tuple[str, ...]:
    path = (key["subpath"],) if "subpath" in key else ()
    return (UUIDS, key["project_key"], key["session_id"], *path)


def _is_said(key: SessionKey, entry: dict[str, Any]) -> bool:
    """Whether an entry is part of what was said, for everybody to read."""
    message = entry.get("message")
    return (
        "subpath" not in key
        and entry.get("type") in ("user", "assistant")
        and isinstance(message, dict)
        and message.get("role") in ("user", "assistant")
        and isinstance(message.get("content"), str | list)
        and not any(entry.get(mark) for mark in ("isSidechain", "isMeta"))
    )


def _row(entry: dict[str, Any]) -> Message:
    content = entry["message"]["content"]
    answers = isinstance(content, list) and content and all(_is_result(block) for block in content)
    id = entry["uuid"] if isinstance(entry.get("uuid"), str) else ""
    return Message("tool" if answers else entry["message"]["role"], entry, id=id, format=FORMAT)


def _is_result(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "tool_result"


def _entries(row: Message, session_id: str, parent: str | None) -> list[dict[str, Any]]:
    """A message as entries: its very content where Claude wrote it."""
    if row.format == FORMAT and isinstance(row.content, dict):
        return [row.content]
    entries = []
    spoken = registry.write(reading_of(row), "anthropic", row)
    if _side(row) == "assistant" and len(spoken) > 1:
        # Anthropic's dialogues begin with a user: a message by itself gets one that nobody said.
        spoken = [said for said in spoken if said["role"] == "assistant"]
    for number, said in enumerate(spoken):
        name = str(uuid.uuid5(_NAMES, f"{row.conversation_id}/{row.id}.{number}"))
        entries.append(_entry(said, row, session_id, name, parent))
        parent = name
    return entries


def _entry(said: Any, row: Message, session_id: str, name: str, parent: str | None) -> dict[str, Any]:
    message = said if isinstance(said, dict) and "role" in said else {"role": _side(row), "content": _blocks(said)}
    if message["role"] == "assistant":
        message = {
            "id": f"msg_{name}",
            "type": "message",
            "role": "assistant",
            "model": (row.usage.model if row.usage else None) or "unknown",
            "content": _blocks(message["content"]),
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 0, "output_tokens": 0},
        }
    return {
        "parentUuid": parent,
        "isSidechain": False,
        "userType": "external",
        "cwd": "/",
        "sessionId": session_id,
        "version": "1.0.0",
        "type": message["role"],
        "message": message,
        "uuid": name,
        "timestamp": row.created_at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    }


def _blocks(content: Any) -> Any:
    """Content of its own format may be a text, one block, or the blocks."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [content] if isinstance(content, dict) else content


def _side(row: Message) -> str:
    return "assistant" if row.role in ("assistant", "agent") else "user"
