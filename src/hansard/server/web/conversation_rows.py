"""Rows of lists of conversations: heading, first and last words, people, framework."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime

from markupsafe import Markup, escape
from msgspec import Struct

from hansard.model import Conversation, Message, Messages
from hansard.rendering.markdown import bare, has_table
from hansard.search.hits import Snippet
from hansard.server.web import content, conversation_facts, headings
from hansard.server.web.conversation_facts import NO_FACTS, ConversationFacts
from hansard.store import Store
from hansard.store.titles import first_words

_PREVIEW_MESSAGES = 3
"""Newest messages of each conversation that are read for its preview."""
_FIRST_MESSAGES = 5
"""Oldest messages in which the first words of the user are searched."""
_MARK, _UNMARK = Markup("<mark>"), Markup("</mark>")
_NO_FACTS: Mapping[str, ConversationFacts] = {}


class ConversationRow(Struct, frozen=True):
    conversation: Conversation
    heading: str
    opening: str
    """The first words of the user; empty if the heading says the same."""
    preview: Markup | str
    """The newest words, or what a search has found; empty if the heading says the same."""
    people: list[str]
    is_live: bool
    at: datetime
    framework: str | None
    facts: ConversationFacts


async def newest(store: Store, limit: int) -> list[ConversationRow]:
    return await rows(store, (await store.list_conversations(limit=limit)).items)


async def rows(
    store: Store, conversations: Sequence[Conversation], facts: Mapping[str, ConversationFacts] = _NO_FACTS
) -> list[ConversationRow]:
    """Returns rows for conversations, with a preview of each."""
    return await asyncio.gather(*(row(store, each, facts=facts.get(each.id, NO_FACTS)) for each in conversations))


async def row(
    store: Store, conversation: Conversation, found: Markup | None = None, facts: ConversationFacts = NO_FACTS
) -> ConversationRow:
    begin, end = await _ends(store, conversation)
    heading = headings.heading_from(conversation, begin)
    opening = " ".join(bare(first_words(begin) or "").split())
    preview: Markup | str = content.preview(end) if found is None else found
    return ConversationRow(
        conversation,
        heading,
        "" if opening == preview or opening.startswith(heading.rstrip("…")) else opening,
        "" if preview == heading else preview,
        _people(conversation, end),
        any(each.status == "in_progress" for each in end),
        conversation.last_message_at or conversation.created_at,
        conversation_facts.framework_of(conversation.metadata, [*begin, *end]),
        facts,
    )


async def _ends(store: Store, conversation: Conversation) -> tuple[Sequence[Message], Sequence[Message]]:
    """Returns the oldest and the newest messages."""
    if not conversation.message_count:
        return [], []
    end = await store.get_messages(conversation.id, last=_PREVIEW_MESSAGES, blobs="refs")
    begin: Messages | Sequence[Message] = end
    if end.has_more:
        begin = await store.get_messages(conversation.id, limit=_FIRST_MESSAGES, blobs="refs")
    return begin, end


def _people(conversation: Conversation, end: Sequence[Message]) -> list[str]:
    known = (conversation.user_id, conversation.agent_id)
    people = dict.fromkeys(
        each.participant.display_name or each.participant.id
        for each in end
        if each.participant is not None and each.participant.id not in known
    )
    return list(people)[:3]


def marked(snippet: Snippet) -> Markup:
    """Renders a snippet with its matches marked."""
    pieces, end = [], 0
    is_table = has_table(snippet.text)
    for start, stop in snippet.highlights:
        before = bare(snippet.text[end:start], is_table=is_table)
        pieces += [escape(before), _MARK, escape(snippet.text[start:stop]), _UNMARK]
        end = stop
    return Markup("").join([*pieces, escape(bare(snippet.text[end:], is_table=is_table))])
