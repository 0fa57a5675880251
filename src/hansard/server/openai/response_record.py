"""The record of a response: where it lies, what it holds, and how a response is made from it again.

A response that was answered is an envelope and the ids of its messages: what was asked and answered lies in the
conversation and nowhere else, so what is deleted there is not kept here. The record goes with the conversation.

A response in the background has no messages until it is answered. Its record holds the input, and a lease, which the
process that runs it renews. One whose lease has run out was left by a process that ended: it reads as failed, and
nobody has to write that down.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct, structs

from hansard.errors import NotFound, ValidationError
from hansard.formats import openai_items
from hansard.model import Message
from hansard.server.openai.wire_errors import not_found
from hansard.store import Store

NAMESPACE = ("openai", "responses")
LONGEST = 200
"""Bytes of the id of a response that can be kept."""
LEASE = timedelta(seconds=30)
_KEPT_FOR = timedelta(days=30)
"""How long a response is kept that belongs to no message: one that failed or was cancelled."""
_UNDER_WAY = ("queued", "in_progress")
ENDED = {"code": "server_error", "message": "The server ended before the response was complete."}


class ResponseRecord(Struct, frozen=True, omit_defaults=True):
    """What is kept of a response."""

    conversation: str | None = None
    last: str | None = None
    """The last of its messages. None as long as there are none."""
    response: str = ""
    """The response as JSON, without its output. Empty when it can only be gone on from."""
    input: list[str] = []
    """The ids of its messages: what was asked,"""
    output: list[str] = []
    """and what was answered."""
    is_own: bool = False
    """The conversation was made for this response, or for the one that it goes on from: nobody named it."""
    items: list[dict[str, Any]] = []
    """The input, where there are no messages."""
    lease_until: datetime | None = None
    is_claimed: bool = False
    """The answer is there, and is being stored: it is too late to cancel."""

    @property
    def envelope(self) -> dict[str, Any]:
        envelope: dict[str, Any] = msgspec.json.decode(self.response)
        return envelope

    @property
    def is_leased(self) -> bool:
        """Whether a process is at work on it."""
        return self.lease_until is not None and self.lease_until > datetime.now(UTC)

    def changed(self, response: dict[str, Any], **changes: Any) -> ResponseRecord:
        return structs.replace(self, response=_text(response), **changes)

    def under_way(self, response: dict[str, Any], *, is_claimed: bool = False) -> ResponseRecord:
        """The same with a new lease."""
        return self.changed(response, lease_until=datetime.now(UTC) + LEASE, is_claimed=is_claimed)

    def ended(self, status: str, error: dict[str, Any] | None = None) -> ResponseRecord:
        """The same, with nobody at work on it."""
        return self.changed({**self.envelope, "status": status, "error": error}, lease_until=None, is_claimed=False)


class FoundRecord(NamedTuple):
    record: ResponseRecord
    revision: int
    conversation_id: str | None
    """The conversation that it goes with."""


def answered_record(
    response: dict[str, Any],
    conversation: str,
    asked: list[Message],
    said: list[Message],
    *,
    is_kept: bool,
    is_own: bool,
    is_claimed: bool = False,
) -> ResponseRecord:
    """The record of a response whose messages are stored, or are about to be: then `is_claimed`."""
    lease_until = datetime.now(UTC) + LEASE if is_claimed else None
    where = ResponseRecord(
        conversation, (said or asked)[-1].id, is_own=is_own, is_claimed=is_claimed, lease_until=lease_until
    )
    if not is_kept:
        return where
    ids = {"input": [message.id for message in asked], "output": [message.id for message in said]}
    return where.changed(response, **ids)


def _text(response: dict[str, Any]) -> str:
    """As text: what an endpoint echoes may nest more deeply than a document of ours may."""
    return msgspec.json.encode({name: value for name, value in response.items() if name != "output"}).decode()


async def find(store: Store, id: str) -> FoundRecord | None:
    """The record; None when there is none, also where it is behind a wall."""
    if not 0 < len(id.encode()) <= LONGEST:
        return None
    try:
        found = await store.records.get(NAMESPACE, id)
    except ValidationError:
        return None
    if found is None:
        return None
    return FoundRecord(msgspec.convert(found.value, ResponseRecord), found.revision, found.conversation_id)


async def require(store: Store, id: str) -> FoundRecord:
    """The record of a response that can be asked for, or 404."""
    found = await find(store, id)
    if found is None or not found.record.response:
        raise not_found("Response", id)
    return found


async def put(
    store: Store, id: str, record: ResponseRecord, *, revision: int | None, conversation_id: str | None
) -> int:
    """Writes a record, and gives its revision. One without messages is not kept for ever."""
    value = msgspec.to_builtins(record)
    expires = _KEPT_FOR if record.last is None else None
    written = await store.records.put(
        NAMESPACE, id, value, expected_revision=revision, expires_at=expires, conversation_id=conversation_id
    )
    return written.revision


async def response_object(store: Store, id: str, record: ResponseRecord) -> dict[str, Any]:
    """The response as it is now. What was deleted from the conversation is missing."""
    envelope = record.envelope
    if record.last is None:
        if envelope.get("status") in _UNDER_WAY and not record.is_leased:
            envelope |= {"status": "failed", "error": ENDED}
        return {**envelope, "output": []}
    said = [message for each in record.output if (message := await message_of(store, record, each)) is not None]
    if record.last not in (message.id for message in said) and await message_of(store, record, record.last) is None:
        if record.is_claimed:
            is_ended = {} if record.is_leased else {"status": "failed", "error": ENDED}
            return {**envelope, "status": "in_progress", **is_ended, "output": []}
        # It was never stored, or was deleted: nobody could go on from it either.
        raise not_found("Response", id)
    return {**envelope, "output": [item for message in said for item in openai_items.items_of(message)]}


async def is_being_stored(store: Store, record: ResponseRecord) -> bool:
    """Whether the answer is being stored at this moment."""
    if not (record.is_claimed and record.is_leased):
        return False
    return record.last is None or await message_of(store, record, record.last) is None


async def message_of(store: Store, record: ResponseRecord, id: str) -> Message | None:
    assert record.conversation is not None
    try:
        return await store.get_message(record.conversation, id)
    except NotFound:
        return None


def is_under_way(response: dict[str, Any]) -> bool:
    return response["status"] in _UNDER_WAY
