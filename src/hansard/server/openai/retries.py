"""Makes requests that SDKs retry idempotent, without any state outside the store.

SDKs retry a POST whose response was lost, and send no idempotency key, only a retry count. So the ids of new messages
end in a fingerprint of the caller, the conversation and the body. A retry looks for messages with its fingerprint among
those of the last ten minutes, and returns them. Batches are stored all or nothing, so they are found as a whole.

A user may send "yes" twice, and the retry of the second looks like a retry of the first. So messages that another
participant has answered since are not treated as the repeated ones: storing a message twice is better than losing it.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from hansard import codec, ids

if TYPE_CHECKING:
    from hansard.model import Message
    from hansard.server.openai.wire_request import WireRequest
    from hansard.store import Store

_WINDOW = timedelta(minutes=10)
_LENGTH = 16
_PAUSE = 0.01
# Not the global generator, which is the application's: it may be seeded alike in all processes.
_random = random.SystemRandom()


class Retries:
    """The requests in progress in this process, so that a retry waits for the request that it repeats."""

    def __init__(self) -> None:
        self._under_way: dict[str, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def one_at_a_time(self, fingerprint: str) -> AsyncIterator[None]:
        lock, users = self._under_way.get(fingerprint) or (asyncio.Lock(), 0)
        self._under_way[fingerprint] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            lock, users = self._under_way[fingerprint]
            if users == 1:
                del self._under_way[fingerprint]
            else:
                self._under_way[fingerprint] = lock, users - 1

    def exclusive_write(self, store: Store, conversation_id: str) -> AbstractAsyncContextManager[None]:
        """A lock for read-modify-write in a conversation, within this process."""
        return self.one_at_a_time(f"writing {store.tenant_id} {conversation_id}")


async def back_off(attempt: int) -> None:
    """Sleeps a random time before the next attempt, so that competing processes do not stay in lockstep."""
    await asyncio.sleep(_random.random() * _PAUSE * attempt)


def fingerprint_of(request: WireRequest, conversation_id: str) -> str:
    """Returns the fingerprint of a request: of its caller, conversation and body."""
    store, body = request.store, hashlib.sha256(request.raw).hexdigest()
    who = (request.known_caller.name, store.tenant_id, store.user_id or "")
    return codec.digest("openai", *who, conversation_id, body)[:_LENGTH]


def new_ids(fingerprint: str) -> Callable[[str, int], str]:
    """Returns a function that creates ids ending in the fingerprint."""
    return lambda prefix, _: ids.new_id(prefix) + fingerprint


def stored_ids(messages: Iterable[Message]) -> Callable[[str, int], str]:
    """Returns a function that returns the ids of stored messages, one after the other."""
    stored = iter(messages)
    return lambda prefix, _: next(stored).id


async def find_stored(request: WireRequest, conversation_id: str, fingerprint: str, count: int) -> list[Message]:
    """Returns the messages that the first request stored, in order; empty if there are none or they were answered."""
    since = datetime.now(UTC) - _WINDOW
    found: list[Message] = []
    newer: set[str] = set()
    after: str | None = None
    more = True
    while more:
        page = await request.store.get_messages(conversation_id, order="desc", limit=100, after=after)
        for message in page:
            if message.created_at < since:
                return []
            if message.id.endswith(fingerprint) and len(message.id) > _LENGTH + 32:
                found.append(message)
            elif not found:
                newer.add(message.role)
            if len(found) == count:
                return found[::-1] if newer <= {each.role for each in found} else []
        more = page.has_more
        after = page[-1].cursor if page else None
    return []
