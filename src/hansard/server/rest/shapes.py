"""Messages as clients send them, and pages as they are answered."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from hansard.model import (
    NOT_YET,
    Message,
    Messages,
    MessageScope,
    Participant,
    Role,
    Source,
    Status,
    Usage,
)

Id = Annotated[str, Meta(min_length=1, max_length=256)]


class NewMessage(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """A message to store. `content` is any JSON value, kept verbatim; `format` names its vocabulary."""

    role: Role
    content: Any
    id: Id | None = None
    format: str | None = None
    participant: Participant | None = None
    mentions: tuple[str, ...] = ()
    scope: MessageScope | None = None
    status: Status = "complete"
    pinned: bool = False
    created_at: datetime | None = None
    trace_id: str | None = None
    sources: tuple[Source, ...] = ()
    usage: Usage | None = None
    metadata: dict[str, Any] | None = None

    def as_message(self) -> Message:
        return Message(
            self.role,
            self.content,
            self.id or "",
            format=self.format or "",
            participant=self.participant,
            mentions=self.mentions,
            scope=self.scope,
            status=self.status,
            pinned=self.pinned,
            created_at=NOT_YET if self.created_at is None else self.created_at,
            trace_id=self.trace_id,
            sources=self.sources,
            usage=self.usage,
            metadata=self.metadata,
        )


class MessagePage(Struct, frozen=True):
    """A page of messages. `last_cursor` as `after` goes on, `first_cursor` as `before` goes back."""

    items: list[Message]
    has_more: bool
    first_cursor: str | None = None
    last_cursor: str | None = None

    @classmethod
    def of(cls, found: Messages) -> MessagePage:
        if not found:
            return cls([], found.has_more)
        return cls(list(found), found.has_more, found[0].cursor, found[-1].cursor)
