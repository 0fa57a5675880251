"""`Idempotency-Key`: a repeated request stores once, with nothing kept beside the store.

The ids of what is made come from the key, so that the store's own promise (the same id is stored once) does the rest,
exactly and in every process. The same key with another body is a `Conflict`.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from hansard import codec
from hansard.model import Message


def id_from(key: str, prefix: str, *place: str) -> str:
    """An id that only this key gives, in this place."""
    return prefix + codec.digest("idempotency", *place, key)[:26]


def with_ids(messages: Sequence[Message], key: str, conversation_id: str) -> list[Message]:
    """The messages, those without an id of their own with one from the key."""
    return [
        message if message.id else structs.replace(message, id=id_from(key, "msg_", conversation_id, str(number)))
        for number, message in enumerate(messages)
    ]
