"""The items of a conversation: add, list, get, delete."""

from __future__ import annotations

import re
from typing import Any

from hansard.errors import Conflict, ConversationNotFound
from hansard.formats import openai_items
from hansard.model import Message
from hansard.server import idempotency
from hansard.server.openai import conversations, item_pages, retries
from hansard.server.openai.conversations import NewId
from hansard.server.openai.wire_errors import invalid, not_found
from hansard.server.openai.wire_request import WireRequest, WireRoutes, items_given, listed, only

ALL = conversations.ONE + "/items"
ONE = ALL + "/{item_id}"
routes = WireRoutes()

_INCLUDE = re.compile(r"[a-z_]{1,64}(\.[a-z_]{1,64}){1,8}")


def check_include(request: WireRequest) -> None:
    """Checks the syntax of `include`. It has no effect: items are always complete."""
    for name in request.query.get("include", ()):
        if not _INCLUDE.fullmatch(name):
            raise invalid(f"Invalid value: '{name[:80]}' cannot be included.", "include")


@routes.post(ALL, query=("include",))
async def create_items(request: WireRequest) -> dict[str, Any]:
    """Adds up to 20 items, all or nothing. An SDK's retry gets the same answer as the first request."""
    check_include(request)
    only(request.body, "items")
    items = items_given(request.body, "items", required=True)
    added = await add(request, request.path[0], items)
    return listed([item for message in added for item in openai_items.items_of(message)])


async def add(request: WireRequest, conversation_id: str, items: list[Any]) -> list[Message]:
    fingerprint = retries.fingerprint_of(request, conversation_id)
    async with request.services.retries.one_at_a_time(fingerprint):
        # Validate before looking for a first request: invalid items are invalid in a retry, too.
        messages = conversations.messages_given(items, _new_ids(request, conversation_id, fingerprint))
        fresh = sum(1 for message in messages if message.id.endswith(fingerprint))
        if (
            request.is_retry
            and fresh
            and (found := await retries.find_stored(request, conversation_id, fingerprint, fresh))
        ):
            messages = conversations.messages_given(items, retries.stored_ids(found))
        try:
            appended = await request.store.append(conversation_id, messages, create=False, on_duplicate="error")
        except ConversationNotFound:
            raise not_found("Conversation", conversation_id) from None
        except Conflict as error:
            raise conversations.duplicate(error) from error
        await request.services.references.add(request.store, conversation_id, [message.id for message in messages])
    return appended.messages


def _new_ids(request: WireRequest, conversation_id: str, fingerprint: str) -> NewId:
    """Returns how to create ids. With an `Idempotency-Key` they are derived from the key."""
    key = request.headers.get(b"idempotency-key")
    if key is None:
        return retries.new_ids(fingerprint)
    name = key.decode("latin-1")
    return lambda prefix, number: idempotency.id_from(name, prefix, conversation_id, str(number))


@routes.get(ALL, query=("limit", "order", "after", "include"))
async def list_items(request: WireRequest) -> dict[str, Any]:
    """A page of items, newest first by default."""
    check_include(request)
    found, has_more = await item_pages.items(
        request.store,
        request.path[0],
        request.order,
        request.limit,
        request.parameter("after"),
        request.services.deleted,
    )
    return listed(found, has_more=has_more)


@routes.get(ONE, query=("include",))
async def get_item(request: WireRequest) -> dict[str, Any]:
    """One item."""
    check_include(request)
    _, item = await _find(request, *request.path)
    return item


@routes.delete(ONE)
async def delete_item(request: WireRequest) -> dict[str, Any]:
    """Deletes an item with its whole message, and returns the conversation."""
    message, _ = await _find(request, *request.path)
    if not await request.store.delete_message(request.path[0], message.id):
        raise not_found("Item", request.path[1])
    for item in openai_items.items_of(message):
        request.services.deleted.add(request.store, request.path[0], item["id"], message.cursor)
    return conversations.conversation_object(await conversations.require(request.store, request.path[0]))


async def _find(request: WireRequest, conversation_id: str, item_id: str) -> tuple[Message, dict[str, Any]]:
    found = await item_pages.find_item(request.store, conversation_id, item_id)
    if found is not None:
        return found
    await conversations.require(request.store, conversation_id)
    raise not_found("Item", item_id)
