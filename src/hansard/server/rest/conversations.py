"""Routes of conversations: create, get, list, update, delete."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, structs

from hansard import rules
from hansard.errors import Conflict, ConversationNotFound
from hansard.model import Conversation, ConversationSort, Order, Page, ReadFrom, Receipt
from hansard.server import idempotency
from hansard.server.endpoints import HttpResponse, Id, NoQuery, Routes
from hansard.server.parameters import json_object
from hansard.server.request import Request

ONE = "/conversations/{conversation_id}"
MISSING = (ConversationNotFound,)
routes = Routes()


Limit = Annotated[int, Meta(ge=1)]


class ListConversationsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """`after` and `before` are cursors of a page. `metadata` is a JSON object whose keys must have equal values.

    `read_from` may be `replica` if the newest writes may be missing.
    """

    user_id: Id | None = None
    agent_id: Id | None = None
    metadata: str | None = None
    archived: Literal["true", "false", "both"] = "false"
    label: Id | None = None
    rating: float | None = None
    sort: ConversationSort = "last_message_at"
    order: Order = "desc"
    after: str | None = None
    before: str | None = None
    offset: Annotated[int, Meta(ge=0)] = 0
    limit: Limit = 20
    read_from: ReadFrom = "primary"


class NewConversationBody(Struct, frozen=True, forbid_unknown_fields=True):
    id: Id | None = None
    user_id: Id | None = None
    agent_id: Id | None = None
    audit_id: Id | None = None
    title: str | None = None
    metadata: dict[str, Any] = {}
    expires_at: datetime | None = None
    created_at: datetime | None = None
    """For imported history: when the conversation began. The default is now."""


class ConversationPatch(Struct, frozen=True, forbid_unknown_fields=True):
    """Only given fields change. `metadata` is merged by key, and null deletes a key; `user_id` changes the owner."""

    title: str | UnsetType | None = UNSET
    metadata: dict[str, Any] = {}
    user_id: Id | UnsetType | None = UNSET
    agent_id: Id | UnsetType | None = UNSET
    audit_id: Id | UnsetType | None = UNSET
    expires_at: datetime | UnsetType | None = UNSET
    archived: bool | UnsetType = UNSET


@routes.get("/conversations")
async def list_conversations(request: Request[ListConversationsQuery, None]) -> Page:
    """A page of conversations, newest first."""
    given = structs.asdict(request.query)
    given["metadata"] = json_object(request.query.metadata, "metadata")
    given["archived"] = {"true": True, "false": False, "both": None}[request.query.archived]
    return await request.store.list_conversations(**given)


@routes.post("/conversations", status=201, etag="version", repeat="key", errors=(Conflict, *MISSING))
async def create_conversation(request: Request[NoQuery, NewConversationBody]) -> Conversation:
    """Creates an empty conversation. 409 if the id exists."""
    given = structs.asdict(request.body)
    id = given.pop("id")
    if request.key is None or id is not None:
        return await request.store.create_conversation(id, **given)
    # Idempotency keys are per user: they must neither collide with those of another user nor reveal them.
    place = () if request.store.user_id is None else (request.store.user_id,)
    return await _create_once(request, idempotency.id_from(request.key, "conv_", *place), given)


async def _create_once(request: Request[NoQuery, NewConversationBody], id: str, given: dict[str, Any]) -> Conversation:
    try:
        return await request.store.create_conversation(id, **given)
    except Conflict:
        made = await request.store.get_conversation(id)
        same = made is not None and all(getattr(made, name) == value for name, value in given.items() if value)
        if made is None or not same:
            raise Conflict("this Idempotency-Key was used for another conversation") from None
        return made


@routes.get(ONE, etag="version", errors=MISSING)
async def get_conversation(request: Request[NoQuery, None]) -> Conversation | HttpResponse:
    """One conversation, without its messages. 304 if `If-None-Match` is its version."""
    found = await request.store.get_conversation(request.path[0])
    if found is None:
        raise rules.not_found(request.path[0])
    tag = b'"%d"' % found.version
    if request.headers.get(b"if-none-match") == tag:
        return HttpResponse(b"", 304, ((b"etag", tag),))
    return found


@routes.patch(ONE, etag="version", versioned=True, errors=(Conflict, *MISSING))
async def update_conversation(request: Request[NoQuery, ConversationPatch]) -> Conversation:
    """Changes a conversation, if it has the version in `If-Match`."""
    given = structs.asdict(request.body)
    return await request.store.update_conversation(request.path[0], expected_version=request.version, **given)


@routes.delete(ONE)
async def delete_conversation(request: Request[NoQuery, None]) -> Receipt:
    """Deletes a conversation and everything derived from it permanently. The receipt counts what was deleted."""
    return await request.store.delete_conversation(request.path[0])
