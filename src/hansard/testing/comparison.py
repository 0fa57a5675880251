"""What values really say, so that comparing them proves something.

Two messages are equal when their ids are, and Python takes 1, 1.0 and True for the same: neither is of use to a test.
`facts` turns any value of the model into plain data in which every field, every type and the order of keys count.
`state` reads everything that a store shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct, structs

from hansard import sync
from hansard.model import Conversation


def facts(value: Any, *, leave_out: frozenset[str] = frozenset()) -> Any:
    """Plain data that is equal exactly when the values say the same.

    `leave_out` names fields to pass over: `bytes` in every type, `Receipt.blobs` in that one.
    """
    if isinstance(value, Struct):
        kind = type(value).__name__
        fields = {
            name: each for name, each in structs.asdict(value).items() if leave_out.isdisjoint((name, f"{kind}.{name}"))
        }
        return kind, facts(fields, leave_out=leave_out)
    if isinstance(value, Mapping):
        return [(facts(key), facts(item, leave_out=leave_out)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return [facts(item, leave_out=leave_out) for item in value]
    if isinstance(value, datetime):
        return value.isoformat()
    # `repr` because 0.0 == -0.0, and the name because 1 == 1.0 == True.
    return f"{type(value).__name__} {value!r}" if isinstance(value, bool | int | float) else value


def state(store: sync.Store, *, leave_out: frozenset[str] = frozenset()) -> Any:
    """Everything that a store or a view shows, as `facts`."""
    conversations = all_conversations(store)
    shown: dict[str, Any] = {
        "conversations": {each.id: conversation_state(store, each.id) for each in conversations},
        "usage": store.usage(),
    }
    if store.capabilities.records:
        shown["records"] = list(store.records.iter())
        shown["records backwards"] = list(store.records.iter(order="desc"))
    return facts(shown, leave_out=leave_out)


def conversation_state(store: sync.Store, id: str) -> dict[str, Any]:
    """One conversation, with every branch read from end to end."""
    branches = store.list_branches(id)
    return {
        "conversation": store.get_conversation(id),
        "branches": branches,
        "messages": {each.id: list(store.iter_messages(id, branch=each.id)) for each in branches},
        "references": {each.id: list(store.iter_messages(id, branch=each.id, blobs="refs")) for each in branches},
        "summaries": store.list_summaries(id),
    }


def all_conversations(store: sync.Store) -> list[Conversation]:
    """Archived ones too, newest first."""
    found: list[Conversation] = []
    cursor = None
    while True:
        page = store.list_conversations(archived=None, after=cursor, limit=store.limits.page)
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            return found
