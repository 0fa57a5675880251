"""Values as plain data, for strict comparison.

Two messages are equal when their ids are, and in Python 1 == 1.0 == True: both are too lenient for a test.
`facts` turns any value of the model into plain data in which every field, every type and the order of keys count.
`state` reads everything that a store or a view can read.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct, structs

from hansard import sync
from hansard.model import Conversation


def facts(value: Any, *, leave_out: frozenset[str] = frozenset()) -> Any:
    """Returns plain data that is equal exactly when all fields, types and orders are.

    `leave_out` names fields to ignore: `bytes` in every type, `Receipt.blobs` only in receipts.
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
    """Returns everything that a store or a view can read, as `facts`."""
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
    """Returns a conversation, with all messages of every branch."""
    branches = store.list_branches(id)
    return {
        "conversation": store.get_conversation(id),
        "branches": branches,
        "messages": {each.id: list(store.iter_messages(id, branch=each.id)) for each in branches},
        "references": {each.id: list(store.iter_messages(id, branch=each.id, blobs="refs")) for each in branches},
        "summaries": store.list_summaries(id),
    }


def all_conversations(store: sync.Store) -> list[Conversation]:
    """Returns all conversations, archived ones too, newest first."""
    found: list[Conversation] = []
    cursor = None
    while True:
        page = store.list_conversations(archived=None, after=cursor, limit=store.limits.page)
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            return found
