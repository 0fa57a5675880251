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

from hansard.adapters.adk.events import Delta, Events, delta_of, events_of, merged, plain, row_of, said_in, scoped
from hansard.adapters.adk.window_cache import Windows
from hansard.adapters.history import newest, settled, value_of
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
    said: dict[str, str] = {}
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
    kept: AdkSessionRecord
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
        place = SessionKey(app_name, user_id, (session_id or "").strip() or str(uuid.uuid4()))
        if await self._find(place) is not None:
            raise AlreadyExistsError(f"Session with id {place.id} already exists.")
        conversation = await self._create(place)
        given = scoped(plain(state or {}))
        await self._merge(self._store.records, APP_STATE, app_name, given.app)
        await self._merge(self._of_user(user_id), USER_STATE, app_name, given.user)
        kept = AdkSessionRecord(conversation.id, given.session)
        try:
            await self._put(place, kept, 0)
        except Conflict as error:
            raise AlreadyExistsError(f"Session with id {place.id} already exists.") from error
        state = merged(given.session, *await self._shared(app_name, user_id))
        return self._session(place, FoundSession(conversation, kept), state, [])

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        place = SessionKey(app_name, user_id, session_id.strip())
        # Read the version first: a message appended afterwards makes the session stale, so it cannot be missed.
        found = await self._find(place) if place.id and user_id else None
        if found is None:
            return None
        messages = await self._messages(found.conversation, config or GetSessionConfig())
        kept = await self._caught_up(place, found.kept, messages)
        events = events_of(messages, self._agent_name or app_name, self._events)
        if config is not None and config.after_timestamp is not None:
            events = [event for event in events if event.timestamp >= config.after_timestamp]
        state = merged(await self._state(kept, messages), *await self._shared(app_name, user_id))
        return self._session(place, found, state, events)

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        if user_id == "":
            return ListSessionsResponse()
        where = (SESSIONS, app_name) if user_id is None else (SESSIONS, app_name, user_id)
        shared: dict[str, tuple[Delta, Delta]] = {}
        sessions = []
        async for record in self._store.records.iter(where, exact=user_id is not None):
            place, kept = SessionKey(app_name, record.namespace[2], record.key), kept_in(record)
            conversation = await self._store.get_conversation(kept.conversation_id)
            if conversation is None:
                continue
            if place.user not in shared:
                shared[place.user] = await self._shared(app_name, place.user)
            state = merged(await self._state(kept), *shared[place.user])
            sessions.append(self._session(place, FoundSession(conversation, kept), state, []))
        sessions.sort(key=lambda session: (session.last_update_time, session.user_id, session.id))
        return ListSessionsResponse(sessions=sessions)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Deletes the conversation. The state that the app and the user share with other sessions stays."""
        place = SessionKey(app_name, user_id, session_id.strip())
        found = await self._find(place) if place.id and user_id else None
        if found is not None:
            await self._store.delete_conversation(found.conversation.id)

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        return (await self._shared(app_name, user_id))[0]

    async def append_event(self, session: Session, event: Event) -> Event:
        if event.partial:
            return event
        place = SessionKey(session.app_name, session.user_id, session.id)
        mark = _marked(session) or await self._look_up(place, session)
        self._apply_temp_state(session, event)
        event = self._trim_temp_delta_state(event)
        message, version = await self._append_whole(place, mark, row_of(event))
        # A newly stored event was not in the session; one that was already stored may be.
        is_known = version is None and any(each.id == event.id for each in reversed(session.events))
        if version is not None:
            _mark(session, SessionOrigin(version, mark.conversation_id))
        session.last_update_time = max(session.last_update_time, message.created_at.timestamp())
        return event if is_known else self._commit_event_to_session(session, event)

    # Sessions

    async def _find(self, place: SessionKey) -> FoundSession | None:
        """Returns the session: ADK's own, or a conversation of that id that others created.

        Such a conversation must belong to the same user or to none.
        """
        record = await self._store.records.get(place.namespace, place.id)
        kept = kept_in(record) if record is not None else AdkSessionRecord(place.id)
        conversation = await self._store.get_conversation(kept.conversation_id)
        if conversation is None or (record is None and not _is_open_to(conversation, place)):
            return None
        return FoundSession(conversation, kept, is_new=record is None)

    async def _create(self, place: SessionKey) -> Conversation:
        id = place.id
        if await self._store.get_conversation(id) is not None:
            id = str(uuid.uuid5(_NAMES, "/".join(place)))
        claim = {"adk_app": place.app}
        try:
            return await self._store.create_conversation(id, user_id=place.user, agent_id=place.app, metadata=claim)
        except (Conflict, ConversationNotFound) as error:
            raise AlreadyExistsError(f"Session with id {place.id} already exists.") from error

    def _session(self, place: SessionKey, found: FoundSession, state: Delta, events: list[Event]) -> Session:
        conversation = found.conversation
        last = conversation.last_message_at or conversation.created_at
        session = Session(
            id=place.id,
            app_name=place.app,
            user_id=place.user,
            state=state,
            events=events,
            last_update_time=last.timestamp(),
        )
        _mark(session, SessionOrigin(conversation.version, conversation.id, found.is_new))
        return session

    async def _look_up(self, place: SessionKey, session: Session) -> SessionOrigin:
        """Returns the origin of a session that was not loaded here: only its time tells whether it is stale."""
        found = await self._find(place)
        if found is None:
            raise SessionNotFoundError(f"Session {place.id} not found.")
        conversation = found.conversation
        if conversation.last_message_at and conversation.last_message_at.timestamp() > session.last_update_time:
            raise _stale(place)
        return SessionOrigin(conversation.version, conversation.id, found.is_new)

    # Events

    async def _append_whole(self, place: SessionKey, mark: SessionOrigin, row: Message) -> tuple[Message, int | None]:
        """Appends an event, and completes the append even if the caller is cancelled."""
        try:
            return await self._append(place, mark, row)
        except asyncio.CancelledError as cancelled:
            # Whether or not it was stored: an event that is sent again is stored once.
            try:
                await settled(self._append(place, mark, row))
            except Exception as error:
                raise cancelled from error
            raise

    async def _append(self, place: SessionKey, mark: SessionOrigin, row: Message) -> tuple[Message, int | None]:
        """Returns the event as stored, and the version that it made; None if it was already stored."""
        try:
            appended = await self._store.append(
                mark.conversation_id,
                [row],
                # A conversation that others created without an owner becomes the user's, and is deleted when the user
                # is erased.
                user_id=place.user if mark.is_new else None,
                expected_version=mark.version,
                on_duplicate="error",
                create=False,
            )
        except ConversationNotFound as error:
            raise SessionNotFoundError(f"Session {place.id} not found.") from error
        except Conflict as error:
            if error.expected is None:
                raise
            raise _stale(place) from error
        message = appended.messages[0]
        if delta_of(message) or mark.is_new or message.seq % _BEHIND == 0:
            await self._follow(place, mark.conversation_id, [message])
        if not appended.stored:
            return message, None
        self._windows.go_on(mark.conversation_id, mark.version, appended.version, message)
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
        await self._keep(conversation, wanted, messages)
        return messages

    async def _keep(self, conversation: Conversation, wanted: int | None, messages: Sequence[Message]) -> None:
        """Caches messages as those of the version, unless the conversation was written while they were read."""
        now = await self._store.get_conversation(conversation.id)
        if now is not None and (now.version, now.created_at) == (conversation.version, conversation.created_at):
            self._windows.keep(conversation, wanted, messages)

    # State

    async def _caught_up(self, place: SessionKey, kept: AdkSessionRecord, read: Sequence[Message]) -> AdkSessionRecord:
        """Returns the state with the changes of every event that it does not include yet."""
        behind = [message for message in read if message.seq > kept.applied]
        if not read or read[0].seq > kept.applied + 1:
            after = Message("user", "", conversation_id=kept.conversation_id, seq=kept.applied).cursor
            behind = [each async for each in self._store.iter_messages(kept.conversation_id, after=after)]
        if any(delta_of(message) for message in behind) or len(behind) > _BEHIND:
            return await self._follow(place, kept.conversation_id, behind)
        return kept

    async def _follow(self, place: SessionKey, conversation_id: str, messages: Sequence[Message]) -> AdkSessionRecord:
        """Brings the records up to these messages; changes that another process has applied are not applied again."""
        while True:
            record = await self._store.records.get(place.namespace, place.id)
            kept = kept_in(record) if record is not None else AdkSessionRecord(conversation_id)
            state, said = dict(kept.state), dict(kept.said)
            for message in messages:
                if message.seq > kept.applied and (delta := delta_of(message)):
                    change = scoped(delta)
                    text = said_in(message)
                    quotes = {key for key, value in change.session.items() if value and value == text}
                    for key in change.session:
                        state.pop(key, None)
                        said.pop(key, None)
                    state |= {key: value for key, value in change.session.items() if key not in quotes}
                    said |= dict.fromkeys(quotes, message.id)
                    await self._merge(self._store.records, APP_STATE, place.app, change.app)
                    await self._merge(self._of_user(place.user), USER_STATE, place.app, change.user)
            if not messages or messages[-1].seq <= kept.applied:
                return kept
            kept = AdkSessionRecord(conversation_id, state, messages[-1].seq, said)
            try:
                await self._put(place, kept, record.revision if record is not None else 0)
            except Conflict:
                continue
            return kept

    async def _state(self, kept: AdkSessionRecord, read: Sequence[Message] = ()) -> Delta:
        """Returns the session's own state. The text of a deleted event is removed from it too."""
        if not kept.said:
            return kept.state
        texts = {message.id: said_in(message) for message in read}
        state = dict(kept.state)
        for key, id in kept.said.items():
            if id not in texts:
                with suppress(NotFound):
                    texts[id] = said_in(await self._store.get_message(kept.conversation_id, id))
            if id in texts:
                state[key] = texts[id]
        return state

    async def _put(self, place: SessionKey, kept: AdkSessionRecord, revision: int) -> None:
        await self._store.records.put(
            place.namespace,
            place.id,
            msgspec.to_builtins(kept),
            expected_revision=revision,
            conversation_id=kept.conversation_id,
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


def kept_in(record: Record) -> AdkSessionRecord:
    return value_of(record, AdkSessionRecord)


def _is_open_to(conversation: Conversation, place: SessionKey) -> bool:
    return conversation.user_id in (None, place.user) and conversation.metadata.get("adk_app") in (None, place.app)


def _mark(session: Session, mark: SessionOrigin) -> None:
    session._storage_update_marker = f"{mark.version}{'+' if mark.is_new else ''} {mark.conversation_id}"


def _marked(session: Session) -> SessionOrigin | None:
    version, _, conversation_id = (session._storage_update_marker or "").partition(" ")
    number = version.removesuffix("+")
    return (
        SessionOrigin(int(number), conversation_id, number != version)
        if number.isdecimal() and conversation_id
        else None
    )


def _stale(place: SessionKey) -> StaleSessionError:
    return StaleSessionError(f"Session {place.id} has changed since it was loaded: load it again.")
