"""Google ADK's session service.

A session is a conversation, and an event is a message of it, in the format `adk`: its JSON, unchanged, in the order of
arrival. Messages of other frameworks become events with the same content. A loaded session knows the version of its
conversation, and an event is appended only at that version, so a stale session is detected whatever the clocks say.

The append of an event is the only commit. It contains what the event changes in the state; the records with the state
of the session, the user and the app are updated afterwards, and store the last event that they include. Loading a
session brings them up to date first, so a process that dies in between loses nothing.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec
from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event
from google.adk.sessions import BaseSessionService, Session
from google.adk.sessions.base_session_service import GetSessionConfig, ListSessionsResponse

from hansard.adapters.adk.events import Delta, Events, delta_of, events_of, merged, plain, row_of, scoped, text_in
from hansard.adapters.adk.window_cache import Windows
from hansard.adapters.history import newest, uninterrupted, value_of
from hansard.errors import Conflict, ConversationNotFound, NotFound
from hansard.model import Conversation, Message, Record
from hansard.store import Store
from hansard.store.records import Records

SESSIONS = "adk-sessions"
APP_STATE = "adk-app-state"
USER_STATE = "adk-user-state"

_BEHIND = 64
"""How many events the state may lag behind if none of them changed it."""
_NAMES = uuid.UUID("a3b51f5e-24d0-4f0e-8f0c-5ac7b3f3f0ad")


class AdkSessionRecord(msgspec.Struct, frozen=True):
    """The record of a session."""

    conversation_id: str
    state: Delta = {}
    applied: int = 0
    """The seq of the newest event whose changes are in the state."""
    quoted: dict[str, str] = msgspec.field(default_factory=dict, name="said")
    """Keys of the state whose value is the text of an event, and that event: the text is stored once."""


class SessionKey(NamedTuple):
    """Identifies a session. Other users and apps may have one with the same id."""

    app: str
    user: str
    id: str

    @property
    def namespace(self) -> tuple[str, ...]:
        return (SESSIONS, self.app, self.user)


class FoundSession(NamedTuple):
    conversation: Conversation
    stored: AdkSessionRecord
    is_new: bool = False
    """It has no record yet: another framework created the conversation."""


class SessionOrigin(NamedTuple):
    """What a session that was loaded or created here remembers of its conversation."""

    version: int
    conversation_id: str
    is_new: bool = False


class AdkSessionService(BaseSessionService):
    """ADK's `BaseSessionService`. `agent_name` becomes the author of other frameworks' assistant messages."""

    def __init__(self, store: Store, *, agent_name: str | None = None) -> None:
        self._store = store
        self._agent_name = agent_name
        self._events = Events()
        self._windows = Windows()

    # ADK's methods

    async def create_session(
        self, *, app_name: str, user_id: str, state: dict[str, Any] | None = None, session_id: str | None = None
    ) -> Session:
        session_key = SessionKey(app_name, user_id, (session_id or "").strip() or str(uuid.uuid4()))
        if await self._find(session_key) is not None:
            raise AlreadyExistsError(f"Session with id {session_key.id} already exists.")
        conversation = await self._create(session_key)
        given = scoped(plain(state or {}))
        await self._merge(self._store.records, APP_STATE, app_name, given.app)
        await self._merge(self._of_user(user_id), USER_STATE, app_name, given.user)
        stored = AdkSessionRecord(conversation.id, given.session)
        try:
            await self._put(session_key, stored, 0)
        except Conflict as error:
            raise AlreadyExistsError(f"Session with id {session_key.id} already exists.") from error
        state = merged(given.session, *await self._shared(app_name, user_id))
        return self._session(session_key, FoundSession(conversation, stored), state, [])

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        session_key = SessionKey(app_name, user_id, session_id.strip())
        # Read the version first: a message appended afterwards makes the session stale, so it cannot be missed.
        found = await self._find(session_key) if session_key.id and user_id else None
        if found is None:
            return None
        messages = await self._messages(found.conversation, config or GetSessionConfig())
        stored = await self._caught_up(session_key, found.stored, messages)
        events = events_of(messages, self._agent_name or app_name, self._events)
        if config is not None and config.after_timestamp is not None:
            events = [event for event in events if event.timestamp >= config.after_timestamp]
        state = merged(await self._state(stored, messages), *await self._shared(app_name, user_id))
        return self._session(session_key, found, state, events)

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        if user_id == "":
            return ListSessionsResponse()
        where = (SESSIONS, app_name) if user_id is None else (SESSIONS, app_name, user_id)
        shared: dict[str, tuple[Delta, Delta]] = {}
        sessions = []
        async for record in self._store.records.iter(where, exact=user_id is not None):
            session_key, stored = SessionKey(app_name, record.namespace[2], record.key), session_record(record)
            conversation = await self._store.get_conversation(stored.conversation_id)
            if conversation is None:
                continue
            if session_key.user not in shared:
                shared[session_key.user] = await self._shared(app_name, session_key.user)
            state = merged(await self._state(stored), *shared[session_key.user])
            sessions.append(self._session(session_key, FoundSession(conversation, stored), state, []))
        sessions.sort(key=lambda session: (session.last_update_time, session.user_id, session.id))
        return ListSessionsResponse(sessions=sessions)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Deletes the conversation. The state that the app and the user share with other sessions stays."""
        session_key = SessionKey(app_name, user_id, session_id.strip())
        found = await self._find(session_key) if session_key.id and user_id else None
        if found is not None:
            await self._store.delete_conversation(found.conversation.id)

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        return (await self._shared(app_name, user_id))[0]

    async def append_event(self, session: Session, event: Event) -> Event:
        if event.partial:
            return event
        session_key = SessionKey(session.app_name, session.user_id, session.id)
        origin = _origin_of(session) or await self._look_up(session_key, session)
        self._apply_temp_state(session, event)
        event = self._trim_temp_delta_state(event)
        message, version = await self._append_whole(session_key, origin, row_of(event))
        # A newly stored event was not in the session; one that was already stored may be.
        is_known = version is None and any(each.id == event.id for each in reversed(session.events))
        if version is not None:
            _set_origin(session, SessionOrigin(version, origin.conversation_id))
        session.last_update_time = max(session.last_update_time, message.created_at.timestamp())
        return event if is_known else self._commit_event_to_session(session, event)

    # Sessions

    async def _find(self, session_key: SessionKey) -> FoundSession | None:
        """Returns the session: ADK's own, or a conversation of that id that others created.

        Such a conversation must belong to the same user or to none.
        """
        record = await self._store.records.get(session_key.namespace, session_key.id)
        stored = session_record(record) if record is not None else AdkSessionRecord(session_key.id)
        conversation = await self._store.get_conversation(stored.conversation_id)
        if conversation is None or (record is None and not _is_open_to(conversation, session_key)):
            return None
        return FoundSession(conversation, stored, is_new=record is None)

    async def _create(self, session_key: SessionKey) -> Conversation:
        id = session_key.id
        if await self._store.get_conversation(id) is not None:
            id = str(uuid.uuid5(_NAMES, "/".join(session_key)))
        claim = {"adk_app": session_key.app}
        try:
            return await self._store.create_conversation(
                id, user_id=session_key.user, agent_id=session_key.app, metadata=claim
            )
        except (Conflict, ConversationNotFound) as error:
            raise AlreadyExistsError(f"Session with id {session_key.id} already exists.") from error

    def _session(self, session_key: SessionKey, found: FoundSession, state: Delta, events: list[Event]) -> Session:
        conversation = found.conversation
        last = conversation.last_message_at or conversation.created_at
        session = Session(
            id=session_key.id,
            app_name=session_key.app,
            user_id=session_key.user,
            state=state,
            events=events,
            last_update_time=last.timestamp(),
        )
        _set_origin(session, SessionOrigin(conversation.version, conversation.id, found.is_new))
        return session

    async def _look_up(self, session_key: SessionKey, session: Session) -> SessionOrigin:
        """Returns the origin of a session that was not loaded here: only its time tells whether it is stale."""
        found = await self._find(session_key)
        if found is None:
            raise SessionNotFoundError(f"Session {session_key.id} not found.")
        conversation = found.conversation
        if conversation.last_message_at and conversation.last_message_at.timestamp() > session.last_update_time:
            raise _stale(session_key)
        return SessionOrigin(conversation.version, conversation.id, found.is_new)

    # Events

    async def _append_whole(
        self, session_key: SessionKey, origin: SessionOrigin, row: Message
    ) -> tuple[Message, int | None]:
        """Appends an event, and completes the append even if the caller is cancelled."""
        try:
            return await self._append(session_key, origin, row)
        except asyncio.CancelledError as cancelled:
            # Whether or not it was stored: an event that is sent again is stored once.
            try:
                await uninterrupted(self._append(session_key, origin, row))
            except Exception as error:
                raise cancelled from error
            raise

    async def _append(self, session_key: SessionKey, origin: SessionOrigin, row: Message) -> tuple[Message, int | None]:
        """Returns the event as stored, and the version that it made; None if it was already stored."""
        try:
            appended = await self._store.append(
                origin.conversation_id,
                [row],
                # A conversation that others created without an owner becomes the user's, and is deleted when the user
                # is erased.
                user_id=session_key.user if origin.is_new else None,
                expected_version=origin.version,
                on_duplicate="error",
                create=False,
            )
        except ConversationNotFound as error:
            raise SessionNotFoundError(f"Session {session_key.id} not found.") from error
        except Conflict as error:
            if error.expected is None:
                raise
            raise _stale(session_key) from error
        message = appended.messages[0]
        if delta_of(message) or origin.is_new or message.seq % _BEHIND == 0:
            await self._follow(session_key, origin.conversation_id, [message])
        if not appended.stored:
            return message, None
        self._windows.extend(origin.conversation_id, origin.version, appended.version, message)
        return message, appended.version

    async def _messages(self, conversation: Conversation, config: GetSessionConfig) -> Sequence[Message]:
        id, wanted = conversation.id, config.num_recent_events
        if wanted == 0:
            return []
        if wanted is None and config.after_timestamp is not None:
            # Times of messages are rounded to the microsecond; the events are compared exactly.
            since = datetime.fromtimestamp(config.after_timestamp, UTC) - timedelta(microseconds=1)
            return [message async for message in self._store.iter_messages(id, since=since)]
        known = self._windows.get(conversation, wanted)
        if known is not None:
            return known
        messages = (
            [message async for message in self._store.iter_messages(id)]
            if wanted is None
            else await newest(self._store, id, wanted)
        )
        await self._cache_messages(conversation, wanted, messages)
        return messages

    async def _cache_messages(
        self, conversation: Conversation, wanted: int | None, messages: Sequence[Message]
    ) -> None:
        """Caches messages as those of the version, unless the conversation was written while they were read."""
        now = await self._store.get_conversation(conversation.id)
        if now is not None and (now.version, now.created_at) == (conversation.version, conversation.created_at):
            self._windows.keep(conversation, wanted, messages)

    # State

    async def _caught_up(
        self, session_key: SessionKey, stored: AdkSessionRecord, read: Sequence[Message]
    ) -> AdkSessionRecord:
        """Returns the state with the changes of every event that it does not include yet."""
        behind = [message for message in read if message.seq > stored.applied]
        if not read or read[0].seq > stored.applied + 1:
            after = Message("user", "", conversation_id=stored.conversation_id, seq=stored.applied).cursor
            behind = [each async for each in self._store.iter_messages(stored.conversation_id, after=after)]
        if any(delta_of(message) for message in behind) or len(behind) > _BEHIND:
            return await self._follow(session_key, stored.conversation_id, behind)
        return stored

    async def _follow(
        self, session_key: SessionKey, conversation_id: str, messages: Sequence[Message]
    ) -> AdkSessionRecord:
        """Brings the records up to these messages; changes that another process has applied are not applied again."""
        while True:
            record = await self._store.records.get(session_key.namespace, session_key.id)
            stored = session_record(record) if record is not None else AdkSessionRecord(conversation_id)
            state, quoted = dict(stored.state), dict(stored.quoted)
            for message in messages:
                if message.seq > stored.applied and (delta := delta_of(message)):
                    change = scoped(delta)
                    text = text_in(message)
                    quotes = {key for key, value in change.session.items() if value and value == text}
                    for key in change.session:
                        state.pop(key, None)
                        quoted.pop(key, None)
                    state |= {key: value for key, value in change.session.items() if key not in quotes}
                    quoted |= dict.fromkeys(quotes, message.id)
                    await self._merge(self._store.records, APP_STATE, session_key.app, change.app)
                    await self._merge(self._of_user(session_key.user), USER_STATE, session_key.app, change.user)
            if not messages or messages[-1].seq <= stored.applied:
                return stored
            stored = AdkSessionRecord(conversation_id, state, messages[-1].seq, quoted)
            try:
                await self._put(session_key, stored, record.revision if record is not None else 0)
            except Conflict:
                continue
            return stored

    async def _state(self, stored: AdkSessionRecord, read: Sequence[Message] = ()) -> Delta:
        """Returns the session's own state. The text of a deleted event is removed from it too."""
        if not stored.quoted:
            return stored.state
        texts = {message.id: text_in(message) for message in read}
        state = dict(stored.state)
        for key, id in stored.quoted.items():
            if id not in texts:
                with suppress(NotFound):
                    texts[id] = text_in(await self._store.get_message(stored.conversation_id, id))
            if id in texts:
                state[key] = texts[id]
        return state

    async def _put(self, session_key: SessionKey, stored: AdkSessionRecord, revision: int) -> None:
        await self._store.records.put(
            session_key.namespace,
            session_key.id,
            msgspec.to_builtins(stored),
            expected_revision=revision,
            conversation_id=stored.conversation_id,
        )

    def _of_user(self, user_id: str) -> Records:
        """Returns the user's records, which are deleted when the user is erased."""
        return self._store.user(user_id).records

    async def _shared(self, app: str, user: str) -> tuple[Delta, Delta]:
        """Returns the states of the user and of the app."""
        of_user = await self._of_user(user).get((USER_STATE,), app)
        of_app = await self._store.records.get((APP_STATE,), app)
        return of_user.value if of_user else {}, of_app.value if of_app else {}

    async def _merge(self, records: Records, kind: str, app: str, delta: Delta) -> None:
        while delta:
            record = await records.get((kind,), app)
            state, revision = (record.value, record.revision) if record else ({}, 0)
            try:
                await records.put((kind,), app, {**state, **delta}, expected_revision=revision)
            except Conflict:
                continue
            return


def session_record(record: Record) -> AdkSessionRecord:
    return value_of(record, AdkSessionRecord)


def _is_open_to(conversation: Conversation, session_key: SessionKey) -> bool:
    return conversation.user_id in (None, session_key.user) and conversation.metadata.get("adk_app") in (
        None,
        session_key.app,
    )


def _set_origin(session: Session, origin: SessionOrigin) -> None:
    session._storage_update_marker = f"{origin.version}{'+' if origin.is_new else ''} {origin.conversation_id}"


def _origin_of(session: Session) -> SessionOrigin | None:
    version, _, conversation_id = (session._storage_update_marker or "").partition(" ")
    number = version.removesuffix("+")
    return (
        SessionOrigin(int(number), conversation_id, number != version)
        if number.isdecimal() and conversation_id
        else None
    )


def _stale(session_key: SessionKey) -> StaleSessionError:
    return StaleSessionError(f"Session {session_key.id} has changed since it was loaded: load it again.")
