"""What the formats for people share: who says what, when, in pieces that can be shown."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from hansard import formats
from hansard.formats import parts
from hansard.model import Conversation, Message


def is_shown(message: Message) -> bool:
    """Whether programs show the message; hidden ones carry instructions and context."""
    return not (message.metadata or {}).get("hidden")


def speaker(message: Message) -> str:
    participant = message.participant
    named = participant.display_name or participant.id if participant is not None else None
    return named or message.role.replace("_", " ").capitalize()


def moment(time: datetime) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC")


def facts(conversation: Conversation) -> list[tuple[str, str]]:
    """What is known about a conversation, without its title."""
    given = [
        ("id", conversation.id),
        ("user", conversation.user_id),
        ("agent", conversation.agent_id),
        ("labels", ", ".join(conversation.labels)),
        ("began", moment(conversation.created_at)),
        ("messages", str(conversation.message_count)),
    ]
    return [(name, value) for name, value in given if value]


def title_of(conversation: Conversation) -> str:
    return " ".join((conversation.title or "").split()) or conversation.id


def pieces(message: Message) -> list[parts.AnyPart]:
    return formats.read(message).parts


def pretty(value: Any) -> str:
    """A JSON value for reading; text as it is."""
    if isinstance(value, str):
        return value
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode("utf-8", "replace")


def media_name(media: parts.Media) -> str:
    kind = {parts.ImagePart: "image", parts.Audio: "audio"}.get(type(media), "document")
    about = [media.name, media.media_type, media.file_id, None if media.data else media.url]
    return ": ".join([kind, ", ".join(each for each in about if each)]).removesuffix(": ")
