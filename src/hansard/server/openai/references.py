"""Item references: `{"type": "item_reference", "id"}` in the input of a response.

Message ids are unique in a conversation, not in a tenant. So an index of records maps items to conversations: the
namespace ends in the item's id, the key is the conversation's id, and the record is deleted with its conversation. The
index is shared by the tenant and contains ids only; items are read through the caller's view, which enforces isolation.
A lookup is one bounded scan, however much is stored.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from hansard.errors import ValidationError
from hansard.formats import openai_items
from hansard.model import Message
from hansard.server.openai import item_pages
from hansard.server.openai.wire_errors import WireError, invalid
from hansard.store.records import Put

if TYPE_CHECKING:
    from hansard.store import Store

_ITEMS = ("openai", "items")
_MOST_PLACES = 20
"""Conversations to search for one item."""
_KIND = "item_reference"


class ResolvedInput(Struct, frozen=True):
    """The input of a response, with references replaced by items."""

    items: list[Any]
    named: frozenset[int]
    """The numbers of the items that replaced a reference."""


class References:
    """The index of items, by which references are resolved."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def add(self, view: Store, conversation_id: str, ids: Iterable[str]) -> None:
        """Adds items to the index, for as long as their conversation exists."""
        if not view.capabilities.records:
            return
        batch = [Put((*_ITEMS, id), conversation_id, True, conversation_id=conversation_id) for id in ids]
        await self._store.tenant(view.tenant_id).records.write(batch)

    async def resolve(
        self, view: Store, given: list[Any], history: Iterable[Message], conversation_id: str | None
    ) -> ResolvedInput:
        """Replaces every reference by its item. Leaves out items that the history already contains."""
        if not any(_is_reference(item) for item in given):
            return ResolvedInput(given, frozenset())
        known_ids = {message.id for message in history}
        items: list[Any] = []
        named: dict[str, int] = {}
        for number, item in enumerate(given):
            if not _is_reference(item):
                items.append(item)
                continue
            id = _id_of(item, f"input[{number}]")
            if id in named or any(each in known_ids for each in item_pages.message_ids(id)):
                continue
            named[id] = len(items)
            items.append(await self._find(view, id, conversation_id))
        return ResolvedInput(items, frozenset(named.values()))

    async def _find(self, view: Store, id: str, conversation_id: str | None) -> dict[str, Any]:
        """Returns the item, from this conversation or any other in the caller's view."""
        if conversation_id is not None and (here := await item_pages.find_item(view, conversation_id, id)) is not None:
            # The item is on another branch: its copy needs a new id.
            return {name: value for name, value in here[1].items() if name != "id"}
        found: list[dict[str, Any]] = []
        for place in await self._places(view, id):
            stored = await item_pages.find_item(view, place, id)
            if stored is not None and stored[1] not in found:
                found.append(stored[1])
        if not found:
            raise WireError(404, f"Item with id '{id[:256]}' not found.", param="input", code="not_found")
        if len(found) > 1:
            raise invalid(
                f"Item id '{id}' names different items in several conversations: send the item itself.", "input"
            )
        return found[0]

    async def _places(self, view: Store, id: str) -> list[str]:
        if not view.capabilities.records:
            return []
        records = self._store.tenant(view.tenant_id).records
        places: list[str] = []
        for message_id in item_pages.message_ids(id):
            try:
                page = await records.scan((*_ITEMS, message_id), exact=True, limit=_MOST_PLACES)
            except ValidationError:
                continue  # not a valid id: empty or too long
            places += [record.key for record in page.items if record.key not in places]
        return places


def _is_reference(item: Any) -> bool:
    return isinstance(item, dict) and openai_items.kind_of(item) == _KIND


def _id_of(item: dict[str, Any], where: str) -> str:
    id = item.get("id")
    if isinstance(id, str) and id:
        return id
    if id is None and item.get("type") is None:
        raise invalid(f"Missing required parameter: '{where}.type'.", f"{where}.type", "missing_required_parameter")
    raise invalid(f"Invalid '{where}.id': expected the id of an item.", f"{where}.id", "invalid_type")
