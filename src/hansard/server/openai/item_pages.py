"""Pages of items, read from pages of messages, so that their cost does not depend on the length of the history."""

from __future__ import annotations

from typing import Any

from hansard.errors import MessageNotFound, ValidationError
from hansard.formats import openai_items
from hansard.model import Message, Messages, Order
from hansard.server.openai import conversations
from hansard.server.openai.wire_errors import WireError, invalid
from hansard.store import Store

_MOST_DELETED = 10_000


def message_ids(item_id: str) -> list[str]:
    """Returns the ids of messages that may contain an item: a message with its id, or one that it is a part of."""
    part = openai_items.split_id(item_id)
    return [item_id] if part is None else [item_id, part[0]]


async def find_item(store: Store, conversation_id: str, item_id: str) -> tuple[Message, dict[str, Any]] | None:
    """Returns an item of a conversation, on any branch, and its message; None if there is none."""
    for id in message_ids(item_id):
        try:
            message = await store.get_message(conversation_id, id)
        except (MessageNotFound, ValidationError):
            continue
        for item in openai_items.items_of(message):
            if item["id"] == item_id:
                return message, item
    return None


class DeletedItems:
    """The positions of recently deleted items, so that clients can delete items while they page.

    Contains only ids and cursors, in memory, for a limited number of items.
    """

    def __init__(self) -> None:
        self._places: dict[tuple[str, str | None, str, str], str] = {}

    def add(self, store: Store, conversation_id: str, item_id: str, cursor: str) -> None:
        self._places[store.tenant_id, store.user_id, conversation_id, item_id] = cursor
        if len(self._places) > _MOST_DELETED:
            del self._places[next(iter(self._places))]

    def get(self, store: Store, conversation_id: str, item_id: str) -> str | None:
        return self._places.get((store.tenant_id, store.user_id, conversation_id, item_id))


async def items(
    store: Store, conversation_id: str, order: Order, limit: int, after: str | None, deleted: DeletedItems
) -> tuple[list[dict[str, Any]], bool]:
    """Returns a page of items, and whether there are more."""
    found, messages = await _from(store, conversation_id, order, limit, after, deleted)
    for message in messages:
        found += _in_order(openai_items.items_of(message), order)
    if not found:
        await conversations.require(store, conversation_id)
    return found[:limit], messages.has_more or len(found) > limit


async def _from(
    store: Store, conversation_id: str, order: Order, limit: int, after: str | None, deleted: DeletedItems
) -> tuple[list[dict[str, Any]], Messages]:
    """Returns the remaining items of the message in which the last page ended, and the messages after it."""
    try:
        return [], await store.get_messages(conversation_id, limit=limit, order=order, after=after)
    except MessageNotFound:
        pass
    except ValidationError as error:
        await conversations.require(store, conversation_id)
        raise invalid(f"Invalid 'after': {error}", "after") from error
    assert after is not None
    if (place := deleted.get(store, conversation_id, after)) is not None:
        return [], await store.get_messages(conversation_id, limit=limit, order=order, after=place)
    message = await _part(store, conversation_id, after)
    if message is None:
        raise await no_such_place(store, conversation_id, after, "after")
    rest = _in_order(openai_items.items_of(message), order)
    at = next((number for number, item in enumerate(rest) if item["id"] == after), None)
    if at is None:
        raise await no_such_place(store, conversation_id, after, "after")
    return rest[at + 1 :], await store.get_messages(conversation_id, limit=limit, order=order, after=message.id)


async def _part(store: Store, conversation_id: str, item_id: str) -> Message | None:
    part = openai_items.split_id(item_id)
    if part is None:
        return None
    try:
        return await store.get_message(conversation_id, part[0])
    except MessageNotFound:
        return None


async def no_such_place(
    store: Store, conversation_id: str, id: str, param: str, what: str = "Conversation"
) -> WireError:
    """Returns the error for an unknown cursor: the conversation or the item does not exist."""
    await conversations.require(store, conversation_id, what)
    return invalid(f"Invalid '{param}': there is no item with id '{id[:256]}' here.", param)


def _in_order(items: list[dict[str, Any]], order: Order) -> list[dict[str, Any]]:
    return items if order == "asc" else items[::-1]
