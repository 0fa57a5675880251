"""Routes of ratings and labels."""

from __future__ import annotations

from msgspec import Struct

from hansard.errors import Conflict, ConversationNotFound, MessageNotFound, QuotaExceeded
from hansard.model import Message
from hansard.server.endpoints import Id, NoQuery, Routes
from hansard.server.request import Request

_CONVERSATION = "/conversations/{conversation_id}"
_MESSAGE = _CONVERSATION + "/messages/{message_id}"
_LABEL = _CONVERSATION + "/labels/{label}"
_MISSING = (ConversationNotFound, MessageNotFound)
_CHANGE = (Conflict, QuotaExceeded, *_MISSING)
routes = Routes()


class RatingBody(Struct, frozen=True, forbid_unknown_fields=True):
    """What a person thinks of a message. A user's key rates only for that user, and needs no `by`."""

    value: float
    by: Id | None = None
    comment: str | None = None


class RaterQuery(Struct, frozen=True, forbid_unknown_fields=True):
    by: Id | None = None


class MarkedQuery(Struct, frozen=True, forbid_unknown_fields=True):
    message_id: Id | None = None


class LabelList(Struct, frozen=True):
    items: list[str]


@routes.put(f"{_MESSAGE}/rating", errors=_CHANGE)
async def rate(request: Request[NoQuery, RatingBody]) -> Message:
    """Rates a message; replaces the rating of the same person."""
    (id, message_id), body = request.path, request.body
    return await request.store.rate(id, message_id, body.value, by=body.by, comment=body.comment)


@routes.delete(f"{_MESSAGE}/rating", errors=_CHANGE)
async def remove_rating(request: Request[RaterQuery, None]) -> Message:
    """Removes the rating of a person; nothing changes if there is none."""
    return await request.store.remove_rating(*request.path, by=request.query.by)


@routes.get("/labels")
async def list_labels(request: Request[NoQuery, None]) -> LabelList:
    """The labels of the newest 1,000 conversations, in alphabetical order."""
    return LabelList(await request.store.list_labels())


@routes.put(_LABEL, errors=_CHANGE)
async def add_label(request: Request[MarkedQuery, None]) -> LabelList:
    """Adds a label to a conversation, or to its message `message_id`, and returns all its labels."""
    return LabelList(list(await request.store.add_label(*request.path, message_id=request.query.message_id)))


@routes.delete(_LABEL, errors=_CHANGE)
async def remove_label(request: Request[MarkedQuery, None]) -> LabelList:
    """Removes a label from a conversation, or from its message `message_id`, and returns the labels that are left."""
    return LabelList(list(await request.store.remove_label(*request.path, message_id=request.query.message_id)))
