"""`GET /realtime` over a WebSocket: the conversation events of OpenAI's Realtime API, for a stored conversation.

Clients use `realtime.connect` of the SDKs to create, retrieve, delete and truncate items. `conversation` in the query
names the conversation; by default, a new one is created. There is no model: events that need one get an error, and the
session continues. `realtime_relay` passes sessions on to a model. Items are messages of the format `openai.responses`,
as on all other routes. Each event is authorized, counted and audited like a request, because a session may outlive its
key.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec
from msgspec import Struct
from starlette.websockets import WebSocket, WebSocketDisconnect

from hansard import ids
from hansard.errors import (
    Conflict,
    ConversationNotFound,
    HansardError,
    MessageNotFound,
    RateLimited,
    Unauthenticated,
    Unavailable,
    ValidationError,
)
from hansard.formats import openai_items
from hansard.model import Message
from hansard.server import parameters
from hansard.server.openai import conversations
from hansard.server.openai.retries import Retries, back_off
from hansard.server.openai.wire_errors import WireError, code_of, invalid, missing, not_found, wire_error
from hansard.server.openai.wire_request import WireRequest
from hansard.store import Store

PATH = "/realtime"
_LOG = logging.getLogger("hansard.server")
_SWITCHED = 101
_NOT_TEXT, _NO_LONGER, _FAILED = 1003, 1008, 1011
_SHOWN = 256
"""Characters of an id that are written to the audit log: clients may send ids of any length."""
_ROOT = "root"
_ATTEMPTS = 20
"""Attempts to insert an item between others during concurrent writes."""
_PROTOCOL = "realtime"
_KEY = "openai-insecure-api-key."
_MODEL = ("response.", "input_audio_buffer.", "output_audio_buffer.")

Event = dict[str, Any]
Emit = Callable[[Event], Awaitable[None]]


class Guard:
    """Authorizes a session's events before they are handled, and audits them before they are answered."""

    def __init__(self, handshake: WireRequest) -> None:
        self._handshake = handshake
        self._context = handshake.context
        self._event = handshake

    def started(self, conversation_id: str) -> None:
        """Audits the handshake before it is answered."""
        self._handshake.extra_ids = {"conversation_id": conversation_id}
        self._context.observe(self._handshake, _SWITCHED)

    def is_still_valid(self) -> bool:
        """Whether the key is still valid."""
        return self._context.auth.is_still_valid(self._handshake.known_caller)

    def admit(self, text: str, *, counts: bool = True) -> None:
        """Authorizes an event, or raises. `Unauthenticated` ends the session, other errors refuse only the event.

        If `counts` is false, only the bytes of the event are counted, not a request.
        """
        caller = self._handshake.known_caller
        self._event = self._handshake.new_event(len(text.encode()))
        if counts:
            self._context.auth.admit_again(caller)
        if (charge := self._context.auth.charge_of(caller)) is not None:
            charge(self._event.received)

    def observe(self, on: dict[str, str], failure: Exception | None) -> None:
        """Calls the observers for an event, before it is answered."""
        self._event.extra_ids = on
        if failure is None:
            self._context.observe(self._event, 200)
            return
        status = wire_error(failure, is_trusted=False).status
        self._context.observe(self._event, status, code_of(failure))


class RealtimeSession:
    """One connection and its conversation."""

    def __init__(
        self, store: Store, conversation_id: str, model: str | None, send: Emit, guard: Guard, retries: Retries
    ) -> None:
        self._store = store
        self._id = conversation_id
        self._retries = retries
        self._send = send
        self._guard = guard
        self._answers: list[Event] = []
        self._session: Event = {"type": "realtime", "object": "realtime.session", "id": ids.new_id("sess_")}
        if model is not None:
            self._session["model"] = model
        self._handlers = {
            "session.update": self._update,
            "conversation.item.create": self._create,
            "conversation.item.retrieve": self._retrieve,
            "conversation.item.delete": self._delete,
            "conversation.item.truncate": self._truncate,
        }

    async def start(self) -> None:
        self._emit({"type": "session.created", "session": self._session})
        self._emit(
            {"type": "conversation.created", "conversation": {"id": self._id, "object": "realtime.conversation"}}
        )
        await self._flush()

    async def handle(self, text: str) -> None:
        """Handles one event of the client. An invalid event gets an error, and the session continues."""
        event: Event = {}
        failure: Exception | None = None
        try:
            self._guard.admit(text)
            event = _event(text)
            await self._handler(event["type"])(event)
        except (WireError, openai_items.BadItem, HansardError) as error:
            failure = error
            self._answers = [error_event(error, event.get("event_id"))]
        self._guard.observe(self._about(event), failure)
        if isinstance(failure, Unavailable | Unauthenticated) and not isinstance(failure, RateLimited):
            raise failure
        await self._flush()

    def _about(self, event: Event) -> dict[str, str]:
        """Returns the ids of an event for the audit log."""
        item = event.get("item")
        given = event.get("item_id") or (item.get("id") if isinstance(item, dict) else None)
        made = next((answer["item"]["id"] for answer in self._answers if "item" in answer), None)
        named = {"event": event.get("type"), "item_id": given or made}
        shown = {name: value[:_SHOWN] for name, value in named.items() if isinstance(value, str)}
        return {"conversation_id": self._id, **shown}

    def _emit(self, event: Event) -> None:
        """Queues an event until the event that it answers was audited."""
        self._answers.append(event)

    async def _flush(self) -> None:
        answers, self._answers = self._answers, []
        for answer in answers:
            await self._send(answer)

    def _handler(self, kind: str) -> Callable[[Event], Awaitable[None]]:
        found = self._handlers.get(kind)
        if found is None and kind.startswith(_MODEL):
            raise WireError(501, f"There is no model to handle '{kind}'.", param="type", code="no_upstream")
        if found is None:
            raise invalid(f"Invalid value: '{kind[:80]}' is not a client event.", "type")
        return found

    async def _update(self, event: Event) -> None:
        given = event.get("session")
        if not isinstance(given, dict):
            raise missing("session")
        self._session = {**self._session, **given, "id": self._session["id"]}
        self._emit({"type": "session.updated", "session": self._session})

    async def _create(self, event: Event) -> None:
        item = openai_items.checked(event.get("item"), "item")
        message = openai_items.message_of(item, item.get("id") or ids.new_id("item_"))
        previous = event.get("previous_item_id")
        async with self._retries.exclusive_write(self._store, self._id):
            await self._refuse_stored(message.id)
            try:
                previous = await (self._append(message) if previous is None else self._insert(message, previous))
            except ConversationNotFound:
                raise not_found("Conversation", self._id) from None
        for kind in ("conversation.item.added", "conversation.item.done"):
            self._emit({"type": kind, "item": _realtime_item(message), "previous_item_id": previous})

    async def _refuse_stored(self, id: str) -> None:
        try:
            await self._store.get_message(self._id, id)
        except MessageNotFound:
            return
        raise _duplicate_id(id)

    async def _append(self, message: Message) -> str | None:
        """Appends a message. If the conversation was deleted meanwhile, it is not created again."""
        newest = await self._store.get_messages(self._id, last=1, blobs="refs")
        try:
            await self._store.append(self._id, [message], create=False, on_duplicate="error")
        except Conflict as error:
            # Another session has used the id since the check.
            raise conversations.duplicate(error, "item.id") from error
        return newest[0].id if newest else None

    async def _insert(self, message: Message, previous: Any) -> str | None:
        """Inserts a message before the end. Retries after a conflict with another writer."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return await self._replace(message, previous)
            except Conflict:
                if attempt == _ATTEMPTS:
                    raise
                await back_off(attempt)
        raise AssertionError("the last attempt returns or raises")

    async def _replace(self, message: Message, previous: Any) -> str | None:
        """Replaces all messages, with the new one inserted, by compare-and-swap."""
        found = await conversations.require(self._store, self._id)
        history = [each async for each in self._store.iter_messages(self._id)]
        places = {each.id: number + 1 for number, each in enumerate(history)}
        if message.id in places:
            raise _duplicate_id(message.id)
        at = 0 if previous == _ROOT else places.get(previous) if isinstance(previous, str) else None
        if at is None:
            raise invalid(f"Item with id '{previous}' not found.", "previous_item_id")
        version = found.version if self._store.capabilities.compare_and_swap else None
        whole = [*history[:at], message, *history[at:]]
        await self._store.replace_messages(self._id, whole, expected_version=version, revive=True)
        return None if at == 0 else history[at - 1].id

    async def _find(self, event: Event) -> Message:
        id = event.get("item_id")
        if not isinstance(id, str):
            raise missing("item_id")
        try:
            return await self._store.get_message(self._id, id)
        except (MessageNotFound, ValidationError):
            raise not_found("Item", id) from None

    async def _retrieve(self, event: Event) -> None:
        self._emit({"type": "conversation.item.retrieved", "item": _realtime_item(await self._find(event))})

    async def _delete(self, event: Event) -> None:
        message = await self._find(event)
        await self._store.delete_message(self._id, message.id)
        self._emit({"type": "conversation.item.deleted", "item_id": message.id})

    async def _truncate(self, event: Event) -> None:
        """Removes a transcript that was not fully played. Words have no times, so the whole transcript is removed."""
        message, index, end = await self._find(event), event.get("content_index", 0), event.get("audio_end_ms")
        parts = message.content.get("content") if isinstance(message.content, dict) else None
        if type(index) is not int or type(end) is not int or end < 0:
            raise invalid("'content_index' and 'audio_end_ms' must be whole numbers.", "audio_end_ms", "invalid_type")
        if message.role != "assistant" or not isinstance(parts, list) or not 0 <= index < len(parts):
            raise invalid("Only a part of an assistant's message can be truncated.", "content_index")
        if not isinstance(parts[index], dict):
            raise invalid("This part cannot be truncated.", "content_index")
        cut = {name: value for name, value in parts[index].items() if name not in ("transcript", "audio")}
        content = {**message.content, "content": [*parts[:index], {**cut, "audio_end_ms": end}, *parts[index + 1 :]]}
        await self._store.update_message(self._id, message.id, content=content, format=message.format)
        self._emit(
            {
                "type": "conversation.item.truncated",
                "item_id": message.id,
                "content_index": index,
                "audio_end_ms": end,
            }
        )


def _duplicate_id(id: str) -> WireError:
    return conversations.duplicate(f"id {id!r} is in the conversation already", "item.id")


def error_event(failure: Exception, event_id: Any) -> Event:
    """Returns the error event for a client event or the session."""
    error = wire_error(failure, is_trusted=False).error()
    return {"type": "error", "error": {**error, "event_id": event_id}}


def encoded(event: Event) -> str:
    """Encodes an event with a new id."""
    return msgspec.json.encode({"event_id": ids.new_id("event_"), **event}).decode()


def _event(text: str) -> Event:
    try:
        event = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise invalid(f"The event is not JSON: {error}", None, "invalid_json") from error
    if not isinstance(event, dict) or not isinstance(event.get("type"), str):
        raise missing("type")
    return event


def _realtime_item(message: Message) -> Event:
    item = openai_items.items_of(message)[0]
    return {**item, "id": message.id, "object": "realtime.item"}


# The handshake


class Handshake(Struct, frozen=True):
    """What a handshake asks for."""

    conversation: str | None
    """None for a new conversation."""
    creates: bool
    """A missing conversation is created."""
    relay: bool
    replay: bool
    keep_audio: bool
    query: dict[str, str]


def read_handshake(query: dict[str, list[str]], headers: dict[bytes, bytes], *, has_upstream: bool) -> Handshake:
    given = {name: values[-1] for name, values in query.items()}
    named, header = given.get("conversation"), headers.get(b"hansard-conversation")
    if header is not None:
        by_header = parameters.unquote(header, "the header of the conversation")
        if named not in (None, by_header):
            raise invalid("The query and the header name two conversations.", "conversation")
        named = by_header
    return Handshake(
        conversation=named,
        creates=header is not None,
        relay=_flag(given, "relay", has_upstream),
        replay=_flag(given, "replay", True),
        keep_audio=_flag(given, "keep_audio", False),
        query=given,
    )


def _flag(given: dict[str, str], name: str, usual: bool) -> bool:
    text = given.get(name)
    if text not in (None, "true", "false"):
        raise invalid(f"Invalid value: '{text[:40]}'. Supported values are: 'true' and 'false'.", name)
    return usual if text is None else text == "true"


def with_key(headers: dict[bytes, bytes], subprotocols: Iterable[str]) -> dict[bytes, bytes]:
    """Returns the headers with the key that a browser sends as a subprotocol, because it cannot set headers."""
    sent = next((each for each in subprotocols if each.startswith(_KEY)), None)
    if sent is None or b"authorization" in headers:
        return headers
    return {**headers, b"authorization": b"Bearer " + sent[len(_KEY) :].encode()}


def subprotocol(socket: WebSocket) -> str | None:
    """Returns the subprotocol to accept: browsers close the connection if none of theirs is accepted."""
    return _PROTOCOL if _PROTOCOL in socket.scope.get("subprotocols", ()) else None


async def check_conversation(store: Store, handshake: Handshake) -> None:
    """Raises 404 if a conversation that must exist does not."""
    if handshake.conversation is not None and not handshake.creates:
        await conversations.require(store, handshake.conversation)


async def open_conversation(store: Store, handshake: Handshake) -> str:
    """Returns the id of the session's conversation, creating it if needed."""
    id = handshake.conversation or conversations.fresh_id("conv_")
    if handshake.conversation is None or (handshake.creates and await store.get_conversation(id) is None):
        await store.create_conversation(id)
    return id


async def realtime(_: object) -> None:
    """Opens a WebSocket on a conversation. Declares the route's name and scope; `serve` does the work."""


async def serve(socket: WebSocket, store: Store, handshake: Handshake, guard: Guard, retries: Retries) -> None:
    """Serves a session from the handshake to its end. Callers must have authorized the request."""
    await check_conversation(store, handshake)
    id = await open_conversation(store, handshake)
    guard.started(id)
    await socket.accept(subprotocol(socket))

    async def emit(event: Event) -> None:
        await socket.send_text(encoded(event))

    session = RealtimeSession(store, id, handshake.query.get("model"), emit, guard, retries)
    try:
        await session.start()
        while (text := await _next(socket)) is not None:
            await session.handle(text)
        await socket.close(_NOT_TEXT, "events must be text")
    except WebSocketDisconnect:
        return
    except Unauthenticated:
        await socket.close(_NO_LONGER)
    except HansardError as error:
        _LOG.warning("a realtime session ended: %s: %s", error.code, error)
        await socket.close(_FAILED, error.code)


async def _next(socket: WebSocket) -> str | None:
    """Returns the next event; None for a binary message."""
    message = await socket.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message["code"])
    text: str | None = message.get("text")
    return text
