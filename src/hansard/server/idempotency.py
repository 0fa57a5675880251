"""`Idempotency-Key`: a repeated request stores its messages once, without any state outside the store.

Ids are derived from the key. The store stores each id once, so this works across processes. The same key with another
body is a `Conflict`.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from hansard import codec
from hansard.model import Message


def id_from(key: str, prefix: str, *place: str) -> str:
    """Derives an id from the key and the place, such as the conversation, where the new object belongs."""
    return prefix + codec.digest("idempotency", *place, key)[:26]


def with_ids(messages: Sequence[Message], key: str, conversation_id: str) -> list[Message]:
    """Returns the messages; those without an id get one derived from the key."""
    return [
        message if message.id else structs.replace(message, id=id_from(key, "msg_", conversation_id, str(number)))
        for number, message in enumerate(messages)
    ]
