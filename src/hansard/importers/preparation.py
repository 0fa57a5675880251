"""What a store needs of foreign messages besides the messages: made ahead of the import, by the process that reads.

A message is prepared as the import would do it: checked against the limits, encoded, and analysed for search. Only
plain conversations are prepared. Of one that has anything unusual, such as a message beyond the limits, a rating or an
attachment, the messages stay as they are, and the import decides.

Prepared messages are packed to be sent to another process: content only as the text that is stored, which is a third of
the work of sending the message as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct, structs

from hansard import codec
from hansard.analysis import columns, searchable
from hansard.contract.types import Draft
from hansard.errors import HansardError
from hansard.importers.importer import ForeignConversation, ForeignMessage, named
from hansard.importers.transcripts import packed
from hansard.limits import Limits
from hansard.model import MAIN, NOT_YET, Message, MessageScope, Participant, Source, Status, Usage
from hansard.store.drafts import make_drafts

_MOST_CHARACTERS = 8_000_000
"""Of a conversation that is prepared: a longer one would be held several times."""


class PackedConversation(Struct, frozen=True, gc=False):
    conversation: ForeignConversation
    """Without its messages, if those are packed."""
    messages: bytes | None


class _PackedMessage(Struct, frozen=True, array_like=True, gc=False):
    """A draft and the message before it."""

    parent: str | None
    id: str
    role: str
    format: str
    body: str
    size: int
    given_id: bool
    terms: tuple[str, str] | None
    created_at: datetime | None
    metadata: dict[str, Any] | None
    usage: Usage | None
    participant: Participant | None
    mentions: tuple[str, ...]
    scope: MessageScope | None
    status: Status
    pinned: bool
    trace_id: str | None
    sources: tuple[Source, ...]
    labels: tuple[str, ...]
    prompt_id: str | None


def prepare(given: ForeignConversation, limits: Limits, characters: int) -> PackedConversation:
    """Prepares and packs a conversation of so many characters."""
    messages = named(given.messages)
    drafts = _drafts(messages, given, limits) if characters <= _MOST_CHARACTERS else None
    encoded = None if drafts is None else _encoded(messages, drafts)
    kept = messages if encoded is None else []
    transcript = None if given.transcript is None else packed(given.transcript)
    return PackedConversation(structs.replace(given, messages=kept, transcript=transcript), encoded)


def _drafts(messages: list[ForeignMessage], given: ForeignConversation, limits: Limits) -> Sequence[Draft] | None:
    if any(each.message.metadata and "rating" in each.message.metadata for each in messages):
        return None  # whose it is depends on the store's view
    try:
        made = make_drafts([each.message for each in messages], limits, are_parsed=given.is_parsed)
    except HansardError:
        return None  # the import says which message is at fault, and stores the others
    return None if made.blobs or made.has_ratings else made.drafts


def _encoded(messages: list[ForeignMessage], drafts: Sequence[Draft]) -> bytes | None:
    try:
        return _encode([_packed(each.parent, draft) for each, draft in zip(messages, drafts, strict=True)])
    except (ValueError, OverflowError, msgspec.MsgspecError):
        return None  # such as a larger integer than MessagePack has


def _packed(parent: str | None, draft: Draft) -> _PackedMessage:
    message = draft.message
    return _PackedMessage(
        parent,
        message.id,
        message.role,
        message.format,
        draft.body,
        draft.size,
        draft.given_id,
        columns(searchable(message)),
        None if message.created_at is NOT_YET else message.created_at,
        message.metadata,
        message.usage,
        message.participant,
        message.mentions,
        message.scope,
        message.status,
        message.pinned,
        message.trace_id,
        message.sources,
        message.labels,
        message.prompt_id,
    )


def unpack(given: PackedConversation) -> ForeignConversation:
    if given.messages is None:
        return given.conversation
    messages = [_unpacked(each) for each in _decode(given.messages)]
    return structs.replace(given.conversation, messages=messages)


def _unpacked(packed: _PackedMessage) -> ForeignMessage:
    body, format = packed.body, packed.format
    message = Message(
        packed.role,
        body if format == "text" else codec.decode(body, "a message"),
        packed.id,
        "",
        0,
        MAIN,
        format,
        packed.participant,
        packed.mentions,
        packed.scope,
        packed.status,
        packed.pinned,
        packed.created_at or NOT_YET,
        None,
        packed.trace_id,
        packed.sources,
        packed.usage,
        packed.metadata,
        (),
        packed.labels,
        (),
        None,
        packed.prompt_id,
    )
    return ForeignMessage(message, packed.parent, Draft(message, body, packed.size, packed.given_id, packed.terms))


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[_PackedMessage]).decode

__all__ = ["PackedConversation", "prepare", "unpack"]
