"""A request that an SDK repeats is done once, with nothing kept beside the store.

The SDKs repeat a POST whose answer got lost, and send no key by which to know it: only a count. So the ids of what a
request makes end in a mark, from who asks, the conversation and the body. A retry looks for messages with its mark
among those of the last ten minutes, and answers with them. A batch is stored all or nothing: what is found is whole.

Who says "yes" twice, and whose second one got lost on its way, sends a retry that looks just like one of the first. So
what somebody else has answered since is not what is repeated: to store it twice does less harm than to lose it.
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


class Retries:
    """What is under way in this process: a retry waits for the request that it repeats."""

    def __init__(self) -> None:
        self._under_way: dict[str, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def one_at_a_time(self, mark: str) -> AsyncIterator[None]:
        lock, users = self._under_way.get(mark) or (asyncio.Lock(), 0)
        self._under_way[mark] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            lock, users = self._under_way[mark]
            if users == 1:
                del self._under_way[mark]
            else:
                self._under_way[mark] = lock, users - 1

    def exclusive_write(self, store: Store, conversation_id: str) -> AbstractAsyncContextManager[None]:
        """For who writes by what it has read: nobody else in this process does so in the conversation meanwhile."""
        return self.one_at_a_time(f"writing {store.tenant_id} {conversation_id}")


async def back_off(attempt: int) -> None:
    """Before the next attempt of who was overtaken: of processes in step with each other, the same would always win."""
    await asyncio.sleep(random.random() * _PAUSE * attempt)


def mark_of(request: WireRequest, conversation_id: str) -> str:
    """What only this caller's request with this body makes, in this conversation."""
    store, body = request.store, hashlib.sha256(request.raw).hexdigest()
    who = (request.known_caller.name, store.tenant_id, store.user_id or "")
    return codec.digest("openai", *who, conversation_id, body)[:_LENGTH]


def new_ids(mark: str) -> Callable[[str, int], str]:
    """Gives ids that end in the mark."""
    return lambda prefix, _: ids.new_id(prefix) + mark


def stored_ids(messages: Iterable[Message]) -> Callable[[str, int], str]:
    """Gives the ids of messages that are stored already, one after the other."""
    stored = iter(messages)
    return lambda prefix, _: next(stored).id


async def find_stored(request: WireRequest, conversation_id: str, mark: str, count: int) -> list[Message]:
    """What the first request has stored, in its order; nothing if it stored nothing, or was answered since."""
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
            if message.id.endswith(mark) and len(message.id) > _LENGTH + 32:
                found.append(message)
            elif not found:
                newer.add(message.role)
            if len(found) == count:
                return found[::-1] if newer <= {each.role for each in found} else []
        more = page.has_more
        after = page[-1].cursor if page else None
    return []
