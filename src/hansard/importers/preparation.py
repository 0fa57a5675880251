"""What a store needs of foreign messages besides the messages: made ahead of the import, by the process that reads.

A message is prepared as the import would do it: checked against the limits, encoded and, if wanted, analysed for
search. Only plain conversations are prepared. Of one that has anything unusual, such as a message beyond the limits, a
rating or an attachment, the messages stay as they are, and the import decides.

Prepared messages are packed to be sent to another process: content only as the text that is stored, which is less than
half the work of sending the message as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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
from hansard.model import MAIN, NOT_YET, Message
from hansard.store.drafts import make_drafts

_MOST_CHARACTERS = 8_000_000
"""Of a conversation that is prepared: a longer one would be held several times."""
_DEEP = 100
"""Levels above which a value is sent as JSON. Pickle needs two levels of the stack for each, and fails above 490."""
_TOO_DEEP = 400
"""Levels above which a value cannot be sent if it is no JSON, either, as with half a surrogate pair in a text."""


class PackedConversation(Struct, frozen=True, gc=False):
    conversation: ForeignConversation
    """Without its messages, if those are packed."""
    messages: bytes | None


class _DeepValue(Struct, frozen=True, gc=False):
    json: bytes


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
    extra: str | None
    """Fields that few messages have, as `codec.encode_extra` returns them."""


def prepare(
    given: ForeignConversation, limits: Limits, characters: int, *, with_terms: bool = True
) -> PackedConversation:
    """Prepares and packs a conversation of so many characters. `with_terms`: its messages are analysed, too.

    Raises `RecursionError` if a value in it cannot be sent.
    """
    messages = named(given.messages)
    drafts = _drafts(messages, given, limits) if characters <= _MOST_CHARACTERS else None
    encoded = None if drafts is None else _encoded(messages, drafts, with_terms=with_terms)
    lean = structs.replace(
        given,
        messages=[_each_value(_flat, message) for message in messages] if encoded is None else [],
        transcript=None if given.transcript is None else packed(given.transcript),
    )
    return PackedConversation(_conversation_values(_flat, lean), encoded)


def _drafts(messages: list[ForeignMessage], given: ForeignConversation, limits: Limits) -> Sequence[Draft] | None:
    if not all(each.parent is None or type(each.parent) is str for each in messages):
        return None  # as of a damaged database: the import says that it is missing
    if any(each.message.metadata and "rating" in each.message.metadata for each in messages):
        return None  # whose it is depends on the store's view
    try:
        made = make_drafts([each.message for each in messages], limits, are_parsed=given.is_parsed)
    except HansardError:
        return None  # the import says which message is at fault, and stores the others
    return None if made.blobs or made.has_ratings else made.drafts


def _encoded(messages: list[ForeignMessage], drafts: Sequence[Draft], *, with_terms: bool) -> bytes | None:
    try:
        return _encode(
            [
                _message_of_draft(each.parent, draft, columns(searchable(draft.message)) if with_terms else None)
                for each, draft in zip(messages, drafts, strict=True)
            ]
        )
    except (ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        return None  # such as metadata that is too deep to encode


def _message_of_draft(parent: str | None, draft: Draft, terms: tuple[str, str] | None) -> _PackedMessage:
    message = draft.message
    return _PackedMessage(
        parent,
        message.id,
        message.role,
        message.format,
        draft.body,
        draft.size,
        draft.given_id,
        terms,
        None if message.created_at is NOT_YET else message.created_at,
        codec.encode_extra(message),
    )


def unpack(given: PackedConversation) -> ForeignConversation:
    conversation = _conversation_values(_restored, given.conversation)
    if given.messages is not None:
        messages = [_unpacked(each) for each in _decode(given.messages)]
    else:
        messages = [_each_value(_restored, each) for each in conversation.messages]
    return structs.replace(conversation, messages=messages)


def _each_value(change: Callable[[Any], Any], given: ForeignMessage) -> ForeignMessage:
    message = given.message
    content, metadata = change(message.content), change(message.metadata)
    if content is message.content and metadata is message.metadata:
        return given
    return structs.replace(given, message=structs.replace(message, content=content, metadata=metadata))


def _conversation_values(change: Callable[[Any], Any], given: ForeignConversation) -> ForeignConversation:
    return structs.replace(
        given,
        metadata=change(given.metadata),
        records=[structs.replace(each, value=change(each.value)) for each in given.records],
        user_records=[structs.replace(each, value=change(each.value)) for each in given.user_records],
    )


def _flat(value: Any) -> Any:
    """A deep value as JSON, which is read as deep as files are."""
    if not isinstance(value, dict | list):
        return value
    try:
        text = _encode_json(value)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        if _levels(value) > _TOO_DEEP:
            raise RecursionError(f"a value of more than {_TOO_DEEP} levels that is no JSON") from None
        return value
    return _DeepValue(text) if codec.is_deep(text.decode(), _DEEP) else value


def _levels(value: Any) -> int:
    levels, inner = 0, [value]
    while inner := [each for holder in inner for each in _inside(holder)]:
        levels += 1
    return levels


def _inside(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _restored(value: Any) -> Any:
    return codec.decode(value.json, "a value") if isinstance(value, _DeepValue) else value


def _unpacked(packed: _PackedMessage) -> ForeignMessage:
    body, format = packed.body, packed.format
    # By position, since names take longer: all others are defaults.
    message = Message(
        packed.role,
        codec.content_of(body, format, "a message"),
        packed.id,
        "",
        0,
        MAIN,
        format,
        None,
        (),
        None,
        "complete",
        False,
        packed.created_at or NOT_YET,
    )
    if packed.extra is not None:
        message = _with_extra(message, codec.decode_extra(packed.extra, "a message"))
    return ForeignMessage(message, packed.parent, Draft(message, body, packed.size, packed.given_id, packed.terms))


def _with_extra(message: Message, extra: codec.Extra) -> Message:
    return structs.replace(
        message,
        participant=extra.participant,
        mentions=extra.mentions,
        scope=extra.scope,
        status=extra.status,
        pinned=extra.pinned,
        trace_id=extra.trace_id,
        sources=extra.sources,
        usage=extra.usage,
        metadata=extra.metadata,
        labels=extra.labels,
        prompt_id=extra.prompt_id,
    )


_encode = msgspec.msgpack.Encoder().encode
_encode_json = msgspec.json.Encoder().encode
codec.prepare(list[_PackedMessage])
_decode = msgspec.msgpack.Decoder(list[_PackedMessage]).decode

__all__ = ["PackedConversation", "prepare", "unpack"]
