"""The filters of an export: which conversations, each whole or not at all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct, structs

from hansard.contract.types import Row
from hansard.model import Conversation

_MISSING = object()


class Choice(Struct, frozen=True):
    """The conversations that a store can list by itself. For records, see `TransferSource.records`."""

    conversation_ids: tuple[str, ...] | None = None
    user_id: str | None = None
    agent_id: str | None = None

    @property
    def is_everything(self) -> bool:
        return self.conversation_ids is None and self.user_id is None and self.agent_id is None


class Selection(Struct, frozen=True):
    """The checked filters of an export."""

    choice: Choice = Choice()
    metadata: Mapping[str, Any] = {}
    since: datetime | None = None
    until: datetime | None = None
    model: str | None = None
    label: str | None = None
    rating: float | None = None

    @property
    def has_filters(self) -> bool:
        """Whether not every conversation of the choice is exported."""
        return self != Selection(self.choice)

    def accepts(self, conversation: Conversation) -> bool:
        at = conversation.last_message_at or conversation.created_at
        return (
            (self.since is None or at >= self.since)
            and (self.until is None or at < self.until)
            and (self.label is None or self.label in conversation.labels)
            and all(conversation.metadata.get(name, _MISSING) == value for name, value in self.metadata.items())
        )

    async def finds(self, messages: AsyncIterator[Sequence[Row]]) -> bool:
        """Whether there are messages of the model and with the rating that are selected. Reads no more than it must."""
        left = self
        if left.needs_messages:
            async for rows in messages:
                left = left._without(rows)
                if not left.needs_messages:
                    break
        return not left.needs_messages

    @property
    def needs_messages(self) -> bool:
        return self.model is not None or self.rating is not None

    def _without(self, rows: Sequence[Row]) -> Selection:
        """The selection without what these messages fulfil."""
        is_model = any(row.message.usage is not None and row.message.usage.model == self.model for row in rows)
        is_rated = any(rating.value == self.rating for row in rows for rating in row.message.ratings)
        return structs.replace(self, model=None if is_model else self.model, rating=None if is_rated else self.rating)
