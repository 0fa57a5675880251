"""Follows agents that change what they have written: the newest messages are compared with those that are stored."""

from __future__ import annotations

from hansard.importers.importer import ForeignConversation
from hansard.model import Message
from hansard.store import Store

_NEWEST = 50
"""Messages that an agent may still change."""


async def update_changed(store: Store, given: ForeignConversation) -> None:
    """Updates stored messages whose content, status or usage has changed, as that of an answer that was completed."""
    stored = {message.id: message for message in await store.get_messages(given.id, last=_NEWEST)}
    for each in given.messages[-_NEWEST:]:
        new, old = each.message, stored.get(each.message.id)
        if old is not None and _differs(old, new):
            await store.update_message(
                given.id, new.id, content=new.content, format=new.format, status=new.status, usage=new.usage
            )


def _differs(old: Message, new: Message) -> bool:
    return (old.content, old.status, old.usage) != (new.content, new.status, new.usage)
