"""Conversations of OpenAI's API: create, get, update, delete; and list, which OpenAI does not have."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from hansard import cursors, ids
from hansard.errors import Conflict, ConversationNotFound, ValidationError
from hansard.formats import openai_items
from hansard.model import Conversation, Message
from hansard.server.openai import retries
from hansard.server.openai.wire_errors import WireError, invalid, missing, not_found
from hansard.server.openai.wire_request import WireRequest, WireRoutes, items_given, listed, metadata_given, only
from hansard.store import Store

ALL = "/conversations"
ONE = "/conversations/{conversation_id}"
routes = WireRoutes()

_ATTEMPTS = 5


def conversation_object(conversation: Conversation) -> dict[str, Any]:
    return {
        "id": conversation.id,
        "object": "conversation",
        "created_at": int(conversation.created_at.timestamp()),
        "metadata": conversation.metadata,
    }


async def require(store: Store, id: str, what: str = "Conversation") -> Conversation:
    """Returns the conversation. Raises 404 if it does not exist or is outside of the view."""
    try:
        found = await store.get_conversation(id)
    except ValidationError:
        found = None
    if found is None:
        raise not_found(what, id)
    return found


NewId = Callable[[str, int], str]
"""Returns a new id. Takes its prefix and the number of the item."""


def messages_given(items: list[Any], new_id: NewId, where: str = "items") -> list[Message]:
    """Converts items to messages. Items without an id get one."""
    messages = []
    for number, given in enumerate(items):
        item = openai_items.checked(given, f"{where}[{number}]")
        id = item.get("id") or new_id(openai_items.prefix_of(item), number)
        messages.append(openai_items.message_of(item, id))
    seen: set[str] = set()
    for message in messages:
        if message.id in seen:
            raise duplicate(f"id {message.id!r} appears twice", where)
        seen.add(message.id)
    return messages


def duplicate(why: object, where: str = "items") -> WireError:
    what = f"Duplicate item found: {why}. Remove duplicate items from your input and try again."
    return invalid(what, where, "duplicate_item")


def fresh_id(prefix: str) -> str:
    """Returns a random conversation id, without a fingerprint: equal requests of two users must not share one."""
    return ids.new_id(prefix) + os.urandom(8).hex()


@routes.post(ALL)
async def create_conversation(request: WireRequest) -> dict[str, Any]:
    """Creates a conversation with its first items, all or nothing."""
    only(request.body, "items", "metadata")
    metadata = metadata_given(request.body)
    items = items_given(request.body, "items", required=False)
    id = fresh_id("conv_")
    if not items:
        return conversation_object(await request.store.create_conversation(id, metadata=metadata))
    messages = messages_given(items, retries.new_ids(retries.fingerprint_of(request, id)))
    await request.store.append(id, messages, metadata=metadata)
    await request.services.references.add(request.store, id, [message.id for message in messages])
    return conversation_object(await require(request.store, id))


@routes.get(ONE)
async def get_conversation(request: WireRequest) -> dict[str, Any]:
    """One conversation."""
    return conversation_object(await require(request.store, request.path[0]))


@routes.post(ONE)
async def update_conversation(request: WireRequest) -> dict[str, Any]:
    """Replaces the metadata."""
    only(request.body, "metadata")
    if "metadata" not in request.body:
        raise missing("metadata")
    return conversation_object(
        await set_metadata(request.store, request.path[0], metadata_given(request.body), "Conversation")
    )


async def set_metadata(store: Store, id: str, metadata: dict[str, str], what: str) -> Conversation:
    """Replaces the metadata. The store merges it, so missing keys are deleted with compare-and-swap."""
    for attempt in range(1, _ATTEMPTS + 1):
        found = await require(store, id, what)
        change = {**dict.fromkeys(found.metadata), **metadata}
        version = found.version if store.capabilities.compare_and_swap else None
        try:
            return await store.update_conversation(id, metadata=change, expected_version=version)
        except ConversationNotFound:
            raise not_found(what, id) from None
        except Conflict:
            if attempt == _ATTEMPTS:
                raise
    raise AssertionError("the last attempt returns or raises")


@routes.delete(ONE)
async def delete_conversation(request: WireRequest) -> dict[str, Any]:
    """Deletes a conversation and everything in it."""
    return await delete(request.store, request.path[0], "Conversation", "conversation.deleted")


async def delete(store: Store, id: str, what: str, name: str) -> dict[str, Any]:
    await require(store, id, what)
    if not await store.delete_conversation(id):
        raise not_found(what, id)
    return {"id": id, "object": name, "deleted": True}


@routes.get(ALL, query=("limit", "order", "after", "user"))
async def list_conversations(request: WireRequest) -> dict[str, Any]:
    """A page of conversations, those with the newest messages first. OpenAI has no such route."""
    after = request.parameter("after")
    if after is not None and not cursors.is_cursor(after):
        found = await request.store.get_conversation(after)
        if found is None:
            raise invalid(f"Conversation with id '{after[:256]}' not found.", "after")
        after = cursors.of_conversation(found, "last_message_at")
    page = await request.store.list_conversations(
        user_id=request.parameter("user"), order=request.order, limit=request.limit, after=after
    )
    return listed([conversation_object(each) for each in page.items], has_more=page.next_cursor is not None)
