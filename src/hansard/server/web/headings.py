"""Headings of conversations: the title or, without one, the first words of the user, or the id."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from hansard.model import Conversation, Message
from hansard.rendering.markdown import bare
from hansard.store import Store
from hansard.store.titles import first_words

FIRST = 5
"""Oldest messages in which the first words of the user are searched."""


async def heading_of(store: Store, conversation: Conversation) -> str:
    """Returns the heading of a conversation; one without a title costs a read of its first messages."""
    if conversation.title or not conversation.message_count:
        return conversation.title or conversation.id
    return heading_from(conversation, await store.get_messages(conversation.id, limit=FIRST, blobs="refs"))


def heading_from(conversation: Conversation, oldest: Sequence[Message]) -> str:
    """Returns the heading of a conversation with these first messages."""
    if conversation.title:
        return conversation.title
    words = bare(first_words(oldest[:FIRST]) or "")
    return " ".join(words.split()) or conversation.id


async def headings_of(store: Store, conversations: Iterable[Conversation]) -> dict[str, str]:
    """Returns the headings of conversations by their ids."""
    unique = {each.id: each for each in conversations}
    found = await asyncio.gather(*(heading_of(store, each) for each in unique.values()))
    return dict(zip(unique, found, strict=True))
