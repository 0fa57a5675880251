"""Facts about a conversation that no storage keeps: tokens, cost, duration, errors, rating, models and framework.

They are added up from its messages, and cached by its version. Reading is bounded: a long conversation counts with its
newest messages only, and one request reads so many messages at most.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from hansard import formats
from hansard.cache import Cache
from hansard.formats.parts import ToolResult
from hansard.model import Conversation, Message
from hansard.store import Store

MOST_MESSAGES = 400
"""Messages of one conversation that are read."""
MOST_READ = 30_000
"""Messages that one request reads."""
_AT_ONCE = 50
"""Conversations that are read together."""
_MESSAGES_AT_ONCE = 2_000
"""Messages that are in memory together."""
_CACHED = 20_000
_FRAMEWORKS = {
    "adk": "adk",
    "anthropic": "anthropic",
    "claude.transcript": "claude",
    "gemini": "gemini",
    "langchain": "langchain",
    "openai.chat": "openai",
    "openai.realtime": "openai",
    "openai.responses": "openai",
    "pydantic_ai": "pydantic-ai",
}
"""Frameworks by the format of their messages."""


class ConversationFacts(Struct, frozen=True):
    tokens: int = 0
    cost: float = 0.0
    seconds: float = 0.0
    """From its first to its last message."""
    errors: tuple[str, ...] = ()
    """The day of each error: a result of a tool that failed, or an answer that broke off or was blocked."""
    ratings: tuple[float, ...] = ()
    models: tuple[str, ...] = ()
    framework: str | None = None
    is_whole: bool = True
    """False if the conversation has more messages than were read."""

    @property
    def rating(self) -> float | None:
        """The mean of its ratings."""
        return sum(self.ratings) / len(self.ratings) if self.ratings else None


NO_FACTS = ConversationFacts(is_whole=False)
FactsKey = tuple[str, str | None, str, int]


class FactsReader:
    """Reads the facts of conversations, and remembers them."""

    def __init__(self) -> None:
        self._cache: Cache[FactsKey, ConversationFacts] = Cache(_CACHED)

    def clear(self) -> None:
        """Forgets everything, after a deletion."""
        self._cache = Cache(_CACHED)

    async def facts_of(self, store: Store, conversations: Sequence[Conversation]) -> dict[str, ConversationFacts]:
        """Returns facts by the ids of conversations, for as many of the first ones as the limit allows."""
        found: dict[str, ConversationFacts] = {}
        left = MOST_READ
        for some in _groups(conversations):
            if left <= 0:
                break
            for each, (facts, read) in zip(
                some, await asyncio.gather(*(self._facts(store, each) for each in some)), strict=True
            ):
                found[each.id] = facts
                left -= read
        return found

    async def _facts(self, store: Store, conversation: Conversation) -> tuple[ConversationFacts, int]:
        """Returns the facts, and how many messages were read for them."""
        key = (store.tenant_id, store.user_id, conversation.id, conversation.version)
        known = self._cache.get(key)
        if known is not None:
            return known, 0
        messages: Sequence[Message] = []
        if conversation.message_count:
            messages = await store.get_messages(conversation.id, last=MOST_MESSAGES, blobs="refs")
        made = add_up(conversation, messages)
        if not any(each.status == "in_progress" for each in messages):
            self._cache.put(key, made)
        return made, len(messages) + 1


def _groups(conversations: Iterable[Conversation]) -> Iterator[list[Conversation]]:
    """Yields conversations in groups that are small enough to be read together."""
    group: list[Conversation] = []
    size = 0
    for each in conversations:
        more = min(each.message_count, MOST_MESSAGES)
        if group and (len(group) == _AT_ONCE or size + more > _MESSAGES_AT_ONCE):
            yield group
            group, size = [], 0
        group.append(each)
        size += more
    if group:
        yield group


def add_up(conversation: Conversation, messages: Sequence[Message]) -> ConversationFacts:
    """Adds up the facts of a conversation with these messages."""
    usages = [each.usage for each in messages if each.usage is not None]
    return ConversationFacts(
        tokens=sum(each.input_tokens + each.output_tokens for each in usages),
        cost=sum(each.cost for each in usages),
        seconds=(messages[-1].created_at - messages[0].created_at).total_seconds() if messages else 0.0,
        errors=tuple(sys.intern(each.created_at.date().isoformat()) for each in messages if is_error(each)),
        ratings=tuple(float(rating.value) for each in messages for rating in each.ratings),
        models=models_of(conversation.metadata, messages),
        framework=framework_of(conversation.metadata, messages),
        is_whole=len(messages) >= conversation.message_count,
    )


def is_error(message: Message) -> bool:
    """Whether an answer broke off or was blocked, or a tool failed."""
    if message.status in ("interrupted", "blocked"):
        return True
    if isinstance(message.content, str):
        return False
    return any(isinstance(part, ToolResult) and part.is_error for part in formats.read(message).parts)


def models_of(metadata: Mapping[str, Any], messages: Iterable[Message]) -> tuple[str, ...]:
    used = dict.fromkeys(each.usage.model for each in messages if each.usage is not None and each.usage.model)
    named = metadata.get("model")
    return tuple(used) or ((named,) if isinstance(named, str) and named else ())


def framework_of(metadata: Mapping[str, Any], messages: Iterable[Message]) -> str | None:
    """Returns the program that a conversation was imported from, else the framework whose format it is in."""
    imported = metadata.get("imported_from")
    if isinstance(imported, str) and imported:
        return imported
    return next((_FRAMEWORKS[each.format] for each in messages if each.format in _FRAMEWORKS), None)
