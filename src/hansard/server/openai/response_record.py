"""The record of a response: where it is stored, what it contains, and how the response is restored from it.

The record of an answered response contains an envelope and message ids. The messages themselves are stored in the
conversation only, so that what is deleted there is gone. The record is deleted with the conversation.

A background response has no messages until it is answered. Its record contains the input and a lease, which the process
that works on it renews. If a lease has expired, that process has died: the response is reported as failed, without a
write.
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
"""Bytes of the longest response id that can be stored."""
LEASE = timedelta(seconds=30)
_KEPT_FOR = timedelta(days=30)
"""How long a response without messages is stored, because it failed or was cancelled."""
_UNDER_WAY = ("queued", "in_progress")
ENDED = {"code": "server_error", "message": "The server ended before the response was complete."}


class ResponseRecord(Struct, frozen=True, omit_defaults=True):
    """What is stored of a response."""

    conversation: str | None = None
    last: str | None = None
    """The id of its last message; None while there is none."""
    response: str = ""
    """The response as JSON, without its output. Empty if it can only be used as `previous_response_id`."""
    input: list[str] = []
    """The ids of its input messages."""
    output: list[str] = []
    """The ids of its output messages."""
    is_own: bool = False
    """The conversation was created for this response or a previous one, and not named by the client."""
    items: list[dict[str, Any]] = []
    """The input, while there are no messages."""
    lease_until: datetime | None = None
    is_claimed: bool = False
    """The answer is being stored, so it is too late to cancel."""

    @property
    def envelope(self) -> dict[str, Any]:
        envelope: dict[str, Any] = msgspec.json.decode(self.response)
        return envelope

    @property
    def is_leased(self) -> bool:
        """Whether a process is working on it."""
        return self.lease_until is not None and self.lease_until > datetime.now(UTC)

    def changed(self, response: dict[str, Any], **changes: Any) -> ResponseRecord:
        return structs.replace(self, response=_text(response), **changes)

    def under_way(self, response: dict[str, Any], *, is_claimed: bool = False) -> ResponseRecord:
        """Returns the record with a new lease."""
        return self.changed(response, lease_until=datetime.now(UTC) + LEASE, is_claimed=is_claimed)

    def ended(self, status: str, error: dict[str, Any] | None = None) -> ResponseRecord:
        """Returns the record without a lease."""
        return self.changed({**self.envelope, "status": status, "error": error}, lease_until=None, is_claimed=False)


class FoundRecord(NamedTuple):
    record: ResponseRecord
    revision: int
    conversation_id: str | None
    """The conversation that the record belongs to."""


def answered_record(
    response: dict[str, Any],
    conversation: str,
    input_messages: list[Message],
    output_messages: list[Message],
    *,
    is_kept: bool,
    is_own: bool,
    is_claimed: bool = False,
) -> ResponseRecord:
    """Returns the record of a response whose messages are stored or, if `is_claimed`, about to be stored."""
    lease_until = datetime.now(UTC) + LEASE if is_claimed else None
    where = ResponseRecord(
        conversation,
        (output_messages or input_messages)[-1].id,
        is_own=is_own,
        is_claimed=is_claimed,
        lease_until=lease_until,
    )
    if not is_kept:
        return where
    ids = {"input": [message.id for message in input_messages], "output": [message.id for message in output_messages]}
    return where.changed(response, **ids)


def _text(response: dict[str, Any]) -> str:
    """Returns the response as text: an endpoint's JSON may be nested more deeply than a record's value may."""
    return msgspec.json.encode({name: value for name, value in response.items() if name != "output"}).decode()


async def find(store: Store, id: str) -> FoundRecord | None:
    """Returns the record; None if it does not exist or is outside of the view."""
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
    """Returns the record of a response that can be retrieved, or raises 404."""
    found = await find(store, id)
    if found is None or not found.record.response:
        raise not_found("Response", id)
    return found


async def put(
    store: Store, id: str, record: ResponseRecord, *, revision: int | None, conversation_id: str | None
) -> int:
    """Writes a record and returns its revision. Records without messages expire."""
    value = msgspec.to_builtins(record)
    expires = _KEPT_FOR if record.last is None else None
    written = await store.records.put(
        NAMESPACE, id, value, expected_revision=revision, expires_at=expires, conversation_id=conversation_id
    )
    return written.revision


async def response_object(store: Store, id: str, record: ResponseRecord) -> dict[str, Any]:
    """Returns the response as it is now, without messages that were deleted from the conversation."""
    envelope = record.envelope
    if record.last is None:
        if envelope.get("status") in _UNDER_WAY and not record.is_leased:
            envelope |= {"status": "failed", "error": ENDED}
        return {**envelope, "output": []}
    output_messages = [
        message for each in record.output if (message := await message_of(store, record, each)) is not None
    ]
    if (
        record.last not in (message.id for message in output_messages)
        and await message_of(store, record, record.last) is None
    ):
        if record.is_claimed:
            is_ended = {} if record.is_leased else {"status": "failed", "error": ENDED}
            return {**envelope, "status": "in_progress", **is_ended, "output": []}
        # The last message was never stored or was deleted, so the response cannot be continued either.
        raise not_found("Response", id)
    return {**envelope, "output": [item for message in output_messages for item in openai_items.items_of(message)]}


async def is_being_stored(store: Store, record: ResponseRecord) -> bool:
    """Whether the answer is being stored."""
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
