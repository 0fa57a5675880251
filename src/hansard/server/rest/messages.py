"""Routes of messages: append, read, update, delete."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, structs

from hansard.assembly.window import Closing
from hansard.contract.types import OnDuplicate
from hansard.errors import Conflict, ConversationNotFound, MessageNotFound, NotFound, QuotaExceeded, ValidationError
from hansard.model import (
    NOT_YET,
    Appended,
    Message,
    Messages,
    MessageScope,
    MessageSort,
    Order,
    Participant,
    Rating,
    Receipt,
    Role,
    Source,
    Status,
    Usage,
)
from hansard.server import idempotency
from hansard.server.endpoints import NDJSON, HttpResponse, Id, NoQuery, Routes
from hansard.server.request import Request
from hansard.server.rest.records import RecordWriteBody, record_write
from hansard.store.read_query import BlobMode

ALL = "/conversations/{conversation_id}/messages"
ONE = ALL + "/{message_id}"
_MISSING = (ConversationNotFound, NotFound)
_CHANGE = (Conflict, *_MISSING)
_WRITE = (Conflict, QuotaExceeded, *_MISSING)
routes = Routes()

_MANY = 500
_MANY_BYTES = 4_000_000


class HistoryQuery(Struct, frozen=True, forbid_unknown_fields=True):
    order: Order = "asc"
    after: str | None = None
    roles: list[Role] | None = None
    participant_ids: list[str] | None = None
    scope: MessageScope | None = None
    pinned: bool | None = None
    since: datetime | None = None
    until: datetime | None = None
    branch: Id | None = None
    sort: MessageSort = "seq"
    blobs: BlobMode = "inline"


class ReadQuery(HistoryQuery, frozen=True, forbid_unknown_fields=True):
    """`after` and `before` are message ids or cursors. `last` and `turns` return the newest, oldest first."""

    limit: Annotated[int, Meta(ge=1)] | None = None
    before: str | None = None
    last: Annotated[int, Meta(ge=1)] | None = None
    turns: Annotated[int, Meta(ge=1)] | None = None


class WindowQuery(Struct, frozen=True, forbid_unknown_fields=True):
    messages: Annotated[int, Meta(ge=1)] | None = None
    turns: Annotated[int, Meta(ge=1)] | None = None
    tokens: Annotated[int, Meta(ge=1)] | None = None
    branch: Id | None = None
    dangling: Closing = "drop"


class OneQuery(Struct, frozen=True, forbid_unknown_fields=True):
    blobs: BlobMode = "inline"


class NewMessage(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """A message to store. `content` is any JSON value, stored verbatim; `format` names its vocabulary."""

    role: Role
    content: Any
    id: Id | None = None
    format: str | None = None
    participant: Participant | None = None
    mentions: tuple[str, ...] = ()
    scope: MessageScope | None = None
    status: Status = "complete"
    pinned: bool = False
    created_at: datetime | None = None
    trace_id: str | None = None
    sources: tuple[Source, ...] = ()
    usage: Usage | None = None
    metadata: dict[str, Any] | None = None
    labels: tuple[str, ...] = ()
    ratings: tuple[Rating, ...] = ()
    prompt_id: str | None = None

    def as_message(self) -> Message:
        return Message(
            self.role,
            self.content,
            self.id or "",
            format=self.format or "",
            participant=self.participant,
            mentions=self.mentions,
            scope=self.scope,
            status=self.status,
            pinned=self.pinned,
            created_at=NOT_YET if self.created_at is None else self.created_at,
            trace_id=self.trace_id,
            sources=self.sources,
            usage=self.usage,
            metadata=self.metadata,
            labels=self.labels,
            ratings=self.ratings,
            prompt_id=self.prompt_id,
        )


class MessagePage(Struct, frozen=True):
    """A page of messages. Send `last_cursor` as `after` for the next page, `first_cursor` as `before` to go back."""

    items: list[Message]
    has_more: bool
    first_cursor: str | None = None
    last_cursor: str | None = None

    @classmethod
    def of(cls, found: Messages) -> MessagePage:
        if not found:
            return cls([], found.has_more)
        return cls(list(found), found.has_more, found[0].cursor, found[-1].cursor)


class NewMessages(Struct, frozen=True, forbid_unknown_fields=True):
    """A batch, stored all or nothing. `user_id` to `expires_at` apply if the batch creates the conversation."""

    messages: list[NewMessage]
    user_id: Id | None = None
    agent_id: Id | None = None
    audit_id: Id | None = None
    title: str | None = None
    metadata: dict[str, Any] | None = None
    expires_at: datetime | None = None
    branch: Id | None = None
    on_duplicate: OnDuplicate = "first"
    create: bool = True
    split: bool = False
    revive: bool = False
    count_usage: bool = True
    records: list[RecordWriteBody] = []
    """Written in the same commit. Each belongs to this conversation or to none."""


class BulkQuery(Struct, frozen=True, forbid_unknown_fields=True):
    user_id: Id | None = None
    agent_id: Id | None = None
    branch: Id | None = None
    create: bool = True


class BulkAppended(Struct, frozen=True):
    """How many lines were read, how many messages were new, and the version after the last batch."""

    messages: int
    stored: int
    version: int


class Snapshot(Struct, frozen=True, forbid_unknown_fields=True):
    messages: list[NewMessage]
    branch: Id | None = None
    revive: bool = False


class MessagePatch(Struct, frozen=True, forbid_unknown_fields=True):
    """Only given fields change. `metadata` is replaced as a whole."""

    content: Any = UNSET
    format: str | None = None
    metadata: dict[str, Any] | UnsetType | None = UNSET
    status: Status | UnsetType = UNSET
    usage: Usage | UnsetType | None = UNSET
    sources: list[Source] | UnsetType = UNSET
    pinned: bool | UnsetType = UNSET


class MessageIds(Struct, frozen=True, forbid_unknown_fields=True):
    ids: list[Id]


class PopBody(Struct, frozen=True, forbid_unknown_fields=True):
    branch: Id | None = None


class Popped(Struct, frozen=True):
    message: Message | None


class WindowMessages(Struct, frozen=True):
    items: list[Message]


# Writing


@routes.post(ALL, is_batch=True, etag="version", versioned=True, repeat="key", errors=_WRITE)
async def append_messages(request: Request[NoQuery, NewMessages]) -> Appended:
    """Appends a batch, all or nothing; creates a missing conversation. Each message id is stored once."""
    given, id = request.body, request.path[0]
    messages = [each.as_message() for each in given.messages]
    on_duplicate = given.on_duplicate
    if request.key is not None:
        messages, on_duplicate = idempotency.with_ids(messages, request.key, id), "error"
    # Not `**asdict(given)`: this is the request that a busy server gets most often.
    return await request.store.append(
        id,
        messages,
        user_id=given.user_id,
        agent_id=given.agent_id,
        audit_id=given.audit_id,
        title=given.title,
        metadata=given.metadata,
        expires_at=given.expires_at,
        branch=given.branch,
        expected_version=request.version,
        on_duplicate=on_duplicate,
        create=given.create,
        split=given.split,
        revive=given.revive,
        count_usage=given.count_usage,
        records=[record_write(each) for each in given.records] if given.records else (),
    )


_line = msgspec.json.Decoder(NewMessage)


@routes.post("/conversations/{conversation_id}/lines", consumes=NDJSON, errors=_WRITE)
async def append_lines(request: Request[BulkQuery, None]) -> BulkAppended:
    """Appends a stream of messages, one JSON object per line, in batches as they arrive.

    Batches before an invalid line stay stored. If the messages have ids, the same stream can be sent again.
    """
    given, number, stored, version = structs.asdict(request.query), 0, 0, 0
    async for batch in _batches(request):
        appended = await request.store.append(request.path[0], batch, **given)
        number, stored, version = number + len(batch), stored + appended.stored, appended.version
    return BulkAppended(number, stored, version)


async def _batches(request: Request[BulkQuery, None]) -> AsyncIterator[list[Message]]:
    batch: list[Message] = []
    number = size = 0
    async for lines in request.stream.lines():
        for line in lines:
            number += 1
            if line:
                batch.append(_decoded(line, number))
                size += len(line)
            if len(batch) >= _MANY or size >= _MANY_BYTES:
                yield batch
                batch, size = [], 0
    if batch:
        yield batch


def _decoded(line: bytes, number: int) -> Message:
    try:
        return _line.decode(line).as_message()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise ValidationError(f"line {number} is not valid: {error}") from error


@routes.put(ALL, is_batch=True, etag="version", versioned=True, errors=_WRITE)
async def replace_messages(request: Request[NoQuery, Snapshot]) -> Appended:
    """Replaces the messages of the branch. Messages that are equal at its beginning stay unchanged."""
    given = structs.asdict(request.body)
    messages = [each.as_message() for each in given.pop("messages")]
    return await request.store.replace_messages(request.path[0], messages, expected_version=request.version, **given)


@routes.patch(ONE, versioned=True, errors=(Conflict, QuotaExceeded, MessageNotFound, ConversationNotFound))
async def update_message(request: Request[NoQuery, MessagePatch]) -> Message:
    """Changes a message and sets its `updated_at`. `If-Match` is the conversation's version."""
    return await request.store.update_message(
        *request.path, expected_version=request.version, **structs.asdict(request.body)
    )


@routes.delete(ONE, versioned=True, errors=_CHANGE)
async def delete_message(request: Request[NoQuery, None]) -> Receipt:
    """Deletes a message from every branch, and the summaries that cover it."""
    return await request.store.delete_message(*request.path, expected_version=request.version)


@routes.post("/conversations/{conversation_id}/delete-messages", versioned=True, errors=_CHANGE)
async def delete_messages(request: Request[NoQuery, MessageIds]) -> Receipt:
    """Deletes messages, all or nothing. Ignores ids that do not exist."""
    return await request.store.delete_messages(request.path[0], request.body.ids, expected_version=request.version)


@routes.delete(ALL, versioned=True, errors=_CHANGE)
async def clear_messages(request: Request[NoQuery, None]) -> Receipt:
    """Deletes all messages and branches; the conversation and its metadata stay."""
    return await request.store.clear_messages(request.path[0], expected_version=request.version)


@routes.post("/conversations/{conversation_id}/pop-message", versioned=True, repeat="no", errors=_CHANGE)
async def pop_message(request: Request[NoQuery, PopBody]) -> Popped:
    """Removes the newest message of the branch and returns it; null if there is none."""
    return Popped(
        await request.store.pop_message(request.path[0], branch=request.body.branch, expected_version=request.version)
    )


# Reading


@routes.get(ALL, errors=(MessageNotFound, NotFound))
async def get_messages(request: Request[ReadQuery, None]) -> MessagePage:
    """Messages of a branch as they are stored; empty if there is no such conversation."""
    return MessagePage.of(await request.store.get_messages(request.path[0], **structs.asdict(request.query)))


@routes.get(ONE, errors=(MessageNotFound,))
async def get_message(request: Request[OneQuery, None]) -> Message:
    """One message, on any branch."""
    return await request.store.get_message(*request.path, blobs=request.query.blobs)


@routes.get("/conversations/{conversation_id}/lines", produces=NDJSON, errors=(MessageNotFound, NotFound))
async def stream_history(request: Request[HistoryQuery, None]) -> HttpResponse:
    """Every message of a branch, one JSON object per line, in constant memory."""
    return HttpResponse(_history(request), media_type=NDJSON)


async def _history(request: Request[HistoryQuery, None]) -> AsyncIterator[bytes]:
    async for message in request.store.iter_messages(request.path[0], **structs.asdict(request.query)):
        yield msgspec.json.encode(message) + b"\n"


@routes.get("/conversations/{conversation_id}/window", errors=(NotFound,))
async def get_window(request: Request[WindowQuery, None]) -> WindowMessages:
    """The newest messages, turns or tokens that a model can be given: every tool call with its results."""
    return WindowMessages(await request.store.window(request.path[0], **structs.asdict(request.query)))
